//! The control plane as a test holds it. Which one it is (one per run, one of its own, somebody else's) is decided
//! here; what else a test does with it stands in `namespace` and `user`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};

use kube::config::Kubeconfig;
use kube::{Client, Config};

use crate::assets::{self, Programs};
use crate::error::Error;
use crate::protocol::{Request, Spec, Target};
use crate::report::chain;
use crate::supervisor::Supervisor;
use crate::{blocking, existing, kubeconfig};

/// A Kubernetes control plane to test on.
///
/// One that was started by this process stops when it is dropped, and when the process ends, however that happens.
#[derive(Debug)]
pub struct ControlPlane {
    origin: Origin,
    kubeconfig_path: PathBuf,
    kubeconfig: Kubeconfig,
    config: Config,
}

/// Who started it.
#[derive(Debug)]
enum Origin {
    /// This process.
    Own {
        supervisor: Arc<Supervisor>,
        etcd_url: String,
    },
    /// A `controlplane run` around this process: it goes with it.
    Lent,
    /// Nobody of ours: what tests make there they clean up.
    Existing,
}

impl ControlPlane {
    /// The control plane of the whole test run. Everybody who shares it keeps to namespaces of their own.
    ///
    /// That of `controlplane run`, or of `USE_EXISTING_CLUSTER`; else one for this process, started by whoever asks
    /// first and stopped when the process ends. Works across runtimes, of which every `#[tokio::test]` has its own.
    ///
    /// # Panics
    ///
    /// When there is none to be had: a test cannot go on, and is never skipped.
    pub async fn shared() -> &'static Self {
        static SHARED: OnceLock<Result<ControlPlane, String>> = OnceLock::new();
        let init = || SHARED.get_or_init(|| Self::shared_blocking().map_err(|error| chain(&error)));
        match tokio::task::spawn_blocking(init).await {
            Ok(Ok(control_plane)) => control_plane,
            Ok(Err(reason)) => panic!("no control plane: {reason}"),
            Err(error) => panic!("no control plane: {error}"),
        }
    }

    fn shared_blocking() -> Result<Self, Error> {
        if let Some(file) = existing::lent() {
            Self::attach(Origin::Lent, file)
        } else if existing::is_existing_cluster() {
            Self::attach(Origin::Existing, existing::current_kubeconfig()?)
        } else {
            Self::builder()
                .start_blocking()
                .map_err(Error::or_an_existing_cluster)
        }
    }

    /// A control plane of one's own: to be stopped and paused, or with other flags.
    pub fn builder() -> Builder {
        Builder::default()
    }

    fn attach(origin: Origin, kubeconfig_path: PathBuf) -> Result<Self, Error> {
        let kubeconfig = existing::read(&kubeconfig_path)?;
        let config = blocking::run(kubeconfig::config(kubeconfig.clone()))??;
        Ok(Self {
            origin,
            kubeconfig_path,
            kubeconfig,
            config,
        })
    }

    /// How the administrator connects.
    pub fn kube_config(&self) -> Config {
        self.config.clone()
    }

    /// A client for the administrator. It belongs to the runtime that it was made in: make one per test.
    pub fn client(&self) -> Result<Client, Error> {
        Ok(Client::try_from(self.kube_config())?)
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig_path(&self) -> &Path {
        &self.kubeconfig_path
    }

    pub(crate) fn kubeconfig(&self) -> &Kubeconfig {
        &self.kubeconfig
    }

    /// Where etcd serves clients, without TLS; `None` where somebody else has started it.
    pub fn etcd_url(&self) -> Option<&str> {
        match &self.origin {
            Origin::Own { etcd_url, .. } => Some(etcd_url),
            _ => None,
        }
    }

    /// The folder that holds everything: kubeconfig, `pki/`, `logs/`. `None` for a cluster that is not ours.
    pub fn folder(&self) -> Option<&Path> {
        if self.is_existing() {
            None
        } else {
            self.kubeconfig_path.parent()
        }
    }

    /// Whether this is somebody's cluster that outlives the test run (`USE_EXISTING_CLUSTER`).
    pub fn is_existing(&self) -> bool {
        matches!(self.origin, Origin::Existing)
    }

    /// kubectl, as the administrator. The program is that of the control plane's version where there is one.
    pub fn kubectl(&self) -> Command {
        let mut command = Command::new(assets::kubectl());
        command.env("KUBECONFIG", &self.kubeconfig_path);
        command
    }

    /// Has kubectl apply this; returns what it printed.
    pub async fn apply_yaml(&self, yaml: &str) -> Result<String, Error> {
        let (mut command, yaml) = (self.kubectl(), yaml.to_owned());
        command
            .args(["apply", "-f", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let apply = move || {
            let failed = |error: std::io::Error| Error::Kubectl(error.to_string());
            let mut child = command.spawn().map_err(failed)?;
            if let Some(mut stdin) = child.stdin.take() {
                // A kubectl that does not read on tells why in its output.
                let _ = std::io::Write::write_all(&mut stdin, yaml.as_bytes());
            }
            let output = child.wait_with_output().map_err(failed)?;
            if !output.status.success() {
                return Err(Error::Kubectl(
                    String::from_utf8_lossy(&output.stderr).into_owned(),
                ));
            }
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        };
        tokio::task::spawn_blocking(apply)
            .await
            .unwrap_or_else(|error| Err(Error::Kubectl(error.to_string())))
    }

    /// Stops kube-apiserver as an upgrade would: it answers what is in flight, then ends. Returns when it has.
    pub async fn stop_apiserver(&self) -> Result<(), Error> {
        self.order(Request::StopApiserver).await
    }

    /// Kills kube-apiserver as a crash would. Returns when it is gone.
    pub async fn kill_apiserver(&self) -> Result<(), Error> {
        self.order(Request::KillApiserver).await
    }

    /// Starts kube-apiserver again, on the port it has had. Returns when it is ready.
    pub async fn start_apiserver(&self) -> Result<(), Error> {
        self.order(Request::StartApiserver).await
    }

    /// Stops kube-apiserver from running at all (SIGSTOP): connections stay open, and nothing answers.
    pub async fn pause_apiserver(&self) -> Result<(), Error> {
        self.order(Request::Pause(Target::Apiserver)).await
    }

    /// Ends [`pause_apiserver`](Self::pause_apiserver).
    pub async fn resume_apiserver(&self) -> Result<(), Error> {
        self.order(Request::Resume(Target::Apiserver)).await
    }

    /// Stops etcd from running at all (SIGSTOP): writes hang, reads from the API server's cache go on.
    pub async fn pause_etcd(&self) -> Result<(), Error> {
        self.order(Request::Pause(Target::Etcd)).await
    }

    /// Ends [`pause_etcd`](Self::pause_etcd).
    pub async fn resume_etcd(&self) -> Result<(), Error> {
        self.order(Request::Resume(Target::Etcd)).await
    }

    /// Carried out to its end also when nobody waits for it any more.
    async fn order(&self, request: Request) -> Result<(), Error> {
        let Origin::Own { supervisor, .. } = &self.origin else {
            return Err(Error::NotOurs);
        };
        let supervisor = Arc::clone(supervisor);
        let order = move || supervisor.order(&request);
        Ok(tokio::task::spawn_blocking(order)
            .await
            .map_err(std::io::Error::from)??)
    }

    /// Stops everything, and tells whether all went well: a program that ended when nobody had asked it to is an
    /// error. Blocks for some seconds, as dropping does.
    pub fn stop(self) -> Result<(), Error> {
        match self.origin {
            Origin::Own { supervisor, .. } => {
                Ok(Arc::into_inner(supervisor).map_or(Ok(()), |mut s| s.stop())?)
            }
            _ => Ok(()),
        }
    }

    /// Lets it run when this process ends; `controlplane down FOLDER` (or [`down`](crate::down())) stops it. Returns the
    /// folder.
    pub fn keep(self) -> Result<PathBuf, Error> {
        let folder = self.folder().map(Path::to_owned);
        match (self.origin, folder) {
            (Origin::Own { supervisor, .. }, Some(folder)) => {
                Arc::into_inner(supervisor).map_or(Ok(()), Supervisor::leave)?;
                Ok(folder)
            }
            _ => Err(Error::NotOurs),
        }
    }
}

/// What a control plane of one's own is like.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct Builder {
    etcd: Vec<String>,
    apiserver: Vec<String>,
    controller_manager: Vec<String>,
    no_controller_manager: bool,
}

impl Builder {
    /// A flag for etcd, after ours.
    pub fn etcd_arg(mut self, argument: impl Into<String>) -> Self {
        self.etcd.push(argument.into());
        self
    }

    /// A flag for kube-apiserver, after ours: where both give the same one, this wins.
    pub fn apiserver_arg(mut self, argument: impl Into<String>) -> Self {
        self.apiserver.push(argument.into());
        self
    }

    /// A flag for kube-controller-manager, after ours.
    pub fn controller_manager_arg(mut self, argument: impl Into<String>) -> Self {
        self.controller_manager.push(argument.into());
        self
    }

    /// Without kube-controller-manager: ready sooner, but namespaces are never really deleted, and what an owner
    /// leaves behind is not collected.
    pub fn without_controller_manager(mut self) -> Self {
        self.no_controller_manager = true;
        self
    }

    /// Starts it; returns when it is ready.
    pub async fn start(self) -> Result<ControlPlane, Error> {
        tokio::task::spawn_blocking(|| self.start_blocking())
            .await
            .map_err(std::io::Error::from)?
    }

    /// [`start`](Self::start) for code that is not async.
    pub fn start_blocking(self) -> Result<ControlPlane, Error> {
        if existing::is_existing_cluster() {
            return Err(Error::StartsNothing);
        }
        let programs = Programs::find()?;
        let (supervisor, started) = Supervisor::start(Spec {
            etcd: programs.etcd,
            apiserver: programs.apiserver,
            controller_manager: programs
                .controller_manager
                .filter(|_| !self.no_controller_manager),
            etcd_arguments: self.etcd,
            apiserver_arguments: self.apiserver,
            controller_manager_arguments: self.controller_manager,
        })?;
        let origin = Origin::Own {
            supervisor: Arc::new(supervisor),
            etcd_url: started.etcd_url,
        };
        ControlPlane::attach(origin, started.folder.join("kubeconfig"))
    }
}
