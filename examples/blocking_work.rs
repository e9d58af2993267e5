//! Work that cannot be dropped: a blocking thread, and a child process. Both keep a clone of the guard for as long as they
//! run, so the lock is not released before they have ended. `docs/blocking-work.md` shows this code and says what it rests on.
//!
//! ```text
//! cargo run --example blocking_work
//! ```

use std::{io, process::ExitStatus, process::Stdio, sync::Arc, time::Duration};

use leasewarden::{
    StreamName,
    election::{DeploymentMode, IfStuck, LeaderElectionCoordinator, Leadership, NotLeading, StreamSpec},
    lock::InMemoryLockService,
};
use tokio::process::{Child, Command};

// [thread]
/// Runs blocking code, piece by piece, for as long as this instance leads.
async fn on_a_thread(leadership: Leadership, mut piece: impl FnMut(&Leadership) + Send + 'static) {
    let guard = leadership.clone();
    let thread = tokio::task::spawn_blocking(move || {
        // Between pieces: is it to stop? Each piece is short, as against the stop margin.
        while !guard.is_stop_requested() {
            piece(&guard);
        }
        // The clone is dropped here, and only now the lock can be released.
    });
    // When this future is dropped, the thread goes on, and so does its guard.
    let _ = thread.await;
}

/// A side effect right after the last question whether it is allowed.
fn side_effect(guard: &Leadership, effect: impl FnOnce()) -> Result<(), NotLeading> {
    guard.check()?;
    effect(); // with guard.token(), to a store that checks it
    Ok(())
}
// [thread]

// [child]
/// Runs a child process for as long as this instance leads.
async fn as_a_child(leadership: Leadership, mut command: Command) -> io::Result<ExitStatus> {
    if let Some(token) = leadership.token() {
        command.env("FENCING_TOKEN", token.to_string());
    }
    // The child reads its stdin's end when it is to stop, and also when this process dies, however it dies.
    let child = command.stdin(Stdio::piped()).kill_on_drop(true).spawn()?;
    // A task of its own, which nobody drops: it ends when the child is gone, and holds the guard until then.
    let supervisor = tokio::spawn(supervise(leadership.clone(), child));
    supervisor.await.map_err(io::Error::other)?
}

async fn supervise(guard: Leadership, mut child: Child) -> io::Result<ExitStatus> {
    // Taken, for `wait` closes what it finds.
    let stdin = child.stdin.take();
    tokio::select! {
        status = child.wait() => return status,
        _ = guard.stop_requested() => drop(stdin),
    }
    // It drains, under a lock that is kept, until the drain time-out; then, or when the lock cannot be kept, `lost` completes.
    tokio::select! {
        status = child.wait() => return status,
        _ = guard.lost() => {}
    }
    // SIGKILL, and only when the child is gone the guard is dropped.
    child.start_kill()?;
    child.wait().await
}
// [child]

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let coordinator = LeaderElectionCoordinator::builder(Arc::new(InMemoryLockService::new())).build()?;
    let thread = StreamSpec::new(
        StreamName::new("thread")?,
        DeploymentMode::SingleLeader,
        |leadership| {
            on_a_thread(leadership, |guard| {
                let _ = side_effect(guard, || {
                    println!("a piece of work, under token {:?}", guard.token());
                });
                std::thread::sleep(Duration::from_millis(200));
            })
        },
    );
    let child = StreamSpec::new(
        StreamName::new("child")?,
        DeploymentMode::SingleLeader,
        |leadership| async {
            let mut cat = Command::new("cat"); // ends when its stdin does
            cat.stdout(Stdio::null());
            println!("the child ended: {:?}", as_a_child(leadership, cat).await);
        },
    );
    // Without this, a thread that does not end keeps its lock from being released, and that is all that can be done.
    coordinator.register(thread.if_stuck(IfStuck::AbortProcess))?;
    coordinator.register(child.if_stuck(IfStuck::AbortProcess))?;
    coordinator.start_all();
    tokio::time::sleep(Duration::from_secs(1)).await;
    coordinator.shutdown(Duration::from_secs(20)).await?;
    Ok(())
}

