//! Everything that is up, and how to wait for it to be as it should. What is done with it is the [`story`](crate::story).

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use kube::Client;
use leasewarden_controlplane::ControlPlane;
use tokio::time::sleep;

use crate::clock::Millis;
use crate::cluster::{self, Shown};
use crate::error::Error;
use crate::programs::Programs;
use crate::stage::LOGS;
use crate::stage::crew::{Crew, Sight};
use crate::stage::down::CONTROL_PLANE;
use crate::stage::protocol::{Part, Signal};
use crate::store::What;

/// One is not a DNS label, one has a capital: names of streams are the user's business.
pub(crate) const STREAMS: [&str; 4] = ["orders", "payments", "Shipments", "eu/returns"];
pub(crate) const WORKERS: [&str; 3] = ["w1", "w2", "w3"];
const OPERATOR: &str = "operator";
/// Short, so that a crash is got over while one watches. A service would take 15 s or so.
pub(crate) const TTL: Duration = Duration::from_secs(5);
/// Ample: what is waited for takes seconds, but the machine may be busy.
const LIMIT: Duration = Duration::from_secs(90);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Of a log, when something failed.
const TAIL: usize = 8;

/// A leadership: which stream, who, under which token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Led {
    pub(crate) stream: String,
    pub(crate) worker: String,
    pub(crate) token: i64,
}

/// Fields are dropped in order: the workers end before their API server.
pub(crate) struct Scene {
    crew: Crew,
    client: Client,
    plane: ControlPlane,
    programs: Programs,
    sight: Sight,
    /// Whose end is no accident.
    may_end: BTreeSet<String>,
    /// Of each program that was started last under its name.
    pids: BTreeMap<String, u32>,
}

/// What `KEEP=1` leaves.
pub(crate) struct Left {
    pub(crate) folder: PathBuf,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) kubectl: PathBuf,
}

impl Scene {
    /// A control plane, and a stage that is empty but for the store.
    pub(crate) async fn set(programs: Programs) -> Result<Self, Error> {
        let plane = ControlPlane::builder().start().await?;
        let crew = Crew::start(&STREAMS)?;
        // For `down`, and for who looks into the folder.
        if let Some(folder) = plane.folder() {
            std::fs::write(
                crew.folder().join(CONTROL_PLANE),
                folder.as_os_str().as_encoded_bytes(),
            )?;
        }
        Ok(Self {
            client: plane.client()?,
            crew,
            plane,
            programs,
            sight: Sight::default(),
            may_end: BTreeSet::new(),
            pids: BTreeMap::new(),
        })
    }

    pub(crate) fn crew(&mut self) -> &mut Crew {
        &mut self.crew
    }

    pub(crate) fn sight(&self) -> &Sight {
        &self.sight
    }

    pub(crate) fn url(&self) -> String {
        self.plane.kube_config().cluster_url.to_string()
    }

    /// What `leasewarden crd` prints.
    pub(crate) async fn crd(&self) -> Result<String, Error> {
        let mut command = tokio::process::Command::new(&self.programs.leasewarden);
        command.arg("crd");
        cluster::run(command, "leasewarden crd", "").await
    }

    /// What kubectl prints, given something to read.
    pub(crate) async fn kubectl(&self, arguments: &[&str], input: &str) -> Result<String, Error> {
        let mut command = tokio::process::Command::from(self.plane.kubectl());
        // Its cache goes with the folder.
        command
            .args(arguments)
            .env("KUBECACHEDIR", self.crew.folder().join("kube-cache"));
        cluster::run(command, &format!("kubectl {}", arguments.join(" ")), input).await
    }

    pub(crate) fn start_operator(&mut self) -> Result<(), Error> {
        let program = self.programs.leasewarden.clone();
        // Alone, and without ports that something else on this machine may have.
        let arguments = [
            OPERATOR,
            "--leader-election=false",
            "--metrics-bind-address=",
            "--health-probe-bind-address=",
        ];
        self.start(OPERATOR, program, arguments.map(str::to_owned).to_vec())
    }

    /// Starts a worker that would lead all streams, and begins with the `nth`, so that the leaders spread.
    pub(crate) fn start_worker(&mut self, nth: usize) -> Result<(), Error> {
        let (name, ttl, store) = (
            WORKERS[nth],
            TTL.as_millis().to_string(),
            self.crew.store().to_string(),
        );
        let options = ["--id", name, "--ttl-ms", &ttl, "--store", &store];
        let streams = STREAMS.iter().cycle().skip(nth).take(STREAMS.len());
        let arguments = options.iter().chain(streams).map(|a| (*a).to_owned()).collect();
        let program = self.programs.worker.clone();
        self.start(name, program, arguments)
    }

    fn start(&mut self, name: &str, program: PathBuf, arguments: Vec<String>) -> Result<(), Error> {
        self.may_end.remove(name);
        let pid = self.crew.start_part(Part {
            name: name.to_owned(),
            program,
            arguments,
            kubeconfig: self.plane.kubeconfig_path().to_owned(),
        })?;
        self.pids.insert(name.to_owned(), pid);
        Ok(())
    }

    /// Ends a program on purpose; returns when it was told.
    pub(crate) fn signal(&mut self, name: &str, signal: Signal) -> Result<Millis, Error> {
        self.may_end.insert(name.to_owned());
        Ok(self.crew.signal(name, signal)?)
    }

