//! The bodies of our writes. Each is the Lease as read, changed as little as the wire layout asks for, with its
//! resourceVersion *and* uid: without the first it is no compare-and-set, without the second a PUT to a Lease that was
//! deleted creates it.

use std::time::{Duration, SystemTime};

use super::{
    record::{Record, StoredToken},
    term::{Attempt, OwnTerm},
    time,
    wire::{
        Lease, Metadata, STREAM_ANNOTATION, Spec, TERM_ANNOTATION, TOKEN_ANNOTATION, TTL_ANNOTATION, TermMark,
    },
};
use crate::{
    lock::{FencingToken, StreamName, Ttl},
    rules::Rule,
};

/// Kubernetes stores `leaseTransitions` in 32 bits.
const TRANSITIONS_MAX: i64 = i32::MAX as i64;

/// Whole-second renewTimes are what client-go compares; below this TTL a second is too long to wait for the next.
const WHOLE_SECONDS_FROM: Duration = Duration::from_secs(3);

/// A Lease that nobody holds, to be created before it is acquired: so every acquisition is a compare-and-set.
pub(crate) fn free(name: &str, namespace: &str, stream: &StreamName) -> Lease {
    let mut lease = Lease {
        api_version: "coordination.k8s.io/v1".to_owned(),
        kind: "Lease".to_owned(),
        metadata: Metadata {
            name: name.to_owned(),
            namespace: Some(namespace.to_owned()),
            ..Metadata::default()
        },
        spec: Some(Spec {
            lease_transitions: Some(0),
            ..Spec::default()
        }),
        rest: serde_json::Map::new(),
    };
    lease.label();
    lease.annotate(STREAM_ANNOTATION, stream.to_string());
    lease
}

/// The token of an acquisition conditioned on `record`: its resourceVersion, and more than any stored token.
///
/// # Errors
/// What is wrong with the stored token, and how to mend it.
pub(crate) fn next_token(record: &Record) -> Result<FencingToken, String> {
    let floor = match &record.token {
        StoredToken::Absent => 0,
        StoredToken::Valid(token) => token.get(),
        StoredToken::Absurd(text) => {
            return Err(format!(
                "its annotation {TOKEN_ANNOTATION} is {text:?}, which is no token that a higher one can follow; set it to \
                 the highest token that the stream's store has seen"
            ));
        }
    };
    i64::try_from(record.resource_version)
        .ok()
        .map(|version| version.max(floor + 1))
        .and_then(FencingToken::new)
        .ok_or_else(|| format!("its resourceVersion {} is no token", record.resource_version))
}

/// The renewTime of the next write: later than the stored one and than any that was sent, and in another whole second
/// when the TTL is 3 s or more. An unchanged PUT writes nothing and answers 200, and client-go compares whole seconds.
pub(crate) fn next_renew_text(wall: SystemTime, earlier: [Option<&str>; 2], ttl: Ttl) -> String {
    let mut next = wall;
    let mut stepped = None;
    for before in earlier.into_iter().flatten().filter_map(time::parse) {
        let whole = ttl.as_duration() >= WHOLE_SECONDS_FROM;
        let late_enough = if whole {
            time::whole_seconds(next) > time::whole_seconds(before)
        } else {
            next >= before + MICRO
        };
        let step = if whole { Duration::from_secs(1) } else { MICRO };
        let after = before.checked_add(step);
        stepped = stepped.max(after);
        if !late_enough {
            next = after.unwrap_or(wall);
        }
    }
    // A wall clock beyond all times still has to write another text each time: an unchanged PUT renews nothing. A stored
    // time at the end of all time has no successor; any other text differs from it, which is what counts.
    time::micro_time(next)
        .or_else(|| stepped.and_then(time::micro_time))
        .or_else(|| time::micro_time(wall))
        .unwrap_or_else(|| "1970-01-01T00:00:00.000000Z".to_owned())
}

const MICRO: Duration = Duration::from_micros(1);

/// Who keeps `acquireTime` and `leaseTransitions`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holder {
    /// The same holder again: both stay.
    Stays,
    /// Another: transitions rise by one.
    Changes,
}

