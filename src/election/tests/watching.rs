//! What a program that embeds the coordinator sees of it: metrics and liveness. Neither is in the way of a renewal.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    time::Duration,
};

use super::bench::*;
use crate::{
    election::{
        Attempt, AttemptOutcome, ElectionEvent, ElectionEventKind as Kind, LeaderElectionCoordinator,
        LossReason, Role,
    },
    lock::{AcquireRequest, ExtendRequest, Outcome, ReleaseRequest, Released, StreamName},
    lock::{
        BoxFuture, Clock, InMemoryLockService, InstanceId, LockError, LockService, LockState, ManualClock,
    },
};

/// At a TTL of 15 s on a manual clock, with a hook.
fn observed(
    lock: impl LockService + 'static,
    hook: impl FnMut(&ElectionEvent) + Send + 'static,
) -> LeaderElectionCoordinator {
    LeaderElectionCoordinator::builder(Arc::new(lock))
        .instance_id(InstanceId::new("a").unwrap())
        .longest_sleep(Duration::from_millis(1))
        .metrics(hook)
        .build()
        .unwrap()
}

async fn until_it_leads(clock: &ManualClock, a: &LeaderElectionCoordinator) {
    while !leads(a) {
        advance(clock, Duration::from_millis(250), &[a]).await;
    }
}

fn recorder() -> (Arc<Mutex<Vec<Kind>>>, impl FnMut(&ElectionEvent) + Send + 'static) {
    let events = Arc::new(Mutex::new(Vec::new()));
    let into = Arc::clone(&events);
    (events, move |event: &ElectionEvent| {
        assert_eq!((&event.stream, event.missed), (&orders(), 0));
        into.lock().unwrap().push(event.kind.clone());
    })
}

fn attempts(events: &Mutex<Vec<Kind>>, wanted: (Attempt, AttemptOutcome)) -> usize {
    let events = events.lock().unwrap();
    let is = |kind: &&Kind| matches!(kind, Kind::Attempt { attempt, outcome, .. } if (*attempt, *outcome) == wanted);
    events.iter().filter(is).count()
}

#[tokio::test]
async fn the_hook_hears_of_a_leadership_from_its_acquisition_to_its_loss() {
    let clock = Arc::new(ManualClock::new());
    let lock = Faulty::new(InMemoryLockService::with_clock(clock.clone()));
    let (events, hook) = recorder();
    let a = observed(lock.clone(), hook);
    run(&a, Arc::new(Arena::default()).spec());
    until_it_leads(&clock, &a).await;
    while lock.extensions.load(Ordering::SeqCst) == 0 {
        advance(&clock, Duration::from_millis(250), &[&a]).await;
    }
    eventually("a renewal is told", || {
        attempts(&events, (Attempt::Extend, AttemptOutcome::Done)) > 0
    })
    .await;
    lock.set(Fault::Hang);
    while leads(&a) {
        advance(&clock, Duration::from_millis(250), &[&a]).await;
    }
    eventually("what was not answered is told", || {
        attempts(&events, (Attempt::Extend, AttemptOutcome::TimedOut)) > 0
    })
    .await;
    lock.set(Fault::Cut);
    while attempts(&events, (Attempt::Acquire, AttemptOutcome::Unknown)) == 0 {
        advance(&clock, Duration::from_millis(250), &[&a]).await;
    }
    lock.set(Fault::None);
    until_it_leads(&clock, &a).await;
    a.stop(&orders()).unwrap().finished().await;
    eventually("the release is told", || {
        attempts(&events, (Attempt::Release, AttemptOutcome::Done)) == 1
    })
    .await;
    let events = events.lock().unwrap();
    let story: Vec<_> = events
        .iter()
        .filter_map(|kind| match kind {
            Kind::Acquired { token } => Some(format!("acquired {}", token.is_some())),
            Kind::Lost { reason } => Some(format!("lost {}", reason.as_str())),
            Kind::RoleChanged { from, to } => Some(format!("{} to {}", from.as_str(), to.as_str())),
            Kind::Attempt { .. } => None,
        })
        .collect();
    assert_eq!(
        story,
        [
            "acquired true",
            "standby to leader",
            "lost expired_unreachable",
            "leader to standby",
            "acquired true",
            "standby to leader",
            "lost stopped",
            "leader to standby",
        ]
    );
}

#[tokio::test]
async fn a_deletion_is_told_as_the_reason() {
    let clock = Arc::new(ManualClock::new());
    let lock = InMemoryLockService::with_clock(clock.clone());
    let (events, hook) = recorder();
    let a = observed(lock.peer(), hook);
    run(&a, Arc::new(Arena::default()).spec());
    until_it_leads(&clock, &a).await;
    lock.delete(&orders());
    // It may lead again soon after, so the state is no sign of it.
    let told = || {
        let events = events.lock().unwrap();
        let lost = |kind: &Kind| {
            matches!(
                kind,
                Kind::Lost {
                    reason: LossReason::Deleted
                }
            )
        };
        events.iter().any(lost)
    };
    let begin = std::time::Instant::now();
    while !told() {
        assert!(begin.elapsed() < seconds(60), "never: the loss is told");
        advance(&clock, Duration::from_millis(250), &[&a]).await;
    }
}

