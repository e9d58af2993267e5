//! A leadership that others end, and what follows.

use leasewarden::{
    election::LossReason,
    lock::{Clock, SystemClock},
};
use leasewarden_faultproxy::{Fault, FaultProxy, Match, Seen, StatusCode};
use serde_json::json;

use super::stage::{Event, Instance, Stage, is_free};
use crate::support::{LIMIT, World, eventually};

/// A leader that hears nothing but the replies to what it sends.
async fn deaf_leader(world: &World, ttl: u64, stage: &Stage) -> (FaultProxy, Instance) {
    let base = world.plane.kube_config();
    let proxy = FaultProxy::start(&base).unwrap();
    let deaf = proxy.rule(Match::watch("/leases"), Fault::Hold);
    let leader = Instance::steady(world.locks_with(proxy.kube_config(&base)), "a", ttl, stage);
    leader.leads().await;
    deaf.wait_fired(1, LIMIT).await.unwrap();
    (proxy, leader)
}

/// Another elector takes the Lease, as client-go's does: by its own clock, and without our annotations.
async fn taken_by(world: &World, who: &str) {
    let transitions = world.lease("orders").await["spec"]["leaseTransitions"]
        .as_i64()
        .unwrap();
    let now = "2026-01-01T00:00:00.000000Z";
    let spec = json!({
        "holderIdentity": who, "leaseTransitions": transitions + 1, "leaseDurationSeconds": 15,
        "acquireTime": now, "renewTime": now,
    });
    world.patch("orders", json!({ "spec": spec })).await;
}

/// And gives it back, as client-go's does.
async fn released_by_that_tool(world: &World) {
    let spec = json!({ "holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": "2026-01-01T00:00:01.000000Z" });
    world.patch("orders", json!({ "spec": spec })).await;
}

fn refused_puts(proxy: &FaultProxy) -> usize {
    proxy.count(|seen: &Seen| seen.method == "PUT" && seen.status() == Some(StatusCode::CONFLICT))
}

// Reported against Kubernetes (#131867) and client-go (#1417).
#[tokio::test]
async fn scenario_01_a_stop_whose_release_meets_a_conflict_frees_what_is_its_own_and_nothing_else() {
    for taken in [false, true] {
        let world = World::new("conflict").await;
        let stage = Stage::default();
        let (proxy, leader) = deaf_leader(&world, 600, &stage).await;
        if taken {
            taken_by(&world, "b").await;
        } else {
            world
                .patch("orders", json!({"metadata": {"labels": {"team": "blue"}}}))
                .await;
        }
        let before = world.lease("orders").await;
        leader.stop().await;
        assert_eq!(refused_puts(&proxy), 1, "the release met a conflict");
        if taken {
            assert_eq!(
                world.lease("orders").await,
                before,
                "the winner's Lease is untouched"
            );
        } else {
            assert!(is_free(&world).await);
        }
        stage.kept_apart();
    }
}

// Reported against Kubernetes (#23731).
#[tokio::test]
async fn scenario_02_a_leader_that_loses_and_regains_within_its_old_term_stops_and_starts_again() {
    for deaf in [false, true] {
        let world = World::new("regains").await;
        let stage = Stage::default();
        let ttl = 30;
        let (proxy, leader) = if deaf {
            let (proxy, leader) = deaf_leader(&world, ttl, &stage).await;
            (Some(proxy), leader)
        } else {
            let leader = Instance::steady(world.locks(), "a", ttl, &stage);
            leader.leads().await;
            (None, leader)
        };
        let old_term = leader.status().valid_until.unwrap();
        taken_by(&world, "b").await;
        if !deaf {
            let by_b = LossReason::TakenOver {
                by: "b".to_owned(),
                token: None,
            };
            assert_eq!(leader.loses().await, by_b);
        }
        released_by_that_tool(&world).await;
        stage.began(2).await;
        if !deaf {
            // Without news the next renewal, after a third of the TTL, is what tells.
            assert!(SystemClock.now() < old_term, "within the old term");
        }
        let told: Vec<Event> = stage.events().into_iter().map(|(_, event)| event).collect();
        let tokens = stage.tokens();
        assert_eq!(
            told,
            [Event::Began(tokens[0]), Event::Gone, Event::Began(tokens[1])]
        );
        if let Some(proxy) = proxy {
            assert!(refused_puts(&proxy) >= 1, "a renewal met a conflict");
        }
        stage.kept_apart();
    }
}

// Reported against client-go (#1187).
#[tokio::test]
async fn scenario_18_a_standby_that_is_stopped_is_told_of_no_loss() {
    let world = World::new("stopped").await;
    let stage = Stage::default();
    let leader = Instance::steady(world.locks(), "a", 15, &stage);
    leader.leads().await;
    let standby = Instance::steady(world.locks(), "b", 15, &stage);
    standby.stands_by().await;
    let before = world.lease("orders").await;
    standby.stop().await;
    assert_eq!(standby.status().last_loss, None);
    let after = world.lease("orders").await;
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert_eq!(after["spec"]["holderIdentity"], "a", "and it freed nothing");
    assert!(
        stage.events().iter().all(|(by, _)| by == "a"),
        "its work never began"
    );
    leader.stop().await;
    let freed = eventually("the leader's own stop frees it", || async {
        is_free(&world).await.then_some(())
    });
    freed.await;
}
