//! What a program embeds: its streams, their work, and when they start and stop.
//!
//! The loops of all streams run on one thread with a runtime of its own, so that work that blocks every worker of the
//! program's runtime delays no renewal. Nothing is decided here; see [`machine`](super::machine).

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    runtime::Handle,
    sync::{mpsc, oneshot, watch},
    task::JoinSet,
};

use super::{
    builder::CoordinatorBuilder,
    driver::{Driver, Hands, Message, Pulse, initial_status},
    error::{CoordinatorError, Unfinished},
    machine::{Machine, Wish},
    metrics::Metrics,
    settings::ElectionSettings,
    spec::StreamSpec,
    status::{StreamState, StreamStatus},
};
use crate::lock::{InstanceId, LockService, Moment, StreamName};

/// A loop that has not run for so long, beyond its longest sleep, is dead.
const DEAD_AFTER: Duration = Duration::from_secs(5);

/// A stop that is under way. It goes on whether or not this is waited for.
#[derive(Debug)]
pub struct Stopping(Vec<oneshot::Receiver<()>>);

impl Stopping {
    /// Waits until the work has ended and the lock is given up, or a later start has overtaken the stop.
    pub async fn finished(self) {
        for told in self.0 {
            // An error tells the same: the loop keeps the sender until then, or is gone.
            let _ = told.await;
        }
    }
}

pub(super) enum Command {
    Run(Box<Driver>),
    /// Ends the thread as a crash does.
    #[cfg(test)]
    Die(std::sync::mpsc::Sender<()>),
}

/// What a coordinator is built of.
pub(super) struct Parts {
    pub(super) service: Arc<dyn LockService>,
    pub(super) instance: InstanceId,
    pub(super) settings: ElectionSettings,
    pub(super) runtime: Handle,
    pub(super) slice: Duration,
    pub(super) metrics: Metrics,
    pub(super) commands: mpsc::UnboundedSender<Command>,
}

struct Entry {
    inbox: mpsc::UnboundedSender<Message>,
    status: watch::Receiver<StreamStatus>,
    pulse: Arc<Pulse>,
}

/// Contends for the streams' locks, and runs each stream's work while it leads.
///
/// Dropping it asks everything to stop, as [`shutdown`](Self::shutdown) does, and does not wait.
///
/// ```
/// # use std::{sync::Arc, time::Duration};
/// # use leasewarden::{StreamName, lock::InMemoryLockService};
/// # use leasewarden::election::{DeploymentMode, LeaderElectionCoordinator, Leadership, StreamSpec};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// async fn process(leadership: Leadership) {
///     loop {
///         tokio::select! {
///             _ = leadership.stop_requested() => return,
///             done = leadership.run(async { /* one side effect, with leadership.token() */ }) => {
///                 if done.is_err() {
///                     return;
///                 }
///             }
///         }
///         # tokio::time::sleep(Duration::from_millis(5)).await;
///     }
/// }
///
/// let coordinator = LeaderElectionCoordinator::builder(Arc::new(InMemoryLockService::new())).build()?;
/// let orders = StreamName::new("orders")?;
/// coordinator.register(StreamSpec::new(orders.clone(), DeploymentMode::SingleLeader, process))?;
/// coordinator.start(&orders)?;
/// // … until SIGTERM …
/// coordinator.shutdown(Duration::from_secs(20)).await?;
/// # Ok(()) }
/// ```
pub struct LeaderElectionCoordinator {
    parts: Parts,
    streams: Mutex<BTreeMap<StreamName, Entry>>,
    changes: watch::Sender<u64>,
    shut: AtomicBool,
}

/// The coordinator's thread: runs until the coordinator is gone and every stream is down.
pub(super) async fn command(mut commands: mpsc::UnboundedReceiver<Command>) {
    let mut loops = JoinSet::new();
    while let Some(command) = commands.recv().await {
        match command {
            Command::Run(driver) => drop(loops.spawn_local(driver.run())),
            #[cfg(test)]
            Command::Die(_ended) => return,
        }
        while loops.try_join_next().is_some() {}
    }
    while loops.join_next().await.is_some() {}
}

/// Goes off after `timeout`, unless its first half is dropped before. On a thread of its own: the caller's runtime may
/// have no timers, and a lock service that blocks the coordinator's thread must not block the shutdown's end.
fn alarm(timeout: Duration) -> (std::sync::mpsc::Sender<()>, oneshot::Receiver<()>) {
    let (done, is_done) = std::sync::mpsc::channel();
    let (ring, alarm) = oneshot::channel();
    // If there is no thread to be had, the ring is dropped, and the alarm goes off at once.
    let _ = std::thread::Builder::new()
        .name("leasewarden-shutdown".to_owned())
        .spawn(move || {
            let _ = is_done.recv_timeout(timeout);
            let _ = ring.send(());
        });
    (done, alarm)
}

