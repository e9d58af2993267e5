//! Shared by the tests: candidates, the arena that their work acts in, and faults of the lock.

use std::{
    future::pending,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::time::sleep;

use crate::{
    election::{
        DeploymentMode, ElectionSettings, LeaderElectionCoordinator, Leadership, Role, StreamSpec,
        StreamStatus,
    },
    lock::{
        AcquireRequest, BoxFuture, Clock, ExtendRequest, FencingToken, InMemoryLockService, InstanceId,
        LockError, LockService, LockState, ManualClock, Outcome, ReleaseRequest, Released, StreamName, Ttl,
        Unknown,
    },
};

/// Beyond what any condition takes on the busiest machine.
const LIMIT: Duration = Duration::from_secs(60);

pub(super) fn orders() -> StreamName {
    StreamName::new("orders").unwrap()
}

pub(super) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < LIMIT, "never: {what}");
        sleep(Duration::from_millis(2)).await;
    }
}

/// A coordinator at a TTL of 15 s whose loops follow a manual clock.
pub(super) fn on_manual_clock(service: impl LockService + 'static, id: &str) -> LeaderElectionCoordinator {
    LeaderElectionCoordinator::builder(Arc::new(service))
        .instance_id(InstanceId::new(id).unwrap())
        .longest_sleep(Duration::from_millis(1))
        .build()
        .unwrap()
}

/// A coordinator on the machine's clock.
pub(super) fn on_system_clock(
    service: impl LockService + 'static,
    id: &str,
    ttl: Duration,
) -> LeaderElectionCoordinator {
    let settings = ElectionSettings::with_ttl(Ttl::new(ttl).unwrap()).unwrap();
    LeaderElectionCoordinator::builder(Arc::new(service))
        .instance_id(InstanceId::new(id).unwrap())
        .settings(settings)
        .build()
        .unwrap()
}

/// Moves the clock in steps of at most 250 ms, and lets every loop follow each step.
pub(super) async fn advance(clock: &ManualClock, by: Duration, coordinators: &[&LeaderElectionCoordinator]) {
    let step = by.min(Duration::from_millis(250));
    for _ in 0..by.as_millis() / step.as_millis() {
        clock.advance(step);
        // One turn sees the time, one the reply to what it sent, one what follows, and the last proves that it is done.
        for _ in 0..4 {
            let since = Instant::now();
            for coordinator in coordinators {
                eventually("every loop turns", || {
                    coordinator.last_beat().is_none_or(|beat| beat > since)
                })
                .await;
            }
        }
    }
}

pub(super) fn status(coordinator: &LeaderElectionCoordinator) -> StreamStatus {
    coordinator.status(&orders()).unwrap()
}

pub(super) fn leads(coordinator: &LeaderElectionCoordinator) -> bool {
    status(coordinator).role == Role::Leader
}

pub(super) fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// Where work acts: at most one inside at a time, with rising tokens.
#[derive(Default)]
pub(super) struct Arena {
    inside: AtomicUsize,
    pub(super) overlaps: AtomicUsize,
    pub(super) acts: AtomicUsize,
    pub(super) tokens: Mutex<Vec<FencingToken>>,
    pub(super) dropped: AtomicUsize,
}

impl Arena {
    pub(super) fn acts(&self) -> usize {
        self.acts.load(Ordering::SeqCst)
    }

    pub(super) fn dropped(&self) -> usize {
        self.dropped.load(Ordering::SeqCst)
    }

    pub(super) fn starts(&self) -> usize {
        self.tokens.lock().unwrap().len()
    }

    pub(super) fn assert_one_at_a_time(&self) {
        assert_eq!(self.overlaps.load(Ordering::SeqCst), 0, "two acted at once");
        let tokens = self.tokens.lock().unwrap();
        assert!(tokens.is_sorted_by(|a, b| a < b), "tokens rise: {tokens:?}");
    }

