//! The operator's metrics: what it does, counted as it does it, and who leads, read off the index at each scrape.
//!
//! Per stream nothing is kept but a count of transitions, so no series outlives its object. A replica that does not lead
//! shows none.

use std::{
    collections::HashMap,
    fmt::{self, Debug},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kube::ResourceExt;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{
        MetricType, counter::Counter, family::Family, gauge::ConstGauge, gauge::Gauge, histogram::Histogram,
    },
    registry::Registry,
};

use super::{
    api::ApiError,
    exposition::exposition,
    observe::{Observer, Suppressed, Watched, WriteReason},
    shared::Shared,
};
use crate::crd::{ChangeStreamLeader, ChangeStreamLeaderStatus, HELD};

type Labels<const N: usize> = [(&'static str, String); N];

/// Seconds that a look at a Lease takes: a millisecond where nothing is to be written, ten seconds where nobody answers.
const SECONDS: [f64; 12] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 10.0,
];

/// See the module.
pub(crate) struct Metrics {
    registry: Registry,
    streams: Streams,
    reconciles: Family<Labels<1>, Counter>,
    reconcile_errors: Family<Labels<1>, Counter>,
    reconcile_seconds: Histogram,
    queue: Gauge,
    writes: Family<Labels<1>, Counter>,
    suppressed: Family<Labels<1>, Counter>,
    requests: Family<Labels<3>, Counter>,
    watch_up: Family<Labels<1>, Gauge>,
    leader: Gauge,
    events_dropped: Counter,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("leasewarden"),
            streams: Streams::default(),
            reconciles: Family::default(),
            reconcile_errors: Family::default(),
            reconcile_seconds: Histogram::new(SECONDS),
            queue: Gauge::default(),
            writes: Family::default(),
            suppressed: Family::default(),
            requests: Family::default(),
            watch_up: Family::default(),
            leader: Gauge::default(),
            events_dropped: Counter::default(),
        };
        metrics.register();
        // What has not happened yet is 0, and not absent: a rate over the first time would miss it.
        for result in ["success", "error", "conflict"] {
            drop(metrics.reconciles.get_or_create(&[("result", result.to_owned())]));
        }
        for reason in WriteReason::ALL {
            let label = [("reason", reason.label().to_owned())];
            drop(metrics.writes.get_or_create(&label));
        }
        for reason in [Suppressed::Throttled, Suppressed::Unchanged] {
            let label = [("reason", reason.label().to_owned())];
            drop(metrics.suppressed.get_or_create(&label));
        }
        metrics
    }

    fn register(&mut self) {
        let registry = &mut self.registry;
        registry.register(
            "reconcile",
            "Looks at a Lease and the objects that show it, by result",
            self.reconciles.clone(),
        );
        registry.register(
            "reconcile_errors",
            "Looks that failed, by reason",
            self.reconcile_errors.clone(),
        );
        registry.register(
            "reconcile_duration_seconds",
            "How long a look took",
            self.reconcile_seconds.clone(),
        );
        registry.register(
            "queue_depth",
            "Leases that are to be looked at now and are not yet",
            self.queue.clone(),
        );
        registry.register(
            "status_writes",
            "Statuses written, by reason",
            self.writes.clone(),
        );
        registry.register(
            "status_writes_suppressed",
            "Looks that led to no write, by reason; throttled: the budget of status writes did not allow one",
            self.suppressed.clone(),
        );
        registry.register(
            "api_requests",
            "Requests to the API server, by verb, resource and status code; error: there was no answer",
            self.requests.clone(),
        );
        registry.register(
            "watch_up",
            "Whether all watches of a resource are up; 0: the operator is blind",
            self.watch_up.clone(),
        );
        registry.register(
            "operator_leader",
            "Whether this replica is the one that writes",
            self.leader.clone(),
        );
        registry.register(
            "events_dropped",
            "Events that were not sent because too many waited, or because the API server refused them",
            self.events_dropped.clone(),
        );
        registry.register_collector(Box::new(self.streams.clone()));
    }

    /// This replica leads, and this is what it knows; or no more.
    pub(crate) fn leads(&self, shared: Option<Shared>) {
        self.leader.set(i64::from(shared.is_some()));
        if shared.is_none() {
            self.watch_up.clear();
            self.queue.set(0);
        }
        self.streams.state().shared = shared;
    }

    /// What this replica knows of, if it leads.
    pub(crate) fn shared(&self) -> Option<Shared> {
        self.streams.state().shared.clone()
    }

    pub(crate) fn event_dropped(&self) {
        self.events_dropped.inc();
    }

    /// All metrics in the `OpenMetrics` text format.
    pub(crate) fn text(&self, open_metrics: bool) -> Result<(&'static str, String), fmt::Error> {
        exposition(&self.registry, open_metrics)
    }
}

impl Observer for Metrics {
    fn transition(
        &self,
        object: &ChangeStreamLeader,
        before: &ChangeStreamLeaderStatus,
        after: &ChangeStreamLeaderStatus,
    ) {
        let leader =
            |status: &ChangeStreamLeaderStatus| (status.holder_identity.clone(), status.fencing_token);
        if after.holder_identity.is_some() && leader(before) != leader(after) {
            let uid = object.uid().unwrap_or_default();
            *self.streams.state().transitions.entry(uid).or_default() += 1;
        }
    }