    /// The process that was last started under this name.
    pub(crate) fn pid(&self, name: &str) -> Option<u32> {
        self.pids.get(name).copied()
    }

    /// Whether this worker was told to end.
    pub(crate) fn was_ended(&self, worker: &str) -> bool {
        self.may_end.contains(worker)
    }

    /// Who leads a stream, by what the store has seen last.
    pub(crate) fn leader(&self, stream: &str) -> Option<Led> {
        let of_stream =
            |e: &&crate::store::Entry| e.by.stream == stream && !matches!(e.what, What::Stale { .. });
        self.sight.log.iter().rev().find(of_stream).map(|e| Led {
            stream: stream.to_owned(),
            worker: e.by.worker.clone(),
            token: e.by.token,
        })
    }

    /// What a worker leads.
    pub(crate) fn led_by(&self, worker: &str) -> Vec<Led> {
        let led = STREAMS.iter().filter_map(|stream| self.leader(stream));
        led.filter(|led| led.worker == worker).collect()
    }

    /// The first event that was processed under a higher token than this: by whom, and when.
    pub(crate) fn successor(&self, led: &Led) -> Option<(String, Millis)> {
        let later = |e: &&crate::store::Entry| {
            e.by.stream == led.stream && e.by.token > led.token && matches!(e.what, What::Written { .. })
        };
        self.sight
            .log
            .iter()
            .find(later)
            .map(|e| (e.by.worker.clone(), e.at))
    }

    /// Whether the status shows the leader that the store sees, token included.
    pub(crate) fn is_shown(&self, stream: &str, shown: &[Shown]) -> bool {
        let status = shown.iter().find(|s| s.stream == stream);
        match (self.leader(stream), status) {
            (Some(led), Some(status)) => led.worker == status.holder && led.token == status.token,
            _ => false,
        }
    }

    /// Looks until it holds. An error when a program ends meanwhile that nobody has ended.
    pub(crate) async fn until(
        &mut self,
        what: &str,
        mut holds: impl FnMut(&Self, &[Shown]) -> bool,
    ) -> Result<(), Error> {
        let deadline = Instant::now() + LIMIT;
        loop {
            self.crew.look(&mut self.sight)?;
            if let Some(ended) = self
                .sight
                .ended
                .iter()
                .find(|ended| !self.may_end.contains(&ended.name))
            {
                return Err(Error::Ended {
                    name: ended.name.clone(),
                    status: ended.status.clone(),
                });
            }
            let shown = cluster::shown(&self.client).await?;
            if holds(self, &shown) {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(Error::Late {
                    what: what.to_owned(),
                    seconds: LIMIT.as_secs(),
                });
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Waits until a program has ended that was asked to, and makes sure that it has exited with 0.
    pub(crate) async fn until_ended(&mut self, name: &str) -> Result<(), Error> {
        let find = |scene: &Self| scene.sight.ended.iter().find(|ended| ended.name == name).cloned();
        self.until(&format!("{name} ends"), |scene, _| find(scene).is_some())
            .await?;
        match find(self) {
            Some(ended) if !ended.well => Err(Error::Ended {
                name: ended.name,
                status: ended.status,
            }),
            _ => Ok(()),
        }
    }

    /// Ends the workers that are left, and then the operator: it is to see the releases.
    pub(crate) async fn end_all(&mut self) -> Result<(), Error> {
        let workers: Vec<_> = WORKERS
            .into_iter()
            .filter(|worker| !self.was_ended(worker))
            .collect();
        for group in [workers, vec![OPERATOR]] {
            for name in &group {
                self.signal(name, Signal::Terminate)?;
            }
            for name in &group {
                self.until_ended(name).await?;
            }
        }
        Ok(())
    }

    /// Stops the control plane; whoever is still on the stage is killed.
    pub(crate) fn strike(self) -> Result<(), Error> {
        drop(self.crew);
        Ok(self.plane.stop()?)
    }

    /// Leaves everything running.
    pub(crate) fn leave(self) -> Result<Left, Error> {
        let left = Left {
            kubeconfig: self.plane.kubeconfig_path().to_owned(),
            kubectl: self.plane.kubectl().get_program().into(),
            folder: self.crew.folder().to_owned(),
        };
        // The stage last: should the control plane not be kept, nobody is.
        self.plane.keep()?;
        self.crew.leave()?;
        Ok(left)
    }

    /// Adds to an error what a person needs to look into it, and leaves the logs.
    pub(crate) fn explain(&mut self, error: Error) -> Error {
        let logs = self.crew.folder().join(LOGS);
        // A stage that is gone has taken its folder along, or left it.
        let _ = self.crew.keep_folder();
        let tail = |name: &str| {
            let text = std::fs::read_to_string(logs.join(format!("{name}.log"))).ok()?;
            let lines: Vec<_> = text.lines().collect();
            let last = &lines[lines.len().saturating_sub(TAIL)..];
            Some(format!("--- {name}\n{}\n", last.join("\n")))
        };
        let names = [OPERATOR].into_iter().chain(WORKERS);
        Error::Failed {
            error: Box::new(error),
            tails: names.filter_map(tail).collect(),
            logs,
        }
    }
}
