//! What is believed, and what is said of a Lease that is not as it should be.

use super::*;

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
fn a_status_never_goes_back() {
    let mut stage = Stage::new();
    stage.acquire(0.0, 15.0, "a");
    let old = stage.lease.clone();
    stage.acquire(1.0, 15.0, "b");
    stage.reconcile(1.1);
    let new = stage.lease.clone();
    stage.lease.clone_from(&old);
    assert_eq!(stage.look(1.2, Source::Step).write, None);
    let lagging = stage.look(1.2, Source::Watch);
    assert!(lagging.write.is_none() && lagging.read_first);
    // Nor to a Lease that was seen gone.
    stage.lease = None;
    stage.reconcile(2.0);
    stage.lease = new;
    for source in [Source::Step, Source::Watch] {
        assert_eq!(stage.look(2.1, source).write, None);
    }
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

#[test]
fn a_status_that_somebody_made_newer_than_the_lease_is_corrected_by_a_read() {
    let mut stage = Stage::new();
    stage.acquire(0.0, 300.0, "a");
    stage.reconcile(0.1);
    stage.status.lease_resource_version = Some("999999".into());
    stage.status.holder_identity = Some("liar".into());
    assert!(stage.look(1.0, Source::Watch).read_first);
    stage.reconcile(1.0);
    assert_eq!(stage.status.holder_identity.as_deref(), Some("a"));
}
