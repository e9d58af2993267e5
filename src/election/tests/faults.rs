//! A lock that cannot be reached, and what that costs: nothing before the stop margin, everything after it.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use super::bench::*;
use crate::{
    election::{DeploymentMode, LossReason, StreamSpec, StreamState},
    lock::{Clock, InMemoryLockService, LockServiceExt, ManualClock, Moment},
};

fn unreachable(reason: &LossReason) -> bool {
    matches!(reason, LossReason::ExpiredUnreachable { .. })
}

/// Cuts a leader off and looks at when its work learns what.
async fn cut_off_by(fault: Fault) {
    let clock = ManualClock::new();
    let memory = InMemoryLockService::with_clock(Arc::new(clock.clone()));
    let way = Faulty::new(memory.peer());
    let arena = Arc::new(Arena::default());
    let (a, b) = (
        on_manual_clock(way.clone(), "a"),
        on_manual_clock(memory.peer(), "b"),
    );
    let told = Arc::new(Mutex::new(None::<(Moment, Moment, bool)>));
    let (inside, tells, time) = (Arc::clone(&arena), Arc::clone(&told), clock.clone());
    let spec = StreamSpec::new(orders(), DeploymentMode::SingleLeader, move |leadership| {
        let (arena, told, clock) = (Arc::clone(&inside), Arc::clone(&tells), time.clone());
        async move {
            tokio::select! {
                reason = leadership.lost() => {
                    assert!(unreachable(&reason), "{reason:?}");
                    told.lock().unwrap().get_or_insert((
                        clock.now(),
                        leadership.deadline(),
                        leadership.is_valid(),
                    ));
                }
                () = Arc::clone(&arena).stubborn(leadership.clone()) => {}
            }
            // It was told, and does not care.
            arena.stubborn(leadership).await;
        }
    });
    run(&a, spec);
    advance(&clock, seconds(6), &[&a]).await;
    run(&b, arena.spec());
    assert!(leads(&a) && status(&a).last_loss.is_none());

    way.set(fault);
    let cut_at = clock.now();
    // Two thirds of the TTL cost nothing: the last proof may be a third old.
    advance(&clock, seconds(6), &[&a, &b]).await;
    assert!(leads(&a) && told.lock().unwrap().is_none());
    let deadline = status(&a).valid_until.unwrap();
    while clock.now() < deadline {
        advance(&clock, Duration::from_millis(100), &[&a, &b]).await;
    }
    eventually("the work was dropped", || arena.dropped() >= 1).await;
    assert!(way.met() > 1, "the fault really happened");
    let (at, last, valid) = told.lock().unwrap().take().expect("the work was told");
    assert!(
        valid && at < last && last == deadline,
        "told at {at:?}, before {last:?}"
    );
    assert!(deadline.since(at) <= seconds(2), "not earlier than the margin");
    assert_eq!(status(&a).state, StreamState::Releasing);
    assert!(unreachable(&status(&a).last_loss.unwrap().reason));

    advance(&clock, seconds(5), &[&a, &b]).await;
    assert!(leads(&b), "{:?} after the cut", clock.now().since(cut_at));
    // Twice entered by a's work, once by b's.
    eventually("b works", || arena.starts() == 3).await;
    assert_eq!(arena.overlaps.load(std::sync::atomic::Ordering::SeqCst), 0);
    // The way is free again: a is a standby by itself.
    way.set(Fault::None);
    advance(&clock, seconds(17), &[&a, &b]).await;
    assert_eq!(status(&a).state, StreamState::Contending);
    assert!(leads(&b));
}

#[tokio::test]
async fn a_lock_that_fails_costs_the_leadership_in_time_and_not_early() {
    cut_off_by(Fault::Cut).await;
}

#[tokio::test]
async fn a_lock_that_never_answers_costs_the_leadership_in_time_and_not_early() {
    cut_off_by(Fault::Hang).await;
}

#[tokio::test]
async fn a_lock_that_panics_costs_the_leadership_in_time_and_not_early() {
    cut_off_by(Fault::Panic).await;
}

