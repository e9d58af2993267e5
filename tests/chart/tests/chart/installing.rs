//! Helm itself, on a control plane of its own, because a release brings the CRD, of which there is one in a cluster. No node
//! runs Pods here: what is looked at is what lies in the API server.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use leasewarden_controlplane::ControlPlane;
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

use crate::support::{chart, eventually, helm, output, values_file};

const CRD: &str = "changestreamleaders.leasewarden.dev";

/// One control plane for all of these, which take turns.
struct Cluster(
    &'static ControlPlane,
    #[allow(dead_code, reason = "held")] MutexGuard<'static, ()>,
);

impl Cluster {
    /// As if nothing had ever been installed.
    async fn empty() -> Self {
        static PLANE: OnceCell<ControlPlane> = OnceCell::const_new();
        static TURN: Mutex<()> = Mutex::const_new(());
        let turn = TURN.lock().await;
        let start = || async {
            ControlPlane::builder()
                .without_controller_manager()
                .start()
                .await
                .unwrap()
        };
        let cluster = Self(PLANE.get_or_init(start).await, turn);
        for namespace in ["one", "two", "shop"] {
            let mut uninstall = helm(cluster.0);
            uninstall.args(["uninstall", "lw", "--ignore-not-found", "--namespace", namespace]);
            output(&mut uninstall).unwrap();
        }
        cluster
            .kubectl(&["delete", "crd", CRD, "--ignore-not-found"])
            .unwrap();
        cluster
    }

    fn release(&self, verb: &[&str], namespace: &str, values: &Value) -> Result<String, String> {
        self.release_of(&chart(), verb, namespace, values)
    }

    fn release_of(
        &self,
        chart: &Path,
        verb: &[&str],
        namespace: &str,
        values: &Value,
    ) -> Result<String, String> {
        let file = values_file(values);
        let mut helm = helm(self.0);
        helm.args(verb)
            .arg("lw")
            .arg(chart)
            .args(["--namespace", namespace, "--values"])
            .arg(file.path());
        output(&mut helm)
    }

    fn uninstall(&self, namespace: &str) -> String {
        output(helm(self.0).args(["uninstall", "lw", "--namespace", namespace])).unwrap()
    }

    fn kubectl(&self, arguments: &[&str]) -> Result<String, String> {
        output(self.0.kubectl().args(arguments))
    }

    fn get(&self, namespace: &str, what: &str) -> Value {
        let said = self
            .kubectl(&["get", what, "-n", namespace, "-o", "json"])
            .unwrap();
        serde_json::from_str(&said).unwrap()
    }

    /// As a worker would, and with the annotations and labels that it writes.
    fn acquire(&self, namespace: &str, lease: &str) {
        let mut held = self.get(namespace, &format!("lease/{lease}"));
        held["spec"]["holderIdentity"] = "worker-1".into();
        let file = values_file(&held);
        let mut replace: Command = self.0.kubectl();
        replace.args(["replace", "-f"]).arg(file.path());
        output(&mut replace).unwrap();
    }
}

#[tokio::test]
async fn leases_made_beforehand_outlive_upgrades_and_the_release_and_keep_their_holder() {
    let cluster = Cluster::empty().await;
    let leases = |names: &[&str]| json!({"worker": {"leases": names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>()}});
    cluster
        .release(&["install", "--create-namespace"], "shop", &leases(&["orders"]))
        .unwrap();
    cluster.acquire("shop", "orders");
    let before = cluster.get("shop", "lease/orders");
    assert_eq!(
        before["metadata"]["labels"]["app.kubernetes.io/managed-by"],
        "leasewarden"
    );

    // Twice: what was new at the first is old at the second.
    for _ in 0..2 {
        cluster
            .release(&["upgrade"], "shop", &leases(&["orders", "returns"]))
            .unwrap();
        let after = cluster.get("shop", "lease/orders");
        assert_eq!(
            after["metadata"]["resourceVersion"], before["metadata"]["resourceVersion"],
            "nobody touched it"
        );
        let new = cluster.get("shop", "lease/returns");
        assert_eq!(
            new["metadata"]["labels"]["app.kubernetes.io/managed-by"],
            "leasewarden"
        );
    }
    output(helm(cluster.0).args(["rollback", "lw", "1", "--namespace", "shop"])).unwrap();
    cluster.uninstall("shop");
    for lease in ["lease/orders", "lease/returns"] {
        cluster.get("shop", lease);
    }
    assert_eq!(
        cluster.get("shop", "lease/orders")["spec"]["holderIdentity"],
        "worker-1"
    );
}

/// A copy of the chart, with a CRD whose spec has no statusPolicy.
fn older_chart(folder: &Path) -> PathBuf {
    let older = folder.join("leasewarden");
    let copied = Command::new("cp")
        .arg("-r")
        .arg(chart())
        .arg(&older)
        .status()
        .unwrap();
    assert!(copied.success());
    let file = older.join("files/crd.yaml");
    let mut crd: Value = serde_saphyr::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let spec = crd
        .pointer_mut("/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties")
        .unwrap();
    assert!(spec.as_object_mut().unwrap().remove("statusPolicy").is_some());
    std::fs::write(file, crd.to_string()).unwrap();
    older
}

fn has_policy(cluster: &Cluster) -> bool {
    let crd = cluster.get("default", &format!("crd/{CRD}"));
    crd.pointer("/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/statusPolicy")
        .is_some()
}

