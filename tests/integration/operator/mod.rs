//! The operator as a program beside a real API server: one scenario a file. Holders are real `LeaseLockService`s.

mod bad_input;
mod blindness;
mod budget;
mod crd;
mod discovery;
mod events;
mod killed;
mod outages;
mod permissions;
mod poison;
mod process;
mod quiet;
mod replicas;
mod secure;
mod selftest;
mod serving;
mod transitions;
mod writes;

use std::{
    path::Path,
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Client, Config,
    api::{Patch, PatchParams, PostParams},
};
use leasewarden::{
    AcquireRequest, Grant, InstanceId, LockService, StreamName, Ttl,
    crd::{ChangeStreamLeader, ChangeStreamLeaderSpec, ChangeStreamLeaderStatus, READY},
    lease::LeaseLockService,
    lock::{Claim, ExtendRequest, ReleaseRequest, Released},
    operator::Operator,
};
use leasewarden_controlplane::{ControlPlane, TestNamespace};
use leasewarden_faultproxy::FaultProxy;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
    time::Instant,
};

use crate::support::{LIMIT, eventually as until};

/// A namespace with the CRD installed, and an operator that looks after it.
struct Stage {
    control_plane: &'static ControlPlane,
    client: Client,
    namespace: TestNamespace,
    operator: Option<Program>,
}

impl Stage {
    /// Without an operator yet.
    async fn empty(name: &str) -> Self {
        let control_plane = ControlPlane::shared().await;
        let client = control_plane.client().unwrap();
        install_crd(&client).await;
        let namespace = control_plane.namespace(name).await.unwrap();
        Self {
            control_plane,
            client,
            namespace,
            operator: None,
        }
    }

    async fn new(name: &str) -> Self {
        let mut stage = Self::empty(name).await;
        stage.start(&[]);
        stage
    }

    fn start(&mut self, args: &[&str]) {
        let namespace = self.namespace.name().to_owned();
        let mut all = vec!["--namespace", &namespace];
        all.extend(args);
        self.operator = Some(Program::operator(self.control_plane.kubeconfig_path(), &all));
    }

    /// An operator that reaches the API server through this proxy, as the administrator.
    fn start_behind(&mut self, proxy: &FaultProxy) {
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("config");
        proxy.write_kubeconfig(&kubeconfig).unwrap();
        let args = ["--namespace", self.namespace.name()];
        self.operator = Some(Program::operator(&kubeconfig, &args).keeping(folder));
    }

    /// An operator in this process, for what no flag sets. It ends with what is returned.
    fn start_inside(&self, config: Config, set: impl FnOnce(Operator) -> Operator) -> Inside {
        let operator = Operator::new(config).namespaces([self.namespace.name().to_owned()]);
        let operator = set(operator);
        Inside(tokio::spawn(async move {
            operator.run(std::future::pending()).await.unwrap();
        }))
    }

    fn operator(&mut self) -> &mut Program {
        self.operator.as_mut().unwrap()
    }

    fn objects(&self) -> Api<ChangeStreamLeader> {
        Api::namespaced(self.client.clone(), self.namespace.name())
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), self.namespace.name())
    }

    /// An instance that can lead.
    fn instance(&self, id: &str) -> Instance {
        Instance::new(self.control_plane.kube_config(), self.namespace.name(), id)
    }

    async fn write_object(&self, name: &str, spec: ChangeStreamLeaderSpec) {
        let object = ChangeStreamLeader::new(name, spec);
        self.objects()
            .create(&PostParams::default(), &object)
            .await
            .unwrap();
    }

    /// Changes a Lease as kubectl would.
    async fn patch_lease(&self, name: &str, patch: Value) -> Lease {
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        self.leases().patch(name, &params, &patch).await.unwrap()
    }

    /// Waits until the status of an object is as it should be.
    async fn status(
        &self,
        name: &str,
        fits: impl Fn(&ChangeStreamLeaderStatus) -> bool,
    ) -> ChangeStreamLeaderStatus {
        let objects = self.objects();
        let see = || async { objects.get_opt(name).await.ok().flatten().and_then(|o| o.status) };
        let start = Instant::now();
        loop {
            let status = see().await;
            match status {
                Some(status) if fits(&status) => return status,
                status if start.elapsed() > LIMIT => {
                    let log = self.operator.as_ref().map(Program::log).unwrap_or_default();
                    panic!("status of {name} after {LIMIT:?}: {status:#?}\noperator:\n{log}")
                }
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    /// Waits until a condition has this reason.
    async fn says(&self, name: &str, type_: &str, reason: &str) -> ChangeStreamLeaderStatus {
        self.status(name, |s| s.condition(type_).is_some_and(|c| c.reason == reason))
            .await
    }

    async fn is_up_to_date(&self, name: &str) -> ChangeStreamLeaderStatus {
        self.says(name, READY, "UpToDate").await
    }

    async fn holder_is(&self, name: &str, holder: Option<&str>) -> ChangeStreamLeaderStatus {
        self.status(name, |s| {
            !s.conditions.is_empty() && s.holder_identity.as_deref() == holder
        })
        .await
    }
}

/// An operator in this process.
struct Inside(tokio::task::JoinHandle<()>);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A kubeconfig whose API server nobody reaches, and the folder that it is in.
fn to_nowhere() -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}],
    });
    std::fs::write(&file, config.to_string()).unwrap();
    (folder, file)
}

