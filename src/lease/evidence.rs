//! What proves that a held Lease has expired.
//!
//! Two kinds of evidence, and nothing else: *observed* (this process has seen the record unchanged for its TTL, on a
//! clock that counts while asleep), and *server time* (one reply of the API server says both when the record was last
//! written and what time it is). Wall clocks of nodes grant nothing; here one can only veto.

use std::time::{Duration, SystemTime};

use super::record::Record;
use crate::lock::Moment;

/// The record of a Lease as this process last saw it, and since when it has been so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sighting {
    holder: String,
    term: Option<String>,
    renew_text: Option<String>,
    /// When this process first saw it: when the news *arrived*, so a late delivery only delays a takeover.
    pub(super) since: Moment,
    /// The longest TTL seen with this record. A holder that recorded 30 s has 30 s, whatever a later edit says.
    ttl: Option<Duration>,
}

impl Sighting {
    pub(crate) fn new(now: Moment, record: &Record) -> Self {
        Self {
            holder: record.holder.clone(),
            term: term_id(record),
            renew_text: record.renew_text.clone(),
            since: now,
            ttl: record.contender_ttl(),
        }
    }

    /// Takes in a newer version of the same Lease. Only a change of holder, term or renewTime restarts the clock: an
    /// edit of a label must not keep a dead holder's Lease alive.
    pub(crate) fn update(&mut self, now: Moment, record: &Record) {
        let unchanged = self.holder == record.holder
            && self.term == term_id(record)
            && self.renew_text == record.renew_text;
        if unchanged {
            self.ttl = self.ttl.max(record.contender_ttl());
        } else {
            *self = Self::new(now, record);
        }
    }

    /// When the expiry is proven unless the record changes. `own_ttl` counts only where the Lease has none.
    pub(crate) fn expires(&self, own_ttl: Duration) -> Moment {
        self.since + self.ttl_or(own_ttl)
    }

    /// The TTL that a contender must wait.
    pub(crate) fn ttl_or(&self, own_ttl: Duration) -> Duration {
        self.ttl.unwrap_or(own_ttl)
    }
}

fn term_id(record: &Record) -> Option<String> {
    record.mark.as_ref().map(|mark| mark.id.clone())
}

/// One reply's view of the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ServerTime {
    /// The `Date` header; whole seconds, rounded down.
    pub(crate) date: SystemTime,
    /// This process's wall clock when the reply came.
    pub(crate) wall: SystemTime,
}

impl ServerTime {
    /// Whether the reply that carried `record` proves that `ttl` has passed since it was written. `allowance` bounds how
    /// far the clocks of API servers differ or step; one second more is rounding.
    pub(crate) fn proves_expiry(self, record: &Record, ttl: Duration, allowance: Duration) -> bool {
        let error = allowance.saturating_add(Duration::from_secs(1));
        let (Some(written), Some(renewed)) = (record.written, record.renew_time) else {
            return false;
        };
        // Vetoes: a server that disagrees with us, or a renewal that disagrees with its server, is a clock that jumped.
        if apart(self.date, self.wall) > error || apart(written, renewed) > error {
            return false;
        }
        self.date
            .duration_since(written)
            .is_ok_and(|age| age > ttl.saturating_add(error))
    }
}

fn apart(a: SystemTime, b: SystemTime) -> Duration {
    a.duration_since(b).unwrap_or_else(|e| e.duration())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::lease::{record::tests::lease, time};

    const SECOND: Duration = Duration::from_secs(1);

    fn record(spec: &serde_json::Value) -> Record {
        Record::read(&lease(&json!({}), spec)).unwrap()
    }

    fn at(secs: u64) -> Moment {
        Moment::from_origin(Duration::from_secs(secs))
    }

    #[test]
    fn a_shorter_edit_does_not_shorten_what_the_holder_recorded() {
        let spec = |secs: i32| json!({"holderIdentity": "a", "renewTime": "r", "leaseDurationSeconds": secs});
        let mut sighting = Sighting::new(at(0), &record(&spec(30)));
        sighting.update(at(1), &record(&spec(10)));
        assert_eq!(
            sighting.expires(SECOND),
            at(30),
            "the contender's own second does not count"
        );
        sighting.update(at(2), &record(&spec(40)));
        assert_eq!(
            sighting.expires(SECOND),
            at(40),
            "the longest seen with this record"
        );
    }

    #[test]
    fn a_renewal_restarts_the_clock_and_an_edit_does_not() {
        let spec =
            |renew: &str| json!({"holderIdentity": "a", "renewTime": renew, "leaseDurationSeconds": 10});
        let mut sighting = Sighting::new(at(0), &record(&spec("1")));
        let mut edited = record(&spec("1"));
        edited.resource_version = 8;
        sighting.update(at(5), &edited);
        assert_eq!(sighting.expires(SECOND), at(10));
        sighting.update(at(6), &record(&spec("2")));
        assert_eq!(sighting.expires(SECOND), at(16));
    }

    #[test]
    fn a_contenders_own_ttl_counts_only_where_the_lease_has_none() {
        let sighting = Sighting::new(at(0), &record(&json!({"holderIdentity": "a"})));
        assert_eq!(sighting.expires(7 * SECOND), at(7));
    }

    #[test]
    fn server_time_proves_an_expiry_only_beyond_every_error() {
        let base = time::parse("2026-01-01T00:00:00Z").unwrap();
        let mut record = record(&json!({"holderIdentity": "a", "renewTime": "2026-01-01T00:00:00.5Z"}));
        record.written = Some(base);
        let proves = |record: &Record, date: u64, wall: u64| {
            let time = ServerTime {
                date: base + Duration::from_secs(date),
                wall: base + Duration::from_secs(wall),
            };
            time.proves_expiry(record, 15 * SECOND, 5 * SECOND)
        };
        assert!(!proves(&record, 21, 21), "not strictly more");
        assert!(proves(&record, 22, 22));
        assert!(proves(&record, 22, 16), "our clock within the error");
        assert!(!proves(&record, 22, 15), "our clock vetoes");
        assert!(!proves(&record, 22, 3622), "an hour ahead vetoes");
        let mut skewed = record.clone();
        skewed.renew_time = Some(base + 7 * SECOND);
        assert!(!proves(&skewed, 60, 60), "renewTime disagrees with its server");
        let mut unknown = record.clone();
        unknown.written = None;
        assert!(!proves(&unknown, 60, 60), "no managed fields, no evidence");
        record.renew_time = None;
        assert!(!proves(&record, 60, 60), "nothing to check against");
    }
}
