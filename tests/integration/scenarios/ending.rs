//! Work that ends, does not end, or ends while something is under way.

use std::{
    sync::{Arc, Mutex, mpsc},
    time::Duration,
};

use leasewarden::election::{ElectionSettings, Leadership, LossReason, StreamState};
use leasewarden_faultproxy::{Fault, FaultProxy, Match, StatusCode};
use tokio::sync::watch;

use super::stage::{Event, Instance, Stage, is_free, pause, settings};
use crate::support::{LIMIT, World, eventually, instance, secs};

fn began(by: &str, token: i64) -> (String, Event) {
    (by.to_owned(), Event::Began(token))
}

fn gone(by: &str) -> (String, Event) {
    (by.to_owned(), Event::Gone)
}

// Reported against cilium (#42920) and Kubernetes (#139991).
#[tokio::test]
async fn scenario_10_work_that_does_not_end_when_asked_is_renewed_until_it_does_and_released_after_it() {
    let world = World::new("drains").await;
    let stage = Stage::default();
    let (finish, finished) = watch::channel(false);
    let work = {
        let stage = stage.clone();
        move |leadership: Leadership| {
            let (stage, finished) = (stage.clone(), finished.clone());
            async move {
                let _begun = stage.begin("a", &leadership);
                while !*finished.borrow() {
                    stage.act("a", &leadership);
                    pause().await;
                }
            }
        }
    };
    let patient = ElectionSettings::builder(secs(6))
        .drain_timeout(LIMIT * 2)
        .build()
        .unwrap();
    let leader = Instance::run(world.locks(), instance("a"), patient, work);
    leader.leads().await;
    let standby = Instance::steady(world.locks(), "b", 6, &stage);
    standby.stands_by().await;
    let stopping = leader.coordinator.stop(&leader.stream).unwrap();
    leader.is(StreamState::Draining).await;
    leader.renews(3).await;
    assert_eq!((leader.status().state, stage.begun()), (StreamState::Draining, 1));
    finish.send_replace(true);
    stopping.finished().await;
    stage.began(2).await;
    let tokens = stage.tokens();
    assert_eq!(
        stage.events()[..3],
        [began("a", tokens[0]), gone("a"), began("b", tokens[1])]
    );
    stage.kept_apart();
}

#[tokio::test]
async fn scenario_10_what_cannot_be_dropped_is_never_released_while_it_lives() {
    let world = World::new("undroppable").await;
    let stage = Stage::default();
    let (end, ended) = mpsc::channel::<()>();
    let ended = Arc::new(Mutex::new(Some(ended)));
    let work = {
        let stage = stage.clone();
        move |leadership: Leadership| {
            let (stage, ended) = (stage.clone(), ended.lock().unwrap().take());
            async move {
                let begun = stage.begin("a", &leadership);
                // It blocks, so no timer of the runtime drops it; and it keeps the guard.
                let blocking = tokio::task::spawn_blocking(move || {
                    if let Some(ended) = ended {
                        let _ = ended.recv();
                    }
                    drop((begun, leadership));
                });
                let _ = blocking.await;
            }
        }
    };
    let brief = ElectionSettings::builder(secs(6))
        .drain_timeout(Duration::from_millis(200))
        .build()
        .unwrap();
    let leader = Instance::run(world.locks(), instance("a"), brief, work);
    leader.leads().await;
    let standby = Instance::steady(world.locks(), "b", 6, &stage);
    standby.stands_by().await;
    let stopping = leader.coordinator.stop(&leader.stream).unwrap();
    leader.is(StreamState::Lingering).await;
    let lease = world.lease("orders").await;
    assert_eq!(lease["spec"]["holderIdentity"], "a", "cut off, and not released");
    // It expires, and then another leads, while the blocking work lives on without a valid guard.
    stage.began(2).await;
    assert_eq!(leader.status().state, StreamState::Lingering);
    assert!(!stage.events().contains(&gone("a")));
    drop(end);
    stopping.finished().await;
    leader.is(StreamState::Stopped).await;
    assert_eq!(
        world.lease("orders").await["spec"]["holderIdentity"],
        "b",
        "its late end frees nothing"
    );
    stage.kept_apart();
}