impl LeaderElectionCoordinator {
    /// A builder, from the lock that decides.
    ///
    /// The service's futures run on the coordinator's thread: they must not block it.
    pub fn builder(service: Arc<dyn LockService>) -> CoordinatorBuilder {
        CoordinatorBuilder::new(service)
    }

    pub(super) fn new(parts: Parts) -> Self {
        Self {
            parts,
            streams: Mutex::default(),
            changes: watch::Sender::new(0),
            shut: AtomicBool::new(false),
        }
    }

    /// Who contends.
    pub fn instance_id(&self) -> &InstanceId {
        &self.parts.instance
    }

    /// How it keeps time.
    pub fn settings(&self) -> &ElectionSettings {
        &self.parts.settings
    }

    /// Adds a stream, stopped.
    ///
    /// # Errors
    /// [`CoordinatorError::DuplicateStream`], [`CoordinatorError::ShutDown`].
    pub fn register(&self, spec: StreamSpec) -> Result<(), CoordinatorError> {
        let mut streams = self.streams();
        // Under the lock that `shutdown` takes: no stream slips in behind it.
        if self.shut.load(Ordering::Acquire) {
            return Err(CoordinatorError::ShutDown);
        }
        if streams.contains_key(&spec.stream) {
            return Err(CoordinatorError::DuplicateStream(spec.stream));
        }
        let StreamSpec {
            stream,
            mode,
            after_work,
            if_stuck,
            work,
        } = spec;
        let (outbox, inbox) = mpsc::unbounded_channel();
        let status = watch::Sender::new(initial_status(stream.clone(), mode));
        let pulse = Arc::new(Pulse::new());
        let entry = Entry {
            inbox: outbox.clone(),
            status: status.subscribe(),
            pulse: Arc::clone(&pulse),
        };
        let seed = uuid::Uuid::new_v4().as_u64_pair().0;
        let driver = Driver {
            machine: Machine::new(self.parts.settings, mode, after_work, seed),
            stream: stream.clone(),
            mode,
            if_stuck,
            instance: self.parts.instance.clone(),
            ttl: self.parts.settings.ttl(),
            service: Arc::clone(&self.parts.service),
            work,
            runtime: self.parts.runtime.clone(),
            slice: self.parts.slice,
            inbox,
            outbox,
            status,
            changes: self.changes.clone(),
            pulse,
            metrics: self.parts.metrics.clone(),
            hands: Hands::default(),
        };
        self.parts
            .commands
            .send(Command::Run(Box::new(driver)))
            .map_err(|_| CoordinatorError::ShutDown)?;
        streams.insert(stream, entry);
        Ok(())
    }

    /// Starts a stream: contends for its lock, or runs its work where no lock is needed. A stream that is being stopped
    /// starts again once everything of its old term is gone.
    ///
    /// # Errors
    /// [`CoordinatorError::UnknownStream`], [`CoordinatorError::ShutDown`].
    pub fn start(&self, stream: &StreamName) -> Result<(), CoordinatorError> {
        self.wish(stream, Wish::Start, None)
    }

    /// Starts every registered stream.
    pub fn start_all(&self) {
        self.wish_all(Wish::Start);
    }

