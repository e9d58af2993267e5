//! Values that turn something on (or off), each by itself, and everything at once. What renders must render for all of
//! them, and the API server must take it. A test in `rendering` holds this list against values.yaml: a value that no case
//! sets is a value that nothing has ever rendered.

use serde_json::{Value, json};

pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) values: Value,
}

fn case(name: &'static str, values: Value) -> Case {
    Case { name, values }
}

/// `other` is a namespace that exists besides the release's.
#[allow(clippy::too_many_lines, reason = "a table")]
pub(crate) fn cases(other: &str) -> Vec<Case> {
    let monitor = |kind: &str| {
        let mut metrics = json!({
            "enabled": true, "namespace": other, "labels": {"release": "prometheus"}, "interval": "1m",
            "scrapeTimeout": "10s",
            "relabelings": [{"targetLabel": "cluster", "replacement": "c"}],
            "metricRelabelings": [{"action": "labeldrop", "regex": "pod"}],
            "tlsConfig": {"serverName": "x", "ca": {"configMap": {"name": "ca", "key": "ca.crt"}}},
            "authorization": {"credentials": {"name": "token", "key": "token"}},
        });
        if kind == "plain" {
            metrics = json!({"enabled": true});
        }
        metrics
    };
    let constraint = json!({"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"});
    let secret = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    vec![
        case("defaults", json!({})),
        case("namespaced", json!({"scope": "Namespaced"})),
        case(
            "two namespaces",
            json!({"scope": "Namespaced", "namespaces": [other, "default"]}),
        ),
        case("names", json!({"nameOverride": "other"})),
        case("full name", json!({"fullnameOverride": "a-name.with.dots"})),
        case(
            "globals of a parent chart",
            json!({"global": {"imageRegistry": "example.com", "x": {"y": 1}}}),
        ),
        case(
            "labels and annotations everywhere",
            json!({
                "commonLabels": {"team": "a"}, "commonAnnotations": {"owner": "b"}, "podLabels": {"mesh": "no"},
                "podAnnotations": {"c": "d"}, "deploymentAnnotations": {"e": "f"},
                "serviceAccount": {"annotations": {"g": "h"}}, "metrics": {"service": {"annotations": {"i": "j"}}},
            }),
        ),
        case("no crd", json!({"crds": {"enabled": false}})),
        case(
            "a crd that goes with the release",
            json!({"crds": {"keep": false}}),
        ),
        case("one replica", json!({"replicaCount": 1})),
        case(
            "one replica without election",
            json!({"replicaCount": 1, "operator": {"leaderElection": {"enabled": false}}}),
        ),
        case("no replica", json!({"replicaCount": 0})),
        case(
            "image by digest",
            json!({
                "image": {"repository": "example.com/lw", "tag": "1", "digest": secret, "pullPolicy": "Always"},
                "imagePullSecrets": [{"name": "registry"}],
            }),
        ),
        case(
            "every setting of the operator",
            json!({"operator": {
                "discovery": false, "statusPolicy": "TransitionsOnly", "statusWritesPerSecond": 5, "events": false,
                "leaderElection": {"leaseName": "elected", "ttl": "30s"},
                "log": {"format": "text", "filter": "leasewarden=debug,info"},
            }}),
        ),
        case(
            "a service account of another's",
            json!({"serviceAccount": {"create": false, "name": "theirs"}}),
        ),
        case(
            "no roles",
            json!({"rbac": {"create": false, "aggregate": false}, "worker": {"role": {"create": false}}}),
        ),
        case(
            "aggregated roles, asked for",
            json!({"rbac": {"aggregate": true}}),
        ),
        case(
            "workers",
            json!({"worker": {
                "role": {"watch": false}, "namespaces": [other],
                "serviceAccounts": [{"name": "w"}, {"name": "v", "namespace": other}],
            }}),
        ),
        case(
            "named leases",
            json!({"worker": {
                "serviceAccounts": [{"name": "w"}, {"name": "v", "namespace": other}],
                "leases": [
                    {"name": "orders"},
                    {"name": "orders-xw7ukzxksfz", "stream": "Orders"},
                    {"name": "app.orders", "stream": "orders", "namespace": other},
                ],
            }}),
        ),
        case(
            "named leases as objects",
            json!({"worker": {"leases": [{"name": "orders"}], "leasesByHook": false}}),
        ),
        case("no metrics", json!({"metrics": {"enabled": false}})),
        case(
            "another port",
            json!({"metrics": {"port": 9090}, "health": {"port": 9091}}),
        ),
        case("another address", json!({"bindAddress": "[::]"})),
        case(
            "metrics without a service",
            json!({"metrics": {"service": {"enabled": false}}}),
        ),
        case(
            "secure metrics",
            json!({"metrics": {
                "secure": {
                    "enabled": true, "certificateSecret": "cert",
                    "readers": [{"name": "prometheus", "namespace": "monitoring"}],
                },
                "serviceMonitor": monitor("plain"),
            }}),
        ),
        case(
            "a service monitor",
            json!({"metrics": {"serviceMonitor": monitor("plain")}}),
        ),
        case(
            "a service monitor, in full",
            json!({"metrics": {"serviceMonitor": monitor("full"), "secure": {"enabled": true}}}),
        ),
        case(
            "a pod monitor",
            json!({"metrics": {"podMonitor": monitor("plain"), "service": {"enabled": false}}}),
        ),
        case(
            "a pod monitor, in full",
            json!({"metrics": {"podMonitor": monitor("full"), "secure": {"enabled": true}}}),
        ),
        case(
            "alerts",
            json!({"metrics": {"serviceMonitor": monitor("plain"), "prometheusRule": {"enabled": true}}}),
        ),
        case(
            "alerts, in full",
            json!({"metrics": {"prometheusRule": {
                "enabled": true, "namespace": other, "labels": {"release": "prometheus"}, "job": "mine",
                "alertLabels": {"team": "a"}, "runbookUrl": "https://example.com/runbooks/",
                "disabled": ["LeasewardenLeaderFlapping"],
            }}}),
        ),
        case(
            "a dashboard",
            json!({"metrics": {"dashboard": {
                "enabled": true, "namespace": other, "labels": {"dashboards": "yes"},
                "annotations": {"grafana_folder": "Locks"},
            }}}),
        ),
        case(
            "probes and resources",
            json!({
                "livenessProbe": {"periodSeconds": 30, "httpGet": {"path": "/"}}, "readinessProbe": {"periodSeconds": 30},
                "startupProbe": {"periodSeconds": 5},
                "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}, "terminationGracePeriodSeconds": 60,
            }),
        ),
        case(
            "security contexts of another platform",
            json!({
                "podSecurityContext": {"runAsUser": null, "runAsGroup": null, "fsGroup": null},
                "securityContext": {"procMount": "Default"},
            }),
        ),
        case(
            "a budget by what must stay",
            json!({"replicaCount": 3, "podDisruptionBudget": {"minAvailable": 2}}),
        ),
        case(
            "a budget in percent",
            json!({"replicaCount": 3, "podDisruptionBudget": {"maxUnavailable": "50%"}}),
        ),
        case("no budget", json!({"podDisruptionBudget": {"enabled": false}})),
        case(
            "where pods run",
            json!({
                "topologySpreadConstraints": [constraint], "nodeSelector": {"kubernetes.io/os": "linux"},
                "tolerations": [{"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}],
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}]}
                ]}}},
                "priorityClassName": "system-cluster-critical",
            }),
        ),
        case("a network policy", json!({"networkPolicy": {"enabled": true}})),
        case(
            "a network policy without metrics",
            json!({"networkPolicy": {"enabled": true}, "metrics": {"enabled": false}}),
        ),
        case(
            "a network policy, in full",
            json!({"networkPolicy": {
                "enabled": true,
                "metricsFrom": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
                "apiServerPorts": [8443], "apiServerCIDRs": ["10.0.0.1/32", "fd00::1/128"],
                "extraIngress": [{"ports": [{"port": 9999}]}], "extraEgress": [{"ports": [{"port": 4317}]}],
            }}),
        ),
        case(
            "flow control",
            json!({"flowControl": {
                "enabled": true, "serviceAccounts": [{"name": "*", "namespace": other}], "matchingPrecedence": 500,
                "nominalConcurrencyShares": 30, "lendablePercent": 10, "borrowingLimitPercent": 200, "queues": 32,
                "queueLengthLimit": 10, "handSize": 4,
            }}),
        ),
        case("no helm test", json!({"tests": {"enabled": false}})),
        case(
            "more of everything",
            json!({
                "extraArgs": ["--context={{ .Release.Name }}"], "extraEnv": [{"name": "TZ", "value": "UTC"}],
                "extraVolumes": [{"name": "tmp", "emptyDir": {}}],
                "extraVolumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
                "extraObjects": [
                    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": {"of": "{{ .Release.Name }}"}},
                    "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ include \"leasewarden.fullname\" . }}-two\n",
                ],
            }),
        ),
        case(
            "everything on",
            json!({
                "replicaCount": 3, "commonLabels": {"team": "a"}, "commonAnnotations": {"owner": "b"},
                "worker": {"serviceAccounts": [{"name": "w"}], "leases": [{"name": "orders"}]},
                "metrics": {
                    "secure": {"enabled": true}, "serviceMonitor": {"enabled": true},
                    "prometheusRule": {"enabled": true}, "dashboard": {"enabled": true},
                },
                "networkPolicy": {"enabled": true}, "flowControl": {"enabled": true},
            }),
        ),
        case(
            "everything on, namespaced",
            json!({
                "scope": "Namespaced", "namespaces": [other], "replicaCount": 3,
                "worker": {"serviceAccounts": [{"name": "w", "namespace": other}]},
                "metrics": {
                    "podMonitor": {"enabled": true}, "prometheusRule": {"enabled": true}, "dashboard": {"enabled": true},
                },
                "networkPolicy": {"enabled": true},
            }),
        ),
    ]
}
