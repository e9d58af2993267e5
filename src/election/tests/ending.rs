//! How work ends: by itself, asked, or not at all.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use super::bench::*;
use crate::{
    election::{AfterWork, DeploymentMode, LossReason, StreamSpec, StreamState},
    lock::{InMemoryLockService, LockServiceExt, ManualClock, StreamName},
};

#[tokio::test]
async fn a_panic_releases_the_lock_is_contended_again_and_touches_no_other_stream() {
    let lock = InMemoryLockService::new();
    let arena = Arc::new(Arena::default());
    let c = on_system_clock(lock.peer(), "a", seconds(3));
    let runs = Arc::new(AtomicUsize::new(0));
    let (counted, bad) = (Arc::clone(&runs), StreamName::new("bad").unwrap());
    let spec = StreamSpec::new(bad.clone(), DeploymentMode::SingleLeader, move |_| {
        // In the function itself, before there is a future.
        assert!(counted.fetch_add(1, Ordering::SeqCst) > 0, "the first one fails");
        std::future::pending()
    });
    c.register(spec).unwrap();
    run(&c, arena.spec());
    eventually("the failed work is tried again", || {
        runs.load(Ordering::SeqCst) == 2
    })
    .await;
    let bad = c.status(&bad).unwrap();
    let LossReason::WorkPanicked { message } = bad.last_loss.unwrap().reason else {
        panic!("another reason")
    };
    assert_eq!(message, "the first one fails");
    assert!(bad.state == StreamState::Working && leads(&c));
    assert_eq!((arena.starts(), status(&c).last_loss), (1, None));
}

#[tokio::test]
async fn work_that_returns_may_stay_down() {
    let lock = InMemoryLockService::new();
    let c = on_system_clock(lock.peer(), "a", seconds(3));
    let spec = StreamSpec::new(orders(), DeploymentMode::SingleLeader, |_| async {});
    run(&c, spec.after_work(AfterWork::StayDown));
    eventually("the work has ended", || status(&c).last_loss.is_some()).await;
    eventually("the stream is down", || status(&c).state == StreamState::Stopped).await;
    assert_eq!(status(&c).last_loss.unwrap().reason, LossReason::WorkEnded);
    assert_eq!(lock.current_leader(&orders()).await, None);
}

#[tokio::test]
async fn asked_work_drains_under_a_kept_lock_which_is_released_after_it() {
    let clock = ManualClock::new();
    let lock = InMemoryLockService::with_clock(Arc::new(clock.clone()));
    let arena = Arc::new(Arena::default());
    let (a, b) = (
        on_manual_clock(lock.peer(), "a"),
        on_manual_clock(lock.peer(), "b"),
    );
    let done = Arc::new(tokio::sync::Notify::new());
    let (inside, finish) = (Arc::clone(&arena), Arc::clone(&done));
    let spec = StreamSpec::new(orders(), DeploymentMode::SingleLeader, move |leadership| {
        let (arena, finish) = (Arc::clone(&inside), Arc::clone(&finish));
        async move {
            let reason = leadership.stop_requested().await;
            assert_eq!(reason, LossReason::Stopped);
            tokio::select! {
                () = finish.notified() => {}
                () = arena.stubborn(leadership) => {}
            }
        }
    });
    run(&a, spec);
    advance(&clock, seconds(1), &[&a]).await;
    assert!(leads(&a));
    run(&b, arena.spec());
    let stopping = a.stop(&orders()).unwrap();
    // Longer than the term that it held when it was asked.
    advance(&clock, seconds(14), &[&a, &b]).await;
    assert_eq!(status(&a).state, StreamState::Draining);
    assert!(!leads(&b));
    let acts = arena.acts();
    eventually("it acts while it drains", || arena.acts() > acts).await;
    done.notify_one();
    stopping.finished().await;
    advance(&clock, seconds(2), &[&b]).await;
    assert!(leads(&b));
    eventually("b works", || arena.starts() == 2).await;
    arena.assert_one_at_a_time();
}

#[tokio::test]
async fn work_that_does_not_drain_is_dropped_at_the_limit_then_released() {
    let clock = ManualClock::new();
    let lock = InMemoryLockService::with_clock(Arc::new(clock.clone()));
    let arena = Arc::new(Arena::default());
    let a = on_manual_clock(lock.peer(), "a");
    run(&a, arena.stubborn_spec());
    advance(&clock, seconds(1), &[&a]).await;
    let stopping = a.stop(&orders()).unwrap();
    advance(&clock, seconds(14), &[&a]).await;
    assert_eq!((arena.dropped(), status(&a).state), (0, StreamState::Draining));
    advance(&clock, seconds(2), &[&a]).await;
    stopping.finished().await;
    assert_eq!(arena.dropped(), 1);
    assert_eq!(lock.current_leader(&orders()).await, None);
}

