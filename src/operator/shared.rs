//! What the watches and the reconciler share: the index, the budget, the state of the watches, and the queue.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use kube::runtime::scheduler::ScheduleRequest;
use tokio::{sync::mpsc, time::Instant};

use super::{
    api::Server,
    blindness::Blindness,
    budget::{Afforded, Budget},
    index::{Index, Key, Snapshot, Step},
    lines::Lines,
    observe::{Observer, Suppressed, Watched},
    projection::Projection,
    retries::SAY_AGAIN,
    view::LeaseView,
};
use crate::crd::{ChangeStreamLeader, ChangeStreamLeaderStatus, StatusPolicy};

/// How long a watch may lag behind a read before the read is believed without it.
const LAG_MAX: Duration = Duration::from_secs(2);

/// What is set when the operator is started.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) discovery: bool,
    /// For objects that say nothing of it.
    pub(crate) policy: StatusPolicy,
    /// Status writes a second that no transition asks for.
    pub(crate) writes_per_second: u32,
    pub(crate) observer: Arc<dyn Observer>,
    /// The Lease by which replicas elect.
    pub(crate) own_lease: Option<Key>,
}

/// What watches and reconciler share.
#[derive(Clone)]
pub(crate) struct Shared {
    state: Arc<Mutex<State>>,
    queue: mpsc::UnboundedSender<ScheduleRequest<Key>>,
    pub(crate) server: Server,
    discovery: bool,
    own_lease: Option<Key>,
    pub(crate) policy: StatusPolicy,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) lines: Lines,
}

struct State {
    index: Index,
    budget: Budget,
    /// The keys that wait to be looked at.
    woken: HashSet<Key>,
    /// Whether what has failed is to be tried without a pause.
    all_again: bool,
    /// When it was last said that the budget does not suffice.
    throttling_said: Option<Instant>,
    /// The namespaces whose lists are complete; empty text is all of them. Before that, absence means nothing.
    leases_listed: HashSet<String>,
    objects_listed: HashSet<String>,
    /// Since when a key waits for the watch to show what a read has shown.
    lagging: HashMap<Key, Instant>,
}

