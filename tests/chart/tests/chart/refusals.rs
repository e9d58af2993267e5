//! Combinations that cannot work are refused before anything is installed, each with what to do.

use serde_json::json;

use crate::support::{NAMESPACE, read, render, template};

#[test]
#[allow(clippy::too_many_lines, reason = "a table")]
fn each_combination_that_cannot_work_is_refused_by_name() {
    let authorization = json!({"credentials": {"name": "t", "key": "k"}});
    let table = [
        (json!({"namespaces": ["a"]}), "namespaces: needs scope=Namespaced"),
        (
            json!({"scope": "Namespaced", "metrics": {"secure": {"enabled": true}}}),
            "metrics.secure.enabled: needs scope=Cluster",
        ),
        (
            json!({"scope": "Namespaced", "rbac": {"aggregate": true}}),
            "rbac.aggregate: needs scope=Cluster",
        ),
        (
            json!({"replicaCount": 2, "operator": {"leaderElection": {"enabled": false}}}),
            "replicaCount: more than 1 needs operator.leaderElection.enabled=true",
        ),
        (
            json!({"serviceAccount": {"create": false}}),
            "serviceAccount.name: must be given",
        ),
        (
            json!({"metrics": {"port": 8081}}),
            "metrics.port: must differ from health.port",
        ),
        (
            json!({"metrics": {"enabled": false, "serviceMonitor": {"enabled": true}}}),
            "metrics.serviceMonitor.enabled: needs metrics.enabled=true",
        ),
        (
            json!({"metrics": {"enabled": false, "podMonitor": {"enabled": true}}}),
            "metrics.podMonitor.enabled: needs metrics.enabled=true",
        ),
        (
            json!({"metrics": {"enabled": false, "prometheusRule": {"enabled": true, "job": "x"}}}),
            "metrics.prometheusRule.enabled: needs metrics.enabled=true",
        ),
        (
            json!({"metrics": {"enabled": false, "dashboard": {"enabled": true}}}),
            "metrics.dashboard.enabled: needs metrics.enabled=true",
        ),
        (
            json!({"metrics": {"enabled": false, "secure": {"enabled": true}}}),
            "metrics.secure.enabled: needs metrics.enabled=true",
        ),
        (
            json!({"metrics": {"serviceMonitor": {"enabled": true}, "podMonitor": {"enabled": true}}}),
            "metrics.podMonitor.enabled: not together with metrics.serviceMonitor.enabled",
        ),
        (
            json!({"metrics": {"serviceMonitor": {"enabled": true}, "service": {"enabled": false}}}),
            "metrics.serviceMonitor.enabled: needs metrics.service.enabled=true",
        ),
        (
            json!({"metrics": {"podMonitor": {"enabled": true}, "secure": {"enabled": true}}}),
            "metrics.podMonitor.authorization: must be given with metrics.secure.enabled=true",
        ),
        (
            json!({"metrics": {"prometheusRule": {"enabled": true}}}),
            "metrics.prometheusRule.job: must be given",
        ),
        (
            json!({"metrics": {
                "prometheusRule": {"enabled": true, "job": "x"},
                "podMonitor": {"enabled": true, "authorization": authorization},
            }}),
            "metrics.prometheusRule.job: not together with serviceMonitor or podMonitor",
        ),
        (
            json!({"podDisruptionBudget": {"minAvailable": 1, "maxUnavailable": 1}}),
            "podDisruptionBudget: minAvailable or maxUnavailable, not both",
        ),
        (
            json!({"podDisruptionBudget": {"minAvailable": 2}}),
            "podDisruptionBudget.minAvailable: 2 of 2 replicas lets no node be drained",
        ),
        (
            json!({"podDisruptionBudget": {"minAvailable": "100%"}}),
            "podDisruptionBudget.minAvailable: 100% of 2 replicas lets no node be drained",
        ),
        (
            json!({"podDisruptionBudget": {"maxUnavailable": 0}}),
            "podDisruptionBudget.maxUnavailable: 0 lets no node be drained",
        ),
        (
            json!({"worker": {"role": {"create": false}, "namespaces": ["a"]}}),
            "worker.namespaces: needs worker.role.create=true",
        ),
        (
            json!({"worker": {"role": {"create": false}, "serviceAccounts": [{"name": "w"}]}}),
            "worker.serviceAccounts: needs worker.role.create=true",
        ),
        (
            json!({"worker": {"leases": [{"name": "a"}, {"name": "a"}]}}),
            "worker.leases: leasewarden-system/a is listed twice",
        ),
        (
            json!({"worker": {"leases": [{"name": "orders-xw7ukzxksfz"}]}}),
            "worker.leases: orders-xw7ukzxksfz needs its stream",
        ),
        (
            json!({"worker": {"leases": [{"name": "app.orders"}]}}),
            "worker.leases: app.orders needs its stream",
        ),
        (
            json!({"worker": {"leases": [{"name": "a".repeat(53)}]}}),
            "needs its stream",
        ),
        (
            json!({"worker": {"leases": [{"name": "a"}], "serviceAccounts": [{"name": "w", "namespace": "shop"}]}}),
            "worker.leases: names no Lease in namespace shop",
        ),
        (
            json!({"flowControl": {"enabled": true}}),
            "flowControl.enabled: needs worker.serviceAccounts or flowControl.serviceAccounts",
        ),
        (
            json!({"flowControl": {"handSize": 65}}),
            "flowControl.handSize: at most flowControl.queues",
        ),
        (
            json!({"extraArgs": ["--namespace=a"]}),
            "extraArgs: --namespace is set by the chart's own values",
        ),
        (
            json!({"extraArgs": ["-na"]}),
            "extraArgs: -n is set by the chart's own values",
        ),
        (
            json!({"extraEnv": [{"name": "LEASEWARDEN_NAMESPACE", "value": "a"}]}),
            "extraEnv: LEASEWARDEN_NAMESPACE is set by the chart's own values",
        ),
        (
            json!({"extraEnv": [{"name": "POD_NAME"}]}),
            "extraEnv: POD_NAME is set by the chart's own values",
        ),
    ];
    let mut all = String::new();
    for (values, says) in &table {
        let said = template(NAMESPACE, values).expect_err(says);
        assert!(said.contains(says), "{values}: {said}");
        all += &said;
    }
    // Each refusal that the chart has is reached by a row above.
    let written = read("charts/leasewarden/templates/_refusals.tpl");
    let texts = written
        .split("append $no ")
        .skip(1)
        .map(|rest| rest.split('"').nth(1).unwrap());
    for text in texts {
        // What is filled in stands between the pieces; the longest is its own.
        let pieces = text.split("%s").flat_map(|piece| piece.split("%v"));
        let piece = pieces.max_by_key(|piece| piece.len()).unwrap();
        assert!(all.contains(piece), "no row reaches {text:?}");
    }
}

