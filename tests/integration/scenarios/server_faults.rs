//! What an API server and its etcd do to a watch by themselves. On a control plane of the test's own, whose watches of
//! Leases are served by etcd: a cache would go on telling what a compaction has removed.

use leasewarden::{election::StreamState, lease::LeaseLockService};
use leasewarden_controlplane::ControlPlane;
use leasewarden_faultproxy::{Fault, FaultProxy, Match, Seen};
use serde_json::Value;

use super::stage::{Instance, Stage};
use crate::support::{LIMIT, compact, eventually};

fn is_watch(seen: &Seen) -> bool {
    seen.path.contains("watch=true")
}

fn is_list(seen: &Seen) -> bool {
    seen.path.contains("labelSelector") && !is_watch(seen)
}

async fn get(client: &kube::Client, path: &str) -> String {
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    tokio::time::timeout(LIMIT, client.request_text(request))
        .await
        .expect("it ends")
        .unwrap()
}

// Reported against kube (#1791).
#[tokio::test]
async fn scenario_26_a_watch_that_goes_on_from_before_a_compaction_costs_no_takeover_and_no_leadership() {
    let plane = ControlPlane::builder()
        .without_controller_manager()
        .apiserver_arg("--watch-cache-sizes=leases.coordination.k8s.io#0")
        .start()
        .await
        .unwrap();
    let namespace = plane.namespace("compaction").await.unwrap();
    let base = plane.kube_config();
    let proxy = FaultProxy::start(&base).unwrap();
    let locks = |config| {
        let builder = LeaseLockService::builder(config).namespace(namespace.name());
        builder.build().unwrap()
    };
    let stage = Stage::default();
    let leader = Instance::steady(locks(base.clone()), "a", 6, &stage);
    leader.leads().await;
    // The server ends the standby's first watch; the next, which goes on from there, is on its way for a while.
    let ended = proxy.rule(Match::watch("/leases").nth(1), Fault::ShortWatch(1));
    let held = proxy.rule(Match::watch("/leases").nth(1), Fault::Hold);
    let standby = Instance::steady(locks(proxy.kube_config(&base)), "b", 6, &stage);
    standby.stands_by().await;
    held.wait_fired(1, LIMIT).await.unwrap();
    assert_eq!((ended.fired(), proxy.count(is_list)), (1, 1));

    leader.renews(2).await;
    let client = plane.client().unwrap();
    let lease = format!(
        "/apis/coordination.k8s.io/v1/namespaces/{}/leases/orders",
        namespace.name()
    );
    let lease: Value = serde_json::from_str(&get(&client, &lease).await).unwrap();
    compact(&plane, lease["metadata"]["resourceVersion"].as_str().unwrap()).await;
    let path = proxy.seen().into_iter().rfind(is_watch).unwrap().path;
    let told = get(&client, &path).await;
    assert!(
        told.contains(r#""type":"ERROR""#) && told.contains(r#""code":410"#),
        "what the standby asks for is gone: {told}"
    );
    assert_eq!(proxy.count(is_list), 1, "and it still asks");
    held.release();
    eventually("it lists and watches again", || async {
        (proxy.count(is_list) >= 2 && proxy.count(is_watch) >= 3).then_some(())
    })
    .await;
    leader.renews(1).await;
    assert_eq!((leader.status().state, stage.begun()), (StreamState::Working, 1));
    leader.stop().await;
    standby.leads().await;
    standby.stop().await;
    stage.kept_apart();
    drop((leader, standby, namespace));
    plane.stop().unwrap();
}
