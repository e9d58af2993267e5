//! What the objects say, value by value.

use serde_json::{Value, json};

use crate::support::{FULLNAME, NAMESPACE, all, args, container, name, one, render};

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
fn the_crd_is_a_template_that_can_be_left_out_and_is_kept() {
    let crds = |values: Value| {
        let objects = render(&values);
        all(&objects, "CustomResourceDefinition")
            .into_iter()
            .cloned()
            .collect::<Vec<_>>()
    };
    let keep = "helm.sh/resource-policy";
    let crd = &crds(json!({}))[0];
    assert_eq!(crd["metadata"]["annotations"][keep], "keep");
    let goes = &crds(json!({"crds": {"keep": false}}))[0];
    assert!(goes["metadata"]["annotations"].get(keep).is_none());
    assert!(crds(json!({"crds": {"enabled": false}})).is_empty());
    // Nothing is lost on the way through the template.
    let own: Value = serde_saphyr::from_str(&crate::support::read(
        "crds/changestreamleaders.leasewarden.dev.yaml",
    ))
    .unwrap();
    assert_eq!(crd["spec"], own["spec"]);
    assert!(
        !crate::support::chart().join("crds").exists(),
        "a folder crds/ and the template refuse to install together"
    );
}

#[test]
fn a_network_policy_lets_in_probes_and_scrapes_and_out_to_the_api_server_and_names() {
    let policy = |values: Value| {
        let objects = render(&values);
        all(&objects, "NetworkPolicy")
            .first()
            .map(|policy| policy["spec"].clone())
    };
    assert_eq!(policy(json!({})), None);
    let spec = policy(json!({"networkPolicy": {"enabled": true}})).unwrap();
    assert_eq!(spec["policyTypes"], json!(["Ingress", "Egress"]));
    // The same Pods as the Deployment's.
    let objects = render(&json!({}));
    assert_eq!(
        spec["podSelector"],
        one(&objects, "Deployment")["spec"]["selector"]
    );
    let ingress = json!([
        {"ports": [{"port": "health", "protocol": "TCP"}]},
        {"ports": [{"port": "metrics", "protocol": "TCP"}], "from": [{"namespaceSelector": {}}]},
    ]);
    assert_eq!(spec["ingress"], ingress);
    let egress = json!([
        {"ports": [{"port": 443, "protocol": "TCP"}, {"port": 6443, "protocol": "TCP"}]},
        {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]},
    ]);
    assert_eq!(spec["egress"], egress);
    let narrow =
        policy(json!({"networkPolicy": {"enabled": true, "apiServerCIDRs": ["10.0.0.1/32"]}})).unwrap();
    assert_eq!(
        narrow["egress"][0]["to"],
        json!([{"ipBlock": {"cidr": "10.0.0.1/32"}}])
    );
}

#[test]
fn monitors_select_the_service_and_the_pods_and_keep_the_streams_namespaces() {
    let objects = render(&json!({"metrics": {"serviceMonitor": {"enabled": true}}}));
    let (monitor, service) = (one(&objects, "ServiceMonitor"), one(&objects, "Service"));
    let wanted = monitor["spec"]["selector"]["matchLabels"].as_object().unwrap();
    assert!(
        wanted
            .iter()
            .all(|(key, value)| service["metadata"]["labels"][key] == *value)
    );
    assert_eq!(
        service["spec"]["selector"],
        one(&objects, "Deployment")["spec"]["selector"]["matchLabels"]
    );
    assert_eq!(
        monitor["spec"]["namespaceSelector"]["matchNames"],
        json!([NAMESPACE])
    );
    let endpoint = &monitor["spec"]["endpoints"][0];
    assert_eq!(endpoint["port"], service["spec"]["ports"][0]["name"]);
    assert_eq!(endpoint["honorLabels"], true);
    assert!(endpoint.get("scheme").is_none());

    let objects = render(&json!({"metrics": {"podMonitor": {"enabled": true}}}));
    let monitor = one(&objects, "PodMonitor");
    assert_eq!(
        monitor["spec"]["selector"],
        one(&objects, "Deployment")["spec"]["selector"]
    );
    assert_eq!(
        monitor["spec"]["podMetricsEndpoints"][0]["port"],
        container(&objects)["ports"][0]["name"]
    );
}