#[tokio::test]
async fn a_hook_that_blocks_delays_no_renewal() {
    let clock = Arc::new(ManualClock::new());
    let lock = Faulty::new(InMemoryLockService::with_clock(clock.clone()));
    let (unblock, blocked) = mpsc::channel::<()>();
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let a = observed(lock.clone(), move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        // Until the sender is gone.
        let _ = blocked.recv();
    });
    let arena = Arc::new(Arena::default());
    run(&a, arena.spec());
    until_it_leads(&clock, &a).await;
    eventually("the hook is inside", || calls.load(Ordering::SeqCst) == 1).await;
    for _ in 0..8 {
        advance(&clock, Duration::from_secs(5), &[&a]).await;
    }
    assert!(leads(&a) && arena.starts() == 1, "{:?}", status(&a));
    assert!(lock.extensions.load(Ordering::SeqCst) >= 4);
    assert_eq!(calls.load(Ordering::SeqCst), 1, "it was inside all the while");
    drop(unblock);
    eventually("it hears the rest", || calls.load(Ordering::SeqCst) >= 5).await;
}

#[tokio::test]
async fn a_hook_that_panics_is_asked_again_and_ends_no_leadership() {
    let clock = Arc::new(ManualClock::new());
    let lock = Faulty::new(InMemoryLockService::with_clock(clock.clone()));
    let panics = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&panics);
    let a = observed(lock.clone(), move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        panic!("a bug in the hook");
    });
    let arena = Arc::new(Arena::default());
    run(&a, arena.spec());
    until_it_leads(&clock, &a).await;
    for _ in 0..8 {
        advance(&clock, Duration::from_secs(5), &[&a]).await;
    }
    assert!(leads(&a) && arena.starts() == 1);
    eventually("each event was told", || panics.load(Ordering::SeqCst) >= 4).await;
    assert!(lock.extensions.load(Ordering::SeqCst) >= 4);
}

/// A lock whose extension blocks the coordinator's thread, as a service with a bug does.
struct Blocking {
    inner: InMemoryLockService,
    until: Mutex<mpsc::Receiver<()>>,
}

impl LockService for Blocking {
    fn acquire(&self, request: AcquireRequest) -> BoxFuture<'_, Result<Outcome, LockError>> {
        self.inner.acquire(request)
    }

    fn extend(&self, request: ExtendRequest) -> BoxFuture<'_, Result<Outcome, LockError>> {
        let _ = self.until.lock().unwrap().recv();
        self.inner.extend(request)
    }

    fn release(&self, request: ReleaseRequest) -> BoxFuture<'_, Result<Released, LockError>> {
        self.inner.release(request)
    }

    fn state(&self, stream: &StreamName) -> BoxFuture<'_, Result<Option<LockState>, LockError>> {
        self.inner.state(stream)
    }

    fn clock(&self) -> &dyn Clock {
        self.inner.clock()
    }
}

#[tokio::test]
async fn a_loop_that_hangs_is_not_alive_and_is_alive_again_when_it_goes_on() {
    let (unblock, until) = mpsc::channel();
    let lock = Blocking {
        inner: InMemoryLockService::new(),
        until: Mutex::new(until),
    };
    let a = on_system_clock(lock, "a", seconds(3));
    assert!(a.is_alive(), "nothing runs that could be dead");
    run(&a, Arc::new(Arena::default()).spec());
    eventually("it leads", || leads(&a)).await;
    assert!(a.is_alive());
    eventually("the hung loop is noticed", || !a.is_alive()).await;
    assert!(a.is_ready(), "readiness is another question");
    drop(unblock);
    eventually("it runs again", || a.is_alive()).await;
}

#[tokio::test]
async fn a_loop_that_died_is_not_alive() {
    let lock = InMemoryLockService::new();
    let a = on_system_clock(lock, "a", seconds(3));
    run(&a, Arc::new(Arena::default()).spec());
    eventually("it leads", || leads(&a)).await;
    a.kill_loops();
    eventually("the dead loop is noticed", || !a.is_alive()).await;
}

#[tokio::test]
async fn a_standby_and_one_that_cannot_reach_the_lock_are_ready_and_alive() {
    let lock = Faulty::new(InMemoryLockService::new());
    lock.set(Fault::Cut);
    let a = on_system_clock(lock.clone(), "a", seconds(3));
    run(&a, Arc::new(Arena::default()).spec());
    eventually("it has asked in vain", || lock.met() > 3).await;
    // Restarting a Pod mends no API server, and taking it out of service mends nothing either.
    assert!(a.is_ready() && a.is_alive());
    assert_eq!(status(&a).role, Role::Standby);
}
