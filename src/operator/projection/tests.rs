//! What a status says of each state of a Lease, and how often it is written.

use super::*;
use crate::crd::{HELD, HISTORY_MAX, READY};

const T0: i64 = 1_800_000_000;

fn at(seconds: f64) -> Timestamp {
    let nanos = (seconds * 1e9).round();
    #[allow(clippy::cast_possible_truncation)]
    let nanos = nanos as i128;
    Timestamp::from_nanosecond(i128::from(T0) * 1_000_000_000 + nanos).unwrap()
}

/// A Lease and the object that shows it, as the API server would keep them.
struct Stage {
    lease: Option<LeaseView>,
    before: Option<LeaseView>,
    status: ChangeStreamLeaderStatus,
    policy: StatusPolicy,
    version: u64,
    writes: Vec<(f64, WriteReason)>,
}

impl Stage {
    fn new() -> Self {
        Self {
            lease: None,
            before: None,
            status: ChangeStreamLeaderStatus::default(),
            policy: StatusPolicy::Full,
            version: 10,
            writes: vec![],
        }
    }

    /// Somebody writes the Lease.
    fn put(&mut self, now: f64, ttl: f64, change: impl FnOnce(&mut LeaseView)) {
        self.version += 1;
        let whole = whole(at(now)).0;
        let mut lease = self.lease.clone().unwrap_or_else(|| LeaseView {
            namespace: "ns".into(),
            name: "orders".into(),
            uid: format!("uid-{}", self.version),
            resource_version: String::new(),
            stream: Some("orders".into()),
            labelled: true,
            hold: Hold::Free,
            ttl: None,
            patience: None,
            duration_seconds: None,
            transitions: Some(0),
            token: None,
            bad_token: None,
            acquire_time: None,
            renew_time: None,
            written_at: None,
            changed_at: None,
            received_at: at(now),
        });
        self.before = self.lease.take();
        lease.resource_version = self.version.to_string();
        lease.renew_time = Some(at(now));
        (lease.written_at, lease.changed_at, lease.received_at) = (Some(whole), Some(whole), at(now));
        lease.ttl = Some(Duration::from_secs_f64(ttl));
        lease.patience = lease.ttl;
        #[allow(clippy::cast_possible_truncation)]
        let seconds = ttl.ceil() as i32;
        lease.duration_seconds = Some(seconds);
        change(&mut lease);
        self.lease = Some(lease);
    }

    fn acquire(&mut self, now: f64, ttl: f64, holder: &str) {
        let token = i64::try_from(self.version).unwrap();
        self.put(now, ttl, |l| {
            if l.hold != Hold::Held(holder.into()) {
                l.transitions = l.transitions.map(|t| t + 1);
                l.acquire_time = Some(at(now));
            }
            l.hold = Hold::Held(holder.into());
            l.token = Some(token);
        });
    }

    fn renew(&mut self, now: f64, ttl: f64) {
        self.put(now, ttl, |_| {});
    }

    fn release(&mut self, now: f64) {
        self.put(now, 15.0, |l| {
            if let Hold::Held(holder) = l.hold.clone() {
                l.hold = Hold::Released(holder);
            }
        });
    }

    fn project(&self, now: f64, fresh: bool) -> Projection {
        let subject = Subject {
            stream: "orders",
            lease: "orders",
            generation: Some(1),
            policy: self.policy,
        };
        let sight = Sight {
            lease: self.lease.as_ref(),
            before: self.before.as_ref(),
            fresh,
            now: at(now),
        };
        project(subject, &self.status, sight)
    }

    /// What the controller does on an event or a timer; answers when it looks again.
    fn reconcile(&mut self, now: f64) -> Option<f64> {
        let mut projection = self.project(now, false);
        if projection.read_first {
            projection = self.project(now, true);
        }
        self.before = self.lease.clone();
        if let Some(reason) = projection.write {
            self.writes.push((now, reason));
            self.status = projection.status;
            let again = self.project(now, true);
            assert_eq!(again.write, None, "a status that was written is written again");
        }
        projection.requeue_after.map(|after| now + after.as_secs_f64())
    }

    fn held(&self) -> (String, String) {
        let held = self.status.condition(HELD).unwrap();
        (held.status.clone(), held.reason.clone())
    }

