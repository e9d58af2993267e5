//! `leasewarden selftest`: takes a lock, reads it and gives it back, with the rights of whoever runs it.

use std::{error::Error, path::PathBuf, time::Duration};

use kube::Client;
use tokio::time::Instant;

use crate::{
    AcquireRequest, InstanceId, LockService, LockState, Outcome, ReleaseRequest, Released, StreamName, Ttl,
    lease::LeaseLockService,
};

const STREAM: &str = "leasewarden-selftest";
const TTL: Duration = Duration::from_secs(15);
/// Longer than a lock that a killed selftest has left behind.
const PATIENCE: Duration = Duration::from_secs(60);
const AGAIN: Duration = Duration::from_secs(1);

/// Check that a lock can be acquired, read and released with the permissions at hand.
///
/// Does once what a program does that embeds the lock, on a stream of its own, leasewarden-selftest, and says each step.
/// `helm test` runs it with the chart's worker Role. It needs, in the namespace:
///
///   leases.coordination.k8s.io    get, create, update
///
/// The Lease stays, released, and is used again the next time.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// The namespace of the Lease. Default: the kubeconfig's or the service account's.
    #[arg(long, short = 'n', env = "LEASEWARDEN_NAMESPACE", value_name = "NAME")]
    namespace: Option<String>,

    /// The kubeconfig to use. Default: $KUBECONFIG, then ~/.kube/config, then the Pod's service account.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig. Default: its current one.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

pub(super) fn run(args: Args) -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let config = super::config::config(args.kubeconfig, args.context).await?;
        let namespace = args.namespace.unwrap_or_else(|| config.default_namespace.clone());
        let client = Client::try_from(config.clone())?;
        crate::operator::create_hidden(client, &namespace, STREAM).await;
        let locks = LeaseLockService::builder(config).namespace(&namespace).build()?;
        let result = steps(&locks, &namespace).await;
        locks.shutdown().await;
        result
    })
}

async fn steps(locks: &LeaseLockService, namespace: &str) -> Result<(), Box<dyn Error>> {
    let stream = StreamName::new(STREAM)?;
    let me = InstanceId::unique(STREAM)?;
    let begun = Instant::now();
    let grant = loop {
        let request = AcquireRequest::new(&stream, &me, Ttl::new(TTL)?);
        let problem = match locks.acquire(request).await? {
            Outcome::Granted(grant) => break grant,
            Outcome::Refused(refusal) => refusal.to_string(),
            Outcome::Unknown(unknown) => unknown.to_string(),
        };
        if begun.elapsed() > PATIENCE {
            return Err(
                format!("Lease {namespace}/{STREAM} was not acquired in {PATIENCE:?}: {problem}").into(),
            );
        }
        println!("waiting: {problem}");
        tokio::time::sleep(AGAIN).await;
    };
    let token = grant.token.ok_or("a grant without a fencing token")?;
    println!(
        "acquired Lease {namespace}/{STREAM} with fencing token {}",
        token.get()
    );

    let shown = |state: &LockState| state.instance == me.as_str() && state.token == Some(token);
    let state = locks.state(&stream).await?;
    if !state.as_ref().is_some_and(shown) {
        return Err(format!("the Lease does not show the lock that was acquired, but {state:?}").into());
    }
    println!("read it: held by {me}");

    let released = locks.release(ReleaseRequest::of(&grant)).await?;
    if !matches!(released, Released::Released) || locks.state(&stream).await?.as_ref().is_some_and(shown) {
        return Err(format!("the lock was not released: {released:?}").into());
    }
    println!("released it");
    Ok(())
}
