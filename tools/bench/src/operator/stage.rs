//! What both measurements share: the API server with the CRD, the operator as a process, namespaces.

use std::{
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client,
    api::{ListParams, PostParams},
};
use leasewarden::crd::ChangeStreamLeader;
use leasewarden_controlplane::ControlPlane;

use crate::Error;

/// Generous: a measurement that waits longer than this did not work.
pub(crate) const LIMIT: Duration = Duration::from_secs(300);

pub(crate) struct Stage {
    pub(crate) plane: ControlPlane,
    pub(crate) client: Client,
    program: PathBuf,
}

impl Stage {
    pub(crate) async fn new() -> Result<Self, Error> {
        let program = std::env::current_exe()?.with_file_name("leasewarden");
        if !program.is_file() {
            return Err(Error::NoOperator(program));
        }
        let plane = ControlPlane::builder()
            .without_controller_manager()
            .start()
            .await?;
        let client = plane.client()?;
        let crd = Command::new(&program).arg("crd").output()?;
        plane.apply_yaml(&String::from_utf8_lossy(&crd.stdout)).await?;
        let stage = Self {
            plane,
            client,
            program,
        };
        wait("the CRD is served", || async {
            let all = Api::<ChangeStreamLeader>::all(stage.client.clone());
            all.list(&ListParams::default().limit(1)).await.is_ok()
        })
        .await?;
        Ok(stage)
    }

    pub(crate) async fn namespace(&self, name: &str) -> Result<(), Error> {
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some(name.to_owned());
        let all = Api::<Namespace>::all(self.client.clone());
        all.create(&PostParams::default(), &namespace).await?;
        Ok(())
    }

    /// An operator with its default settings, for one namespace.
    pub(crate) fn operator(&self, namespace: &str) -> Result<Operator, Error> {
        let child = Command::new(&self.program)
            .args(["operator", "--namespace", namespace, "--log", "error"])
            .args([
                "--leader-election=false",
                "--metrics-bind-address=",
                "--health-probe-bind-address=",
            ])
            .env("KUBECONFIG", self.plane.kubeconfig_path())
            .stdin(Stdio::null())
            .spawn()?;
        Ok(Operator(child))
    }

    /// Stops the server; an error when something of it had ended by itself.
    pub(crate) async fn end(self) -> Result<(), Error> {
        tokio::task::spawn_blocking(|| self.plane.stop())
            .await
            .map_err(|e| Error::Failed(e.to_string()))??;
        Ok(())
    }
}

/// A running operator; it ends with this.
pub(crate) struct Operator(Child);

impl Operator {
    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for a condition.
pub(crate) async fn wait<F: Future<Output = bool>>(
    what: &str,
    mut holds: impl FnMut() -> F,
) -> Result<(), Error> {
    let begun = Instant::now();
    while !holds().await {
        if begun.elapsed() > LIMIT {
            return Err(Error::Failed(format!("not within {LIMIT:?}: {what}")));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}
