//! The guard by itself, on a manual clock.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt;

use super::*;
use crate::lock::{InMemoryLockService, ManualClock};

fn guard(clock: &ManualClock) -> (Reins, Leadership, Arc<AtomicUsize>) {
    use crate::lock::Clock;
    let service = Arc::new(InMemoryLockService::with_clock(Arc::new(clock.clone())));
    let deadline = clock.now() + Duration::from_secs(10);
    let gone = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&gone);
    let stream = StreamName::new("orders").unwrap();
    let (reins, leadership) = Reins::new(stream, Term::random(), None, deadline, service, move || {
        counted.fetch_add(1, Ordering::SeqCst);
    });
    (reins, leadership, gone)
}

#[test]
fn a_guard_that_was_once_false_stays_false_whatever_its_deadline_becomes() {
    let clock = ManualClock::new();
    let (reins, leadership, _) = guard(&clock);
    let later = leadership.deadline() + Duration::from_secs(100);
    clock.advance(Duration::from_millis(9_999));
    assert!(leadership.is_valid());
    clock.advance(Duration::from_millis(1));
    assert!(!leadership.is_valid(), "valid until, not through");
    assert!(!reins.deadline(later));
    assert!(!leadership.is_valid() && leadership.remaining().is_zero());
    assert!(
        leadership
            .check()
            .unwrap_err()
            .to_string()
            .contains("no longer leads stream orders")
    );
}

#[test]
fn the_deadline_moves_only_while_the_guard_counts_even_when_nobody_asked_it() {
    let clock = ManualClock::new();
    let (reins, leadership, _) = guard(&clock);
    let later = leadership.deadline() + Duration::from_secs(10);
    assert!(reins.deadline(later));
    clock.advance(Duration::from_secs(15));
    assert!(leadership.is_valid());
    clock.advance(Duration::from_secs(5));
    assert!(!reins.deadline(later + Duration::from_secs(10)));
    assert!(!leadership.is_valid());
}

#[test]
fn a_blocking_thread_holds_the_guard_until_it_drops_its_clone() {
    let clock = ManualClock::new();
    let (reins, leadership, gone) = guard(&clock);
    let clone = leadership.clone();
    let thread = std::thread::spawn(move || {
        while !clone.is_stop_requested() {
            std::thread::yield_now();
        }
        assert!(clone.is_valid(), "asked, not ended");
    });
    drop(leadership);
    assert_eq!(gone.load(Ordering::SeqCst), 0);
    reins.ask_stop(LossReason::Stopped);
    thread.join().unwrap();
    assert_eq!(gone.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_side_effect_is_refused_without_a_valid_guard_and_dropped_with_it() {
    let clock = ManualClock::new();
    let (reins, leadership, _) = guard(&clock);
    assert_eq!(leadership.run(async { 7 }).await, Ok(7));

    let running = leadership.clone();
    let side_effect = tokio::spawn(async move { running.run(std::future::pending::<()>()).await });
    tokio::task::yield_now().await;
    // Being told twice does not end it; being over does.
    reins.ask_stop(LossReason::Stopped);
    reins.tell_lost(LossReason::Deleted);
    tokio::task::yield_now().await;
    assert!(!side_effect.is_finished());
    reins.end(LossReason::Deleted);
    assert_eq!(
        side_effect.await.unwrap().unwrap_err().reason,
        LossReason::Deleted
    );

    let mut begun = false;
    let refused = leadership.run(async { begun = true }).await;
    assert!(refused.is_err() && !begun);
}

#[tokio::test]
async fn every_end_asks_the_work_to_stop_and_only_a_loss_is_lost() {
    let clock = ManualClock::new();
    let (reins, leadership, _) = guard(&clock);
    reins.ask_stop(LossReason::Stopped);
    assert_eq!(leadership.stop_requested().await, LossReason::Stopped);
    assert!(leadership.lost().now_or_never().is_none());
    reins.end(LossReason::Deleted);
    assert_eq!(leadership.lost().await, LossReason::Deleted);

    let (reins, leadership, _) = guard(&clock);
    drop(reins);
    assert!(!leadership.is_valid());
    leadership.lost().await;
    leadership.stop_requested().await;
}
