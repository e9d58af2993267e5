use serde_json::json;

use super::*;
use crate::{
    crd::StatusPolicy,
    operator::projection::{self, Sight, Source},
};

const TTL: i64 = 15;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

fn lease(version: u64, holder: &str, renewed: i64) -> LeaseView {
    let lease = json!({
        "metadata": {
            "namespace": "ns", "name": "orders", "uid": "u", "resourceVersion": version.to_string(),
            "labels": crate::lease::LABELS.iter().copied().collect::<std::collections::BTreeMap<_, _>>(),
            "managedFields": [{"time": at(renewed).to_string(), "fieldsV1": {"f:spec": {"f:renewTime": {}}}}],
        },
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": TTL, "leaseTransitions": 1},
    });
    LeaseView::new(&serde_json::from_value(lease).unwrap(), at(renewed)).unwrap()
}

fn forbidden() -> ApiError {
    ApiError::Forbidden {
        verb: "watch",
        resource: LEASES,
        place: "in namespace ns".into(),
        message: "no".into(),
    }
}

fn look(
    previous: &ChangeStreamLeaderStatus,
    last: Option<&LeaseView>,
    blind: Option<&Blindness>,
    now: i64,
) -> Projection {
    let subject = Subject {
        stream: "orders",
        lease: "orders",
        generation: Some(1),
        policy: StatusPolicy::Full,
    };
    let sight = Sight {
        lease: last,
        before: None,
        source: Source::Watch,
        now: at(now),
        refresh_due: false,
        blind,
    };
    projection::project(subject, previous, sight)
}

fn says(status: &ChangeStreamLeaderStatus, type_: &str) -> (String, String) {
    let condition = status.condition(type_).unwrap();
    (condition.status.clone(), condition.reason.clone())
}

fn pair(status: &str, reason: &str) -> (String, String) {
    (status.into(), reason.into())
}

#[test]
fn the_last_leader_is_shown_as_that_and_not_beyond_its_time() {
    let last = lease(5, "a", 0);
    let shown = look(&ChangeStreamLeaderStatus::default(), Some(&last), None, 1).status;
    assert_eq!(says(&shown, READY), pair("True", "UpToDate"));

    let blind = Blindness::of_watch(&forbidden());
    let first = look(&shown, Some(&last), Some(&blind), 5);
    assert_eq!(first.write, Some(WriteReason::Condition));
    assert_eq!(says(&first.status, READY), pair("Unknown", "WatchForbidden"));
    let message = &first.status.condition(READY).unwrap().message;
    assert!(
        message.contains("not permitted to watch leases.coordination.k8s.io"),
        "{message}"
    );
    assert_eq!(says(&first.status, HELD), pair("True", "LeaseHeld"));
    assert_eq!(first.status.expiration_time, None, "nothing is promised");
    let again = first.requeue_after.unwrap();
    // The server's seconds are rounded down: one is added.
    assert_eq!(again, Duration::from_secs(11));

    // Nothing new: nothing is written. Then its time is over, and a read is tried before that is said.
    assert_eq!(look(&first.status, Some(&last), Some(&blind), 15).write, None);
    let over = look(&first.status, Some(&last), Some(&blind), 16);
    assert!(over.read_first && over.write.is_none());
    let over = look(&first.status, Some(&last), Some(&blind.unreadable()), 16);
    assert_eq!(says(&over.status, HELD), pair("Unknown", "LeaseNotSeen"));
    assert_eq!(
        over.status.holder_identity.as_deref(),
        Some("a"),
        "the last that was known"
    );
    assert_eq!(look(&over.status, Some(&last), Some(&blind), 99).write, None);

    // It had gone on all the time: then that is no other leadership, and no transition.
    let seen = look(&over.status, Some(&lease(9, "a", 95)), None, 100);
    assert_eq!(seen.write, Some(WriteReason::Condition));
    assert_eq!(says(&seen.status, READY), pair("True", "UpToDate"));
    assert_eq!(says(&seen.status, HELD), pair("True", "LeaseHeld"));
    assert!(seen.status.history.is_empty() && seen.status.expiration_time.is_some());
    assert_eq!(seen.status.acquire_time, shown.acquire_time);

    // Another leads: how the last one ended nobody saw.
    let mut other = lease(9, "b", 95);
    other.transitions = Some(2);
    let seen = look(&over.status, Some(&other), None, 100);
    assert_eq!(seen.write, Some(WriteReason::Transition));
    assert_eq!(seen.status.history[0].ended, crate::crd::Ended::Unknown);
}

