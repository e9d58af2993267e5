//! The proxy as a test holds it.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use kube::config::AuthInfo;
use kube::{Client, Config};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{oneshot, watch};

use crate::record::{Record, Seen};
use crate::rule::{Fault, Match, Rule, Rules};
use crate::serve::{Link, Shared, listen};

/// The proxy could not be started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No port, no thread, no runtime.
    #[error("the operating system refused")]
    Os(#[from] std::io::Error),
    /// There is no connecting with that configuration.
    #[error("cannot make a client of the configuration")]
    Client(#[from] kube::Error),
}

/// A running proxy. When dropped it cuts every connection and is gone; what it still holds never arrives.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    runtime: Handle,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl FaultProxy {
    /// A proxy in front of the API server of `base`, at which it identifies itself as `base` does.
    pub fn start(base: &Config) -> Result<Self, Error> {
        let mut upstream = base.clone();
        // It passes on what it gets: no retries of its own, and as patient as its clients are.
        upstream.default_retry = false;
        upstream.read_timeout = None;
        upstream.write_timeout = None;
        let shared = Arc::new(Shared {
            rules: Rules::default(),
            record: Record::default(),
            link: watch::Sender::new(Link { up: true, cuts: 0 }),
        });
        let (end, ended) = oneshot::channel();
        let (started, start) = mpsc::channel();
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let for_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("faultproxy".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    let prepared = async {
                        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
                        let address = listener.local_addr()?;
                        // Made here: its worker lives on this runtime.
                        Ok::<_, Error>((address, listener, Client::try_from(upstream)?))
                    };
                    match prepared.await {
                        Ok((address, listener, client)) => {
                            let _ = started.send(Ok(address));
                            tokio::select! {
                                () = listen(listener, client, for_thread) => {}
                                _ = ended => {}
                            }
                        }
                        Err(error) => drop(started.send(Err(error))),
                    }
                });
            })?;
        let address = start
            .recv()
            .map_err(|_| std::io::Error::other("the proxy's thread has died"))??;
        Ok(Self {
            address,
            shared,
            runtime: handle,
            end: Some(end),
            thread: Some(thread),
        })
    }

    /// How to connect to the API server through the proxy. Time-outs, retries and the default namespace are those of
    /// `base`; the proxy identifies itself in the client's stead.
    pub fn kube_config(&self, base: &Config) -> Config {
        let mut config = base.clone();
        // An address and a port: that parses, and the other branch is never taken.
        if let Ok(url) = self.url().parse() {
            config.cluster_url = url;
        }
        config.auth_info = AuthInfo::default();
        config.headers = Vec::new();
        config.root_cert = None;
        config.root_cert_file = None;
        config.tls_server_name = None;
        config.proxy_url = None;
        config
    }

    /// Writes a kubeconfig that leads through the proxy, for other programs.
    pub fn write_kubeconfig(&self, file: &Path) -> std::io::Result<()> {
        let kubeconfig = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "faultproxy", "cluster": {"server": self.url()}}],
            "users": [{"name": "faultproxy", "user": {}}],
            "contexts": [{"name": "faultproxy", "context": {"cluster": "faultproxy", "user": "faultproxy"}}],
            "current-context": "faultproxy",
        });
        std::fs::write(file, format!("{kubeconfig:#}"))
    }

    /// Where it listens, such as `http://127.0.0.1:40123`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// From now on, requests that match meet the fault. Requests go to the rules in the order in which they were added,
    /// and the first that fires is the last that sees it (rules about `Date` aside).
    pub fn rule(&self, matching: Match, fault: Fault) -> Rule {
        let rule = Rule::new(matching, fault, self.runtime.clone());
        self.shared.rules.add(&rule);
        rule
    }

    /// Ends all rules, and lets go what they hold.
    pub fn clear_rules(&self) {
        self.shared.rules.clear();
    }

    /// Cuts every connection, open watches too, and accepts no others until [`restore`](Self::restore). What has been
    /// received still reaches the server.
    pub fn cut_all(&self) {
        self.shared.link.send_modify(|link| {
            *link = Link {
                up: false,
                cuts: link.cuts + 1,
            }
        });
    }

    /// Ends [`cut_all`](Self::cut_all).
    pub fn restore(&self) {
        self.shared.link.send_modify(|link| link.up = true);
    }

    /// Cuts every connection, open watches too; whoever connects again is served.
    pub fn cut_connections(&self) {
        self.shared.link.send_modify(|link| link.cuts += 1);
    }

    /// All requests so far, in order of arrival.
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.record.with(|all| all.clone())
    }

    /// How many requests so far are such.
    pub fn count(&self, such: impl Fn(&Seen) -> bool) -> usize {
        self.shared
            .record
            .with(|all| all.iter().filter(|seen| such(seen)).count())
    }

    /// Forgets the requests so far. Counts of rules stay.
    pub fn forget_seen(&self) {
        self.shared.record.with(Vec::clear);
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // Its panics have been printed already.
            let _ = thread.join();
        }
    }
}