/// `instance` acquires under the term in `own`.
pub(crate) fn acquisition(
    base: &Lease,
    record: &Record,
    own: &OwnTerm,
    attempt: &Attempt,
    holder: Holder,
) -> Lease {
    let mut lease = held(base, own, attempt);
    let spec = lease.spec.get_or_insert_default();
    let transitions = match holder {
        Holder::Stays => record.transitions,
        Holder::Changes => (record.transitions + 1).clamp(0, TRANSITIONS_MAX),
    };
    if holder == Holder::Changes || record.acquire_time.is_none() {
        // Not the renewTime, which may be a second ahead: people read since when somebody leads.
        spec.acquire_time = time::micro_time(attempt.acquired_at);
    }
    spec.lease_transitions = Some(transitions);
    marked(lease, own, transitions)
}

/// The holder of `own` renews.
pub(crate) fn renewal(base: &Lease, record: &Record, own: &OwnTerm, attempt: &Attempt) -> Lease {
    marked(held(base, own, attempt), own, record.transitions)
}

/// The holder of `own` gives up. The object stays, so that token and history do; the mark tells it from a holder that
/// somebody else wiped.
pub(crate) fn release(base: &Lease, record: &Record, stream: &StreamName, mark: TermMark) -> Lease {
    let mut lease = base.clone();
    let spec = lease.spec.get_or_insert_default();
    spec.holder_identity = None;
    lease.label();
    lease.annotate(STREAM_ANNOTATION, stream.to_string());
    annotate_mark(
        &mut lease,
        &TermMark {
            transitions: record.transitions,
            released: true,
            ..mark
        },
    );
    lease
}

fn held(base: &Lease, own: &OwnTerm, attempt: &Attempt) -> Lease {
    let mut lease = base.clone();
    if !own.rules.keeps(Rule::Uid) {
        lease.metadata.uid = None;
    }
    if !own.rules.keeps(Rule::ResourceVersion) {
        lease.metadata.resource_version = None;
    }
    let spec = lease.spec.get_or_insert_default();
    spec.holder_identity = Some(own.instance.to_string());
    spec.lease_duration_seconds = Some(i64::from(attempt.ttl.lease_duration_seconds()));
    spec.renew_time = Some(attempt.renew_text.clone());
    lease.label();
    lease.annotate(TTL_ANNOTATION, attempt.ttl.as_millis().to_string());
    lease.annotate(TOKEN_ANNOTATION, attempt.token.to_string());
    lease
}

fn marked(mut lease: Lease, own: &OwnTerm, transitions: i64) -> Lease {
    lease.annotate(STREAM_ANNOTATION, own.stream.to_string());
    annotate_mark(&mut lease, &own.mark(transitions, false));
    lease
}

