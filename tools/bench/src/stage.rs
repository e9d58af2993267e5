//! What the measurements share: the server, a namespace, and how electors of both kinds are started.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use leasewarden_controlplane::{ControlPlane, locate};
use leasewarden_electors::{Elector, What};
use serde_json::json;

use crate::Error;

/// Generous: a measurement that waits longer than this did not work.
pub(crate) const LIMIT: Duration = Duration::from_secs(90);

/// The namespace of elections that share one.
pub(crate) const SHARED: &str = "bench";

/// Whose election.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Ours,
    ClientGo,
}

impl Side {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::ClientGo => "client-go",
        }
    }

    /// Names of Leases that no other measurement uses.
    pub(crate) fn leases(self, what: &str, count: usize) -> Vec<String> {
        (0..count)
            .map(|n| format!("{}-{what}-{n}", self.name()))
            .collect()
    }
}

pub(crate) struct Stage {
    plane: ControlPlane,
    ours: PathBuf,
    client_go: PathBuf,
}

impl Stage {
    pub(crate) fn new() -> Result<Self, Error> {
        let this = std::env::current_exe()?;
        let ours = this.with_file_name("leasewarden-elector");
        if !ours.is_file() {
            return Err(Error::NoElector(ours));
        }
        let client_go = locate("clientgo-elector")?;
        // Nothing else that would renew Leases beside what is measured.
        let plane = ControlPlane::builder()
            .without_controller_manager()
            .start_blocking()?;
        let stage = Self {
            plane,
            ours,
            client_go,
        };
        stage.kubectl(&["create", "namespace", SHARED])?;
        Ok(stage)
    }

    /// A namespace for each of these elections, of its Lease's name. Instances watch the Leases of their namespace, so a
    /// write wakes every process in it: elections that are to be measured alone must not share one.
    pub(crate) fn namespaces(&self, leases: &[String]) -> Result<(), Error> {
        let items: Vec<_> = leases
            .iter()
            .map(|name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
            .collect();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
        let mut kubectl = self
            .plane
            .kubectl()
            .args(["create", "--filename", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()?;
        if let Some(mut stdin) = kubectl.stdin.take() {
            stdin.write_all(list.as_bytes())?;
        }
        let status = kubectl.wait()?;
        status
            .success()
            .then_some(())
            .ok_or_else(|| Error::Kubectl(format!("creating namespaces: {status}")))
    }

    /// Stops the server; an error when something of it had ended by itself.
    pub(crate) fn end(self) -> Result<(), Error> {
        Ok(self.plane.stop()?)
    }

    pub(crate) fn kubectl(&self, arguments: &[&str]) -> Result<String, Error> {
        let output = self.plane.kubectl().args(arguments).output()?;
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            Err(Error::Kubectl(
                String::from_utf8_lossy(&output.stderr).into_owned(),
            ))
        }
    }

    /// An instance that contends for these Leases, with the default settings of its kind: a TTL of 15 s; 15 s, 10 s and
    /// 2 s.
    pub(crate) fn start(
        &self,
        side: Side,
        namespace: &str,
        id: &str,
        leases: &[String],
    ) -> Result<Elector, Error> {
        let program = match side {
            Side::Ours => &self.ours,
            Side::ClientGo => &self.client_go,
        };
        let kubeconfig = self.plane.kubeconfig_path().to_string_lossy().into_owned();
        let names = leases.join(",");
        let arguments = [
            "--kubeconfig",
            kubeconfig.as_str(),
            "--namespace",
            namespace,
            "--id",
            id,
            "--lease",
            names.as_str(),
        ];
        Ok(Elector::start(program, &arguments, false)?)
    }
}

/// Waits until it leads all of these.
pub(crate) fn leads(elector: &Elector, leases: &[String]) -> Result<(), Error> {
    let all = elector.wait_until(
        |events| {
            let elected = events.iter().filter(|e| e.event == What::Elected).count();
            (elected >= leases.len()).then_some(())
        },
        LIMIT,
    );
    all.ok_or_else(|| Error::Late("leading everything".to_owned()))
}

/// Waits until it knows the leaders of all of these.
pub(crate) fn knows(elector: &Elector, leases: &[String]) -> Result<(), Error> {
    let all = elector.wait_until(
        |events| {
            let known = |lease: &String| {
                let mut events = events.iter();
                events.any(|e| e.event == What::Leader && e.lease == *lease && !e.leader.is_empty())
            };
            leases.iter().all(known).then_some(())
        },
        LIMIT,
    );
    all.ok_or_else(|| Error::Late("knowing the leaders".to_owned()))
}