async fn install_crd(client: &Client) {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
    let crds = Api::<CustomResourceDefinition>::all(client.clone());
    let crd = leasewarden::crd::definition();
    let name = crd.metadata.name.clone().unwrap();
    let params = PatchParams::apply("leasewarden-tests").force();
    crds.patch(&name, &params, &Patch::Apply(&crd)).await.unwrap();
    let objects = Api::<ChangeStreamLeader>::all(client.clone());
    until("the CRD is served", || async {
        objects
            .list(&kube::api::ListParams::default().limit(1))
            .await
            .ok()
    })
    .await;
}

/// The condition's status and reason.
fn condition(status: &ChangeStreamLeaderStatus, type_: &str) -> (String, String) {
    let condition = status.condition(type_).unwrap();
    (condition.status.clone(), condition.reason.clone())
}

fn is(status: &str, reason: &str) -> (String, String) {
    (status.to_owned(), reason.to_owned())
}

fn spec(stream: &str) -> ChangeStreamLeaderSpec {
    serde_json::from_value(json!({"streamName": stream})).unwrap()
}

/// Somebody who can lead.
struct Instance {
    locks: LeaseLockService,
    id: InstanceId,
}

impl Instance {
    fn new(config: Config, namespace: &str, id: &str) -> Self {
        Self {
            locks: LeaseLockService::builder(config)
                .namespace(namespace)
                .build()
                .unwrap(),
            id: InstanceId::new(id).unwrap(),
        }
    }

    /// Leads; waits for as long as somebody else does.
    async fn acquire(&self, stream: &str, ttl: Duration) -> Grant {
        let request = AcquireRequest::new(
            &StreamName::new(stream).unwrap(),
            &self.id,
            Ttl::new(ttl).unwrap(),
        );
        let request = request.claim(Claim::Instance);
        until(("acquire", stream, &self.id), || async {
            self.locks.acquire(request.clone()).await.unwrap().granted()
        })
        .await
    }

    async fn renew(&self, stream: &str, ttl: Duration) {
        assert!(self.still_leads(stream, ttl).await);
    }

    /// Renews, if it leads.
    async fn still_leads(&self, stream: &str, ttl: Duration) -> bool {
        let request = ExtendRequest::new(
            &StreamName::new(stream).unwrap(),
            &self.id,
            Ttl::new(ttl).unwrap(),
        );
        self.locks.extend(request).await.unwrap().is_granted()
    }

    async fn release(&self, stream: &str) {
        let request = ReleaseRequest::new(&StreamName::new(stream).unwrap(), &self.id);
        let released = self.locks.release(request).await.unwrap();
        assert!(matches!(released, Released::Released), "{released:?}");
    }
}

/// `leasewarden …`, and what it has logged.
struct Program {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    /// What it reads is there as long as it is.
    folder: Option<tempfile::TempDir>,
}

impl Program {
    fn operator(kubeconfig: &Path, args: &[&str]) -> Self {
        let mut all = vec![
            "operator",
            "--log-format",
            "json",
            "--log",
            "info,leasewarden=debug,kube_client=off,kube_runtime=off",
        ];
        // Tests run side by side: each operator is alone, and listens nowhere, unless the test is about that.
        let alone = [
            "--leader-election=false",
            "--metrics-bind-address=",
            "--health-probe-bind-address=",
        ];
        let is_set = |option: &str| {
            let name = option.split('=').next();
            args.iter().any(|given| given.split('=').next() == name)
        };
        all.extend(alone.into_iter().filter(|option| !is_set(option)));
        all.extend(args);
        Self::start(kubeconfig, &all)
    }

    fn start(kubeconfig: &Path, args: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_leasewarden"))
            .args(args)
            .env("KUBECONFIG", kubeconfig)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let (mut stderr, sink) = (
            BufReader::new(child.stderr.take().unwrap()).lines(),
            Arc::clone(&lines),
        );
        tokio::spawn(async move {
            while let Ok(Some(line)) = stderr.next_line().await {
                sink.lock().unwrap().push(line);
            }
        });
        let folder = None;
        Self { child, lines, folder }
    }

    fn keeping(mut self, folder: tempfile::TempDir) -> Self {
        self.folder = Some(folder);
        self
    }

    fn log(&self) -> String {
        self.lines.lock().unwrap().join("\n")
    }

    /// Log lines as objects.
    fn events(&self) -> Vec<Value> {
        self.lines
            .lock()
            .unwrap()
            .iter()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }

    async fn says(&self, text: &str) {
        let start = Instant::now();
        while !self
            .events()
            .iter()
            .any(|e| e["message"].as_str().is_some_and(|m| m.contains(text)))
        {
            assert!(
                start.elapsed() < LIMIT,
                "did not say {text:?} within {LIMIT:?}:\n{}",
                self.log()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    async fn signal(&mut self, signal: &str) -> ExitStatus {
        let pid = self.child.id().unwrap().to_string();
        assert!(
            Command::new("kill")
                .args([signal, &pid])
                .status()
                .await
                .unwrap()
                .success()
        );
        self.exit().await
    }

    async fn exit(&mut self) -> ExitStatus {
        tokio::time::timeout(LIMIT, self.child.wait())
            .await
            .expect("it does not end")
            .unwrap()
    }
}
