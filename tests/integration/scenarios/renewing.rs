//! Renewals that are lost, late, refused or crowded out.

use std::{
    sync::{Arc, Barrier, mpsc},
    time::Duration,
};

use leasewarden::{
    election::{DeploymentMode, LeaderElectionCoordinator, StreamSpec, StreamState},
    lock::{Clock, SystemClock},
};
use leasewarden_faultproxy::{Canned, Fault, FaultProxy, Match, Seen, StatusCode};

use super::stage::{Instance, Stage, settings};
use crate::support::{LIMIT, World, eventually, instance, secs, stream};

fn lease(world: &World) -> String {
    format!("/namespaces/{}/leases/orders", world.ns())
}

/// A leader behind a proxy.
async fn leader(prefix: &str, ttl: u64) -> (World, FaultProxy, Instance, Stage) {
    let world = World::new(prefix).await;
    let base = world.plane.kube_config();
    let proxy = FaultProxy::start(&base).unwrap();
    let stage = Stage::default();
    let leader = Instance::steady(world.locks_with(proxy.kube_config(&base)), "a", ttl, &stage);
    leader.leads().await;
    (world, proxy, leader, stage)
}

fn is_conflict(seen: &Seen) -> bool {
    seen.status() == Some(StatusCode::CONFLICT)
}

// Reported against controller-runtime (#3027) and kopiur (#319).
#[tokio::test]
async fn scenario_03_a_leader_outlives_two_renewals_that_are_accepted_and_never_answered() {
    let (world, proxy, leader, stage) = leader("unanswered", 15).await;
    let held = proxy.rule(Match::put(lease(&world)).times(2), Fault::Hold);
    held.wait_fired(2, LIMIT).await.unwrap();
    leader.renews(1).await;
    assert_eq!((held.fired(), stage.begun()), (2, 1));
    held.release();
    eventually("the held renewals were refused", || async {
        (proxy.count(is_conflict) >= 2).then_some(())
    })
    .await;
    leader.renews(1).await;
    assert_eq!((leader.status().state, stage.begun()), (StreamState::Working, 1));
    stage.kept_apart();
}

// Reported against noobaa-core (#9765).
#[tokio::test]
async fn scenario_04_work_ends_within_a_ttl_of_the_send_when_the_reply_was_late_and_then_nothing_comes() {
    let (world, proxy, leader, stage) = leader("late-reply", 12).await;
    let late = Duration::from_millis(1500);
    let delayed = proxy.rule(Match::put(lease(&world)).nth(1), Fault::DelayReply(late));
    let before = leader.status().valid_until;
    delayed.wait_fired(1, LIMIT).await.unwrap();
    // The server had done it by now, so it was sent before.
    let done = SystemClock.now();
    let until = leader
        .shows("the late renewal", |status| {
            status.valid_until.filter(|_| status.valid_until > before)
        })
        .await;
    proxy.cut_all();
    assert!(
        until <= done + secs(12).holder_share(),
        "{until:?} counts from the reply: {done:?}"
    );
    let other = Instance::steady(world.locks(), "b", 12, &stage);
    stage.began(2).await;
    let last = stage.last_act_of("a").unwrap();
    assert!(last.at < until, "{last:?} after {until:?}");
    other.leads().await;
    stage.kept_apart();
}

// Reported against FlowWarden (`heartbeatTick`) and Akka.Management (#3404).
#[tokio::test]
async fn scenario_22_a_leader_outlives_a_renewal_that_fails() {
    for (code, reason) in [
        (429, "TooManyRequests"),
        (500, "InternalError"),
        (503, "ServiceUnavailable"),
    ] {
        let (world, proxy, leader, stage) = leader("one-failure", 6).await;
        let canned =
            Canned::status(StatusCode::from_u16(code).unwrap(), reason).header("Retry-After", "3600");
        let failed = proxy.rule(Match::put(lease(&world)).nth(1), Fault::Respond(canned));
        failed.wait_fired(1, LIMIT).await.unwrap();
        leader.renews(2).await;
        assert_eq!(
            (leader.status().state, stage.begun()),
            (StreamState::Working, 1),
            "{reason}"
        );
    }
}