    fn past(&self) -> Vec<(String, Ended)> {
        self.status
            .history
            .iter()
            .map(|p| (p.holder_identity.clone(), p.ended))
            .collect()
    }
}

fn pair(a: &str, b: &str) -> (String, String) {
    (a.into(), b.into())
}

#[test]
fn each_transition_is_one_write_and_one_entry() {
    let mut stage = Stage::new();
    stage.reconcile(0.0);
    assert_eq!(stage.held(), pair("False", "LeaseNotFound"));
    assert_eq!(stage.status.condition(READY).unwrap().status, "True");

    stage.acquire(1.2, 15.0, "a");
    stage.reconcile(1.3);
    assert_eq!(stage.held(), pair("True", "LeaseHeld"));
    assert_eq!(stage.status.holder_identity.as_deref(), Some("a"));
    assert_eq!(stage.status.fencing_token, Some(10));
    assert_eq!(stage.status.acquire_time.as_ref().unwrap().0, at(1.0));
    assert_eq!(stage.status.expiration_time.as_ref().unwrap().0, at(16.0));

    stage.release(3.0);
    stage.reconcile(3.1);
    assert_eq!(stage.held(), pair("False", "LeaseReleased"));
    let nobody = &stage.status;
    assert!(nobody.holder_identity.is_none() && nobody.acquire_time.is_none());
    assert!(nobody.expiration_time.is_none() && nobody.fencing_token.is_none());

    stage.acquire(4.0, 15.0, "b");
    stage.reconcile(4.1);
    stage.acquire(25.0, 15.0, "c");
    stage.reconcile(25.1);
    stage.acquire(26.0, 15.0, "d");
    stage.reconcile(26.1);
    stage.acquire(27.0, 15.0, "d");
    stage.reconcile(27.1);
    stage.put(28.0, 15.0, |l| l.hold = Hold::Wiped("d".into()));
    stage.reconcile(28.1);
    assert_eq!(stage.held(), pair("Unknown", "HolderWiped"));
    stage.lease = None;
    stage.reconcile(29.0);

    assert_eq!(
        stage.past(),
        [
            ("d".into(), Ended::Wiped),
            ("d".into(), Ended::Reacquired),
            ("c".into(), Ended::TakenOver),
            ("b".into(), Ended::Expired),
            ("a".into(), Ended::Released),
        ]
    );
    assert_eq!(stage.writes.len(), 9);
    assert!(
        stage
            .writes
            .iter()
            .all(|(_, reason)| *reason == WriteReason::Transition)
    );
}

#[test]
fn an_expiry_is_seen_by_a_timer_and_believed_after_a_read() {
    let mut stage = Stage::new();
    stage.acquire(0.9, 15.0, "a");
    let due = stage.reconcile(1.0).unwrap();
    // Rounded down to 0 by the server, it cannot be expired before 0 + 1 + 15.
    assert!((due - 16.0).abs() < 0.01, "{due}");
    assert!(!stage.project(15.9, false).read_first);
    assert!(stage.project(16.0, false).read_first);
    stage.reconcile(16.0);
    assert_eq!(stage.held(), pair("False", "LeaseExpired"));
    assert_eq!(stage.past(), [("a".into(), Ended::Expired)]);
    assert_eq!(stage.status.history[0].to.as_ref().unwrap().0, at(15.0));
    assert_eq!(stage.reconcile(100.0), None, "an expired Lease is left alone");
    assert!(!stage.project(100.0, false).read_first);
    assert_eq!(stage.writes.len(), 2);

    // Contract B: the holder may still extend it; that is a new leadership.
    stage.acquire(120.0, 15.0, "a");
    stage.reconcile(120.0);
    assert_eq!(stage.status.acquire_time.as_ref().unwrap().0, at(120.0));
    assert_eq!(stage.past().len(), 1);
}

