//! How leaderships end, and what the history keeps of them.

use super::*;

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
fn the_history_is_bounded() {
    let mut stage = Stage::new();
    for n in 0..40 {
        stage.acquire(f64::from(n), 15.0, &format!("holder-{n}"));
        stage.reconcile(f64::from(n));
    }
    assert_eq!(stage.status.history.len(), HISTORY_MAX);
    assert_eq!(stage.past()[0].0, "holder-38");
}