    /// Stops a stream: its work is asked to stop, and the lock is released when it has. The returned value can be waited
    /// for.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn stop(&self, stream: &StreamName) -> Result<Stopping, CoordinatorError> {
        let (told, stopped) = oneshot::channel();
        self.wish(stream, Wish::Stop, Some(told))?;
        Ok(Stopping(vec![stopped]))
    }

    /// Stops every registered stream.
    pub fn stop_all(&self) -> Stopping {
        self.wish_all(Wish::Stop)
    }

    /// Stops a stream and starts it again. What follows is another term; another instance may be first.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn restart(&self, stream: &StreamName) -> Result<(), CoordinatorError> {
        self.wish(stream, Wish::Stop, None)?;
        self.wish(stream, Wish::Start, None)
    }

    /// Stops every stream for good and waits until all are down. Nothing starts after it any more.
    ///
    /// All of it fits into `timeout`: give it a few seconds less than the Pod's `terminationGracePeriodSeconds` (25 s for
    /// the default of 30). Work that drains is dropped early enough for the release to follow (two
    /// [`attempt_timeout`](ElectionSettings::attempt_timeout)s before the end, or half of the time if that is less), and
    /// a lock whose release is not answered by then is left to expire.
    ///
    /// Cancellation: the streams go on ending.
    ///
    /// # Errors
    /// [`Unfinished`] for work that cannot be dropped, because it blocks a thread or clones of its guard live on: its lock
    /// is not released.
    pub async fn shutdown(&self, timeout: Duration) -> Result<(), Unfinished> {
        // A little less, so that what ends at the last moment is seen to have ended.
        let by = self.parts.service.clock().now() + timeout / 20 * 19;
        let stopping = self.begin_shutdown(by);
        let (_done, alarm) = alarm(timeout);
        tokio::select! {
            biased;
            () = stopping.finished() => return Ok(()),
            _ = alarm => {}
        }
        let states = self.statuses().into_iter();
        let streams = states
            .filter(|status| status.state != StreamState::Stopped)
            .map(|status| (status.stream, status.state))
            .collect();
        Err(Unfinished { streams })
    }

    fn begin_shutdown(&self, by: Moment) -> Stopping {
        {
            let _streams = self.streams();
            self.shut.store(true, Ordering::Release);
        }
        self.wish_all(Wish::ShutDown(by))
    }

    /// What is known about a stream; `None` when it is not registered.
    pub fn status(&self, stream: &StreamName) -> Option<StreamStatus> {
        let streams = self.streams();
        Some(streams.get(stream)?.status.borrow().clone())
    }

    /// What is known about every stream, by name.
    pub fn statuses(&self) -> Vec<StreamStatus> {
        let streams = self.streams();
        streams
            .values()
            .map(|entry| entry.status.borrow().clone())
            .collect()
    }

    /// A stream's status as it changes. Who reads slowly sees the latest, and holds nobody up.
    pub fn watch(&self, stream: &StreamName) -> Option<watch::Receiver<StreamStatus>> {
        let streams = self.streams();
        Some(streams.get(stream)?.status.clone())
    }

    /// A number that grows whenever any stream's state, token or last loss changes: wait for it, then read
    /// [`statuses`](Self::statuses).
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// For a liveness endpoint: whether the loop of every stream that is not stopped has run lately.
    pub fn is_alive(&self) -> bool {
        self.streams().values().all(|entry| {
            entry.status.borrow().state == StreamState::Stopped
                || entry.pulse.last().elapsed() < self.parts.slice + DEAD_AFTER
        })
    }

    /// For a readiness endpoint: true until the coordinator is shut down. A standby is ready.
    pub fn is_ready(&self) -> bool {
        !self.shut.load(Ordering::Acquire)
    }

    fn streams(&self) -> MutexGuard<'_, BTreeMap<StreamName, Entry>> {
        // Nothing panics half-way through a change, so a poisoned map is whole.
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wish(
        &self,
        stream: &StreamName,
        wish: Wish,
        told: Option<oneshot::Sender<()>>,
    ) -> Result<(), CoordinatorError> {
        let streams = self.streams();
        let entry = streams
            .get(stream)
            .ok_or_else(|| CoordinatorError::UnknownStream(stream.clone()))?;
        if self.shut.load(Ordering::Acquire) {
            return Err(CoordinatorError::ShutDown);
        }
        entry
            .inbox
            .send(Message::Wish(wish, told))
            .map_err(|_| CoordinatorError::ShutDown)
    }

    fn wish_all(&self, wish: Wish) -> Stopping {
        let streams = self.streams();
        let stopping = streams.values().map(|entry| {
            let (told, stopped) = oneshot::channel();
            // A loop that is gone is down.
            let _ = entry.inbox.send(Message::Wish(wish, Some(told)));
            stopped
        });
        Stopping(stopping.collect())
    }

    /// When the loop that ran least lately ran last.
    #[cfg(test)]
    pub(super) fn last_beat(&self) -> Option<std::time::Instant> {
        self.streams().values().map(|entry| entry.pulse.last()).min()
    }

    /// Ends the thread as a crash of its loops does, and leaves the rest of the process.
    #[cfg(test)]
    pub(super) fn kill_loops(&self) {
        let (ended, end) = std::sync::mpsc::channel();
        let _ = self.parts.commands.send(Command::Die(ended));
        // Fails once the thread runs nothing any more.
        let _ = end.recv();
    }

    /// Ends the thread with everything on it, as a crash of the process does.
    #[cfg(test)]
    pub(super) fn crash(self) {
        self.kill_loops();
    }
}

impl Drop for LeaderElectionCoordinator {
    fn drop(&mut self) {
        self.begin_shutdown(Moment::NEVER);
    }
}

impl fmt::Debug for LeaderElectionCoordinator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderElectionCoordinator")
            .field("instance", &self.parts.instance)
            .field("settings", &self.parts.settings)
            .field("statuses", &self.statuses())
            .finish_non_exhaustive()
    }
}