#[tokio::test]
async fn an_upgrade_brings_the_new_schema_and_a_rollback_the_old() {
    let cluster = Cluster::empty().await;
    let folder = tempfile::tempdir().unwrap();
    let older = older_chart(folder.path());
    cluster
        .release_of(&older, &["install", "--create-namespace"], "one", &json!({}))
        .unwrap();
    assert!(!has_policy(&cluster));
    cluster.release(&["upgrade"], "one", &json!({})).unwrap();
    assert!(has_policy(&cluster));
    output(helm(cluster.0).args(["rollback", "lw", "1", "--namespace", "one"])).unwrap();
    assert!(!has_policy(&cluster));
}

#[tokio::test]
async fn a_kept_crd_keeps_its_objects_is_refused_to_another_release_and_can_be_adopted() {
    let cluster = Cluster::empty().await;
    let folder = tempfile::tempdir().unwrap();
    let older = older_chart(folder.path());
    cluster
        .release_of(&older, &["install", "--create-namespace"], "one", &json!({}))
        .unwrap();
    cluster
        .kubectl(&[
            "wait",
            "--for=condition=Established",
            "--timeout=60s",
            &format!("crd/{CRD}"),
        ])
        .unwrap();
    let object = values_file(&json!({
        "apiVersion": "leasewarden.dev/v1beta1", "kind": "ChangeStreamLeader",
        "metadata": {"name": "orders", "namespace": "one"}, "spec": {"streamName": "orders"},
    }));
    cluster
        .kubectl(&["apply", "-f", object.path().to_str().unwrap()])
        .unwrap();

    let said = cluster.uninstall("one");
    assert!(said.contains(CRD), "helm says what it keeps: {said}");
    assert_eq!(
        cluster.get("one", "changestreamleader/orders")["spec"]["streamName"],
        "orders"
    );

    let said = cluster
        .release(&["install", "--create-namespace"], "two", &json!({}))
        .unwrap_err();
    assert!(
        said.contains(CRD) && said.contains("meta.helm.sh/release-namespace"),
        "{said}"
    );
    assert!(!has_policy(&cluster), "still the older schema");

    cluster
        .release(
            &["install", "--create-namespace", "--take-ownership"],
            "two",
            &json!({}),
        )
        .unwrap();
    let crd = cluster.get("two", &format!("crd/{CRD}"));
    assert_eq!(
        crd["metadata"]["annotations"]["meta.helm.sh/release-namespace"],
        "two"
    );
    assert!(has_policy(&cluster), "the new schema is there");
    assert_eq!(
        cluster.get("one", "changestreamleader/orders")["spec"]["streamName"],
        "orders"
    );
}

#[tokio::test]
async fn a_crd_that_is_kept_stays_when_it_is_switched_off() {
    let cluster = Cluster::empty().await;
    cluster
        .release(&["install", "--create-namespace"], "one", &json!({}))
        .unwrap();
    cluster
        .release(&["upgrade"], "one", &json!({"crds": {"enabled": false}}))
        .unwrap();
    let crd = cluster.get("one", &format!("crd/{CRD}"));
    assert_eq!(crd["metadata"]["deletionTimestamp"], Value::Null);
}

#[tokio::test]
async fn a_crd_that_is_not_kept_goes_with_the_release() {
    let cluster = Cluster::empty().await;
    cluster
        .release(
            &["install", "--create-namespace"],
            "one",
            &json!({"crds": {"keep": false}}),
        )
        .unwrap();
    cluster.kubectl(&["get", "crd", CRD]).unwrap();
    cluster.uninstall("one");
    let gone = || {
        let said = cluster.kubectl(&["get", "crd", CRD]);
        async move {
            match said {
                Err(said) if said.contains("NotFound") => Ok(()),
                other => Err(format!("{other:?}")),
            }
        }
    };
    eventually(gone).await;
}

#[tokio::test]
async fn what_helm_installs_says_what_to_run_next_and_what_is_off() {
    let cluster = Cluster::empty().await;
    let notes = cluster
        .release(&["install", "--create-namespace"], "one", &json!({}))
        .unwrap();
    for line in [
        "kubectl get changestreamleaders --all-namespaces",
        "helm test lw --namespace one --logs",
        "kubectl create rolebinding leasewarden-worker --namespace one",
        "metrics.prometheusRule is off",
        "networkPolicy is off",
    ] {
        assert!(notes.contains(line), "{line} is not in: {notes}");
    }
    let values = json!({
        "replicaCount": 1, "crds": {"keep": false}, "networkPolicy": {"enabled": true}, "tests": {"enabled": false},
        "operator": {"discovery": false, "events": false}, "metrics": {"enabled": false},
    });
    let notes = cluster.release(&["upgrade"], "one", &values).unwrap();
    for line in [
        "replicaCount=1",
        "crds.keep=false",
        "operator.discovery=false",
        "operator.events=false",
        "metrics.enabled=false",
    ] {
        assert!(notes.contains(line), "{line} is not in: {notes}");
    }
    assert!(
        !notes.contains("helm test") && !notes.contains("networkPolicy is off"),
        "{notes}"
    );
    // Where the chart's ServiceMonitor has no CRD, it is not left out: nothing is installed.
    let values = json!({"metrics": {"serviceMonitor": {"enabled": true}}});
    let said = cluster.release(&["upgrade"], "one", &values).unwrap_err();
    assert!(said.contains("ServiceMonitor"), "{said}");
}