// Reported against kube-lease-manager.
#[tokio::test]
async fn scenario_17_a_deposed_leaders_late_renewals_are_refused_and_leave_the_winner_alone() {
    let (world, proxy, _deposed, stage) = leader("deposed", 3).await;
    let held = proxy.rule(Match::put(lease(&world)), Fault::Hold);
    held.wait_fired(1, LIMIT).await.unwrap();
    let winner = Instance::steady(world.locks(), "b", 600, &stage);
    winner.leads().await;
    held.remove();
    let (late, before) = (held.fired(), world.lease("orders").await);
    assert_eq!(before["spec"]["holderIdentity"], "b");
    held.release();
    eventually("the late renewals were refused", || async {
        (proxy.count(is_conflict) as u64 >= late).then_some(())
    })
    .await;
    assert_eq!(world.lease("orders").await, before);
    stage.kept_apart();
}

// Reported against cilium (#24266) and kueue (#15538).
#[tokio::test]
async fn scenario_12_five_hundred_calls_of_the_user_in_flight_delay_no_renewal() {
    const CALLS: u64 = 500;
    let (world, proxy, leader, stage) = leader("crowd", 6).await;
    let stuck = proxy.rule(Match::get("/configmaps"), Fault::Hold);
    let client = kube::Client::try_from(proxy.kube_config(&world.plane.kube_config())).unwrap();
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..CALLS {
        let request = http::Request::get(format!("/api/v1/namespaces/{}/configmaps", world.ns()));
        let (client, request) = (client.clone(), request.body(Vec::new()).unwrap());
        calls.spawn(async move { client.request_text(request).await });
    }
    stuck.wait_fired(CALLS, LIMIT).await.unwrap();
    leader.renews(3).await;
    assert_eq!(
        (stuck.fired(), calls.try_join_next().is_none()),
        (CALLS, true),
        "all are in flight"
    );
    assert_eq!((leader.status().state, stage.begun()), (StreamState::Working, 1));
    stage.kept_apart();
}

// Reported against FlowWarden's coordinator, which has two threads for all streams.
#[tokio::test]
async fn scenario_19_work_that_blocks_every_thread_of_the_users_runtime_delays_no_renewal() {
    const THREADS: usize = 2;
    let world = World::new("blocked").await;
    let users = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .enable_all()
        .build()
        .unwrap();
    let coordinator = LeaderElectionCoordinator::builder(Arc::new(world.locks()))
        .instance_id(instance("a"))
        .settings(settings(6))
        .runtime(users.handle().clone())
        .build()
        .unwrap();
    let all_blocked = Arc::new(Barrier::new(THREADS + 1));
    let mut ends = Vec::new();
    for n in 0..THREADS {
        let (end, ended) = mpsc::channel::<()>();
        ends.push(end);
        let (all_blocked, ended) = (Arc::clone(&all_blocked), std::sync::Mutex::new(Some(ended)));
        let work = move |_| {
            let (all_blocked, ended) = (Arc::clone(&all_blocked), ended.lock().unwrap().take());
            async move {
                if let Some(ended) = ended {
                    all_blocked.wait();
                    // Until the test is over.
                    let _ = ended.recv();
                }
            }
        };
        let spec = StreamSpec::new(stream(&format!("blocks-{n}")), DeploymentMode::SingleLeader, work);
        coordinator.register(spec).unwrap();
    }
    let idle = StreamSpec::new(stream("orders"), DeploymentMode::SingleLeader, |l| async move {
        let _ = l.lost().await;
    });
    coordinator.register(idle).unwrap();
    coordinator.start(&stream("orders")).unwrap();
    let status = |name: &str| coordinator.status(&stream(name)).unwrap();
    eventually("orders is led", || async {
        (status("orders").state == StreamState::Working).then_some(())
    })
    .await;
    coordinator.start_all();
    tokio::task::spawn_blocking(move || all_blocked.wait())
        .await
        .unwrap();
    for name in ["orders", "blocks-0", "blocks-1"] {
        let token = status(name).token;
        let mut before = status(name).valid_until;
        for _ in 0..3 {
            before = eventually((name, "is renewed"), || async {
                let now = status(name).valid_until;
                (now > before).then_some(now)
            })
            .await;
        }
        assert_eq!(
            (status(name).state, status(name).token),
            (StreamState::Working, token),
            "{name}"
        );
    }
    drop(ends);
    coordinator.shutdown(LIMIT).await.unwrap();
    users.shutdown_background();
}