impl Shared {
    pub(crate) fn new(
        server: Server,
        settings: Settings,
    ) -> (Self, mpsc::UnboundedReceiver<ScheduleRequest<Key>>) {
        let (queue, requests) = mpsc::unbounded_channel();
        let state = State {
            index: Index::default(),
            budget: Budget::new(settings.writes_per_second),
            woken: HashSet::new(),
            all_again: false,
            throttling_said: None,
            leases_listed: HashSet::new(),
            objects_listed: HashSet::new(),
            lagging: HashMap::new(),
        };
        let shared = Self {
            state: Arc::new(Mutex::new(state)),
            queue,
            server,
            discovery: settings.discovery,
            own_lease: settings.own_lease,
            policy: settings.policy,
            lines: Lines::new(Arc::clone(&settings.observer)),
            observer: settings.observer,
        };
        (shared, requests)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This key is being looked at now.
    pub(crate) fn taken(&self, key: &Key) {
        let depth = {
            let woken = &mut self.state().woken;
            woken.remove(key);
            woken.len()
        };
        self.observer.queued(depth);
    }

    /// Whether what has failed is to be tried without a pause, because much is known anew. Asked once.
    pub(crate) fn all_again(&self) -> bool {
        std::mem::take(&mut self.state().all_again)
    }

    /// The time on the API server.
    pub(crate) fn now(&self) -> Timestamp {
        self.server.clock.now()
    }

    /// A write was just brought by the watch.
    pub(crate) fn written_at(&self, at: Timestamp) {
        self.server.clock.written(at);
    }

    /// Looks at a key soon.
    pub(crate) fn wake(&self, key: Key) {
        self.after(key, Duration::ZERO);
    }

    pub(crate) fn after(&self, key: Key, pause: Duration) {
        if pause.is_zero() {
            let depth = {
                let woken = &mut self.state().woken;
                woken.insert(key.clone());
                woken.len()
            };
            self.observer.queued(depth);
        }
        // A TTL of 68 years is no instant; a day later is early enough to look again.
        let run_at = Instant::now() + pause.min(Duration::from_secs(24 * 3600));
        // The receiver is gone only when the operator stops.
        let _ = self.queue.send(ScheduleRequest { message: key, run_at });
    }

    pub(crate) fn see_lease(&self, view: LeaseView, followed: bool) -> Key {
        let mut state = self.state();
        let key = state.index.lease(view, followed);
        // The watch moves: whatever it lags behind by next is waited for anew.
        state.lagging.remove(&key);
        key
    }

    pub(crate) fn lose_lease(&self, key: &Key) {
        let mut state = self.state();
        state.index.lease_out_of_sight(key);
        state.lagging.remove(key);
    }

    pub(crate) fn see_object(&self, key: Key, object: ChangeStreamLeader) {
        self.state().index.object(key, object);
    }

    pub(crate) fn lose_object(&self, namespace: &str, name: &str, uid: Option<&str>) -> Option<Key> {
        let mut state = self.state();
        state.budget.forget(uid.unwrap_or_default());
        state.index.lose_object(namespace, name, uid)
    }

    pub(crate) fn named(&self, namespace: &str, name: &str) -> Option<Arc<ChangeStreamLeader>> {
        self.state().index.named(namespace, name)
    }

    pub(crate) fn snapshot(&self, key: &Key) -> Snapshot {
        self.state().index.snapshot(key)
    }

    pub(crate) fn written(&self, key: &Key, steps: &[Step]) {
        self.state().index.written(key, steps);
    }

    /// A list of Leases is complete.
    pub(crate) fn leases_listed(&self, namespace: Option<&str>, listed: &HashSet<Key>) {
        let mut state = self.state();
        for key in state.index.leases_listed(namespace, listed) {
            state.lagging.remove(&key);
        }
        state
            .leases_listed
            .insert(namespace.unwrap_or_default().to_owned());
        drop(state);
        self.wake_all();
    }

    /// A list of objects is complete.
    pub(crate) fn objects_listed(&self, namespace: Option<&str>, listed: &HashSet<(String, String)>) {
        let mut state = self.state();
        let gone = state.index.objects_listed(namespace, listed);
        for (_, uid) in &gone {
            state.budget.forget(uid);
        }
        state
            .objects_listed
            .insert(namespace.unwrap_or_default().to_owned());
        drop(state);
        for (key, _) in gone {
            self.wake(key);
        }
        self.wake_all();
    }

    /// Whether an object is created for this Lease, if it has none.
    pub(crate) fn discovers(&self, key: &Key) -> bool {
        self.discovery && self.own_lease.as_ref() != Some(key)
    }

    /// All Leases, as last seen.
    pub(crate) fn views(&self) -> Vec<Arc<LeaseView>> {
        self.state().index.views()
    }

    /// All objects, as last seen.
    pub(crate) fn objects(&self) -> Vec<Arc<ChangeStreamLeader>> {
        self.state().index.all_objects()
    }

    /// Looks at everything again: what has failed, too, for the API server is back.
    pub(crate) fn wake_all(&self) {
        let keys = {
            let mut state = self.state();
            state.all_again = true;
            state.index.keys()
        };
        for key in keys {
            self.wake(key);
        }
    }

    /// Whether enough was listed to say something about this key. Without the Leases that is that they are not seen.
    pub(crate) fn is_ready(&self, key: &Key) -> bool {
        let state = self.state();
        let has = |set: &HashSet<String>| set.contains("") || set.contains(&key.namespace);
        has(&state.objects_listed) && (has(&state.leases_listed) || self.blind(key).is_some())
    }

    /// Why changes of this Lease are not seen, if they are not.
    pub(crate) fn blind(&self, key: &Key) -> Option<Blindness> {
        self.lines.blind(Watched::Leases, &key.namespace)
    }

    /// Whether the second is here that was booked for a refresh of this object's status.
    pub(crate) fn refresh_due(&self, uid: &str) -> bool {
        let now = self.now();
        self.state().budget.is_due(uid, now)
    }

    /// A write that is no transition: now, or in how long.
    pub(crate) fn pace(&self, uid: &str) -> Result<(), Duration> {
        let now = self.now();
        self.state().budget.pace(uid, now)
    }

    /// What of a decision can be afforded.
    pub(crate) fn afford(
        &self,
        uid: &str,
        previous: &ChangeStreamLeaderStatus,
        decision: Projection,
    ) -> Afforded {
        let now = self.now();
        let mut state = self.state();
        let afforded = state.budget.afford(uid, previous, decision, now);
        let without = state.budget.without();
        match (without, state.throttling_said) {
            (0, Some(_)) => {
                state.throttling_said = None;
                tracing::info!("every status shows its expirationTime again");
            }
            (1.., said) if said.is_none_or(|at| at.elapsed() >= SAY_AGAIN) => {
                state.throttling_said = Some(Instant::now());
                tracing::warn!(
                    objects = without,
                    "status writes are throttled: more are needed to keep every expirationTime in the future than may be                      made in a second, so these statuses are without; allow more, or use statusPolicy TransitionsOnly"
                );
            }
            _ => {}
        }
        afforded
    }

    /// A look at this key led to no write.
    pub(crate) fn suppressed(&self, key: &Key, reason: Suppressed) {
        tracing::trace!(
            namespace = key.namespace,
            lease = key.lease,
            reason = reason.label(),
            "wrote nothing"
        );
        self.observer.suppressed(reason);
    }

    /// A status was not written that was to be.
    pub(crate) fn not_written(&self, uid: &str, previous: &ChangeStreamLeaderStatus) {
        let now = self.now();
        self.state().budget.failed(uid, previous, now);
    }

    /// Whether to wait (on) for the watch to deliver what a read has shown.
    pub(crate) fn wait_for_watch(&self, key: &Key) -> bool {
        let since = *self
            .state()
            .lagging
            .entry(key.clone())
            .or_insert_with(Instant::now);
        since.elapsed() < LAG_MAX
    }

    pub(crate) fn caught_up(&self, key: &Key) {
        self.state().lagging.remove(key);
    }

    pub(crate) fn sizes(&self) -> (usize, usize) {
        self.state().index.sizes()
    }
}

#[cfg(test)]
mod tests {
    use kube::{Client, Config};

