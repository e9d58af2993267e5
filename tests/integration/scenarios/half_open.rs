//! Connections of which only one end knows that they are gone, and replies too slow to be of use: a request on such a
//! connection is cut off in time and sent again on another. Watches too, which must not be relied on.

use std::time::Duration;

use leasewarden::{ExtendRequest, LockService, election::StreamState};
use leasewarden_faultproxy::{Fault, FaultProxy, Match, Rule, Seen};

use super::stage::{Instance, Stage};
use crate::support::{LIMIT, World, eventually, granted, secs};

/// A reply of some 1,500 bytes takes a minute and a half.
const SLOW: Duration = Duration::from_millis(60);

fn faults() -> [(&'static str, Fault); 4] {
    [
        ("half-closed", Fault::HalfClose),
        ("deaf", Fault::TurnDeaf),
        ("slow", Fault::SlowReply(SLOW)),
        // Whoever waits for the head alone in time is held up here.
        ("slow-body", Fault::SlowBody(SLOW)),
    ]
}

fn next_write(world: &World, proxy: &FaultProxy, fault: Fault) -> Rule {
    let lease = format!("/namespaces/{}/leases/orders", world.ns());
    proxy.rule(Match::put(lease).nth(1), fault)
}

/// All Leases of ours at once.
fn is_list(seen: &Seen) -> bool {
    seen.path.contains("labelSelector") && !seen.path.contains("watch=true")
}

fn is_put(seen: &Seen) -> bool {
    seen.method == "PUT"
}

// Reported against controller-runtime (#3027): a connection that was gone swallowed every renewal.
#[tokio::test]
async fn scenario_03_a_renewal_on_a_connection_that_is_half_gone_is_cut_off_in_time_and_the_next_succeeds() {
    for (name, fault) in faults() {
        let world = World::new(name).await;
        let base = world.plane.kube_config();
        let proxy = FaultProxy::start(&base).unwrap();
        let locks = world.locks_with(proxy.kube_config(&base));
        let first = granted(&locks, "orders", "a", secs(12)).await;
        let rule = next_write(&world, &proxy, fault);
        let mut last = first.clone();
        // The deaf connection answers the first of them.
        for _ in 0..2 {
            let extended = locks.extend(ExtendRequest::of(&first, secs(12))).await.unwrap();
            let grant = extended.granted().expect(name);
            assert_eq!((&grant.term, grant.token), (&first.term, first.token), "{name}");
            assert!(grant.valid_until > last.valid_until, "{name}");
            last = grant;
        }
        assert_eq!(rule.fired(), 1, "{name}");
    }
}

/// A leader, of whose renewals one meets the fault.
async fn outlives(name: &str, fault: Fault) {
    let world = World::new(name).await;
    let base = world.plane.kube_config();
    let proxy = FaultProxy::start(&base).unwrap();
    let stage = Stage::default();
    let leader = Instance::steady(world.locks_with(proxy.kube_config(&base)), "a", 15, &stage);
    leader.leads().await;
    let rule = next_write(&world, &proxy, fault);
    rule.wait_fired(1, LIMIT).await.unwrap();
    let renewals = proxy.count(is_put);
    leader.renews(2).await;
    assert!(proxy.count(is_put) > renewals, "{name}");
    assert_eq!(
        (leader.status().state, stage.begun(), rule.fired()),
        (StreamState::Working, 1, 1),
        "{name}"
    );
    stage.kept_apart();
}

// Reported against controller-runtime (#3027) and kopiur (#319).
#[tokio::test]
async fn scenario_03_a_leader_outlives_connections_that_are_half_gone() {
    let [a, b, c, d] = faults().map(|(name, fault)| outlives(name, fault));
    tokio::join!(a, b, c, d);
}

#[tokio::test]
async fn a_standby_whose_watch_trickles_steals_nothing_and_takes_over_all_the_same() {
    let world = World::new("slow-watch").await;
    let base = world.plane.kube_config();
    let proxy = FaultProxy::start(&base).unwrap();
    let trickles = proxy.rule(Match::watch("/leases"), Fault::SlowBody(SLOW));
    let stage = Stage::default();
    let leader = Instance::steady(world.locks(), "a", 4, &stage);
    leader.leads().await;
    let standby = Instance::steady(world.locks_with(proxy.kube_config(&base)), "b", 4, &stage);
    standby.stands_by().await;
    trickles.wait_fired(1, LIMIT).await.unwrap();
    proxy.forget_seen();
    // For longer than a TTL. What the standby sees of it is a Lease that nobody renews; so it asks, and is told better.
    leader.renews(6).await;
    eventually("it has asked", || async {
        (proxy.count(|seen| seen.path.ends_with("/leases/orders")) >= 1).then_some(())
    })
    .await;
    assert_eq!(
        (stage.begun(), proxy.count(is_put)),
        (1, 0),
        "and it did not write"
    );
    // Of the release it does not hear either.
    leader.stop().await;
    standby.leads().await;
    stage.kept_apart();
}

// Reported against kube (#1615): what happened between two watches was missed.
#[tokio::test]
async fn scenario_26_watches_that_are_half_closed_or_that_the_server_ends_every_second_miss_no_release() {
    for (name, fault) in [("half-closed", Fault::HalfClose), ("short", Fault::ShortWatch(1))] {
        let world = World::new(name).await;
        let base = world.plane.kube_config();
        let proxy = FaultProxy::start(&base).unwrap();
        let stage = Stage::default();
        let ended = proxy.rule(Match::watch("/leases"), fault);
        let behind = || world.locks_with(proxy.kube_config(&base));
        // No test waits for this TTL to pass.
        let a = Instance::steady(behind(), "a", 3600, &stage);
        a.leads().await;
        let b = Instance::steady(behind(), "b", 3600, &stage);
        b.stands_by().await;
        ended.wait_fired(8, LIMIT).await.unwrap();
        for (leads, follows) in [(&a, &b), (&b, &a), (&a, &b)] {
            let begun = stage.begun();
            leads.stop().await;
            follows.leads().await;
            assert_eq!(stage.begun(), begun + 1, "{name}");
            leads.coordinator.start(&leads.stream).unwrap();
            leads.stands_by().await;
        }
        if name == "short" {
            // Each goes on where its last watch ended.
            assert_eq!(proxy.count(is_list), 2);
        }
        stage.kept_apart();
    }
}