#[test]
fn between_transitions_a_write_per_two_thirds_of_the_ttl() {
    for ttl in [4.0, 10.0, 15.0, 60.0, 300.0] {
        for phase in [0.0, 0.31, 0.77] {
            let mut stage = Stage::new();
            stage.acquire(phase, ttl, "a");
            let mut timer = stage.reconcile(phase + 0.01);
            let mut renewals = 1.0;
            loop {
                let renewal = phase + renewals * ttl / 3.0;
                if renewal > phase + 10.0 * ttl {
                    break;
                }
                while let Some(due) = timer.filter(|due| *due < renewal) {
                    shows_no_lapsed_expiry(&stage, due);
                    timer = stage.reconcile(due + 0.001);
                }
                shows_no_lapsed_expiry(&stage, renewal);
                stage.renew(renewal, ttl);
                timer = stage.reconcile(renewal + 0.01);
                renewals += 1.0;
            }
            let (first, rest) = stage.writes.split_first().unwrap();
            assert_eq!(first.1, WriteReason::Transition);
            assert!(rest.iter().all(|(_, reason)| *reason == WriteReason::Refresh));
            // 15 at best; a short TTL loses to the server's whole seconds.
            let most = if ttl < 10.0 { 30 } else { 17 };
            assert!(
                (12..=most).contains(&rest.len()),
                "TTL {ttl}: {} writes",
                rest.len()
            );
        }
    }
}

fn shows_no_lapsed_expiry(stage: &Stage, now: f64) {
    let shown = &stage.status.expiration_time.as_ref().unwrap().0;
    assert!(*shown > at(now), "at {now} a live leader shows {shown}");
}

#[test]
fn transitions_only_writes_nothing_in_between() {
    let mut stage = Stage::new();
    stage.policy = StatusPolicy::TransitionsOnly;
    stage.acquire(0.0, 15.0, "a");
    for renewal in 1..30 {
        stage.renew(f64::from(renewal) * 5.0, 15.0);
        stage.reconcile(f64::from(renewal) * 5.0);
    }
    assert_eq!(stage.writes.len(), 1);
    assert!(stage.status.expiration_time.is_none());
}

#[test]
fn a_ttl_too_short_to_show_is_no_heartbeat() {
    let mut stage = Stage::new();
    stage.acquire(0.0, 0.9, "a");
    for renewal in 1..30 {
        stage.renew(f64::from(renewal) * 0.3, 0.9);
        stage.reconcile(f64::from(renewal) * 0.3);
    }
    assert_eq!((stage.writes.len(), &stage.status.expiration_time), (1, &None));
}

#[test]
fn a_status_never_goes_back() {
    let mut stage = Stage::new();
    stage.acquire(0.0, 15.0, "a");
    let old = stage.lease.clone();
    stage.acquire(1.0, 15.0, "b");
    stage.reconcile(1.1);
    let new = stage.lease.clone();
    stage.lease.clone_from(&old);
    assert_eq!(stage.project(1.2, true).write, None);
    // Nor to a Lease that was seen gone.
    stage.lease = None;
    stage.reconcile(2.0);
    stage.lease = new;
    assert_eq!(stage.project(2.1, true).write, None);
    // A Lease of the same name with another uid is news.
    stage.lease = None;
    stage.acquire(3.0, 15.0, "c");
    assert_eq!(stage.project(3.1, true).write, Some(WriteReason::Transition));
}

#[test]
fn a_clock_that_is_behind_brings_no_leader_back() {
    // Two replicas tell the server's time from different replies, up to a second apart.
    let mut stage = Stage::new();
    stage.acquire(0.0, 15.0, "a");
    stage.reconcile(0.1);
    stage.reconcile(16.0);
    assert_eq!(stage.held(), pair("False", "LeaseExpired"));
    for fresh in [false, true] {
        let behind = stage.project(15.2, fresh);
        assert_eq!((behind.write, behind.read_first), (None, false));
    }
    // A holder that renews after all leads again.
    stage.renew(15.9, 15.0);
    assert_eq!(stage.project(16.0, false).write, Some(WriteReason::Transition));

    let mut stage = Stage::new();
    stage.acquire(0.0, 15.0, "a");
    stage.reconcile(0.1);
    stage.put(1.0, 15.0, |l| l.hold = Hold::Wiped("a".into()));
    stage.reconcile(1.1);
    stage.reconcile(17.0);
    assert_eq!(stage.held(), pair("False", "LeaseFree"));
    assert_eq!(stage.project(16.5, false).write, None);
}

#[test]
fn a_gap_is_said_and_not_invented() {
    let mut stage = Stage::new();
    stage.acquire(0.0, 15.0, "a");
    stage.reconcile(0.1);
    stage.acquire(50.0, 15.0, "b");
    stage.before = None;
    stage.reconcile(50.1);
    assert_eq!(stage.past(), [("a".into(), Ended::Unknown)]);
    assert_eq!(stage.status.history[0].to, None);
    // A release leaves a mark, which is evidence without having been there.
    stage.release(60.0);
    stage.before = None;
    stage.reconcile(60.1);
    assert_eq!(stage.past()[0], ("b".into(), Ended::Released));
}

