//! A Lease and its status in time, without a cluster. What is looked at stands in the files below.

mod budget;
mod endings;
mod truth;

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
            hidden: false,
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
        self.look(now, if fresh { Source::Read } else { Source::Watch })
    }

    fn look(&self, now: f64, source: Source) -> Projection {
        let subject = Subject {
            stream: "orders",
            lease: "orders",
            generation: Some(1),
            policy: self.policy,
        };
        let sight = Sight {
            lease: self.lease.as_ref(),
            before: self.before.as_ref(),
            source,
            now: at(now),
            refresh_due: false,
            blind: None,
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
