//! What is under way when a stream is stopped, and arrives after that.

use leasewarden::election::StreamState;
use leasewarden_faultproxy::{Fault, FaultProxy, Match, Rule, StatusCode};

use super::stage::{Instance, Stage, is_free};
use crate::support::{LIMIT, World, eventually};

/// A leader whose next write of this kind does not arrive before the rule is released.
async fn leader(prefix: &str, body: &str) -> (World, FaultProxy, Rule, Instance, Stage) {
    let world = World::new(prefix).await;
    let base = world.plane.kube_config();
    let proxy = FaultProxy::start(&base).unwrap();
    let stage = Stage::default();
    let leader = Instance::steady(world.locks_with(proxy.kube_config(&base)), "a", 6, &stage);
    leader.leads().await;
    let write = Match::put(format!("/namespaces/{}/leases/orders", world.ns()));
    let held = proxy.rule(write.body(body).nth(1), Fault::Hold);
    (world, proxy, held, leader, stage)
}

const RENEWAL: &str = r#""holderIdentity":"a""#;
/// In an annotation, which is JSON in a JSON string.
const RELEASE: &str = r#"\"released\":true"#;

/// Lets the write arrive, which is too late.
async fn arrives(held: &Rule, proxy: &FaultProxy) {
    assert_eq!(held.fired(), 1);
    let conflicts = || proxy.count(|seen| seen.status() == Some(StatusCode::CONFLICT));
    let before = conflicts();
    held.release();
    eventually("the write that came late was refused", || async {
        (conflicts() > before).then_some(())
    })
    .await;
}

// Reported against FlowWarden's coordinator, which has no generations.
#[tokio::test]
async fn scenario_20_a_shutdown_while_a_renewal_or_the_release_is_in_flight_leaves_nothing_behind() {
    for (prefix, body) in [("renewal", RENEWAL), ("release", RELEASE)] {
        let (world, proxy, held, leader, stage) = leader(prefix, body).await;
        if body == RELEASE {
            // Not waited for: it cannot be finished yet.
            drop(leader.coordinator.stop(&leader.stream).unwrap());
        }
        held.wait_fired(1, LIMIT).await.unwrap();
        leader.coordinator.shutdown(LIMIT).await.unwrap();
        assert!(is_free(&world).await, "{prefix}");
        arrives(&held, &proxy).await;
        assert!(is_free(&world).await, "{prefix}");
        assert_eq!((leader.status().state, stage.begun()), (StreamState::Stopped, 1));
        stage.is_empty().await;
    }
}

// Reported against FlowWarden's coordinator, which has no generations.
#[tokio::test]
async fn scenario_20_a_start_while_the_release_is_in_flight_begins_a_term_that_the_late_release_leaves_alone()
{
    let (world, proxy, held, leader, stage) = leader("restart", RELEASE).await;
    leader.coordinator.restart(&leader.stream).unwrap();
    held.wait_fired(1, LIMIT).await.unwrap();
    stage.began(2).await;
    leader.leads().await;
    arrives(&held, &proxy).await;
    assert_eq!(world.lease("orders").await["spec"]["holderIdentity"], "a");
    leader.renews(2).await;
    assert_eq!((leader.status().state, stage.begun()), (StreamState::Working, 2));
    stage.kept_apart();
}