#[cfg(all(test, target_os = "linux"))]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::{
        path::Path,
        sync::{
            Mutex,
            atomic::{AtomicBool, AtomicUsize, Ordering},
            mpsc,
        },
    };

    use leasewarden::{
        AcquireRequest, ExtendRequest, InstanceId, LockError, LockService, LockState, Outcome,
        ReleaseRequest, Released, Ttl,
        election::{ElectionSettings, StreamState},
        lock::{BoxFuture, Clock, ManualClock},
    };

    use super::*;

    /// A lock that can be out of reach, and that looks at the child when it is released.
    #[derive(Clone)]
    struct Watched {
        inner: InMemoryLockService,
        unreachable: Arc<AtomicBool>,
        pid_file: Arc<tempfile::NamedTempFile>,
        releases: Arc<Mutex<Vec<bool>>>,
    }

    impl Watched {
        fn new(inner: InMemoryLockService) -> Self {
            Self {
                inner,
                unreachable: Arc::default(),
                pid_file: Arc::new(tempfile::NamedTempFile::new().unwrap()),
                releases: Arc::default(),
            }
        }

        /// The child's process id, once it has written it down.
        fn child(&self) -> Option<String> {
            let text = std::fs::read_to_string(self.pid_file.path()).unwrap();
            Some(text.strip_suffix('\n')?.to_owned())
        }

        fn child_runs(&self) -> bool {
            self.child()
                .is_some_and(|pid| Path::new("/proc").join(pid).exists())
        }

        /// For each release, whether the child ran when it was sent.
        fn releases(&self) -> Vec<bool> {
            self.releases.lock().unwrap().clone()
        }
    }

    impl LockService for Watched {
        fn acquire(&self, request: AcquireRequest) -> BoxFuture<'_, Result<Outcome, LockError>> {
            if self.unreachable.load(Ordering::SeqCst) {
                return Box::pin(std::future::pending());
            }
            self.inner.acquire(request)
        }

        fn extend(&self, request: ExtendRequest) -> BoxFuture<'_, Result<Outcome, LockError>> {
            if self.unreachable.load(Ordering::SeqCst) {
                return Box::pin(std::future::pending());
            }
            self.inner.extend(request)
        }

        fn release(&self, request: ReleaseRequest) -> BoxFuture<'_, Result<Released, LockError>> {
            self.releases.lock().unwrap().push(self.child_runs());
            self.inner.release(request)
        }

        fn state(&self, stream: &StreamName) -> BoxFuture<'_, Result<Option<LockState>, LockError>> {
            self.inner.state(stream)
        }

        fn clock(&self) -> &dyn Clock {
            self.inner.clock()
        }
    }

    fn orders() -> StreamName {
        StreamName::new("orders").unwrap()
    }

    async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
        let wait = async {
            while !holds() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let limit = Duration::from_secs(60);
        tokio::time::timeout(limit, wait)
            .await
            .unwrap_or_else(|_| panic!("never: {what}"));
    }

    fn coordinator(lock: &Watched, drain: Duration) -> LeaderElectionCoordinator {
        let settings = ElectionSettings::builder(Ttl::from_secs(15).unwrap());
        LeaderElectionCoordinator::builder(Arc::new(lock.clone()))
            .instance_id(InstanceId::new("a").unwrap())
            .settings(settings.drain_timeout(drain).build().unwrap())
            .longest_sleep(Duration::from_millis(1))
            .build()
            .unwrap()
    }

    fn state(coordinator: &LeaderElectionCoordinator) -> StreamState {
        coordinator.status(&orders()).unwrap().state
    }

    /// Leads with a shell as the child.
    fn lead_with(coordinator: &LeaderElectionCoordinator, lock: &Watched, script: &'static str) {
        let file = Arc::clone(&lock.pid_file);
        let spec = StreamSpec::new(orders(), DeploymentMode::SingleLeader, move |leadership| {
            let mut command = Command::new("sh");
            command
                .args(["-c", &format!("echo $$ > \"$PID_FILE\"; {script}")])
                .env("PID_FILE", file.path());
            async move { drop(as_a_child(leadership, command).await) }
        });
        coordinator.register(spec).unwrap();
        coordinator.start_all();
    }

    const OBEDIENT: &str = "cat > /dev/null; test \"$FENCING_TOKEN\" -gt 0";
    const STUBBORN: &str = "exec sleep 600";

    #[tokio::test]
    async fn a_child_that_ends_with_its_stdin_drains_before_the_release() {
        let lock = Watched::new(InMemoryLockService::new());
        let a = coordinator(&lock, Duration::from_secs(15));
        lead_with(&a, &lock, OBEDIENT);
        eventually("the child runs", || lock.child_runs()).await;
        a.stop(&orders()).unwrap().finished().await;
        assert_eq!(lock.releases(), [false]);
    }

    #[tokio::test]
    async fn a_child_that_outlasts_the_drain_time_out_is_killed_before_the_release() {
        let lock = Watched::new(InMemoryLockService::new());
        let a = coordinator(&lock, Duration::from_millis(50));
        lead_with(&a, &lock, STUBBORN);
        eventually("the child runs", || lock.child_runs()).await;
        a.stop(&orders()).unwrap().finished().await;
        assert_eq!(lock.releases(), [false]);
    }

    #[tokio::test]
    async fn a_child_is_gone_before_the_deadline_of_a_lock_that_is_out_of_reach() {
        let clock = Arc::new(ManualClock::new());
        let lock = Watched::new(InMemoryLockService::with_clock(clock.clone()));
        let a = coordinator(&lock, Duration::from_secs(15));
        lead_with(&a, &lock, STUBBORN);
        eventually("the child runs", || {
            if state(&a) == StreamState::Contending {
                clock.advance(Duration::from_millis(10));
            }
            lock.child_runs()
        })
        .await;
        lock.unreachable.store(true, Ordering::SeqCst);
        // Past the moment at which the work is told, and no further: the deadline never comes.
        let valid_until = a.status(&orders()).unwrap().valid_until.unwrap();
        let left = valid_until.since(clock.now());
        clock.advance(left.saturating_sub(a.settings().stop_margin()) + Duration::from_millis(10));
        eventually("the child is gone", || !lock.child_runs()).await;
        assert!(clock.now() < valid_until, "before the deadline");
        eventually("the release is sent", || lock.releases() == [false]).await;
    }

    #[tokio::test]
    async fn a_thread_that_does_not_end_is_never_released() {
        let lock = Watched::new(InMemoryLockService::new());
        let a = coordinator(&lock, Duration::from_millis(50));
        let (unblock, blocked) = mpsc::channel::<()>();
        let blocked = Arc::new(Mutex::new(blocked));
        let pieces = Arc::new(AtomicUsize::new(0));
        let begun = Arc::clone(&pieces);
        let spec = StreamSpec::new(orders(), DeploymentMode::SingleLeader, move |leadership| {
            let (blocked, begun) = (Arc::clone(&blocked), Arc::clone(&begun));
            on_a_thread(leadership, move |_| {
                begun.fetch_add(1, Ordering::SeqCst);
                // Until the sender is gone.
                let _ = blocked.lock().unwrap().recv();
            })
        });
        a.register(spec).unwrap();
        a.start_all();
        eventually("the thread works", || pieces.load(Ordering::SeqCst) == 1).await;
        let stopping = a.stop(&orders()).unwrap();
        eventually("it lingers", || state(&a) == StreamState::Lingering).await;
        assert_eq!((lock.releases().len(), pieces.load(Ordering::SeqCst)), (0, 1));
        drop(unblock);
        stopping.finished().await;
        assert_eq!(
            pieces.load(Ordering::SeqCst),
            1,
            "no piece is begun after the stop"
        );
    }

    #[tokio::test]
    async fn a_side_effect_is_refused_once_the_lock_is_lost() {
        let lock = Watched::new(InMemoryLockService::new());
        let a = coordinator(&lock, Duration::from_secs(15));
        let (refused, effects) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (told, counted) = (Arc::clone(&refused), Arc::clone(&effects));
        let spec = StreamSpec::new(orders(), DeploymentMode::SingleLeader, move |leadership| {
            let (told, counted) = (Arc::clone(&told), Arc::clone(&counted));
            async move {
                let thread = tokio::task::spawn_blocking(move || {
                    // A loop that does not ask whether it is to stop, only whether it may act.
                    while side_effect(&leadership, || {
                        counted.fetch_add(1, Ordering::SeqCst);
                    })
                    .is_ok()
                    {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    told.store(true, Ordering::SeqCst);
                });
                let _ = thread.await;
            }
        });
        a.register(spec).unwrap();
        a.start_all();
        eventually("it acts", || effects.load(Ordering::SeqCst) > 0).await;
        lock.inner.delete(&orders());
        eventually("it is refused", || refused.load(Ordering::SeqCst)).await;
    }

    #[test]
    fn the_page_shows_this_code() {
        let page = include_str!("../docs/blocking-work.md");
        for name in ["thread", "child"] {
            let source = include_str!("blocking_work.rs");
            let code = source.split(&format!("// [{name}]\n")).nth(1).unwrap();
            assert!(page.contains(&format!("```rust\n{code}```")), "[{name}] differs");
        }
    }
}