#[test]
fn a_monitor_speaks_tls_with_a_token_where_metrics_are_secure() {
    let secure = json!({"metrics": {"secure": {"enabled": true}, "serviceMonitor": {"enabled": true}}});
    let objects = render(&secure);
    let endpoint = &one(&objects, "ServiceMonitor")["spec"]["endpoints"][0];
    assert_eq!(endpoint["scheme"], "https");
    assert_eq!(endpoint["tlsConfig"], json!({"insecureSkipVerify": true}));
    assert!(endpoint["bearerTokenFile"].is_string());
    assert!(args(&objects).contains(&"--metrics-secure=true"));
    let own = json!({"metrics": {"secure": {"enabled": true, "certificateSecret": "c"}, "podMonitor": {
        "enabled": true, "authorization": {"credentials": {"name": "t", "key": "k"}}, "tlsConfig": {"serverName": "s"},
    }}});
    let objects = render(&own);
    let endpoint = &one(&objects, "PodMonitor")["spec"]["podMetricsEndpoints"][0];
    assert_eq!(endpoint["tlsConfig"], json!({"serverName": "s"}));
    assert_eq!(endpoint["authorization"]["credentials"]["name"], "t");
    let pod = &one(&objects, "Deployment")["spec"]["template"]["spec"];
    assert_eq!(pod["volumes"][0]["secret"]["secretName"], "c");
    let mount = pod["containers"][0]["volumeMounts"][0]["mountPath"]
        .as_str()
        .unwrap();
    assert!(args(&objects).contains(&format!("--metrics-cert-dir={mount}").as_str()));
}

#[test]
fn monitors_are_never_skipped_silently() {
    // `helm template` knows no cluster, and so no ServiceMonitor: what is asked for is there all the same.
    for kind in ["serviceMonitor", "podMonitor"] {
        let values = json!({"metrics": {kind: {"enabled": true}, "prometheusRule": {"enabled": true}}});
        let objects = render(&values);
        assert_eq!(all(&objects, "PrometheusRule").len(), 1);
        assert_eq!(
            all(&objects, "ServiceMonitor").len() + all(&objects, "PodMonitor").len(),
            1
        );
    }
}

#[test]
fn lock_traffic_has_a_priority_level_of_its_own() {
    assert!(all(&render(&json!({})), "FlowSchema").is_empty());
    let objects = render(&json!({
        "flowControl": {"enabled": true, "serviceAccounts": [{"name": "*", "namespace": "shop"}]},
        "worker": {"serviceAccounts": [{"name": "w"}]},
    }));
    let (schema, level) = (
        one(&objects, "FlowSchema"),
        one(&objects, "PriorityLevelConfiguration"),
    );
    assert_eq!(schema["spec"]["priorityLevelConfiguration"]["name"], name(level));
    let builtin = [
        "leader-election",
        "node-high",
        "system",
        "workload-high",
        "workload-low",
        "global-default",
        "catch-all",
    ];
    assert!(!builtin.contains(&name(level)));
    let subjects: Vec<_> = schema["spec"]["rules"][0]["subjects"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| {
            let account = &s["serviceAccount"];
            format!(
                "{}/{}",
                account["namespace"].as_str().unwrap(),
                account["name"].as_str().unwrap()
            )
        })
        .collect();
    assert_eq!(
        subjects,
        [
            format!("{NAMESPACE}/{FULLNAME}"),
            format!("{NAMESPACE}/w"),
            "shop/*".to_owned()
        ]
    );
    let rules = &schema["spec"]["rules"][0]["resourceRules"][0];
    assert_eq!(
        rules["resources"],
        json!(["leases"]),
        "no traffic but that of locks"
    );
    assert_eq!(level["spec"]["limited"]["limitResponse"]["type"], "Queue");
}

