//! Beside Argo CD, Flux and server-side apply: the operator writes nothing that they would take back, and what
//! `docs/gitops.md` says is so.

use std::process::{Child, Command, Stdio};

use leasewarden_controlplane::{ControlPlane, TestNamespace};
use mlua::{Lua, LuaSerdeExt};
use serde_json::{Value, json};

use crate::{
    flags::leasewarden,
    support::{eventually, output, read, values_file},
};

/// The operator; killed when it is dropped.
struct Operator(Child);

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Stage {
    control_plane: &'static ControlPlane,
    namespace: TestNamespace,
    _operator: Operator,
}

impl Stage {
    async fn new() -> Self {
        let control_plane = ControlPlane::shared().await;
        let crd = crate::support::root().join("crds/changestreamleaders.leasewarden.dev.yaml");
        output(
            control_plane
                .kubectl()
                .args(["apply", "--server-side", "--force-conflicts", "-f"])
                .arg(crd),
        )
        .unwrap();
        let wait = [
            "wait",
            "--for=condition=Established",
            "--timeout=60s",
            "crd/changestreamleaders.leasewarden.dev",
        ];
        output(control_plane.kubectl().args(wait)).unwrap();
        let namespace = control_plane.namespace("chart-gitops").await.unwrap();
        let operator = Command::new(leasewarden())
            .args(["operator", "--namespace", namespace.name(), "--kubeconfig"])
            .arg(control_plane.kubeconfig_path())
            // Ports are for one at a time, and one alone need not elect.
            .env("LEASEWARDEN_METRICS_BIND_ADDRESS", "")
            .env("LEASEWARDEN_HEALTH_PROBE_BIND_ADDRESS", "127.0.0.1:0")
            .env("LEASEWARDEN_LEADER_ELECTION", "false")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self {
            control_plane,
            namespace,
            _operator: Operator(operator),
        }
    }

    fn kubectl(&self, verb: &[&str], object: &Value) -> Result<String, String> {
        let file = values_file(object);
        let mut kubectl = self.control_plane.kubectl();
        kubectl
            .args(verb)
            .args(["--server-side", "--field-manager=a-pipeline", "-f"])
            .arg(file.path());
        output(&mut kubectl)
    }

    fn get(&self, name: &str) -> Result<Value, String> {
        let mut get = self.control_plane.kubectl();
        get.args([
            "get",
            "changestreamleader",
            name,
            "-n",
            self.namespace.name(),
            "-o",
            "json",
            "--show-managed-fields",
        ]);
        output(&mut get).map(|said| serde_json::from_str(&said).unwrap())
    }

    async fn led_by(&self, name: &str, holder: &str) -> Value {
        eventually(|| {
            let object = self.get(name);
            async move {
                match object {
                    Ok(object) if object["status"]["holderIdentity"] == holder => Ok(()),
                    other => Err(format!("{other:?}")),
                }
            }
        })
        .await;
        self.get(name).unwrap()
    }

    fn lease(&self, name: &str, holder: &str) -> Value {
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {
                "name": name, "namespace": self.namespace.name(),
                "labels": {
                    "app.kubernetes.io/managed-by": "leasewarden", "app.kubernetes.io/component": "stream-lock",
                    // As Argo CD and Flux mark what is theirs, on a Lease that is.
                    "app.kubernetes.io/instance": "my-app", "kustomize.toolkit.fluxcd.io/name": "my-app",
                },
                "annotations": {"leasewarden.dev/stream": name, "argocd.argoproj.io/tracking-id": "my-app:x"},
            },
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 3600},
        })
    }
}

#[tokio::test]
async fn an_object_of_anothers_is_as_applied_but_for_its_status() {
    let stage = Stage::new().await;
    let object = json!({
        "apiVersion": "leasewarden.dev/v1beta1", "kind": "ChangeStreamLeader",
        "metadata": {"name": "mine", "namespace": stage.namespace.name(), "labels": {"team": "a"}},
        "spec": {"streamName": "orders"},
    });
    stage.kubectl(&["apply"], &object).unwrap();
    stage
        .kubectl(&["apply"], &stage.lease("orders", "worker-1"))
        .unwrap();
    let shown = stage.led_by("mine", "worker-1").await;

    // `kubectl diff` fails when there is a difference, and apply when somebody else owns a field.
    assert_eq!(stage.kubectl(&["diff"], &object).unwrap(), "");
    stage.kubectl(&["apply"], &object).unwrap();
    assert_eq!(shown["metadata"]["labels"], json!({"team": "a"}));
    assert_eq!(shown["metadata"]["finalizers"], Value::Null);
    for fields in shown["metadata"]["managedFields"].as_array().unwrap() {
        let own = fields["manager"] == "a-pipeline";
        let owned: Vec<_> = fields["fieldsV1"].as_object().unwrap().keys().collect();
        assert!(
            own || (owned == ["f:status"] && fields["subresource"] == "status"),
            "{fields}"
        );
    }
}

#[tokio::test]
async fn what_the_operator_creates_is_nobodys_to_prune() {
    let stage = Stage::new().await;
    stage
        .kubectl(&["apply"], &stage.lease("orders", "worker-1"))
        .unwrap();
    let created = stage.led_by("orders", "worker-1").await;
    let own = json!({"app.kubernetes.io/managed-by": "leasewarden", "leasewarden.dev/discovered": "true"});
    assert_eq!(created["metadata"]["labels"], own, "nothing of the Lease's");
    assert_eq!(created["metadata"]["annotations"], Value::Null);
    assert_eq!(created["metadata"]["ownerReferences"][0]["kind"], "Lease");
}

/// The script as it stands in the page.
fn health(object: &Value) -> Value {
    let page: String = read("docs/gitops.md");
    let (_, rest) = page.split_once("ChangeStreamLeader: |\n").unwrap();
    let (script, _) = rest.split_once("```").unwrap();
    let lua = Lua::new();
    // As Argo CD gives it: what is null is not there.
    let options = mlua::SerializeOptions::new()
        .serialize_none_to_null(false)
        .serialize_unit_to_null(false);
    lua.globals()
        .set("obj", lua.to_value_with(object, options).unwrap())
        .unwrap();
    lua.from_value(lua.load(script).eval().unwrap()).unwrap()
}

#[test]
fn argo_cds_health_check_follows_the_condition_ready() {
    let object = |ready: &str, holder: &Value| {
        json!({
            "metadata": {"generation": 2},
            "status": {"observedGeneration": 2, "holderIdentity": holder, "conditions": [
                {"type": "Held", "status": "True", "reason": "LeaseHeld", "message": "m"},
                {"type": "Ready", "status": ready, "reason": "Why", "message": "it is so"},
            ]},
        })
    };
    let healthy = |message: &str| json!({"status": "Healthy", "message": message});
    assert_eq!(
        health(&object("True", &"worker-1".into())),
        healthy("Led by worker-1")
    );
    assert_eq!(health(&object("True", &Value::Null)), healthy("Nobody leads"));
    assert_eq!(
        health(&object("False", &Value::Null)),
        json!({"status": "Degraded", "message": "Why: it is so"})
    );
    assert_eq!(
        health(&object("Unknown", &Value::Null)),
        json!({"status": "Unknown", "message": "Why: it is so"})
    );
    let waiting = json!({"status": "Progressing", "message": "Waiting for the operator"});
    assert_eq!(health(&json!({"metadata": {"generation": 1}})), waiting);
    let mut older = object("True", &Value::Null);
    older["status"]["observedGeneration"] = 1.into();
    assert_eq!(health(&older), waiting);
}
