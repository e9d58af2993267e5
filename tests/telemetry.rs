//! The names of `tracing` events are an interface: what is emitted is what `leasewarden::telemetry` lists, and what
//! `docs/observability.md` shows. In a program of its own, because it watches the events of all threads.

// This is a test throughout.
#![allow(clippy::unwrap_used)]

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use leasewarden::{
    AcquireRequest, InstanceId, LockService, LockServiceExt, StreamName, Ttl,
    election::{DeploymentMode, LeaderElectionCoordinator, Role, StreamSpec},
    lock::InMemoryLockService,
    telemetry::{ELECTION, FIELDS, LOCK, TARGETS},
};
use tracing::{Event, Subscriber, field::Field, field::Visit};
use tracing_subscriber::{
    layer::{Context, Layer, SubscriberExt},
    registry,
};

const LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug, Clone)]
struct Seen {
    target: String,
    fields: BTreeMap<&'static str, String>,
}

impl Visit for Seen {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.fields.insert(field.name(), format!("number {value}"));
    }
}

#[derive(Clone, Default)]
struct Capture(Arc<Mutex<Vec<Seen>>>);

impl<S: Subscriber> Layer<S> for Capture {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let target = event.metadata().target();
        if target.starts_with("leasewarden") {
            let mut seen = Seen {
                target: target.to_owned(),
                fields: BTreeMap::new(),
            };
            event.record(&mut seen);
            self.0.lock().unwrap().push(seen);
        }
    }
}

impl Capture {
    fn of(&self, message: &str) -> Vec<Seen> {
        let seen = self.0.lock().unwrap();
        let is = |seen: &&Seen| {
            seen.fields
                .get("message")
                .is_some_and(|text| text.contains(message))
        };
        seen.iter().filter(is).cloned().collect()
    }
}

async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(LIMIT, wait)
        .await
        .unwrap_or_else(|_| panic!("never: {what}"));
}

#[tokio::test]
async fn events_bear_the_listed_targets_and_fields() {
    let capture = Capture::default();
    tracing::subscriber::set_global_default(registry().with(capture.clone())).unwrap();
    let lock = InMemoryLockService::new();
    let (orders, me) = (StreamName::new("orders").unwrap(), InstanceId::new("a").unwrap());
    let a = LeaderElectionCoordinator::builder(Arc::new(lock.peer()))
        .instance_id(me.clone())
        .build()
        .unwrap();
    let work = |leadership: leasewarden::election::Leadership| async move {
        drop(leadership.stop_requested().await);
    };
    a.register(StreamSpec::new(
        orders.clone(),
        DeploymentMode::SingleLeader,
        work,
    ))
    .unwrap();
    a.start_all();
    let status = || a.status(&orders).unwrap();
    eventually("it leads", || status().role == Role::Leader).await;
    let token = status().token.unwrap();
    // A refusal, by a shortcut.
    let other = InstanceId::new("b").unwrap();
    let ttl = Ttl::from_secs(15).unwrap();
    assert!(!lock.peer().try_acquire(&orders, &other, ttl).await);
    // And a proven loss.
    lock.delete(&orders);
    lock.acquire(AcquireRequest::new(&orders, &other, ttl))
        .await
        .unwrap();
    eventually("it does not lead", || status().role == Role::Standby).await;
    a.shutdown(LIMIT).await.unwrap();

    let leading = &capture.of("leading")[0];
    assert_eq!(leading.target, ELECTION);
    assert_eq!(leading.fields["stream"], "orders");
    assert_eq!(leading.fields["instance"], "a");
    assert_eq!(leading.fields["token"], format!("number {token}"));
    let lost = &capture.of("no longer leading")[0];
    assert_eq!(lost.target, ELECTION);
    assert_eq!(lost.fields["term"], leading.fields["term"]);
    assert!(
        lost.fields["reason"].starts_with("the lock was deleted")
            || lost.fields["reason"].starts_with("taken over by b")
    );
    assert_eq!(capture.of("refused")[0].target, LOCK);
    for seen in capture.0.lock().unwrap().iter() {
        assert!(TARGETS.contains(&&*seen.target), "unlisted target: {seen:?}");
        for field in seen.fields.keys() {
            assert!(FIELDS.contains(field), "unlisted field {field}: {seen:?}");
        }
    }
}

/// The names in the first column of the page's table under a heading.
fn column(page: &str, heading: &str) -> BTreeSet<String> {
    let section = page.split_once(heading).unwrap().1;
    let section = section
        .split_once("\n## ")
        .map_or(section, |(section, _)| section);
    let name = |line: &str| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned());
    section.lines().filter_map(name).collect()
}

#[test]
fn the_page_lists_what_the_library_lists() {
    let page = include_str!("../docs/observability.md");
    let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(column(page, "## Targets"), owned(TARGETS));
    assert_eq!(column(page, "## Fields"), owned(FIELDS));
}

/// What a path of the code emits that no test takes: the names stand in the source.
#[test]
fn every_event_of_the_library_names_its_target() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut events = 0;
    for module in ["election", "lease", "lock"] {
        let mut folders = vec![root.join(module)];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let source = std::fs::read_to_string(&path).unwrap();
                for level in ["trace", "debug", "info", "warn", "error"] {
                    for event in source.split(&format!("tracing::{level}!(")).skip(1) {
                        events += 1;
                        assert!(
                            event.trim_start().starts_with("target:"),
                            "{}: {event:.60}",
                            path.display()
                        );
                    }
                }
            }
        }
    }
    assert!(events > 15, "found only {events}");
}