    /// Acts if the guard allows it.
    pub(super) fn act(&self, leadership: &Leadership) {
        if leadership.check().is_ok() {
            if self.inside.fetch_add(1, Ordering::SeqCst) > 0 {
                self.overlaps.fetch_add(1, Ordering::SeqCst);
            }
            std::thread::sleep(Duration::from_micros(20));
            self.inside.fetch_sub(1, Ordering::SeqCst);
            self.acts.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Work that acts until it is asked to stop.
    pub(super) async fn work(self: Arc<Self>, leadership: Leadership) {
        let _counted = self.enter(&leadership);
        loop {
            tokio::select! {
                _ = leadership.stop_requested() => return,
                () = sleep(Duration::from_millis(1)) => self.act(&leadership),
            }
        }
    }

    /// Work that acts, and stops for nobody.
    pub(super) async fn stubborn(self: Arc<Self>, leadership: Leadership) {
        let _counted = self.enter(&leadership);
        loop {
            sleep(Duration::from_millis(1)).await;
            self.act(&leadership);
        }
    }

    pub(super) fn enter(self: &Arc<Self>, leadership: &Leadership) -> impl Drop + use<> {
        struct Counted(Arc<Arena>);
        impl Drop for Counted {
            fn drop(&mut self) {
                self.0.dropped.fetch_add(1, Ordering::SeqCst);
            }
        }
        self.tokens.lock().unwrap().extend(leadership.token());
        Counted(Arc::clone(self))
    }

    pub(super) fn spec(self: &Arc<Self>) -> StreamSpec {
        let arena = Arc::clone(self);
        StreamSpec::new(orders(), DeploymentMode::SingleLeader, move |l| {
            Arc::clone(&arena).work(l)
        })
    }

    pub(super) fn stubborn_spec(self: &Arc<Self>) -> StreamSpec {
        let arena = Arc::clone(self);
        StreamSpec::new(orders(), DeploymentMode::SingleLeader, move |l| {
            Arc::clone(&arena).stubborn(l)
        })
    }
}

/// Registers and starts.
pub(super) fn run(coordinator: &LeaderElectionCoordinator, spec: StreamSpec) {
    coordinator.register(spec).unwrap();
    coordinator.start_all();
}

/// What is wrong with the way to the lock.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Fault {
    None,
    /// Every request fails at once.
    Cut,
    /// No request is answered, nor applied.
    Hang,
    /// Every request is applied, and its outcome is not known.
    LoseReplies,
    Panic,
}

/// A lock with faults on command, which counts.
#[derive(Clone)]
pub(super) struct Faulty {
    inner: InMemoryLockService,
    fault: Arc<Mutex<Fault>>,
    pub(super) extensions: Arc<AtomicUsize>,
    /// How many requests met a fault.
    pub(super) met: Arc<AtomicUsize>,
}

impl Faulty {
    pub(super) fn new(inner: InMemoryLockService) -> Self {
        Self {
            inner,
            fault: Arc::new(Mutex::new(Fault::None)),
            extensions: Arc::default(),
            met: Arc::default(),
        }
    }

    pub(super) fn set(&self, fault: Fault) {
        *self.fault.lock().unwrap() = fault;
    }

    pub(super) fn met(&self) -> usize {
        self.met.load(Ordering::SeqCst)
    }

    async fn through<T>(
        &self,
        call: BoxFuture<'_, Result<T, LockError>>,
        unknown: impl FnOnce(Unknown) -> T,
    ) -> Result<T, LockError> {
        let fault = *self.fault.lock().unwrap();
        if fault != Fault::None {
            self.met.fetch_add(1, Ordering::SeqCst);
        }
        match fault {
            Fault::None => call.await,
            Fault::Cut => Ok(unknown(Unknown::new("the way to the lock is cut"))),
            Fault::Hang => pending().await,
            Fault::LoseReplies => {
                let _ = call.await;
                Ok(unknown(Unknown::new("the reply was lost")))
            }
            Fault::Panic => panic!("a bug in the lock"),
        }
    }
}

impl LockService for Faulty {
    fn acquire(&self, request: AcquireRequest) -> BoxFuture<'_, Result<Outcome, LockError>> {
        Box::pin(self.through(self.inner.acquire(request), Outcome::Unknown))
    }

    fn extend(&self, request: ExtendRequest) -> BoxFuture<'_, Result<Outcome, LockError>> {
        self.extensions.fetch_add(1, Ordering::SeqCst);
        Box::pin(self.through(self.inner.extend(request), Outcome::Unknown))
    }

    fn release(&self, request: ReleaseRequest) -> BoxFuture<'_, Result<Released, LockError>> {
        Box::pin(self.through(self.inner.release(request), Released::Unknown))
    }

    fn state(&self, stream: &StreamName) -> BoxFuture<'_, Result<Option<LockState>, LockError>> {
        self.inner.state(stream)
    }

    fn clock(&self) -> &dyn Clock {
        self.inner.clock()
    }
}
