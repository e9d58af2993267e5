//! A control plane of its own, to begin without the CRD and to take the API server away.

use leasewarden::crd::HELD;
use leasewarden_faultproxy::{Fault, Match};

use super::*;
use crate::support::compact;

#[tokio::test]
async fn it_waits_for_the_crd_and_survives_a_restart_of_the_api_server() {
    if leasewarden_controlplane::is_existing_cluster() {
        return; // Nobody's API server but ours is stopped.
    }
    let control_plane = ControlPlane::builder()
        .without_controller_manager()
        .start()
        .await
        .unwrap();
    let client = control_plane.client().unwrap();
    let mut operator = Program::operator(control_plane.kubeconfig_path(), &[]);
    operator
        .says("leasewarden crd | kubectl apply --server-side -f -")
        .await;
    assert!(operator.is_running());
    let (a, ttl) = (
        Instance::new(control_plane.kube_config(), "default", "a"),
        Duration::from_secs(120),
    );
    a.acquire("orders", ttl).await;

    install_crd(&client).await;
    let objects = Api::<ChangeStreamLeader>::namespaced(client.clone(), "default");
    let holder = || async {
        let object = objects.get_opt("orders").await.ok().flatten()?;
        object.status?.holder_identity
    };
    assert_eq!(until("the leader is shown", holder).await, "a");

    control_plane.stop_apiserver().await.unwrap();
    operator.says("could not be reached").await;
    control_plane.start_apiserver().await.unwrap();
    a.release("orders").await;
    let b = Instance::new(control_plane.kube_config(), "default", "b");
    b.acquire("orders", ttl).await;
    until("the next leader is shown", || async {
        holder().await.filter(|h| h == "b")
    })
    .await;
    assert!(operator.is_running());
    assert_eq!(operator.signal("-TERM").await.code(), Some(0));
}

#[tokio::test]
async fn after_an_outage_and_a_compaction_every_status_is_right_and_says_so() {
    if leasewarden_controlplane::is_existing_cluster() {
        return;
    }
    // Leases from etcd itself: a cache would go on telling what a compaction has removed.
    let control_plane = ControlPlane::builder()
        .without_controller_manager()
        .apiserver_arg("--watch-cache-sizes=leases.coordination.k8s.io#0")
        .start()
        .await
        .unwrap();
    let client = control_plane.client().unwrap();
    install_crd(&client).await;
    let proxy = FaultProxy::start(&control_plane.kube_config()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("config");
    proxy.write_kubeconfig(&kubeconfig).unwrap();
    let mut operator = Program::operator(&kubeconfig, &["--namespace", "default"]);
    let instance = |id| Instance::new(control_plane.kube_config(), "default", id);
    let (a, b, ttl) = (instance("a"), instance("b"), Duration::from_secs(600));
    a.acquire("orders", ttl).await;
    let objects = Api::<ChangeStreamLeader>::namespaced(client.clone(), "default");
    let status = || async { objects.get_opt("orders").await.ok()??.status };
    until("the leader is shown", || async {
        status().await?.holder_identity.filter(|holder| holder == "a")
    })
    .await;

    // The watch is away, long enough for that to be said.
    let away = proxy.rule(Match::watch("/leases"), Fault::Hold);
    proxy.cut_connections();
    until("it says that it sees nothing", || async {
        let ready = status().await?.condition(READY)?.clone();
        (ready.status == "Unknown" && ready.reason == "ApiServerUnreachable").then_some(())
    })
    .await;
    a.release("orders").await;
    b.acquire("orders", ttl).await;
    let leases = Api::<Lease>::namespaced(client.clone(), "default");
    let lease = leases.get("orders").await.unwrap();
    compact(&control_plane, &lease.metadata.resource_version.unwrap()).await;
    control_plane.stop_apiserver().await.unwrap();
    control_plane.start_apiserver().await.unwrap();
    away.release();

    let status = until("it is right", || async {
        status()
            .await
            .filter(|s| s.holder_identity.as_deref() == Some("b"))
    })
    .await;
    assert_eq!(condition(&status, READY), is("True", "UpToDate"));
    assert_eq!(condition(&status, HELD), is("True", "LeaseHeld"));
    // Nobody saw how a's leadership ended.
    let past = &status.history[0];
    assert_eq!(
        (past.holder_identity.as_str(), past.ended),
        ("a", leasewarden::crd::Ended::Unknown)
    );
    assert!(operator.is_running());
}
