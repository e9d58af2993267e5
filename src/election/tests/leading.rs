//! Who leads: one of many, the next after a release, the next after a crash.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc::RecvTimeoutError,
    },
    time::Duration,
};

use super::bench::*;
use crate::{
    election::{
        CoordinatorError, DeploymentMode, LeaderElectionCoordinator, Leadership, LossReason, Role,
        StreamSpec, StreamState,
    },
    lock::{InMemoryLockService, LockServiceExt, ManualClock, StreamName},
};

#[tokio::test]
async fn of_forty_candidates_one_leads_and_a_release_hands_over_to_one() {
    let lock = InMemoryLockService::new();
    let arena = Arc::new(Arena::default());
    let candidates: Vec<_> = (0..40)
        .map(|n| on_system_clock(lock.peer(), &format!("c{n}"), seconds(15)))
        .collect();
    for candidate in &candidates {
        run(candidate, arena.spec());
    }
    eventually("everybody has seen who leads", || {
        candidates
            .iter()
            .all(|c| status(c).holder.is_some_and(|seen| seen.holder.is_some()))
    })
    .await;
    let leader = candidates.iter().position(leads).unwrap();
    assert_eq!(candidates.iter().filter(|c| leads(c)).count(), 1);

    candidates[leader].stop(&orders()).unwrap().finished().await;
    assert_eq!(
        status(&candidates[leader]).last_loss.unwrap().reason,
        LossReason::Stopped
    );
    eventually("somebody else leads", || candidates.iter().any(leads)).await;
    assert_eq!(candidates.iter().filter(|c| leads(c)).count(), 1);
    eventually("the next one's work runs", || arena.starts() == 2).await;
    arena.assert_one_at_a_time();
    for candidate in &candidates {
        candidate.shutdown(seconds(60)).await.unwrap();
    }
    assert_eq!(lock.current_leader(&orders()).await, None);
}

#[tokio::test]
async fn a_crashed_leader_is_followed_after_its_ttl_and_not_before() {
    let clock = ManualClock::new();
    let lock = InMemoryLockService::with_clock(Arc::new(clock.clone()));
    let arena = Arc::new(Arena::default());
    let (a, b) = (
        on_manual_clock(lock.peer(), "a"),
        on_manual_clock(lock.peer(), "b"),
    );
    let guard = Arc::new(Mutex::new(None));
    let kept = Arc::clone(&guard);
    let inside = Arc::clone(&arena);
    let spec = StreamSpec::new(orders(), DeploymentMode::SingleLeader, move |leadership| {
        *kept.lock().unwrap() = Some(leadership.clone());
        Arc::clone(&inside).stubborn(leadership)
    });
    run(&a, spec);
    advance(&clock, seconds(1), &[&a]).await;
    eventually("a works", || arena.acts() > 0).await;
    run(&b, arena.spec());
    advance(&clock, seconds(1), &[&a, &b]).await;

    a.crash();
    eventually("its work is dropped with it", || arena.dropped() == 1).await;
    let guard = guard.lock().unwrap().take().unwrap();
    assert!(!guard.is_valid(), "nobody renews it any more");
    // It acquired within the first second, and did not renew in the second.
    advance(&clock, seconds(12), &[&b]).await;
    assert!(!leads(&b));
    advance(&clock, seconds(4), &[&b]).await;
    assert!(leads(&b));
    eventually("b works", || arena.starts() == 2).await;
    arena.assert_one_at_a_time();
}

#[tokio::test]
async fn twins_with_one_instance_id_never_act_at_once() {
    let lock = InMemoryLockService::new();
    let arena = Arc::new(Arena::default());
    let twins = [(); 2].map(|()| on_system_clock(lock.peer(), "twin", seconds(2)));
    for twin in &twins {
        run(twin, arena.spec());
    }
    eventually("one of them acts for longer than the TTL", || arena.acts() > 1000).await;
    assert_eq!(twins.iter().filter(|c| leads(c)).count(), 1);
    // In one process they share even the service.
    let third = on_system_clock(lock.clone(), "twin", seconds(2));
    run(&third, arena.spec());
    eventually("the third has asked", || status(&third).holder.is_some()).await;
    assert!(!leads(&third));
    let leader = twins.iter().find(|c| leads(c)).unwrap();
    leader.restart(&orders()).unwrap();
    eventually("there is a next leadership", || arena.starts() == 2).await;
    arena.assert_one_at_a_time();
}

#[tokio::test]
async fn a_stopped_standby_tells_no_loss() {
    let lock = InMemoryLockService::new();
    let arena = Arc::new(Arena::default());
    let (a, b) = (
        on_system_clock(lock.peer(), "a", seconds(15)),
        on_system_clock(lock.peer(), "b", seconds(15)),
    );
    run(&a, arena.spec());
    eventually("a leads", || leads(&a)).await;
    run(&b, arena.spec());
    eventually("b knows", || {
        status(&b)
            .holder
            .is_some_and(|h| h.holder.as_deref() == Some("a"))
    })
    .await;
    assert!(b.is_ready() && b.is_alive() && a.is_alive());
    b.stop(&orders()).unwrap().finished().await;
    let status = status(&b);
    assert_eq!((status.state, status.last_loss), (StreamState::Stopped, None));
    assert!(leads(&a));
}

