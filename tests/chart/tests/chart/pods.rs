//! What the operator's Pods are like, value by value.

use serde_json::{Value, json};

use crate::support::{all, args, container, name, one, render};

#[test]
fn pods_are_restricted_and_their_file_system_is_read_only() {
    let objects = render(&json!({}));
    for (pod, what) in [
        (
            &one(&objects, "Deployment")["spec"]["template"]["spec"],
            "operator",
        ),
        (&one(&objects, "Pod")["spec"], "helm test"),
    ] {
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{what}");
        assert_eq!(pod["securityContext"]["runAsUser"], 65532, "{what}");
        assert_eq!(
            pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault",
            "{what}"
        );
        let context = &pod["containers"][0]["securityContext"];
        assert_eq!(context["allowPrivilegeEscalation"], false, "{what}");
        assert_eq!(context["readOnlyRootFilesystem"], true, "{what}");
        assert_eq!(context["capabilities"], json!({"drop": ["ALL"]}), "{what}");
    }
}

#[test]
fn the_three_probes_ask_the_health_port() {
    let objects = render(&json!({"health": {"port": 9999}}));
    let container = container(&objects);
    for (probe, path) in [
        ("livenessProbe", "/healthz"),
        ("readinessProbe", "/readyz"),
        ("startupProbe", "/healthz"),
    ] {
        assert_eq!(
            container[probe]["httpGet"],
            json!({"path": path, "port": "health"}),
            "{probe}"
        );
        assert!(container[probe]["periodSeconds"].is_u64(), "{probe}");
    }
    assert!(
        container["ports"]
            .as_array()
            .unwrap()
            .iter()
            .any(|p| p["name"] == "health" && p["containerPort"] == 9999)
    );
    assert!(args(&objects).contains(&"--health-probe-bind-address=0.0.0.0:9999"));
}

#[test]
fn resources_and_where_pods_run_are_as_given() {
    let given = json!({
        "resources": {"requests": {"cpu": "1"}}, "nodeSelector": {"a": "b"}, "priorityClassName": "high",
        "tolerations": [{"key": "k", "operator": "Exists"}], "affinity": {"podAntiAffinity": {"x": []}},
    });
    let objects = render(&given);
    assert_eq!(container(&objects)["resources"]["requests"]["cpu"], "1");
    assert_eq!(
        container(&objects)["resources"]["limits"]["memory"],
        "256Mi",
        "defaults that nobody took away stay"
    );
    let pod = &one(&objects, "Deployment")["spec"]["template"]["spec"];
    for key in ["nodeSelector", "priorityClassName", "tolerations", "affinity"] {
        assert_eq!(pod[key], given[key], "{key}");
    }
}

#[test]
fn pods_are_spread_over_nodes_unless_told_otherwise() {
    let spread = |values: Value| {
        one(&render(&values), "Deployment")["spec"]["template"]["spec"]["topologySpreadConstraints"].clone()
    };
    let constraints = spread(json!({}));
    assert_eq!(constraints[0]["topologyKey"], "kubernetes.io/hostname");
    assert_eq!(constraints[0]["whenUnsatisfiable"], "ScheduleAnyway");
    let zone = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"});
    let own = spread(json!({"topologySpreadConstraints": [zone]}));
    assert_eq!(own.as_array().unwrap().len(), 1);
    assert_eq!(own[0]["topologyKey"], "zone");
    assert_eq!(own[0]["labelSelector"], constraints[0]["labelSelector"]);
}

#[test]
fn there_is_a_disruption_budget_from_two_replicas_on() {
    let budget = |values: Value| {
        all(&render(&values), "PodDisruptionBudget")
            .first()
            .map(|b| b["spec"].clone())
    };
    assert_eq!(budget(json!({})).unwrap()["maxUnavailable"], 1);
    assert_eq!(budget(json!({"replicaCount": 1})), None);
    assert_eq!(budget(json!({"podDisruptionBudget": {"enabled": false}})), None);
    let kept = budget(json!({"replicaCount": 3, "podDisruptionBudget": {"minAvailable": 0}})).unwrap();
    assert_eq!(
        (&kept["minAvailable"], &kept["maxUnavailable"]),
        (&json!(0), &Value::Null)
    );
}

#[test]
fn a_rollout_starts_the_successor_first_and_never_two_without_an_election() {
    let strategy =
        |values: Value| one(&render(&values), "Deployment")["spec"]["strategy"]["rollingUpdate"].clone();
    assert_eq!(strategy(json!({})), json!({"maxSurge": 1, "maxUnavailable": 0}));
    let alone = json!({"replicaCount": 1, "operator": {"leaderElection": {"enabled": false}}});
    assert_eq!(strategy(alone), json!({"maxSurge": 0, "maxUnavailable": 1}));
}

#[test]
fn an_image_is_named_by_version_tag_or_digest() {
    let image = |values: Value| container(&render(&json!({"image": values})))["image"].clone();
    let digest = format!("sha256:{}", "0".repeat(64));
    let name = "ghcr.io/leasewarden/leasewarden";
    assert_eq!(image(json!({})), format!("{name}:{}", env!("CARGO_PKG_VERSION")));
    assert_eq!(image(json!({"tag": "x"})), format!("{name}:x"));
    assert_eq!(image(json!({"digest": digest})), format!("{name}@{digest}"));
    assert_eq!(
        image(json!({"tag": "x", "digest": digest})),
        format!("{name}:x@{digest}")
    );
}

#[test]
fn what_users_add_is_there_and_may_use_templates() {
    let values = json!({
        "extraArgs": ["--context={{ .Release.Name }}"], "extraEnv": [{"name": "TZ", "value": "UTC"}],
        "extraVolumes": [{"name": "v", "emptyDir": {}}], "extraVolumeMounts": [{"name": "v", "mountPath": "/v"}],
        "podLabels": {"a": "b"}, "podAnnotations": {"c": "d"}, "deploymentAnnotations": {"e": "f"},
        "extraObjects": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}-x"}}],
    });
    let objects = render(&values);
    let deployment = one(&objects, "Deployment");
    let template = &deployment["spec"]["template"];
    assert_eq!(args(&objects).last(), Some(&"--context=lw"));
    assert!(
        container(&objects)["env"]
            .as_array()
            .unwrap()
            .contains(&json!({"name": "TZ", "value": "UTC"}))
    );
    assert_eq!(template["spec"]["volumes"], values["extraVolumes"]);
    assert_eq!(container(&objects)["volumeMounts"], values["extraVolumeMounts"]);
    assert_eq!(template["metadata"]["labels"]["a"], "b");
    assert_eq!(template["metadata"]["annotations"]["c"], "d");
    assert_eq!(deployment["metadata"]["annotations"]["e"], "f");
    assert_eq!(name(one(&objects, "ConfigMap")), "lw-x");
    // Not even a user's label takes a Pod out of its Deployment.
    let objects = render(
        &json!({"podLabels": {"app.kubernetes.io/name": "other"}, "commonLabels": {"app.kubernetes.io/instance": "x"}}),
    );
    let deployment = one(&objects, "Deployment");
    for (key, value) in deployment["spec"]["selector"]["matchLabels"].as_object().unwrap() {
        assert_eq!(
            deployment["spec"]["template"]["metadata"]["labels"][key], *value,
            "{key}"
        );
    }
}
