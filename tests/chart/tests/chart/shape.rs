//! What the other objects say, value by value. The Pods are in `pods`.

use serde_json::{Value, json};

use crate::support::{FULLNAME, NAMESPACE, all, args, container, name, one, render};

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
