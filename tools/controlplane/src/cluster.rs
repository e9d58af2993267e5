//! The control plane itself, as the supervisor holds it: which flags, in which order up, in which order down.
//!
//! kube-apiserver stops before etcd. The other way round it waits for an etcd that is gone; it was seen to wait for
//! ten minutes.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use kube::config::Kubeconfig;
use kube::{Client, Config};
use rustix::process::Signal;
use tokio::time::{Instant, sleep, timeout};

use crate::pki::{self, Authority};
use crate::process::Process;
use crate::protocol::{Spec, Started, Target};
use crate::{kubeconfig, ports};

/// Ample: a start takes seconds on an idle machine, but tests run on busy ones.
const START_LIMIT: Duration = Duration::from_secs(180);
/// kube-apiserver lets requests in flight finish, which its own limit ends after a minute.
const STOP_LIMIT: Duration = Duration::from_secs(75);
/// A port can be taken between looking and using; not so often.
const PORT_ATTEMPTS: usize = 5;

/// Why the control plane did not do as it was told.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Pki(#[from] pki::Error),
    #[error(transparent)]
    Kubeconfig(#[from] kubeconfig::Error),
    #[error("cannot connect to our own API server")]
    Client(#[from] kube::Error),
    #[error("cannot prepare {}", folder.display())]
    Prepare { folder: PathBuf, source: io::Error },
    #[error("cannot run {}", program.display())]
    Spawn { program: PathBuf, source: io::Error },
    #[error("{name} ended ({status}) before it was ready; its log {} ends with\n{tail}", log.display())]
    Ended {
        name: &'static str,
        status: ExitStatus,
        log: PathBuf,
        tail: String,
        port_taken: bool,
    },
    #[error("{name} was not ready after {} s; its log {} ends with\n{tail}", START_LIMIT.as_secs(), log.display())]
    Late {
        name: &'static str,
        log: PathBuf,
        tail: String,
    },
    #[error("kube-apiserver is already running")]
    Running,
    #[error("{0} is not running")]
    NotRunning(&'static str),
    #[error("cannot signal {name}")]
    Signal { name: &'static str, source: io::Error },
}

/// The programs, and what is needed to start one again.
pub(crate) struct Cluster {
    spec: Spec,
    folder: PathBuf,
    etcd_port: u16,
    apiserver_port: u16,
    etcd: Option<Process>,
    apiserver: Option<Process>,
    controller_manager: Option<Process>,
}

impl Cluster {
    /// Nothing runs yet. `folder` is empty and ours.
    pub(crate) fn new(spec: Spec, folder: PathBuf) -> Self {
        Self {
            spec,
            folder,
            etcd_port: 0,
            apiserver_port: 0,
            etcd: None,
            apiserver: None,
            controller_manager: None,
        }
    }

    /// Starts everything and waits until it is ready. What runs when this is cancelled or fails is ended by
    /// [`stop`](Self::stop).
    pub(crate) async fn start(&mut self) -> Result<Started, Error> {
        let prepare = |folder: &Path, source| Error::Prepare {
            folder: folder.to_owned(),
            source,
        };
        let logs = self.logs();
        std::fs::create_dir_all(&logs).map_err(|e| prepare(&logs, e))?;
        let authority = Authority::create(&self.folder)?;
        pki::write_identity(&self.folder, "apiserver", &authority.server()?)?;
        pki::write_service_account_key(&self.folder)?;

        self.start_etcd().await?;
        for attempt in 1.. {
            self.apiserver_port = ports::free().map_err(|e| prepare(&self.folder, e))?;
            let admin = self.kubeconfig(&authority.client("leasewarden-admin", Some("system:masters"))?)?;
            kubeconfig::write(&admin, &self.folder.join("kubeconfig"))?;
            match self.start_apiserver().await {
                Err(Error::Ended { port_taken: true, .. }) if attempt < PORT_ATTEMPTS => {}
                result => {
                    result?;
                    break;
                }
            }
        }
        if let Some(program) = self.spec.controller_manager.clone() {
            let identity = authority.client("system:kube-controller-manager", None)?;
            let file = self.folder.join("controller-manager.kubeconfig");
            kubeconfig::write(&self.kubeconfig(&identity)?, &file)?;
            self.start_controller_manager(&program, &file).await?;
        }
        Ok(Started {
            folder: self.folder.clone(),
            url: self.url(),
            etcd_url: format!("http://127.0.0.1:{}", self.etcd_port),
        })
    }

    /// kube-apiserver on the port that it has had, ready.
    pub(crate) async fn start_apiserver(&mut self) -> Result<(), Error> {
        if self.apiserver.as_mut().is_some_and(|p| p.ended().is_none()) {
            return Err(Error::Running);
        }
        let client = self.admin().await?;
        let pki = |name: &str| self.path(&format!("pki/{name}"));
        let mut arguments = vec![
            format!("--etcd-servers=http://127.0.0.1:{}", self.etcd_port),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", self.apiserver_port),
            // A loopback address cannot be published as the kubernetes Service's endpoint.
            "--endpoint-reconciler-type=none".to_owned(),
            format!("--cert-dir={}", self.path("pki")),
            format!("--tls-cert-file={}", pki("apiserver.crt")),
            format!("--tls-private-key-file={}", pki("apiserver.key")),
            format!("--client-ca-file={}", pki("ca.crt")),
            "--authorization-mode=RBAC".to_owned(),
            "--allow-privileged=true".to_owned(),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-key-file={}", pki("sa.pub")),
            format!("--service-account-signing-key-file={}", pki("sa.key")),
            "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
            // Else a stop waits a minute for watches that nobody ends, the controller-manager's first of all.
            "--shutdown-watch-termination-grace-period=5s".to_owned(),
        ];
        if self.spec.controller_manager.is_none() {
            // It waits for service accounts that nobody would create.
            arguments.push("--disable-admission-plugins=ServiceAccount".to_owned());
        }
        arguments.extend(self.spec.apiserver_arguments.iter().cloned());
        let process = start("kube-apiserver", &self.spec.apiserver, &arguments, &self.logs())?;
        let process = self.apiserver.insert(process);
        until_ready(process, || async {
            ok(&client, "/readyz").await && ok(&client, "/api/v1/namespaces/default").await
        })
        .await
    }

    /// Ends kube-apiserver: asks it, or kills it.
    pub(crate) async fn end_apiserver(&mut self, kill: bool) -> Result<(), Error> {
        let process = self.apiserver.take().ok_or(Error::NotRunning("kube-apiserver"))?;
        if kill {
            process.kill().await;
        } else if !process.stop(STOP_LIMIT).await {
            return Err(Error::NotRunning("kube-apiserver"));
        }
        Ok(())
    }

    /// Pauses or resumes a program.
    pub(crate) fn signal(&mut self, target: Target, signal: Signal) -> Result<(), Error> {
        let (process, name) = match target {
            Target::Etcd => (&self.etcd, "etcd"),
            Target::Apiserver => (&self.apiserver, "kube-apiserver"),
        };
        let process = process.as_ref().ok_or(Error::NotRunning(name))?;
        process
            .signal(signal)
            .map_err(|source| Error::Signal { name, source })
    }

    /// Stops whatever runs, in order. Returns what had ended before anybody asked it to.
    pub(crate) async fn stop(&mut self) -> Vec<&'static str> {
        // One that is paused blocks the orderly end of the other.
        for process in [&self.etcd, &self.apiserver].into_iter().flatten() {
            let _ = process.signal(Signal::CONT);
        }
        let mut ended = Vec::new();
        let in_order = [
            self.controller_manager.take(),
            self.apiserver.take(),
            self.etcd.take(),
        ];
        for process in in_order.into_iter().flatten() {
            let name = process.name;
            if !process.stop(STOP_LIMIT).await {
                ended.push(name);
            }
        }
        ended
    }

    pub(crate) fn logs(&self) -> PathBuf {
        self.folder.join("logs")
    }

    async fn start_etcd(&mut self) -> Result<(), Error> {
        for attempt in 1.. {
            let port = || {
                ports::free().map_err(|source| Error::Prepare {
                    folder: self.folder.clone(),
                    source,
                })
            };
            let (client_port, peer_port) = (port()?, port()?);
            let peer = format!("http://127.0.0.1:{peer_port}");
            let url = format!("http://127.0.0.1:{client_port}");
            let mut arguments = vec![
                "--name=etcd".to_owned(),
                format!("--data-dir={}", self.path(&format!("etcd-{attempt}"))),
                format!("--listen-client-urls={url}"),
                format!("--advertise-client-urls={url}"),
                format!("--listen-peer-urls={peer}"),
                format!("--initial-advertise-peer-urls={peer}"),
                format!("--initial-cluster=etcd={peer}"),
                // A test's data need not survive a power cut.
                "--unsafe-no-fsync".to_owned(),
            ];
            arguments.extend(self.spec.etcd_arguments.iter().cloned());
            let process = self.etcd.insert(start(
                "etcd",
                &self.spec.etcd,
                &arguments,
                &self.folder.join("logs"),
            )?);
            self.etcd_port = client_port;
            // The URL is made of a number: it parses.
            let Ok(url) = url.parse() else { continue };
            let client = quick_client(Config::new(url))?;
            match until_ready(process, || ok(&client, "/health")).await {
                Err(Error::Ended { port_taken: true, .. }) if attempt < PORT_ATTEMPTS => {}
                result => return result,
            }
        }
        Ok(())
    }

    async fn start_controller_manager(&mut self, program: &Path, kubeconfig: &Path) -> Result<(), Error> {
        let client = self.admin().await?;
        let kubeconfig = kubeconfig.display();
        let mut arguments = vec![
            format!("--kubeconfig={kubeconfig}"),
            format!("--authentication-kubeconfig={kubeconfig}"),
            format!("--authorization-kubeconfig={kubeconfig}"),
            // One of its kind, and nobody asks it for metrics: no election, no port.
            "--leader-elect=false".to_owned(),
            "--secure-port=0".to_owned(),
            "--use-service-account-credentials=true".to_owned(),
            // Else it spends its first seconds waiting for its own limits, one service account per controller.
            "--kube-api-qps=500".to_owned(),
            "--kube-api-burst=500".to_owned(),
            format!("--service-account-private-key-file={}", self.path("pki/sa.key")),
            format!("--root-ca-file={}", self.path(pki::AUTHORITY_CERTIFICATE)),
        ];
        arguments.extend(self.spec.controller_manager_arguments.iter().cloned());
        let process = start("kube-controller-manager", program, &arguments, &self.logs())?;
        let process = self.controller_manager.insert(process);
        // Made by one of its controllers: they are at work.
        until_ready(process, || {
            ok(&client, "/api/v1/namespaces/default/serviceaccounts/default")
        })
        .await
    }

    fn kubeconfig(&self, identity: &pki::Identity) -> Result<Kubeconfig, Error> {
        let file = self.folder.join(pki::AUTHORITY_CERTIFICATE);
        let authority = std::fs::read_to_string(&file).map_err(|source| pki::Error::File { file, source })?;
        Ok(kubeconfig::for_identity(&self.url(), &authority, identity))
    }

    async fn admin(&self) -> Result<Client, Error> {
        let file = self.folder.join("kubeconfig");
        let kubeconfig = Kubeconfig::read_from(file).map_err(kubeconfig::Error::from)?;
        quick_client(kubeconfig::config(kubeconfig).await?)
    }

    fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.apiserver_port)
    }

    fn path(&self, below: &str) -> String {
        self.folder.join(below).display().to_string()
    }
}

