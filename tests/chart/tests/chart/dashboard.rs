//! The dashboard queries metrics that exist, by labels that they have, in words that Prometheus understands.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::support::{one, output, program, render, root};

/// The operator's metrics and their labels, as it serves them.
pub(crate) const METRICS: [(&str, &[&str]); 15] = [
    ("leasewarden_stream_held", &["namespace", "name", "stream"]),
    (
        "leasewarden_stream_expiration_timestamp_seconds",
        &["namespace", "name", "stream"],
    ),
    (
        "leasewarden_stream_transitions_total",
        &["namespace", "name", "stream"],
    ),
    (
        "leasewarden_stream_holder_info",
        &["namespace", "name", "stream", "holder"],
    ),
    ("leasewarden_reconcile_total", &["result"]),
    ("leasewarden_reconcile_duration_seconds", &["le"]),
    ("leasewarden_reconcile_errors_total", &["reason"]),
    ("leasewarden_queue_depth", &[]),
    ("leasewarden_status_writes_total", &["reason"]),
    ("leasewarden_status_writes_suppressed_total", &["reason"]),
    ("leasewarden_api_requests_total", &["verb", "resource", "code"]),
    ("leasewarden_watch_up", &["resource"]),
    ("leasewarden_operator_leader", &[]),
    ("leasewarden_build_info", &["version", "revision"]),
    ("leasewarden_events_dropped_total", &[]),
];

/// What Prometheus adds to every series.
const OF_THE_SCRAPE: [&str; 2] = ["job", "instance"];

fn dashboard() -> Value {
    let objects = render(&json!({"metrics": {"dashboard": {"enabled": true}}}));
    let config_map = one(&objects, "ConfigMap");
    assert_eq!(config_map["metadata"]["labels"]["grafana_dashboard"], "1");
    serde_json::from_str(config_map["data"]["leasewarden.json"].as_str().unwrap()).unwrap()
}

fn expressions(dashboard: &Value) -> Vec<String> {
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels
        .iter()
        .filter_map(|panel| panel["targets"].as_array())
        .flatten();
    targets
        .map(|target| target["expr"].as_str().unwrap().to_owned())
        .collect()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty())
}

/// What stands in `by (…)` and in the matchers of series.
fn labels(expression: &str) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    for (_, rest) in expression
        .match_indices("by (")
        .map(|(at, by)| expression.split_at(at + by.len()))
    {
        found.extend(words(rest.split_once(')').unwrap().0));
    }
    for (_, rest) in expression
        .match_indices('{')
        .map(|(at, brace)| expression.split_at(at + brace.len()))
    {
        let matchers = rest.split_once('}').unwrap().0;
        found.extend(matchers.split(',').map(|matcher| words(matcher).next().unwrap()));
    }
    found
}

fn metrics(expression: &str) -> BTreeSet<&str> {
    words(expression)
        .filter(|word| word.starts_with("leasewarden_"))
        .map(|word| word.trim_end_matches("_bucket"))
        .collect()
}

#[test]
fn every_query_is_of_a_metric_that_exists_by_labels_that_it_has() {
    let known: BTreeMap<_, _> = METRICS.into_iter().collect();
    let dashboard = dashboard();
    let mut queried = BTreeSet::new();
    for expression in expressions(&dashboard) {
        let names = metrics(&expression);
        assert_eq!(names.len(), 1, "{expression}");
        for name in names {
            let has = known.get(name).unwrap_or_else(|| panic!("there is no {name}"));
            for label in labels(&expression) {
                assert!(
                    has.contains(&label) || OF_THE_SCRAPE.contains(&label),
                    "{name} has no {label}: {expression}"
                );
            }
            queried.insert(name.to_owned());
        }
        assert!(
            expression.contains("job=\"$job\""),
            "another installation's would count: {expression}"
        );
    }
    let all: BTreeSet<_> = METRICS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(queried, all, "what is shown, and what there is");
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        if let Some(query) = variable["query"]["query"].as_str() {
            assert!(
                metrics(query).iter().all(|name| known.contains_key(name)),
                "{query}"
            );
        }
    }
}

#[test]
fn the_metrics_that_are_queried_are_those_that_the_operator_serves() {
    let code = std::fs::read_to_string(root().join("src/operator/metrics.rs")).unwrap();
    let registered = |name: &str| code.contains(&format!("\"{name}\""));
    for (name, labels) in METRICS {
        let name = name.strip_prefix("leasewarden_").unwrap();
        // The library adds `_total` to counters by itself.
        assert!(registered(name.trim_end_matches("_total")), "{name}");
        for label in labels.iter().filter(|label| **label != "le") {
            assert!(registered(label), "{name}: {label}");
        }
    }
}

#[test]
fn alerts_too_are_of_metrics_that_exist_by_labels_that_they_have() {
    let known: BTreeMap<_, _> = METRICS.into_iter().collect();
    let objects = render(
        &json!({"metrics": {"serviceMonitor": {"enabled": true}, "prometheusRule": {"enabled": true}}}),
    );
    for rule in one(&objects, "PrometheusRule")["spec"]["groups"][0]["rules"]
        .as_array()
        .unwrap()
    {
        let expression = rule["expr"].as_str().unwrap();
        assert!(!metrics(expression).is_empty(), "{expression}");
        for label in labels(expression) {
            let had = metrics(expression)
                .iter()
                .any(|name| known[name].contains(&label));
            assert!(had || OF_THE_SCRAPE.contains(&label), "{label}: {expression}");
        }
    }
}

#[test]
fn prometheus_understands_every_query() {
    for expression in expressions(&dashboard()) {
        let expression = [
            ("$__rate_interval", "5m"),
            ("$__range", "1h"),
            ("$job", "x"),
            ("$namespace", ".*"),
        ]
        .iter()
        .fold(expression, |text, (variable, value)| {
            text.replace(variable, value)
        });
        assert!(!expression.contains('$'), "{expression}");
        let mut promtool = program("promtool");
        promtool.args(["--experimental", "promql", "format", &expression]);
        output(&mut promtool).unwrap_or_else(|said| panic!("{expression}: {said}"));
    }
}

#[test]
fn panels_have_titles_and_places_of_their_own() {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut taken = BTreeSet::new();
    for panel in panels {
        assert!(panel["title"].as_str().is_some_and(|title| !title.is_empty()));
        let at = |key: &str| panel["gridPos"][key].as_u64().unwrap();
        for x in at("x")..at("x") + at("w") {
            for y in at("y")..at("y") + at("h") {
                assert!(x < 24 && taken.insert((x, y)), "{} overlaps", panel["title"]);
            }
        }
    }
    let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len());
}
