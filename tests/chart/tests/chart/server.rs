//! Everything that the chart can render is taken by a real API server, which checks every field of it.
//!
//! The Prometheus operator's kinds come from small CRDs of our own, made only where there are none.

use leasewarden_controlplane::ControlPlane;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::{
    cases::cases,
    support::{all, kind, name, output, render_in, values_file},
};

/// The fields that the chart uses of them, and no others: a misspelt one is refused.
fn monitoring_crd(kind: &str, plural: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.monitoring.coreos.com")},
        "spec": {
            "group": "monitoring.coreos.com", "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "required": ["spec"], "properties": {"spec": spec},
            }}}],
        },
    })
}

fn monitoring_crds() -> [Value; 3] {
    let text = json!({"type": "string"});
    let free = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let list_of = |items: &Value| json!({"type": "array", "items": items});
    let endpoint = |more: &[&str]| {
        let mut properties = json!({
            "port": text, "path": text, "honorLabels": {"type": "boolean"}, "interval": text, "scrapeTimeout": text,
            "scheme": {"type": "string", "enum": ["http", "https"]}, "tlsConfig": free, "authorization": free,
            "relabelings": list_of(&free), "metricRelabelings": list_of(&free),
        });
        for name in more {
            properties[*name] = text.clone();
        }
        json!({"type": "object", "properties": properties})
    };
    let selector = json!({"type": "object", "properties": {
        "matchLabels": {"type": "object", "additionalProperties": text},
    }});
    let namespaces = json!({"type": "object", "properties": {"matchNames": list_of(&text)}});
    let monitor = |endpoints: &str, more: &[&str]| {
        json!({"type": "object", "required": ["selector", endpoints], "properties": {
            "selector": selector, "namespaceSelector": namespaces, endpoints: list_of(&endpoint(more)),
        }})
    };
    let labels = json!({"type": "object", "additionalProperties": text});
    let rule = json!({"type": "object", "required": ["expr"], "properties": {
        "alert": text, "expr": text, "for": text, "labels": labels, "annotations": labels,
    }});
    let group = json!({"type": "object", "required": ["name"], "properties": {"name": text, "rules": list_of(&rule)}});
    let rules = json!({"type": "object", "properties": {"groups": list_of(&group)}});
    [
        monitoring_crd(
            "ServiceMonitor",
            "servicemonitors",
            &monitor("endpoints", &["bearerTokenFile"]),
        ),
        // Without bearerTokenFile: a PodMonitor has none.
        monitoring_crd("PodMonitor", "podmonitors", &monitor("podMetricsEndpoints", &[])),
        monitoring_crd("PrometheusRule", "prometheusrules", &rules),
    ]
}

/// Made, or there already.
fn exists(created: Result<String, String>) {
    if let Err(said) = created {
        assert!(
            said.contains("AlreadyExists") || said.contains("already exists"),
            "{said}"
        );
    }
}

/// Makes the CRDs, once, and waits until they are served.
async fn with_monitoring(control_plane: &ControlPlane) {
    static DONE: OnceCell<()> = OnceCell::const_new();
    DONE.get_or_init(|| async {
        for crd in monitoring_crds() {
            let file = values_file(&crd);
            let mut create = control_plane.kubectl();
            create.args(["create", "-f"]).arg(file.path());
            exists(output(&mut create));
            let crd = format!("crd/{}", name(&crd));
            let mut wait = control_plane.kubectl();
            wait.args(["wait", "--for=condition=Established", "--timeout=60s", &crd]);
            output(&mut wait).unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn the_api_server_takes_everything_that_renders() {
    let control_plane = ControlPlane::shared().await;
    with_monitoring(control_plane).await;
    let (own, other) = (
        control_plane.namespace("chart").await.unwrap(),
        control_plane.namespace("chart-other").await.unwrap(),
    );
    for case in cases(other.name()) {
        let objects = render_in(own.name(), &case.values);
        // A Pod is admitted only where its service account is, and nothing is made here.
        for pod in all(&objects, "Pod") {
            let account = pod["spec"]["serviceAccountName"].as_str().unwrap();
            let mut create = control_plane.kubectl();
            create.args(["create", "serviceaccount", account, "-n", own.name()]);
            exists(output(&mut create));
        }
        let file = values_file(&json!({"apiVersion": "v1", "kind": "List", "items": objects}));
        let mut apply = control_plane.kubectl();
        apply
            .args([
                "apply",
                "--server-side",
                "--dry-run=server",
                "--validate=strict",
                "--force-conflicts",
            ])
            .args(["-o", "name", "-f"])
            .arg(file.path());
        let said = output(&mut apply).unwrap_or_else(|said| panic!("{}: {said}", case.name));
        assert_eq!(said.lines().count(), objects.len(), "{}: {said}", case.name);
    }
}

/// The stubs are strict, or the test above would show little.
#[tokio::test]
async fn a_misspelt_field_of_a_monitor_would_be_refused() {
    let control_plane = ControlPlane::shared().await;
    with_monitoring(control_plane).await;
    let own = control_plane.namespace("chart").await.unwrap();
    let objects = render_in(own.name(), &json!({"metrics": {"podMonitor": {"enabled": true}}}));
    let mut monitor = objects
        .into_iter()
        .find(|object| kind(object) == "PodMonitor")
        .unwrap();
    monitor["spec"]["podMetricsEndpoints"][0]["bearerTokenFile"] = "x".into();
    let file = values_file(&monitor);
    let mut apply = control_plane.kubectl();
    apply
        .args([
            "apply",
            "--server-side",
            "--dry-run=server",
            "--validate=strict",
            "-f",
        ])
        .arg(file.path());
    let said = output(&mut apply).unwrap_err();
    assert!(said.contains("bearerTokenFile"), "{said}");
}

#[tokio::test]
async fn pods_are_admitted_where_the_restricted_profile_is_enforced() {
    let control_plane = ControlPlane::shared().await;
    let own = control_plane.namespace("chart-restricted").await.unwrap();
    let level = "pod-security.kubernetes.io/enforce=restricted";
    output(
        control_plane
            .kubectl()
            .args(["label", "namespace", own.name(), level]),
    )
    .unwrap();
    let deny = |mut pod: Value| {
        pod["apiVersion"] = "v1".into();
        pod["kind"] = "Pod".into();
        // Made by the controller manager in some control planes, and not at all in others.
        pod["spec"]["serviceAccountName"] = "default".into();
        pod["metadata"] = json!({"name": "p", "namespace": own.name()});
        let file = values_file(&pod);
        let mut create = control_plane.kubectl();
        create.args(["create", "--dry-run=server", "-f"]).arg(file.path());
        output(&mut create)
    };
    let objects = render_in(own.name(), &json!({}));
    let deployment = crate::support::one(&objects, "Deployment");
    let pods = [
        deployment["spec"]["template"].clone(),
        crate::support::one(&objects, "Pod").clone(),
    ];
    for pod in pods {
        crate::support::eventually(|| {
            let result = deny(pod.clone()).map(drop);
            async move { result }
        })
        .await;
        let mut rootful = pod.clone();
        rootful["spec"]["securityContext"] = json!({});
        let said = deny(rootful).unwrap_err();
        assert!(said.contains("violates PodSecurity"), "{said}");
    }
}