fn start(name: &'static str, program: &Path, arguments: &[String], logs: &Path) -> Result<Process, Error> {
    Process::start(name, program, arguments, logs).map_err(|source| Error::Spawn {
        program: program.to_owned(),
        source,
    })
}

/// A client that asks once and does not insist: we ask again ourselves.
fn quick_client(mut config: Config) -> Result<Client, Error> {
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

async fn ok(client: &Client, path: &str) -> bool {
    // A path of ours: it parses.
    let Ok(request) = http::Request::get(path).body(Vec::new()) else {
        return false;
    };
    matches!(
        timeout(Duration::from_secs(5), client.request_text(request)).await,
        Ok(Ok(_))
    )
}

async fn until_ready(process: &mut Process, ready: impl AsyncFn() -> bool) -> Result<(), Error> {
    let deadline = Instant::now() + START_LIMIT;
    while !ready().await {
        let (name, log) = (process.name, process.log.clone());
        if let Some(status) = process.ended() {
            let tail = process.tail();
            let port_taken = tail.contains("address already in use");
            return Err(Error::Ended {
                name,
                status,
                log,
                tail,
                port_taken,
            });
        }
        if Instant::now() >= deadline {
            return Err(Error::Late {
                name,
                log,
                tail: process.tail(),
            });
        }
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}