#[test]
fn a_holder_without_terms_releases_by_clearing_its_name() {
    let mut stage = Stage::new();
    let foreign = |holder: &'static str| {
        move |l: &mut LeaseView| (l.hold, l.transitions) = (Hold::Held(holder.into()), Some(1))
    };
    stage.put(0.0, 15.0, foreign("client-go"));
    stage.reconcile(0.1);
    stage.put(5.0, 1.0, |l| l.hold = Hold::Free);
    stage.reconcile(5.1);
    assert_eq!(stage.past(), [("client-go".into(), Ended::Released)]);
    assert_eq!(stage.held(), pair("False", "LeaseFree"));
}

#[test]
fn another_streams_lease_is_a_conflict_that_names_both() {
    let mut stage = Stage::new();
    stage.put(0.0, 15.0, |l| {
        (l.hold, l.stream) = (Hold::Held("a".into()), Some("payments".into()));
    });
    assert_eq!(stage.reconcile(0.1), None);
    assert_eq!(stage.held(), pair("Unknown", "LeaseConflict"));
    let ready = stage.status.condition(READY).unwrap();
    assert_eq!(
        (ready.status.as_str(), ready.reason.as_str()),
        ("False", "LeaseConflict")
    );
    assert!(
        ready.message.contains("\"payments\"") && ready.message.contains("\"orders\""),
        "{}",
        ready.message
    );
    assert!(stage.status.holder_identity.is_none());
}

#[test]
fn a_lease_that_no_watch_finds_is_polled_and_said_to_be() {
    let mut stage = Stage::new();
    stage.put(0.0, 60.0, |l| {
        (l.hold, l.labelled) = (Hold::Held("a".into()), false);
    });
    assert_eq!(stage.reconcile(0.0), Some(15.0));
    let ready = stage.status.condition(READY).unwrap();
    assert_eq!(
        (ready.status.as_str(), ready.reason.as_str()),
        ("False", "LeaseNotLabelled")
    );
    assert!(stage.status.expiration_time.is_none());
}

#[test]
fn an_unusable_token_is_said() {
    let mut stage = Stage::new();
    stage.put(0.0, 15.0, |l| {
        (l.hold, l.bad_token) = (Hold::Held("a".into()), Some("18446744073709551615".into()));
    });
    stage.reconcile(0.0);
    assert_eq!(
        stage.status.condition(READY).unwrap().reason,
        "FencingTokenUnusable"
    );
    assert_eq!(stage.held(), pair("True", "LeaseHeld"));
}

#[test]
fn without_a_server_time_the_holders_clock_proves_nothing() {
    let mut stage = Stage::new();
    stage.put(1000.0, 15.0, |l| {
        l.hold = Hold::Held("a".into());
        (l.written_at, l.changed_at, l.renew_time) = (None, None, Some(at(-5000.0)));
    });
    let due = stage.reconcile(1000.0).unwrap();
    assert_eq!(stage.held(), pair("True", "LeaseHeld"));
    assert!((due - 1016.0).abs() < 0.01, "{due}");
}

#[test]
fn the_history_is_bounded() {
    let mut stage = Stage::new();
    for n in 0..40 {
        stage.acquire(f64::from(n), 15.0, &format!("holder-{n}"));
        stage.reconcile(f64::from(n));
    }
    assert_eq!(stage.status.history.len(), HISTORY_MAX);
    assert_eq!(stage.past()[0].0, "holder-38");
}

#[test]
fn since_does_not_move_with_renewals_and_never_lies_in_the_future() {
    let mut stage = Stage::new();
    // The operator starts late, and the holder's clock is an hour ahead.
    stage.put(100.0, 15.0, |l| {
        l.hold = Hold::Held("a".into());
        (l.acquire_time, l.renew_time) = (Some(at(3600.0)), Some(at(3700.0)));
    });
    stage.reconcile(100.0);
    let since = stage.status.acquire_time.clone().unwrap();
    assert_eq!(since.0, at(100.0));
    stage.renew(105.0, 15.0);
    stage.reconcile(112.0);
    assert_eq!(stage.status.acquire_time, Some(since));
}