    use super::*;
    use crate::{lock::ManualClock, operator::clock::ServerClock};

    fn shared() -> Shared {
        let config = Config::new("http://127.0.0.1:1".parse().unwrap());
        let clock = ServerClock::new(Arc::new(ManualClock::new()));
        let client = Client::try_from(config).unwrap();
        let observer: Arc<dyn Observer> = Arc::new(crate::operator::observe::Nobody);
        let settings = Settings {
            discovery: true,
            policy: StatusPolicy::Full,
            writes_per_second: 20,
            observer: Arc::clone(&observer),
            own_lease: None,
        };
        Shared::new(Server::new(client, clock, observer), settings).0
    }

    fn view(version: u64) -> LeaseView {
        let lease = serde_json::json!({
            "metadata": {"namespace": "ns", "name": "orders", "uid": "u", "resourceVersion": version.to_string()},
        });
        LeaseView::new(&serde_json::from_value(lease).unwrap(), Timestamp::UNIX_EPOCH).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_lagged_once_is_waited_for_the_next_time_too() {
        let shared = shared();
        let key = shared.see_lease(view(1), true);
        assert!(shared.wait_for_watch(&key));
        tokio::time::advance(LAG_MAX).await;
        assert!(
            !shared.wait_for_watch(&key),
            "a watch that is stuck is not waited for"
        );
        shared.see_lease(view(2), true);
        assert!(shared.wait_for_watch(&key));
        shared.lose_lease(&key);
        assert!(shared.state().lagging.is_empty());
    }
}
