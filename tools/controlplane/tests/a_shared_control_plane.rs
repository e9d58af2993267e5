//! What tests get that share a control plane: namespaces, users, kubectl, controllers at work.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::time::Duration;

use common::{LIMIT, Place, Running, is_inside};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use leasewarden_controlplane::ControlPlane;

#[tokio::test]
async fn gives_every_test_a_namespace_of_its_own() {
    let control_plane = ControlPlane::shared().await;
    let (one, two) = (
        control_plane.namespace("mine").await.unwrap(),
        control_plane.namespace("mine").await.unwrap(),
    );
    assert_ne!(one.name(), two.name());
    let leases = Api::<Lease>::namespaced(control_plane.client().unwrap(), one.name());
    assert!(
        leases
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .is_empty()
    );
}

// Plain threads and runtimes that end: the one control plane outlives the runtime of whoever asked first.
#[test]
fn is_one_for_all_runtimes() {
    let address = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let control_plane = ControlPlane::shared().await;
            control_plane.client().unwrap().apiserver_version().await.unwrap();
            std::ptr::from_ref(control_plane) as usize
        })
    };
    let addresses: Vec<_> = (0..3)
        .map(|_| std::thread::spawn(address))
        .map(|thread| thread.join().unwrap())
        .collect();
    assert!(addresses.iter().all(|address| *address == addresses[0]));
}

#[tokio::test]
async fn knows_users_without_rights_until_they_are_given_some() {
    let control_plane = ControlPlane::shared().await;
    let namespace = control_plane.namespace("users").await.unwrap();
    // Two groups: no certificate, but impersonation.
    for groups in [&["team"][..], &["team", "staff"]] {
        let config = control_plane.config_for_user("jane", groups).unwrap();
        let leases = Api::<Lease>::namespaced(Client::try_from(config).unwrap(), namespace.name());
        let refused = leases.list(&ListParams::default()).await.unwrap_err();
        let kube::Error::Api(status) = &refused else {
            panic!("{refused}")
        };
        assert_eq!(status.code, 403);
        assert!(status.message.contains("User \"jane\""), "{}", status.message);
    }

    let binding = format!(
        "{{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {{name: b, namespace: {namespace}}}, \
         roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}}, \
         subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: Group, name: team}}]}}"
    );
    let said = control_plane.apply_yaml(&binding).await.unwrap();
    assert!(said.contains("created"), "{said}");
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("jane");
    control_plane
        .write_kubeconfig_for_user(&kubeconfig, "jane", &["team"])
        .unwrap();
    let mut kubectl = control_plane.kubectl();
    kubectl.env("KUBECONFIG", &kubeconfig).args([
        "auth",
        "can-i",
        "list",
        "configmaps",
        "-n",
        namespace.name(),
    ]);
    // The API server's RBAC cache lags behind by moments.
    common::wait_until("jane may", || {
        kubectl.output().unwrap().stdout.starts_with(b"yes")
    });
}

#[tokio::test]
async fn says_what_kubectl_did_not_like() {
    let error = ControlPlane::shared()
        .await
        .apply_yaml("kind: Nonsense")
        .await
        .unwrap_err();
    assert!(format!("{error:?}").contains("apiVersion not set"), "{error:?}");
}

#[tokio::test]
async fn has_controllers_that_delete_namespaces_and_what_owners_leave() {
    let control_plane = ControlPlane::shared().await;
    let client = control_plane.client().unwrap();
    let namespace = control_plane.namespace("gone").await.unwrap();
    let maps = Api::<ConfigMap>::namespaced(client.clone(), namespace.name());
    let mut owner = ConfigMap::default();
    owner.metadata.name = Some("owner".to_owned());
    let owner = maps.create(&PostParams::default(), &owner).await.unwrap();
    let mut dependent = ConfigMap::default();
    dependent.metadata.name = Some("dependent".to_owned());
    dependent.metadata.owner_references = Some(vec![
        k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference {
            api_version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            name: owner.name_any(),
            uid: owner.uid().unwrap(),
            ..Default::default()
        },
    ]);
    maps.create(&PostParams::default(), &dependent).await.unwrap();
    maps.delete("owner", &DeleteParams::background()).await.unwrap();
    until("what it owned is gone", async || {
        maps.get_opt("dependent").await.unwrap().is_none()
    })
    .await;

    let namespaces = Api::<Namespace>::all(client);
    namespaces
        .delete(namespace.name(), &DeleteParams::background())
        .await
        .unwrap();
    until("the namespace is gone", async || {
        namespaces.get_opt(namespace.name()).await.unwrap().is_none()
    })
    .await;
}

#[tokio::test]
async fn may_be_somebody_elses_and_then_nothing_is_started_and_namespaces_are_deleted() {
    if is_inside() {
        on_an_existing_cluster().await;
    }
    let control_plane = ControlPlane::shared().await;
    let place = Place::new();
    let mut run =
        place.inside("may_be_somebody_elses_and_then_nothing_is_started_and_namespaces_are_deleted");
    run.env("USE_EXISTING_CLUSTER", "true")
        .env("KUBECONFIG", control_plane.kubeconfig_path())
        .stderr(std::process::Stdio::null());
    let mut run = Running::start(&mut run);
    let name = run.until("NAMESPACE ");
    run.until("STARTED NOTHING");
    assert!(!run.child.wait().unwrap().success());
    let namespaces = Api::<Namespace>::all(control_plane.client().unwrap());
    let left = namespaces.get_opt(&name).await.unwrap();
    assert!(left.is_none_or(|namespace| namespace.metadata.deletion_timestamp.is_some()));
}

async fn on_an_existing_cluster() -> ! {
    let control_plane = ControlPlane::shared().await;
    assert!(
        control_plane.is_existing() && control_plane.etcd_url().is_none() && control_plane.folder().is_none()
    );
    let namespace = control_plane.namespace("existing").await.unwrap();
    println!("\nNAMESPACE {namespace}");

    let config = control_plane.config_for_user("jane", &[]).unwrap();
    let leases = Api::<Lease>::namespaced(Client::try_from(config).unwrap(), namespace.name());
    assert!(
        matches!(leases.list(&ListParams::default()).await, Err(kube::Error::Api(status)) if status.code == 403)
    );

    let error = ControlPlane::builder().start().await.map(drop).unwrap_err();
    assert!(format!("{error:?}").contains("USE_EXISTING_CLUSTER"), "{error:?}");
    assert!(control_plane.pause_etcd().await.is_err());
    let children =
        std::fs::read_to_string(format!("/proc/self/task/{}/children", std::process::id())).unwrap();
    assert_eq!(children, "");
    assert_eq!(std::fs::read_dir(std::env::temp_dir()).unwrap().count(), 0);
    println!("STARTED NOTHING");
    panic!("namespaces are deleted by a panic too");
}

async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let poll = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    assert!(tokio::time::timeout(LIMIT, poll).await.is_ok(), "never: {what}");
}