#[tokio::test]
async fn a_thread_that_keeps_a_clone_is_never_released_its_lock_expires() {
    let clock = ManualClock::new();
    let lock = InMemoryLockService::with_clock(Arc::new(clock.clone()));
    let arena = Arc::new(Arena::default());
    let (a, b) = (
        on_manual_clock(lock.peer(), "a"),
        on_manual_clock(lock.peer(), "b"),
    );
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let ended = Arc::new(Mutex::new(ended));
    let inside = Arc::clone(&arena);
    let spec = StreamSpec::new(orders(), DeploymentMode::SingleLeader, move |leadership| {
        let (arena, ended) = (Arc::clone(&inside), Arc::clone(&ended));
        let _counted = arena.enter(&leadership);
        // A thread that asks the guard, but for its end only the test.
        std::thread::spawn(move || {
            let ended = ended.lock().unwrap();
            while ended.recv_timeout(Duration::from_millis(1)).is_err() {
                arena.act(&leadership);
            }
        });
        async {}
    });
    run(&a, spec.after_work(AfterWork::StayDown));
    advance(&clock, seconds(1), &[&a]).await;
    run(&b, arena.spec());
    // The work has returned; its thread has not, so the lock is kept for the drain limit, of which 3 s are left then.
    advance(&clock, seconds(12), &[&a, &b]).await;
    assert_eq!(status(&a).state, StreamState::Draining);
    assert!(!leads(&b));
    advance(&clock, seconds(4), &[&a, &b]).await;
    assert_eq!(status(&a).state, StreamState::Lingering);
    assert_eq!(lock.current_leader(&orders()).await.as_deref(), Some("a"));
    let acts = arena.acts();
    advance(&clock, seconds(18), &[&a, &b]).await;
    assert!(leads(&b), "the lock has expired");
    let unfinished = a.shutdown(Duration::from_millis(50)).await.unwrap_err();
    assert_eq!(unfinished.streams, [(orders(), StreamState::Lingering)]);
    assert!(arena.acts() > acts, "b acts");
    arena.assert_one_at_a_time();
    end.send(()).unwrap();
    a.shutdown(seconds(60)).await.unwrap();
    assert!(leads(&b), "a's late release changes nothing");
}

#[cfg(unix)]
#[tokio::test]
async fn work_that_cannot_be_dropped_aborts_the_process_where_that_is_asked_for() {
    use crate::election::IfStuck;
    const CHILD: &str = "LEASEWARDEN_TEST_STUCK";
    if std::env::var_os(CHILD).is_some() {
        let a = on_system_clock(InMemoryLockService::new(), "a", seconds(1));
        let spec = StreamSpec::new(orders(), DeploymentMode::SingleLeader, |leadership| async {
            std::thread::spawn(move || {
                let _kept = leadership;
                std::thread::park();
            });
        });
        run(&a, spec.if_stuck(IfStuck::AbortProcess));
        tokio::time::sleep(seconds(60)).await;
        return;
    }
    let name =
        "election::tests::ending::work_that_cannot_be_dropped_aborts_the_process_where_that_is_asked_for";
    let begin = std::time::Instant::now();
    let child = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact"])
        .env(CHILD, "1")
        .output()
        .await
        .unwrap();
    assert_eq!(child.status.code(), None, "ended by a signal: {child:?}");
    assert!(begin.elapsed() < seconds(60));
}

#[tokio::test]
async fn dropping_the_coordinator_asks_the_work_to_stop_and_releases() {
    let lock = InMemoryLockService::new();
    let arena = Arc::new(Arena::default());
    let a = on_system_clock(lock.peer(), "a", seconds(15));
    run(&a, arena.spec());
    eventually("it works", || arena.acts() > 0).await;
    drop(a);
    let b = on_system_clock(lock.peer(), "b", seconds(15));
    run(&b, arena.spec());
    eventually("b leads long before the TTL", || leads(&b)).await;
    eventually("b works", || arena.starts() == 2).await;
    arena.assert_one_at_a_time();
}