    fn written(&self, _: &ChangeStreamLeader, reason: WriteReason) {
        let label = [("reason", reason.label().to_owned())];
        self.writes.get_or_create(&label).inc();
    }

    fn suppressed(&self, reason: Suppressed) {
        let label = [("reason", reason.label().to_owned())];
        self.suppressed.get_or_create(&label).inc();
    }

    fn watch(&self, resource: Watched, up: bool) {
        let label = [("resource", resource.label().to_owned())];
        self.watch_up.get_or_create(&label).set(i64::from(up));
    }

    fn request(&self, verb: &str, resource: &str, code: Option<u16>) {
        let code = code.map_or_else(|| "error".to_owned(), |code| code.to_string());
        let labels = [
            ("verb", verb.to_owned()),
            ("resource", resource.to_owned()),
            ("code", code),
        ];
        self.requests.get_or_create(&labels).inc();
    }

    fn reconciled(&self, took: Duration, error: Option<&ApiError>) {
        let result = match error {
            None => "success",
            Some(ApiError::Conflict) => "conflict",
            Some(_) => "error",
        };
        self.reconciles
            .get_or_create(&[("result", result.to_owned())])
            .inc();
        if let Some(error) = error {
            let label = [("reason", error.label().to_owned())];
            self.reconcile_errors.get_or_create(&label).inc();
        }
        self.reconcile_seconds.observe(took.as_secs_f64());
    }

    fn queued(&self, keys: usize) {
        self.queue.set(i64::try_from(keys).unwrap_or(i64::MAX));
    }
}

/// The series of each stream.
#[derive(Clone, Default)]
struct Streams(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    shared: Option<Shared>,
    /// By the object's uid.
    transitions: HashMap<String, u64>,
}

impl Debug for Streams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streams").finish_non_exhaustive()
    }
}

impl Streams {
    fn state(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Collector for Streams {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let version = [("version", env!("CARGO_PKG_VERSION")), ("revision", REVISION)];
        let mut build = encoder.encode_descriptor(
            "build_info",
            "Which build of the operator this is",
            None,
            MetricType::Gauge,
        )?;
        ConstGauge::new(1i64).encode(build.encode_family(&version)?)?;

        let (objects, transitions) = {
            let mut state = self.state();
            let objects = state.shared.as_ref().map(Shared::objects).unwrap_or_default();
            let uid = |object: &ChangeStreamLeader| object.uid().unwrap_or_default();
            let living: std::collections::HashSet<String> = objects.iter().map(|o| uid(o)).collect();
            state.transitions.retain(|uid, _| living.contains(uid));
            (objects, state.transitions.clone())
        };
        let labels = |object: &ChangeStreamLeader| {
            [
                ("namespace", object.namespace().unwrap_or_default()),
                ("name", object.name_any()),
                ("stream", object.spec.stream_name.clone()),
            ]
        };

        let mut held = encoder.encode_descriptor(
            "stream_held",
            "Whether an instance leads the stream",
            None,
            MetricType::Gauge,
        )?;
        for object in &objects {
            let value = ConstGauge::new(i64::from(is_held(object)));
            value.encode(held.encode_family(&labels(object))?)?;
        }
        let mut expiration = encoder.encode_descriptor(
            "stream_expiration_timestamp_seconds",
            "The leadership lasts at least until this time, as the status shows it",
            None,
            MetricType::Gauge,
        )?;
        for object in &objects {
            let time = object.status.as_ref().and_then(|s| s.expiration_time.as_ref());
            if let Some(time) = time {
                let value = ConstGauge::new(time.0.as_second());
                value.encode(expiration.encode_family(&labels(object))?)?;
            }
        }
        let mut changes = encoder.encode_descriptor(
            "stream_transitions",
            "Changes of leader that this replica has seen",
            None,
            MetricType::Counter,
        )?;
        for object in &objects {
            let count = transitions.get(&object.uid().unwrap_or_default()).copied();
            let value = prometheus_client::metrics::counter::ConstCounter::new(count.unwrap_or(0));
            value.encode(changes.encode_family(&labels(object))?)?;
        }
        let mut holders = encoder.encode_descriptor(
            "stream_holder_info",
            "The instance that leads the stream",
            None,
            MetricType::Gauge,
        )?;
        for object in &objects {
            let holder = object.status.as_ref().and_then(|s| s.holder_identity.clone());
            if let Some(holder) = holder {
                let [namespace, name, stream] = labels(object);
                let labels = [namespace, name, stream, ("holder", holder)];
                ConstGauge::new(1i64).encode(holders.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

/// What the program was built from, if whoever built it said so.
const REVISION: &str = match option_env!("LEASEWARDEN_REVISION") {
    Some(revision) => revision,
    None => "unknown",
};

fn is_held(object: &ChangeStreamLeader) -> bool {
    let status = object.status.as_ref();
    let held = status.and_then(|status| status.condition(HELD));
    held.is_some_and(|held| held.status == "True")
}