#[tokio::test]
async fn scenario_10_work_that_does_not_end_is_cut_off_at_the_deadline_when_nothing_can_be_renewed() {
    let world = World::new("cut-off").await;
    let base = world.plane.kube_config();
    let proxy = FaultProxy::start(&base).unwrap();
    let stage = Stage::default();
    let work = {
        let stage = stage.clone();
        move |leadership: Leadership| {
            let stage = stage.clone();
            async move {
                let _begun = stage.begin("a", &leadership);
                loop {
                    stage.act("a", &leadership);
                    pause().await;
                }
            }
        }
    };
    let locks = world.locks_with(proxy.kube_config(&base));
    let leader = Instance::run(locks, instance("a"), settings(6), work);
    leader.leads().await;
    proxy.cut_all();
    stage.is_empty().await;
    let loss = leader.loses().await;
    assert!(
        matches!(&loss, LossReason::ExpiredUnreachable { last_error: Some(_) }),
        "{loss:?}"
    );
    Instance::steady(world.locks(), "b", 6, &stage).leads().await;
    stage.kept_apart();
}

// Reported against cilium (#48385).
#[tokio::test]
async fn scenario_13_work_that_returns_or_panics_releases_at_once_and_contends_again() {
    for panics in [false, true] {
        let world = World::new("ends").await;
        let stage = Stage::default();
        let (end, ended) = watch::channel(false);
        let work = {
            let stage = stage.clone();
            move |leadership: Leadership| {
                let (stage, mut ended) = (stage.clone(), ended.clone());
                async move {
                    let _begun = stage.begin("a", &leadership);
                    stage.act("a", &leadership);
                    let _ = ended.wait_for(|ended| *ended).await;
                    assert!(!panics, "on purpose");
                }
            }
        };
        // No test waits for this TTL to pass.
        let leader = Instance::run(world.locks(), instance("a"), settings(3600), work);
        leader.leads().await;
        let standby = Instance::steady(world.locks(), "b", 3600, &stage);
        standby.stands_by().await;
        end.send_replace(true);
        standby.leads().await;
        let loss = leader.loses().await;
        let expected = if panics {
            LossReason::WorkPanicked {
                message: "on purpose".to_owned(),
            }
        } else {
            LossReason::WorkEnded
        };
        assert_eq!(loss, expected);
        leader.is(StreamState::Contending).await;
        stage.kept_apart();
    }
}

// Reported against FlowWarden's coordinator, which has no generations.
#[tokio::test]
async fn scenario_20_a_stop_or_shutdown_while_an_acquisition_is_in_flight_leaves_nothing_behind() {
    for (applied, shutdown) in [(true, false), (false, false), (true, true), (false, true)] {
        let world = World::new("in-flight").await;
        let base = world.plane.kube_config();
        let proxy = FaultProxy::start(&base).unwrap();
        let stage = Stage::default();
        let write = Match::put(format!("/namespaces/{}/leases/orders", world.ns())).nth(1);
        let fault = if applied { Fault::HoldReply } else { Fault::Hold };
        let held = proxy.rule(write, fault);
        let instance = Instance::steady(world.locks_with(proxy.kube_config(&base)), "a", 3, &stage);
        held.wait_fired(1, LIMIT).await.unwrap();
        assert_eq!(is_free(&world).await, !applied);
        if shutdown {
            instance.coordinator.shutdown(LIMIT).await.unwrap();
        } else {
            instance.stop().await;
        }
        assert!(is_free(&world).await, "applied: {applied}, shutdown: {shutdown}");
        held.release();
        if !applied {
            eventually("the write that came late was refused", || async {
                let refused = proxy.count(|seen| seen.status() == Some(StatusCode::CONFLICT));
                (refused >= 1).then_some(())
            })
            .await;
        }
        assert!(is_free(&world).await);
        assert_eq!(
            (instance.status().state, stage.begun()),
            (StreamState::Stopped, 0)
        );
        if shutdown {
            assert!(
                instance.coordinator.start(&instance.stream).is_err(),
                "nothing starts after it"
            );
        }
    }
}