#[test]
fn leases_made_beforehand_carry_the_locks_own_labels_and_are_nobodys_to_delete() {
    let leases = json!([{"name": "orders"}, {"name": "orders-xw7ukzxksfz", "stream": "Orders"}]);
    for hook in [true, false] {
        let objects = render(&json!({"worker": {"leases": leases, "leasesByHook": hook}}));
        let made = all(&objects, "Lease");
        let streams: Vec<_> = made
            .iter()
            .map(|l| &l["metadata"]["annotations"]["leasewarden.dev/stream"])
            .collect();
        assert_eq!(streams, ["orders", "Orders"]);
        for lease in made {
            let metadata = &lease["metadata"];
            let labels = json!({"app.kubernetes.io/managed-by": "leasewarden", "app.kubernetes.io/component": "stream-lock"});
            assert_eq!(metadata["labels"], labels);
            assert_eq!(metadata["annotations"]["helm.sh/resource-policy"], "keep");
            assert_eq!(metadata["annotations"]["helm.sh/hook"].is_string(), hook);
            let policy = metadata["annotations"]["helm.sh/hook-delete-policy"]
                .as_str()
                .unwrap_or_default();
            assert!(
                !policy.contains("before-hook-creation") && !policy.contains("hook-succeeded"),
                "{policy}"
            );
            assert_eq!(
                lease["spec"],
                json!({}),
                "who holds it is not for the chart to say"
            );
        }
    }
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

#[test]
fn helm_test_runs_the_selftest_and_leaves_nothing() {
    let objects = render(&json!({}));
    let pod = one(&objects, "Pod");
    assert_eq!(
        pod["spec"]["containers"][0]["args"],
        json!(["selftest", format!("--namespace={NAMESPACE}")])
    );
    assert_eq!(
        pod["spec"]["containers"][0]["image"],
        container(&objects)["image"]
    );
    assert_eq!(pod["spec"]["restartPolicy"], "Never");
    let hooks: Vec<_> = objects
        .iter()
        .filter(|o| o["metadata"]["annotations"]["helm.sh/hook"] == "test")
        .collect();
    assert_eq!(hooks.len(), 4);
    for hook in hooks {
        let policy = hook["metadata"]["annotations"]["helm.sh/hook-delete-policy"]
            .as_str()
            .unwrap();
        assert!(policy.contains("hook-succeeded"), "{policy}");
    }
    assert!(all(&render(&json!({"tests": {"enabled": false}})), "Pod").is_empty());
}

#[test]
fn built_in_roles_cover_our_kind_and_leave_the_status_to_the_operator() {
    let objects = render(&json!({}));
    let for_people: Vec<_> = all(&objects, "ClusterRole")
        .into_iter()
        .filter(|role| role["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-admin"] == "true")
        .collect();
    let verbs = |to: &str| -> Vec<&str> {
        let label = format!("rbac.authorization.k8s.io/aggregate-to-{to}");
        let roles = for_people
            .iter()
            .filter(|role| role["metadata"]["labels"][&label] == "true");
        let mut verbs: Vec<_> = roles
            .flat_map(|role| role["rules"].as_array().unwrap())
            .filter(|rule| rule["resources"] == json!(["changestreamleaders"]))
            .flat_map(|rule| rule["verbs"].as_array().unwrap())
            .map(|verb| verb.as_str().unwrap())
            .collect();
        verbs.sort_unstable();
        verbs
    };
    assert_eq!(verbs("view"), ["get", "list", "watch"]);
    let all = [
        "create",
        "delete",
        "deletecollection",
        "get",
        "list",
        "patch",
        "update",
        "watch",
    ];
    assert_eq!(verbs("edit"), all);
    assert_eq!(verbs("admin"), all);
    for role in for_people {
        for rule in role["rules"].as_array().unwrap() {
            let status = rule["resources"].to_string().contains("status");
            assert!(!status || rule["verbs"] == json!(["get"]), "{rule}");
        }
    }
}

/// Whoever installs without Helm gets the same.
#[test]
fn the_documented_permissions_are_those_of_the_chart() {
    let documented = crate::support::objects(&crate::support::read("docs/permissions.yaml"));
    let in_the_page = |name: &str| {
        documented
            .iter()
            .find(|role| role["metadata"]["name"] == name)
            .unwrap()["rules"]
            .clone()
    };
    let values =
        json!({"scope": "Namespaced", "operator": {"leaderElection": {"leaseName": "leasewarden-operator"}}});
    let objects = render(&values);
    let in_the_chart = |wanted: &str| {
        let roles = all(&objects, "Role");
        roles.into_iter().find(|role| name(role) == wanted).unwrap()["rules"].clone()
    };
    assert_eq!(
        in_the_page("leasewarden-worker"),
        in_the_chart("lw-leasewarden-worker")
    );
    assert_eq!(
        in_the_page("leasewarden-operator"),
        in_the_chart(&format!("lw-leasewarden.{NAMESPACE}"))
    );
    assert_eq!(
        in_the_page("leasewarden-operator-election"),
        in_the_chart("lw-leasewarden-election")
    );
}
