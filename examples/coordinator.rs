//! A service as it is deployed: two streams, one leader each, and on SIGTERM an orderly end within the Pod's grace period.
//! `docs/shutdown.md` shows this code and does the sums.
//!
//! ```text
//! KUBECONFIG=… POD_NAME=me POD_UID=1 cargo run --example coordinator
//! ```

use std::{error::Error, future::Future, io, sync::Arc, time::Duration};

use leasewarden::{
    InstanceId, LockService, StreamName,
    election::{DeploymentMode, LeaderElectionCoordinator, Leadership, StreamSpec},
    lease::LeaseLockService,
};
use tokio::signal::unix::{SignalKind, signal};

// [shutdown]
/// `terminationGracePeriodSeconds` less what a `preStop` hook takes, and less some seconds for the rest of the process to end.
const GRACE: Duration = Duration::from_secs(25);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_writer(io::stderr).init();
    // Before anything that takes time: until it is there, SIGTERM kills without a word.
    let terminated = terminated()?;
    let me = InstanceId::from_downward_api()?;
    let locks = LeaseLockService::builder(kube::Config::infer().await?).build()?;
    let result = serve(Arc::new(locks.clone()), me, terminated).await;
    // What was given back in the background goes out before the process ends.
    locks.shutdown().await;
    result
}

/// Completes at SIGTERM (Kubernetes) or SIGINT (Ctrl-C). The handlers are there when this returns.
fn terminated() -> io::Result<impl Future<Output = ()>> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Contends for the streams until it is told to end; then the work drains, and the locks are released.
async fn serve(
    locks: Arc<dyn LockService>,
    me: InstanceId,
    terminated: impl Future<Output = ()>,
) -> Result<(), Box<dyn Error>> {
    let coordinator = LeaderElectionCoordinator::builder(locks)
        .instance_id(me)
        .build()?;
    for stream in ["orders", "payments"] {
        let spec = StreamSpec::new(StreamName::new(stream)?, DeploymentMode::SingleLeader, work);
        coordinator.register(spec)?;
    }
    coordinator.start_all();
    terminated.await;
    // An error names the streams whose work did not end. They are not released: the next leader waits out their TTL.
    coordinator.shutdown(GRACE).await?;
    Ok(())
}

/// Piece by piece, until it is asked to stop. The piece at hand is finished.
async fn work(leadership: Leadership) {
    println!("leading {}", leadership.stream());
    while !leadership.is_stop_requested() {
        // The side effect, with leadership.token(). Dropped when the leadership is lost.
        let piece = leadership.run(tokio::time::sleep(Duration::from_millis(100)));
        if piece.await.is_err() {
            return;
        }
    }
    println!("stopping {}", leadership.stream());
}
// [shutdown]

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]
mod tests {
    use leasewarden::{LockServiceExt, lock::InMemoryLockService};

    use super::*;

    #[tokio::test]
    async fn sigterm_drains_the_work_and_releases_the_locks() {
        let lock = InMemoryLockService::new();
        let terminated = terminated().unwrap();
        let serving = tokio::spawn(terminated);
        let me = InstanceId::new("a").unwrap();
        let streams = ["orders", "payments"].map(|name| StreamName::new(name).unwrap());
        let seen = lock.clone();
        let both = streams.clone();
        let kill_when_leading = tokio::spawn(async move {
            for stream in &both {
                while seen.current_leader(stream).await.as_deref() != Some("a") {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
            let this = std::process::id().to_string();
            let killed = std::process::Command::new("sh")
                .args(["-c", "kill -TERM \"$0\"", &this])
                .status();
            assert!(killed.unwrap().success());
        });
        let served = serve(Arc::new(lock.peer()), me, async { serving.await.unwrap() });
        let limit = Duration::from_secs(60);
        tokio::time::timeout(limit, served)
            .await
            .expect("it ends")
            .unwrap();
        kill_when_leading.await.unwrap();
        for stream in &streams {
            assert_eq!(lock.current_leader(stream).await, None, "{stream} is released");
        }
    }

    #[test]
    fn the_page_shows_this_code() {
        let page = include_str!("../docs/shutdown.md");
        let code = include_str!("coordinator.rs")
            .split("// [shutdown]\n")
            .nth(1)
            .unwrap();
        assert!(
            page.contains(&format!("```rust\n{code}```")),
            "docs/shutdown.md differs"
        );
    }
}
