//! The schema refuses what is wrong by itself, and says where.

use serde_json::{Value, json};

use crate::support::{NAMESPACE, read, render, template};

#[test]
fn wrong_values_are_refused_with_their_path() {
    for (values, path) in [
        (json!({"scope": "Everywhere"}), "/scope"),
        (json!({"scope": "Namespaced", "namespaces": "a,b"}), "/namespaces"),
        (
            json!({"scope": "Namespaced", "namespaces": ["Not_A_Namespace"]}),
            "/namespaces/0",
        ),
        (json!({"replicaCount": "two"}), "/replicaCount"),
        (json!({"replicaCount": -1}), "/replicaCount"),
        (json!({"image": {"digest": "sha256:short"}}), "/image/digest"),
        (json!({"image": {"tag": 1.0}}), "/image/tag"),
        (json!({"image": {"pullPolicy": "Sometimes"}}), "/image/pullPolicy"),
        (json!({"imagePullSecrets": ["registry"]}), "/imagePullSecrets/0"),
        (
            json!({"operator": {"statusPolicy": "Sometimes"}}),
            "/operator/statusPolicy",
        ),
        (
            json!({"operator": {"statusWritesPerSecond": 0}}),
            "/operator/statusWritesPerSecond",
        ),
        (
            json!({"operator": {"leaderElection": {"ttl": "15"}}}),
            "/operator/leaderElection/ttl",
        ),
        (
            json!({"operator": {"log": {"format": "xml"}}}),
            "/operator/log/format",
        ),
        (json!({"crds": {"enabled": "yes"}}), "/crds/enabled"),
        (json!({"metrics": {"port": 70000}}), "/metrics/port"),
        (
            json!({"metrics": {"serviceMonitor": {"interval": "often"}}}),
            "/metrics/serviceMonitor/interval",
        ),
        (
            json!({"metrics": {"prometheusRule": {"disabled": ["NoSuchAlert"]}}}),
            "/metrics/prometheusRule/disabled/0",
        ),
        (
            json!({"metrics": {"secure": {"readers": [{"name": "p"}]}}}),
            "/metrics/secure/readers/0",
        ),
        (
            json!({"podDisruptionBudget": {"minAvailable": "half"}}),
            "/podDisruptionBudget/minAvailable",
        ),
        (
            json!({"worker": {"leases": [{"name": "Orders"}]}}),
            "/worker/leases/0/name",
        ),
        (
            json!({"worker": {"leases": [{"stream": "orders"}]}}),
            "/worker/leases/0",
        ),
        (
            json!({"worker": {"serviceAccounts": [{"name": "w", "nmespace": "x"}]}}),
            "/worker/serviceAccounts/0",
        ),
        (
            json!({"networkPolicy": {"apiServerCIDRs": ["api.example.com"]}}),
            "/networkPolicy/apiServerCIDRs/0",
        ),
        (
            json!({"flowControl": {"lendablePercent": 101}}),
            "/flowControl/lendablePercent",
        ),
        (json!({"rbac": {"aggregate": "yes"}}), "/rbac/aggregate"),
        (json!({"extraArgs": ["operator"]}), "/extraArgs/0"),
        (json!({"podLabels": {"a": 1}}), "/podLabels/a"),
    ] {
        let said = template(NAMESPACE, &values).expect_err(path);
        assert!(said.contains(&format!("at '{path}'")), "{path}: {said}");
    }
}

/// Every object of the values that is not free, by its path.
fn closed(path: &str, schema: &Value, found: &mut Vec<String>) {
    if let (Some(properties), Some(false)) = (
        schema["properties"].as_object(),
        schema["additionalProperties"].as_bool(),
    ) {
        found.push(path.to_owned());
        for (key, schema) in properties {
            closed(&format!("{path}/{key}"), schema, found);
        }
    }
}

#[test]
fn a_misspelt_value_is_refused_at_every_depth() {
    let schema: Value = serde_json::from_str(&read("charts/leasewarden/values.schema.json")).unwrap();
    let mut paths = Vec::new();
    closed("", &schema, &mut paths);
    assert!(paths.len() > 20, "{paths:?}");
    for path in paths {
        let mut values = json!({"neverheardof": true});
        for key in path.rsplit('/').filter(|key| !key.is_empty()) {
            values = json!({key: values});
        }
        let said = template(NAMESPACE, &values).expect_err(&path);
        assert!(
            said.contains("neverheardof") && said.contains(&format!("at '{path}'")),
            "{path}: {said}"
        );
    }
}

#[test]
fn a_parent_charts_globals_are_allowed() {
    render(&json!({"global": {"anything": {"at": ["all"]}}}));
}
