//! What the tests share: the node, the chart on it, and workers that embed the lock.

use std::{path::Path, sync::OnceLock, time::Instant};

use leasewarden_e2e::{Node, eventually};
use serde_json::{Value, json};

/// The node, started by the first test that asks.
pub(crate) fn node() -> &'static Node {
    static NODE: OnceLock<Node> = OnceLock::new();
    NODE.get_or_init(|| {
        let begun = Instant::now();
        let node = Node::start().unwrap_or_else(|error| panic!("{error}"));
        println!("the node was ready after {:.1} s", begun.elapsed().as_secs_f64());
        node
    })
}

pub(crate) fn chart() -> String {
    let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts/leasewarden");
    chart.canonicalize().unwrap().display().to_string()
}

/// A namespace under the restricted profile of Pod Security. Deleted with what is in it when dropped.
pub(crate) struct Namespace(pub(crate) String);

impl Namespace {
    pub(crate) fn new(name: &str) -> Self {
        let labels = json!({"pod-security.kubernetes.io/enforce": "restricted"});
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
        node().apply(&namespace).unwrap();
        Self(name.to_owned())
    }

    pub(crate) fn kubectl(&self, args: &[&str]) -> String {
        let all = [&["-n", &self.0], args].concat();
        node().kubectl(&all).unwrap_or_else(|error| panic!("{error}"))
    }

    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let all = [&["-n", &self.0], args].concat();
        node().json(&all).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The status of a `ChangeStreamLeader`; null when there is none.
    pub(crate) fn status(&self, name: &str) -> Value {
        let object = node().json(&["get", "csl", "-n", &self.0, name]);
        object.map(|object| object["status"].clone()).unwrap_or_default()
    }

    /// Waits until somebody leads who is not one of these, by the status, and answers who.
    pub(crate) fn leader_but(&self, stream: &str, others: &[&str]) -> String {
        eventually(format!("a leader of {stream} other than {others:?}"), || {
            let status = self.status(stream);
            let holder = status["holderIdentity"].as_str()?.to_owned();
            (!others.contains(&holder.as_str())).then_some(holder)
        })
    }

    pub(crate) fn lease(&self, name: &str) -> Value {
        node()
            .json(&["get", "lease", "-n", &self.0, name])
            .unwrap_or_default()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = node().kubectl(&["delete", "namespace", &self.0, "--wait=false"]);
    }
}

/// A CRD that is kept belongs to the release that is gone, until another adopts it.
pub(crate) fn forget_crd() {
    let crd = "changestreamleaders.leasewarden.dev";
    node()
        .kubectl(&["delete", "crd", crd, "--ignore-not-found"])
        .unwrap();
}

/// A release of the chart, uninstalled when dropped.
pub(crate) struct Release<'a> {
    pub(crate) name: &'static str,
    pub(crate) namespace: &'a Namespace,
}

impl<'a> Release<'a> {
    /// With default values but for these; waits until all of it is ready.
    pub(crate) fn install(name: &'static str, namespace: &'a Namespace, values: &[&str]) -> Self {
        forget_crd();
        let chart = chart();
        let mut args = vec![
            "install",
            name,
            &chart,
            "-n",
            &namespace.0,
            "--wait",
            "--timeout=180s",
        ];
        for value in values {
            args.extend(["--set-json", value]);
        }
        let said = node().helm(&args);
        if let Err(error) = said {
            let pods = node()
                .kubectl(&["describe", "pods", "-n", &namespace.0])
                .unwrap_or_default();
            panic!("{error}\n{pods}");
        }
        Self { name, namespace }
    }

    /// The names of the operator's Pods that are not on their way out.
    pub(crate) fn pods(&self) -> Vec<String> {
        let label = format!(
            "app.kubernetes.io/instance={},app.kubernetes.io/component=operator",
            self.name
        );
        living(&self.namespace.json(&["get", "pods", "-l", &label]))
    }
}

impl Drop for Release<'_> {
    fn drop(&mut self) {
        let _ = node().helm(&[
            "uninstall",
            self.name,
            "-n",
            &self.namespace.0,
            "--wait",
            "--timeout=120s",
        ]);
    }
}

pub(crate) fn living(pods: &Value) -> Vec<String> {
    let pods = pods["items"].as_array().cloned().unwrap_or_default();
    let living = pods
        .iter()
        .filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    living
        .filter_map(|pod| Some(pod["metadata"]["name"].as_str()?.to_owned()))
        .collect()
}

/// Pods that embed the lock: `examples/coordinator.rs`, which contends for `orders` and `payments`.
pub(crate) fn workers(namespace: &Namespace, account: &str, replicas: u32) {
    let env = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let container = json!({
        "name": "worker", "image": "leasewarden.local/coordinator:1", "imagePullPolicy": "Never",
        "env": [env("POD_NAME", "metadata.name"), env("POD_UID", "metadata.uid")],
        "securityContext": {
            "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "runAsNonRoot": true,
            "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"},
        },
    });
    let labels = json!({"app": "worker"});
    node()
        .apply(&json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account, "namespace": namespace.0},
        }))
        .unwrap();
    node()
        .apply(&json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "worker", "namespace": namespace.0},
            "spec": {
                "replicas": replicas, "selector": {"matchLabels": labels}, "template": {
                    "metadata": {"labels": labels},
                    "spec": {"serviceAccountName": account, "terminationGracePeriodSeconds": 30, "containers": [container]},
                },
            },
        }))
        .unwrap();
}

/// The Pod whose id this is: its name and uid, as the Downward API tells them.
pub(crate) fn pod_of(holder: &str) -> String {
    holder
        .rsplit_once('_')
        .map(|(pod, _)| pod.to_owned())
        .unwrap_or_default()
}

/// Follows what kubectl prints until dropped.
pub(crate) struct Recording {
    child: std::process::Child,
    file: std::path::PathBuf,
}

impl Recording {
    pub(crate) fn start(name: &str, args: &[&str]) -> Self {
        let file = node().folder().join(name);
        let out = std::fs::File::create(&file).unwrap();
        let child = node().plane().kubectl().args(args).stdout(out).spawn().unwrap();
        Self { child, file }
    }

    pub(crate) fn text(&self) -> String {
        std::fs::read_to_string(&self.file).unwrap_or_default()
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
