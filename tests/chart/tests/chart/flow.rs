//! The `FlowSchema`, as the API server applies it: each reply names the schema and the level that its request went by.

use leasewarden_controlplane::ControlPlane;
use serde_json::{Value, json};

use crate::support::{eventually, kind, name, output, render_in, values_file};

/// Deleted when it is dropped, for it belongs to the cluster.
struct Applied {
    control_plane: &'static ControlPlane,
    file: tempfile::NamedTempFile,
}

impl Drop for Applied {
    fn drop(&mut self) {
        let _ = output(
            self.control_plane
                .kubectl()
                .args(["delete", "--wait=false", "-f"])
                .arg(self.file.path()),
        );
    }
}

fn uid(control_plane: &ControlPlane, object: &Value) -> String {
    let what = format!("{}/{}", kind(object), name(object));
    output(
        control_plane
            .kubectl()
            .args(["get", &what, "-o", "jsonpath={.metadata.uid}"]),
    )
    .unwrap()
}

/// The schema and the level of a request of this account.
async fn went_by(control_plane: &ControlPlane, namespace: &str, account: &str, path: &str) -> [String; 2] {
    let user = format!("system:serviceaccount:{namespace}:{account}");
    let groups = ["system:serviceaccounts", "system:authenticated"];
    let config = control_plane.config_for_user(&user, &groups).unwrap();
    let client = kube::Client::try_from(config).unwrap();
    let request = http::Request::get(path)
        .body(kube::client::Body::empty())
        .unwrap();
    // Whether it is permitted does not matter: it is classified before that.
    let reply = client.send(request).await.unwrap();
    ["flowschema", "prioritylevel"].map(|what| {
        let header = reply.headers().get(format!("x-kubernetes-pf-{what}-uid"));
        header.unwrap().to_str().unwrap().to_owned()
    })
}

#[tokio::test]
async fn requests_of_workers_for_leases_go_by_the_level_of_the_chart_and_no_others() {
    let control_plane = ControlPlane::shared().await;
    let namespace = control_plane.namespace("chart-flow").await.unwrap();
    let namespace = namespace.name();
    let values = json!({
        "flowControl": {"enabled": true, "serviceAccounts": [{"name": "*", "namespace": "chart-flow-others"}]},
        "worker": {"serviceAccounts": [{"name": "worker"}]},
    });
    let objects: Vec<_> = render_in(namespace, &values)
        .into_iter()
        .filter(|object| ["FlowSchema", "PriorityLevelConfiguration"].contains(&kind(object)))
        .collect();
    let file = values_file(&json!({"apiVersion": "v1", "kind": "List", "items": objects}));
    output(
        control_plane
            .kubectl()
            .args(["apply", "--server-side", "-f"])
            .arg(file.path()),
    )
    .unwrap();
    let _applied = Applied { control_plane, file };
    let own = ["FlowSchema", "PriorityLevelConfiguration"].map(|wanted| {
        uid(
            control_plane,
            objects.iter().find(|object| kind(object) == wanted).unwrap(),
        )
    });

    let lease = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/orders");
    eventually(|| {
        let (own, lease) = (&own, &lease);
        async move {
            let by = went_by(control_plane, namespace, "worker", lease).await;
            if by == *own {
                Ok(())
            } else {
                Err(format!("{by:?}"))
            }
        }
    })
    .await;
    assert_eq!(
        went_by(control_plane, "chart-flow-others", "anybody", &lease).await,
        own
    );
    assert_eq!(
        went_by(control_plane, namespace, "lw-leasewarden", &lease).await,
        own,
        "its own election"
    );
    // Neither another's locks nor other requests of a worker.
    assert_ne!(went_by(control_plane, namespace, "somebody", &lease).await, own);
    let other = format!("/api/v1/namespaces/{namespace}/configmaps/x");
    assert_ne!(went_by(control_plane, namespace, "worker", &other).await, own);
}
