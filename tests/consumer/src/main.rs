//! A program that embeds Leasewarden with its default features, and has chosen a Kubernetes version and TLS itself.
//!
//! It names the types that a user keeps in fields and signatures, so that none of them turns out to be private, and
//! asks an API server that is not there, so that TLS is set up for real: rustls without a provider, or with two,
//! panics at that moment and not before.

use std::sync::Arc;
use std::time::Duration;

use leasewarden::lease::LeaseLockService;
use leasewarden::lock::noop;
use leasewarden::{
    FencingToken, Grant, InstanceId, LockError, LockService, LockServiceExt, Outcome, StreamName, Ttl,
};

/// What a user's own worker keeps.
struct Worker {
    locks: Arc<dyn LockService>,
    stream: StreamName,
    me: InstanceId,
    ttl: Ttl,
}

impl Worker {
    async fn lead(&self) -> Result<Option<Grant>, LockError> {
        let request = leasewarden::AcquireRequest::new(&self.stream, &self.me, self.ttl);
        self.locks.acquire(request).await.map(Outcome::granted)
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut worker = Worker {
        locks: Arc::new(noop()),
        stream: StreamName::new("orders")?,
        me: InstanceId::unique("consumer")?,
        ttl: Ttl::from_secs(15)?,
    };
    let grant = worker.lead().await?.ok_or("noop() grants everything")?;
    let _token: Option<FencingToken> = grant.token;

    // Port 1 of this host: nobody listens there.
    let config = kube::Config::new("https://127.0.0.1:1".parse()?);
    let leases = LeaseLockService::builder(config).namespace("default").build()?;
    worker.locks = Arc::new(leases.clone());
    let answer = tokio::time::timeout(Duration::from_secs(60), worker.locks.state(&worker.stream)).await?;
    match answer {
        Err(LockError::Unavailable { .. }) => {}
        other => return Err(format!("expected no API server to be there, got {other:?}").into()),
    }
    if worker
        .locks
        .try_acquire(&worker.stream, &worker.me, worker.ttl)
        .await
    {
        return Err("was granted a lock without an API server".into());
    }
    leases.shutdown().await;
    println!("consumer: the library works with what this application chose");
    Ok(())
}
