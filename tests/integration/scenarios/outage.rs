//! An API server that is away: for all, for longer than a term, and in the ways a server itself can be.

use std::{cell::Cell, time::Duration};

use leasewarden::{
    election::{LossReason, StreamState},
    lease::LeaseLockService,
    lock::{Clock, SystemClock},
};
use leasewarden_controlplane::ControlPlane;
use leasewarden_faultproxy::FaultProxy;

use super::stage::{Instance, Stage, settings};
use crate::support::{World, eventually, instance, stream};

/// Waits until `for_long` has passed: the outage is the input.
async fn lasts(for_long: Duration) {
    let until = SystemClock.now() + for_long;
    eventually("it lasts", || async {
        (SystemClock.now() >= until).then_some(())
    })
    .await;
}

// Reported against kuberhealthy (#1533) and client-go (#879).
#[tokio::test]
async fn scenario_11_without_the_api_server_all_stop_in_time_and_one_leads_once_it_is_back() {
    let world = World::new("outage").await;
    let base = world.plane.kube_config();
    let proxy = FaultProxy::start(&base).unwrap();
    let stage = Stage::default();
    let instances: Vec<Instance> = ["a", "b", "c"]
        .map(|id| Instance::steady(world.locks_with(proxy.kube_config(&base)), id, 6, &stage))
        .into();
    let is_leader = |instance: &&Instance| instance.status().state == StreamState::Working;
    let leader = eventually("one leads", || async { instances.iter().find(is_leader) }).await;
    let until = Cell::new(leader.status().valid_until);
    proxy.cut_all();
    let loss = eventually("it is lost", || async {
        let status = leader.status();
        until.set(until.get().max(status.valid_until));
        status.last_loss
    })
    .await;
    stage.is_empty().await;
    proxy.forget_seen();
    let last = stage
        .last_act_of(leader.coordinator.instance_id().as_str())
        .unwrap();
    assert!(Some(last.at) < until.get(), "{last:?} after {until:?}");
    assert!(
        matches!(
            &loss.reason,
            LossReason::ExpiredUnreachable { last_error: Some(_) }
        ),
        "{loss:?}"
    );
    lasts(Duration::from_secs(20)).await;
    assert!(proxy.seen().is_empty(), "nothing came through");
    assert_eq!(stage.begun(), 1);
    proxy.restore();
    stage.began(2).await;
    stage.kept_apart();
}

/// A leader and a standby on a control plane of the test's own.
async fn pair(plane: &ControlPlane, namespace: &str, name: &str, ttl: u64, stage: &Stage) -> [Instance; 2] {
    let locks = || {
        let builder = LeaseLockService::builder(plane.kube_config());
        builder.namespace(namespace).build().unwrap()
    };
    let start = |id: &str| {
        Instance::of(
            &stream(name),
            locks(),
            instance(id),
            settings(ttl),
            stage.steady(id),
        )
    };
    let leader = start("a");
    leader.leads().await;
    let standby = start("b");
    standby.stands_by().await;
    [leader, standby]
}

#[tokio::test]
async fn scenario_11_a_server_that_is_killed_paused_or_without_etcd_costs_a_term_at_most_and_never_two_leaders()
 {
    let plane = ControlPlane::builder()
        .without_controller_manager()
        .start()
        .await
        .unwrap();
    let namespace = plane.namespace("server").await.unwrap();
    let ns = namespace.name();

    // Killed and back within the term: nobody loses anything.
    let stage = Stage::default();
    let [leader, standby] = pair(&plane, ns, "short", 120, &stage).await;
    plane.kill_apiserver().await.unwrap();
    plane.start_apiserver().await.unwrap();
    leader.renews(1).await;
    assert_eq!((leader.status().state, stage.begun()), (StreamState::Working, 1));
    leader.stop().await;
    standby.leads().await;
    standby.stop().await;
    stage.kept_apart();

    // Away for longer than the term: all stop in time, and one leads once it is back.
    for fault in ["killed", "paused", "etcd paused"] {
        let stage = Stage::default();
        let pair = pair(&plane, ns, &fault.replace(' ', "-"), 6, &stage).await;
        match fault {
            "killed" => plane.kill_apiserver().await.unwrap(),
            "paused" => plane.pause_apiserver().await.unwrap(),
            _ => plane.pause_etcd().await.unwrap(),
        }
        stage.is_empty().await;
        assert_eq!(stage.begun(), 1, "{fault}");
        lasts(Duration::from_secs(7)).await;
        match fault {
            "killed" => plane.start_apiserver().await.unwrap(),
            "paused" => plane.resume_apiserver().await.unwrap(),
            _ => plane.resume_etcd().await.unwrap(),
        }
        stage.began(2).await;
        for instance in &pair {
            instance.stop().await;
        }
        stage.kept_apart();
    }
    drop(namespace);
    plane.stop().unwrap();
}
