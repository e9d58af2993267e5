//! The coordinator on Leases: standbys that are told rather than ask, and holders that hear of a loss at once.

use std::time::Duration;

use leasewarden::{
    election::{LossReason, StreamState},
    lock::NewsSource,
};
use leasewarden_faultproxy::{FaultProxy, Seen};

use crate::{
    scenarios::stage::{Instance, Stage},
    support::{World, eventually, user_of},
};

/// A standby of its own, behind a proxy that counts what it sends, once it knows who leads.
async fn standby(world: &World, id: &str, ttl: u64, stage: &Stage) -> (FaultProxy, Instance) {
    let base = world.plane.kube_config();
    let proxy = FaultProxy::start(&base).unwrap();
    let locks = world.locks_with(proxy.kube_config(&base));
    let standby = Instance::steady(locks, id, ttl, stage);
    standby.follows(NewsSource::SharedWatch).await;
    standby.stands_by().await;
    (proxy, standby)
}

fn is_watch(seen: &Seen) -> bool {
    seen.path.contains("watch=true")
}

#[tokio::test]
async fn standbys_send_nothing_while_the_leader_renews_and_one_of_them_follows_a_release() {
    let world = World::new("told").await;
    let stage = Stage::default();
    let leader = Instance::steady(world.locks(), "leader", 4, &stage);
    leader.leads().await;
    let mut standbys = Vec::new();
    for n in 0..5 {
        standbys.push(standby(&world, &format!("standby-{n}"), 4, &stage).await);
    }
    for (_, standby) in &standbys {
        standby.hears_of_renewals().await;
    }
    for (proxy, _) in &standbys {
        proxy.forget_seen();
    }
    // What passes here is time: the leader renews, for longer than its TTL.
    tokio::time::sleep(Duration::from_secs(6)).await;
    for (proxy, _) in &standbys {
        let sent = proxy.seen();
        assert!(sent.iter().all(is_watch), "an idle standby asked: {sent:?}");
    }
    assert_eq!(stage.begun(), 1);

    leader.stop().await;
    stage.began(2).await;
    assert_eq!(stage.begun(), 2);
    let working = |(_, s): &&(FaultProxy, Instance)| s.status().state == StreamState::Working;
    assert_eq!(standbys.iter().filter(working).count(), 1);
    let tokens = stage.tokens();
    assert!(tokens[1] > tokens[0], "{tokens:?}");
}

#[tokio::test]
async fn a_release_before_forty_standbys_causes_a_handful_of_writes() {
    let world = World::new("forty").await;
    let stage = Stage::default();
    let leader = Instance::steady(world.locks(), "leader", 15, &stage);
    leader.leads().await;
    // One proxy counts for all; each standby has connections of its own.
    let base = world.plane.kube_config();
    let proxy = FaultProxy::start(&base).unwrap();
    let mut standbys = Vec::new();
    for n in 0..40 {
        let locks = world.locks_with(proxy.kube_config(&base));
        standbys.push(Instance::steady(locks, &format!("standby-{n}"), 15, &stage));
    }
    for standby in &standbys {
        standby.follows(NewsSource::SharedWatch).await;
        standby.stands_by().await;
    }
    let mut writes = Vec::new();
    let mut led = &leader;
    for n in 1..=5 {
        proxy.forget_seen();
        led.stop().await;
        stage.began(n + 1).await;
        assert_eq!(stage.begun(), n + 1);
        let working = |standby: &&Instance| standby.status().state == StreamState::Working;
        led = standbys.iter().find(working).unwrap();
        for standby in standbys
            .iter()
            .filter(|s| s.status().state == StreamState::Contending)
        {
            standby.knows_the_holder().await;
        }
        let is_write = |seen: &&Seen| seen.method != "GET";
        writes.push(proxy.seen().iter().filter(is_write).count());
    }
    println!("writes after each release: {writes:?}");
    writes.sort_unstable();
    assert!(writes[2] <= 12, "a release caused {writes:?} writes");
}

#[tokio::test]
async fn a_leader_hears_at_once_that_its_lease_was_deleted() {
    let world = World::new("hears").await;
    let stage = Stage::default();
    // At this TTL the next renewal is minutes away.
    let leader = Instance::steady(world.locks(), "leader", 3600, &stage);
    leader.leads().await;
    leader.follows(NewsSource::SharedWatch).await;
    world.delete("orders").await;
    assert_eq!(leader.loses().await, LossReason::Deleted);
}

#[tokio::test]
async fn with_a_role_for_named_leases_they_are_watched_by_name_and_without_watch_polled() {
    let world = World::new("named").await;
    let stage = Stage::default();
    let leader = Instance::steady(world.locks(), "leader", 4, &stage);
    leader.leads().await;
    for (id, verbs, source) in [
        (
            "by-name",
            &["get", "update", "list", "watch"][..],
            NewsSource::OwnWatch,
        ),
        ("polls", &["get", "update"][..], NewsSource::Polling),
    ] {
        let config = user_of(&world, id, verbs, &["orders"]).await;
        let client = kube::Client::try_from(config.clone()).unwrap();
        eventually("the role is in force", || async {
            let uri = format!(
                "/apis/coordination.k8s.io/v1/namespaces/{}/leases/orders",
                world.ns()
            );
            let get = http::Request::get(uri).body(Vec::new()).unwrap();
            client.request::<serde_json::Value>(get).await.ok()
        })
        .await;
        let standby = Instance::steady(world.locks_with(config), id, 4, &stage);
        standby.follows(source).await;
        standby.knows_the_holder().await;
        // In either way it takes over.
        let before = stage.begun();
        leader.stop().await;
        stage.began(before + 1).await;
        standby
            .coordinator
            .shutdown(Duration::from_secs(20))
            .await
            .unwrap();
        leader.coordinator.start(&leader.stream).unwrap();
        leader.leads().await;
    }
}
