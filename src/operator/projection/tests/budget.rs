//! How often a status is written: not with every renewal, and in time.

use super::*;

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