#[tokio::test]
async fn streams_of_all_instances_work_everywhere_without_a_lock() {
    let lock = Faulty::new(InMemoryLockService::new());
    lock.set(Fault::Cut);
    let worked = Arc::new(Mutex::new(0));
    let both = ["a", "b"].map(|id| on_system_clock(lock.clone(), id, seconds(15)));
    for c in &both {
        let worked = Arc::clone(&worked);
        let spec = StreamSpec::new(orders(), DeploymentMode::AllInstances, move |leadership| {
            let worked = Arc::clone(&worked);
            async move {
                leadership.check().unwrap();
                *worked.lock().unwrap() += 1;
                leadership.stop_requested().await;
            }
        });
        run(c, spec);
    }
    eventually("both work", || *worked.lock().unwrap() == 2).await;
    assert!(both.iter().all(|c| status(c).role == Role::NotApplicable));
    for c in &both {
        c.shutdown(seconds(60)).await.unwrap();
    }
    assert_eq!(lock.met(), 0);
}

#[tokio::test]
async fn two_streams_with_one_name_are_refused() {
    let arena = Arc::new(Arena::default());
    let c = on_system_clock(InMemoryLockService::new(), "a", seconds(15));
    c.register(arena.spec()).unwrap();
    let error = c.register(arena.spec()).unwrap_err();
    assert!(matches!(error, CoordinatorError::DuplicateStream(name) if name == orders()));
    let other = StreamName::new("other").unwrap();
    assert!(matches!(c.start(&other), Err(CoordinatorError::UnknownStream(_))));
}

#[tokio::test]
async fn nothing_starts_after_a_shutdown() {
    let lock = InMemoryLockService::new();
    let arena = Arc::new(Arena::default());
    let c = on_system_clock(lock.peer(), "a", seconds(15));
    c.register(arena.spec()).unwrap();
    for _ in 0..20 {
        c.start(&orders()).unwrap();
        c.restart(&orders()).unwrap();
    }
    c.shutdown(seconds(60)).await.unwrap();
    assert!(matches!(c.start(&orders()), Err(CoordinatorError::ShutDown)));
    assert!(matches!(
        c.register(arena.spec()),
        Err(CoordinatorError::ShutDown)
    ));
    assert!(!c.is_ready());
    let starts = arena.starts();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(
        (arena.starts(), lock.current_leader(&orders()).await),
        (starts, None)
    );
}

#[tokio::test]
async fn work_that_blocks_its_whole_runtime_delays_no_renewal() {
    let lock = Faulty::new(InMemoryLockService::new());
    let users = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .build()
        .unwrap();
    let c = LeaderElectionCoordinator::builder(Arc::new(lock.clone()))
        .settings(crate::election::ElectionSettings::with_ttl(crate::Ttl::from_secs(2).unwrap()).unwrap())
        .runtime(users.handle().clone())
        .build()
        .unwrap();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let ended = Arc::new(Mutex::new(ended));
    let lapsed = Arc::new(AtomicUsize::new(0));
    for name in ["one", "two", "three"] {
        let (ended, lapsed) = (Arc::clone(&ended), Arc::clone(&lapsed));
        let work = move |leadership: Leadership| {
            let (ended, lapsed) = (Arc::clone(&ended), Arc::clone(&lapsed));
            async move {
                // The one worker of this runtime waits here, and with it whatever else it had to do.
                while ended.lock().unwrap().recv_timeout(Duration::from_millis(1))
                    == Err(RecvTimeoutError::Timeout)
                {
                    lapsed.fetch_add(usize::from(!leadership.is_valid()), Ordering::SeqCst);
                }
            }
        };
        let stream = StreamName::new(name).unwrap();
        c.register(StreamSpec::new(stream, DeploymentMode::SingleLeader, work))
            .unwrap();
    }
    c.start_all();
    let leading = || c.statuses().iter().filter(|s| s.role == Role::Leader).count();
    eventually("all three are led", || leading() == 3).await;
    let before = lock.extensions.load(Ordering::SeqCst);
    let three_ttls = std::time::Instant::now() + seconds(6);
    eventually("three TTLs pass", || std::time::Instant::now() > three_ttls).await;
    assert_eq!(leading(), 3);
    assert!(
        c.statuses().iter().all(|s| s.last_loss.is_none()),
        "{:?}",
        c.statuses()
    );
    assert_eq!(lapsed.load(Ordering::SeqCst), 0);
    let sent = lock.extensions.load(Ordering::SeqCst) - before;
    assert!(sent >= 3 * 6, "{sent} renewals");
    drop(end);
    c.shutdown(seconds(60)).await.unwrap();
    users.shutdown_background();
}
