//! A control plane of its own, to begin without the CRD and to take the API server away.

use super::*;

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