fn annotate_mark(lease: &mut Lease, mark: &TermMark) {
    // A struct of two strings, a number and a flag always serialises.
    lease.annotate(TERM_ANNOTATION, serde_json::to_string(mark).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        lease::record::{Holding, tests::lease},
        lock::{InstanceId, Moment, Term},
    };

    fn own() -> OwnTerm {
        OwnTerm::new(
            StreamName::new("Orders").unwrap(),
            Term::random(),
            InstanceId::new("host:app:1").unwrap(),
            "u1".into(),
        )
    }

    fn attempt(millis: u64) -> Attempt {
        Attempt {
            renew_text: "2026-01-01T00:00:00.000001Z".into(),
            sent: Moment::ORIGIN,
            sent_wall: SystemTime::UNIX_EPOCH,
            ttl: ttl(millis),
            token: FencingToken::new(9).unwrap(),
            acquired_at: SystemTime::UNIX_EPOCH,
            serial: 1,
            condition: 7,
        }
    }

    fn ttl(millis: u64) -> Ttl {
        Ttl::new(Duration::from_millis(millis)).unwrap()
    }

    #[test]
    fn an_acquisition_keeps_what_it_does_not_own() {
        let mut base = lease(
            &json!({"team": "payments"}),
            &json!({"holderIdentity": "b", "leaseTransitions": 4, "strategy": "X", "preferredHolder": "c"}),
        );
        base.metadata.labels = Some([("l".to_owned(), "1".to_owned())].into());
        let record = Record::read(&base).unwrap();
        let written = acquisition(&base, &record, &own(), &attempt(1500), Holder::Changes);
        let after = Record::read(&written).unwrap();
        assert_eq!(after.holding(), Holding::Held("host:app:1"));
        assert_eq!(
            (after.transitions, after.duration),
            (5, Some(Duration::from_secs(2)))
        );
        assert_eq!(after.shown_ttl(), Some(Duration::from_millis(1500)));
        assert_eq!(after.shown_token(), FencingToken::new(9));
        assert_eq!(after.stream.as_deref(), Some("Orders"));
        assert!(written.is_labelled());
        let json = serde_json::to_value(&written).unwrap();
        assert_eq!(json["metadata"]["annotations"]["team"], "payments");
        assert_eq!(json["metadata"]["labels"]["l"], "1");
        assert_eq!(json["spec"]["strategy"], "X");
        assert_eq!(json["spec"]["preferredHolder"], "c");
        assert_eq!(
            (
                json["metadata"]["uid"].as_str(),
                json["metadata"]["resourceVersion"].as_str()
            ),
            (Some("u1"), Some("7"))
        );
    }

    #[test]
    fn a_release_is_told_from_a_wiped_holder() {
        let base = lease(&json!({}), &json!({"holderIdentity": "b", "leaseTransitions": 4}));
        let own = own();
        let record = Record::read(&base).unwrap();
        let held = renewal(&base, &record, &own, &attempt(15_000));
        let released = release(&held, &record, &own.stream, own.mark(4, false));
        let after = Record::read(&released).unwrap();
        assert_eq!(after.holding(), Holding::Free);
        assert_eq!(
            after.token,
            StoredToken::Valid(FencingToken::new(9).unwrap()),
            "the floor of the next token stays"
        );
        let mut wiped = held;
        wiped.spec.as_mut().unwrap().holder_identity = None;
        assert_eq!(
            Record::read(&wiped).unwrap().holding(),
            Holding::Wiped("host:app:1")
        );
    }

    #[test]
    fn tokens_rise_over_resource_versions_and_stored_floors() {
        let token = |stored: Option<&str>| {
            let annotations = stored.map_or(json!({}), |t| json!({TOKEN_ANNOTATION: t}));
            next_token(&Record::read(&lease(&annotations, &json!({}))).unwrap()).map(FencingToken::get)
        };
        assert_eq!(token(None), Ok(7));
        assert_eq!(token(Some("3")), Ok(7));
        assert_eq!(token(Some("7")), Ok(8));
        assert_eq!(token(Some("1000")), Ok(1001));
        assert!(
            token(Some("18446744073709551615"))
                .unwrap_err()
                .contains("set it to the highest token")
        );
    }

    #[test]
    fn a_renew_time_is_later_than_the_stored_one_and_in_another_second() {
        let wall = time::parse("2026-01-01T00:00:05.5Z").unwrap();
        let next = |before: &str, millis: u64| next_renew_text(wall, [Some(before), None], ttl(millis));
        assert_eq!(
            next("2026-01-01T00:00:04.9Z", 15_000),
            "2026-01-01T00:00:05.500000Z"
        );
        assert_eq!(
            next("2026-01-01T00:00:05.1Z", 15_000),
            "2026-01-01T00:00:06.100000Z"
        );
        assert_eq!(next("2026-01-01T00:00:05.1Z", 900), "2026-01-01T00:00:05.500000Z");
        assert_eq!(next("2026-01-01T00:00:05.5Z", 900), "2026-01-01T00:00:05.500001Z");
        assert_eq!(
            next("2026-01-01T01:00:00Z", 15_000),
            "2026-01-01T01:00:01.000000Z",
            "a clock an hour ahead"
        );
        assert_eq!(next("never", 15_000), "2026-01-01T00:00:05.500000Z");
        assert_ne!(
            next("9999-12-30T22:00:00.999999Z", 15_000),
            "9999-12-30T22:00:00.999999Z"
        );
        let sent = next_renew_text(wall, [None, Some("2026-01-01T00:00:05.5Z")], ttl(15_000));
        assert_eq!(
            sent, "2026-01-01T00:00:06.500000Z",
            "later than one that was sent and never answered"
        );
    }

    #[test]
    fn transitions_never_overflow_what_the_server_stores() {
        let base = lease(&json!({}), &json!({"leaseTransitions": i32::MAX}));
        let record = Record::read(&base).unwrap();
        let written = acquisition(&base, &record, &own(), &attempt(1000), Holder::Changes);
        assert_eq!(written.spec.unwrap().lease_transitions, Some(TRANSITIONS_MAX));
    }
}