#[test]
fn all_reasons_are_told_at_once() {
    let values = json!({"namespaces": ["a"], "metrics": {"port": 8081}});
    let said = template(NAMESPACE, &values).unwrap_err();
    assert!(
        said.contains("namespaces: needs") && said.contains("metrics.port: must differ"),
        "{said}"
    );
}

#[test]
fn what_looks_alike_and_works_is_not_refused() {
    for values in [
        json!({"replicaCount": 1, "podDisruptionBudget": {"minAvailable": 1}}),
        json!({"replicaCount": 3, "podDisruptionBudget": {"minAvailable": "50%"}}),
        json!({"extraArgs": ["--namespaces-of-another=1"]}),
        json!({"worker": {"leases": [{"name": "a"}, {"name": "a", "namespace": "shop"}]}}),
        json!({"worker": {"leases": [{"name": "orders-xw7ukzxksfz", "stream": "Orders"}]}}),
    ] {
        render(&values);
    }
}

#[test]
fn an_old_kubernetes_is_refused() {
    let mut helm = crate::support::program("helm");
    helm.args(["template", "lw"])
        .arg(crate::support::chart())
        .args(["--kube-version", "1.31.0"]);
    let said = crate::support::output(&mut helm).unwrap_err();
    assert!(said.contains(">=1.32.0-0"), "{said}");
}