#[test]
fn who_never_saw_the_lease_knows_nothing_of_its_leader() {
    let shown = look(
        &ChangeStreamLeaderStatus::default(),
        Some(&lease(5, "a", 0)),
        None,
        1,
    )
    .status;
    let blind = Blindness::of_watch(&forbidden()).unreadable();
    // Another life of the operator: what it finds in the status is another's word.
    let told = look(&shown, None, Some(&blind), 2).status;
    assert_eq!(says(&told, HELD), pair("Unknown", "LeaseNotSeen"));
    assert_eq!(
        (told.holder_identity.as_deref(), told.expiration_time),
        (Some("a"), None)
    );
    let empty = look(&ChangeStreamLeaderStatus::default(), None, Some(&blind), 2).status;
    assert_eq!(says(&empty, HELD), pair("Unknown", "LeaseNotSeen"));
}

#[test]
fn a_free_lock_may_be_taken_unseen() {
    let free = lease(5, "", 0);
    let shown = look(&ChangeStreamLeaderStatus::default(), Some(&free), None, 1).status;
    assert_eq!(says(&shown, HELD), pair("False", "LeaseFree"));
    let told = look(&shown, Some(&free), Some(&Blindness::of_watch(&forbidden())), 5);
    assert!(!told.read_first);
    assert_eq!(says(&told.status, HELD), pair("Unknown", "LeaseNotSeen"));
}

#[test]
fn each_kind_of_failure_has_a_reason_and_words_that_stay_the_same() {
    let unreachable = |message: &str| ApiError::Unreachable {
        verb: "watch",
        resource: LEASES,
        message: message.into(),
    };
    let says = |blind: Blindness| (blind.reason, blind.message);
    let one = says(Blindness::of_watch(&unreachable("connection 1 refused")));
    assert_eq!(one, says(Blindness::of_watch(&unreachable("connection 2 reset"))));
    assert_eq!(one.0, "ApiServerUnreachable");
    assert_eq!(Blindness::of_watch(&forbidden()).reason, "WatchForbidden");
    assert_eq!(Blindness::of_read(&forbidden()).reason, "ReadForbidden");
    assert_eq!(
        Blindness::of_watch(&ApiError::NamespaceEnds).reason,
        "WatchBroken"
    );
    let odd = ApiError::Refused {
        verb: "get",
        resource: LEASES,
        message: "é".repeat(10_000),
    };
    let odd = says(Blindness::of_read(&odd));
    assert!(odd.0 == "LeaseUnreadable" && odd.1.len() < 2000);
}

#[test]
fn a_read_ends_a_leadership_and_tells_nothing_of_the_next() {
    let last = lease(5, "a", 0);
    let shown = look(&ChangeStreamLeaderStatus::default(), Some(&last), None, 1).status;
    let blind = Blindness::of_watch(&forbidden());
    let told = look(&shown, Some(&last), Some(&blind), 5).status;
    let subject = Subject {
        stream: "orders",
        lease: "orders",
        generation: Some(1),
        policy: StatusPolicy::Full,
    };
    for (lease, ended) in [
        (Some(&last), crate::crd::Ended::Expired),
        (None, crate::crd::Ended::Deleted),
    ] {
        let sight = Sight {
            lease,
            before: None,
            source: Source::Read,
            now: at(16),
            refresh_due: false,
            blind: Some(&blind),
        };
        let read = projection::project(subject, &told, sight).status;
        assert_eq!(read.history[0].ended, ended);
        assert_eq!(says(&read, READY), pair("Unknown", "WatchForbidden"));
        assert_eq!(says(&read, HELD), pair("Unknown", "LeaseNotSeen"));
        let again = look(&read, lease, Some(&blind), 17);
        assert!(again.write.is_none() && !again.read_first, "said once");
    }
}
