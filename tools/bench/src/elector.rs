//! `leasewarden-elector`: an instance of a program that embeds Leasewarden, as its documentation says, and prints what
//! happens in the lines of `leasewarden-electors`. It does for ours what `clientgo-elector` does for client-go, and takes
//! the same options as far as both have them.
//!
//! One coordinator contends for all the Leases named. SIGTERM: the work ends, the locks are released, and it exits with
//! 0. It ends when its standard input does, without releasing anything: whoever started it is gone.

use std::error::Error;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use kube::config::{KubeConfigOptions, Kubeconfig};
use leasewarden::election::{
    DeploymentMode, ElectionSettings, LeaderElectionCoordinator, Leadership, StreamSpec, StreamStatus,
};
use leasewarden::lease::LeaseLockService;
use leasewarden::{InstanceId, StreamName, Ttl};
use leasewarden_electors::now;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Contends for Leases and prints what happens
#[derive(Debug, Parser)]
struct Options {
    /// Where the API server is and who asks
    #[arg(long)]
    kubeconfig: PathBuf,
    /// The Leases' namespace
    #[arg(long)]
    namespace: String,
    /// Names of Leases, with commas between them
    #[arg(long, value_delimiter = ',', required = true)]
    lease: Vec<String>,
    /// The holder's identity
    #[arg(long)]
    id: String,
    /// How long a lock outlives its last renewal
    #[arg(long, default_value_t = 15_000)]
    ttl_ms: u64,
}

/// One write a line: what was printed before a SIGKILL is whole.
fn print(at: u64, event: &str, id: &str, lease: &str, leader: &str) {
    let line = json!({"at": at, "event": event, "id": id, "lease": lease, "leader": leader});
    if std::io::stdout()
        .write_all(format!("{line}\n").as_bytes())
        .is_err()
    {
        // Nobody listens any more.
        std::process::exit(1);
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(3);
    });
    let mut terminate = signal(SignalKind::terminate())?;
    let kubeconfig = Kubeconfig::read_from(&options.kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let locks = LeaseLockService::builder(config)
        .namespace(options.namespace)
        .build()?;
    let ttl = Ttl::new(Duration::from_millis(options.ttl_ms))?;
    let coordinator = LeaderElectionCoordinator::builder(Arc::new(locks.clone()))
        .instance_id(InstanceId::new(options.id.clone())?)
        .settings(ElectionSettings::with_ttl(ttl)?)
        .build()?;
    let id: Arc<str> = options.id.into();
    for lease in &options.lease {
        let stream = StreamName::new(lease.as_str())?;
        let me = Arc::clone(&id);
        let spec = StreamSpec::new(stream.clone(), DeploymentMode::SingleLeader, move |leadership| {
            work(Arc::clone(&me), leadership)
        });
        coordinator.register(spec)?;
        if let Some(status) = coordinator.watch(&stream) {
            tokio::spawn(follow(Arc::clone(&id), status));
        }
    }
    coordinator.start_all();
    print(now(), "ready", &id, "", "");
    terminate.recv().await;
    coordinator.shutdown(Duration::from_secs(20)).await?;
    locks.shutdown().await;
    for lease in &options.lease {
        print(now(), "stopped", &id, lease, "");
    }
    Ok(())
}

/// The work: it leads until it is asked to stop.
async fn work(id: Arc<str>, leadership: Leadership) {
    let lease = leadership.stream().to_string();
    print(now(), "elected", &id, &lease, "");
    leadership.stop_requested().await;
    print(now(), "ended", &id, &lease, "");
}

/// Tells who leads and when a leadership was renewed.
async fn follow(id: Arc<str>, mut status: watch::Receiver<StreamStatus>) {
    let (mut leader, mut valid_until) = (None, None);
    while status.changed().await.is_ok() {
        let seen = status.borrow_and_update().clone();
        let lease = seen.stream.to_string();
        if let Some(holder) = seen.holder.map(|holder| holder.holder.unwrap_or_default())
            && leader.as_ref() != Some(&holder)
        {
            print(now(), "leader", &id, &lease, &holder);
            leader = Some(holder);
        }
        // The first is the acquisition's own.
        if valid_until.is_some() && seen.valid_until.is_some() && seen.valid_until != valid_until {
            print(now(), "renewed", &id, &lease, "");
        }
        valid_until = seen.valid_until;
    }
}