#[tokio::test]
async fn faults_shorter_than_the_margin_allows_cost_nothing() {
    let clock = ManualClock::new();
    let memory = InMemoryLockService::with_clock(Arc::new(clock.clone()));
    let way = Faulty::new(memory.peer());
    let arena = Arc::new(Arena::default());
    let a = on_manual_clock(way.clone(), "a");
    run(&a, arena.spec());
    advance(&clock, seconds(1), &[&a]).await;
    for fault in [Fault::Cut, Fault::Hang, Fault::LoseReplies, Fault::Panic] {
        let met = way.met();
        // Until a renewal has met it, whenever that is due, and then for less than two attempts take to time out.
        way.set(fault);
        while way.met() == met {
            advance(&clock, Duration::from_millis(100), &[&a]).await;
        }
        advance(&clock, seconds(4), &[&a]).await;
        way.set(Fault::None);
        advance(&clock, seconds(6), &[&a]).await;
        assert!(leads(&a), "{fault:?}");
        assert_eq!((status(&a).last_loss, arena.starts()), (None, 1), "{fault:?}");
    }
}

#[tokio::test]
async fn stopping_while_an_acquisition_is_unknown_leaves_no_lock_behind() {
    for fault in [Fault::LoseReplies, Fault::Hang] {
        let clock = ManualClock::new();
        let memory = InMemoryLockService::with_clock(Arc::new(clock.clone()));
        let way = Faulty::new(memory.peer());
        way.set(fault);
        let arena = Arc::new(Arena::default());
        let a = on_manual_clock(way.clone(), "a");
        run(&a, arena.spec());
        advance(&clock, seconds(1), &[&a]).await;
        assert!(way.met() > 0);
        let applied = memory.current_leader(&orders()).await;
        assert_eq!(applied.is_some(), fault == Fault::LoseReplies);
        let stopping = a.stop(&orders()).unwrap();
        way.set(Fault::None);
        advance(&clock, seconds(20), &[&a]).await;
        stopping.finished().await;
        assert_eq!(memory.current_leader(&orders()).await, None, "{fault:?}");
        assert_eq!((arena.starts(), status(&a).last_loss), (0, None), "{fault:?}");
    }
}

#[tokio::test]
async fn a_proven_loss_ends_the_guard_and_the_work_at_once() {
    let clock = ManualClock::new();
    let memory = InMemoryLockService::with_clock(Arc::new(clock.clone()));
    let arena = Arc::new(Arena::default());
    // A service that tells nothing by itself: the next renewal finds it.
    let a = on_manual_clock(Faulty::new(memory.peer()), "a");
    run(&a, arena.stubborn_spec());
    advance(&clock, seconds(1), &[&a]).await;
    eventually("it acts", || arena.acts() > 0).await;
    // Somebody deletes the record, and another process takes the lock.
    assert!(memory.delete(&orders()));
    let other = crate::InstanceId::new("other").unwrap();
    assert!(
        memory
            .try_acquire(&orders(), &other, crate::Ttl::from_secs(15).unwrap())
            .await
    );
    advance(&clock, seconds(6), &[&a]).await;
    eventually("the work is dropped", || arena.dropped() == 1).await;
    let reason = status(&a).last_loss.unwrap().reason;
    assert!(matches!(reason, LossReason::TakenOver { by, .. } if by == "other"));
    assert_eq!(status(&a).state, StreamState::Contending);
    assert_eq!(memory.current_leader(&orders()).await.as_deref(), Some("other"));
}

#[tokio::test]
async fn a_loss_that_is_told_ends_the_work_before_the_holder_asks() {
    let clock = ManualClock::new();
    let memory = InMemoryLockService::with_clock(Arc::new(clock.clone()));
    let arena = Arc::new(Arena::default());
    let a = on_manual_clock(memory.peer(), "a");
    run(&a, arena.stubborn_spec());
    advance(&clock, seconds(1), &[&a]).await;
    eventually("it acts", || arena.acts() > 0).await;
    let token = status(&a).token;
    // Somebody deletes the record. The holder is told; it need not ask.
    assert!(memory.delete(&orders()));
    eventually("the work is dropped", || arena.dropped() == 1).await;
    eventually("it leads again", || status(&a).state == StreamState::Working).await;
    assert_eq!(status(&a).last_loss.unwrap().reason, LossReason::Deleted);
    assert!(status(&a).token > token);
}
