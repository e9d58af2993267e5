//! The alerts, as Prometheus reads them: checked and unit-tested by promtool, each of them both firing and silent.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::{NAMESPACE, RELEASE, one, output, program, read, render, root};

/// What the chart renders, as a file of rules.
fn rules(values: &Value) -> Value {
    one(&render(values), "PrometheusRule")["spec"].clone()
}

fn on() -> Value {
    json!({"metrics": {"serviceMonitor": {"enabled": true}, "prometheusRule": {"enabled": true}}})
}

fn names(rules: &Value) -> BTreeSet<String> {
    let rules = rules["groups"][0]["rules"].as_array().unwrap().iter();
    rules
        .map(|rule| rule["alert"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn promtool_accepts_the_rules() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.yaml");
    std::fs::write(&file, rules(&on()).to_string()).unwrap();
    let said = output(
        program("promtool")
            .args(["check", "rules", "--lint=all", "--lint-fatal"])
            .arg(&file),
    )
    .unwrap();
    assert!(said.contains("5 rules found"), "{said}");
}

#[test]
fn each_alert_fires_when_it_should_and_is_silent_when_it_should() {
    let folder = tempfile::tempdir().unwrap();
    let tests = include_str!("alerts.test.yaml");
    std::fs::write(folder.path().join("rules.yaml"), rules(&on()).to_string()).unwrap();
    std::fs::write(folder.path().join("alerts.test.yaml"), tests).unwrap();
    let mut promtool = program("promtool");
    promtool
        .args(["test", "rules", "alerts.test.yaml"])
        .current_dir(&folder);
    output(&mut promtool).unwrap_or_else(|said| panic!("{said}"));

    // Both, for each of them.
    let tests: Value = serde_saphyr::from_str(tests).unwrap();
    let (mut fires, mut silent) = (BTreeSet::new(), BTreeSet::new());
    for test in tests["tests"].as_array().unwrap() {
        for expected in test["alert_rule_test"].as_array().unwrap() {
            let alert = expected["alertname"].as_str().unwrap().to_owned();
            let none = expected["exp_alerts"].as_array().is_none_or(Vec::is_empty);
            if none { &mut silent } else { &mut fires }.insert(alert);
        }
    }
    assert_eq!(fires, names(&rules(&on())));
    assert_eq!(silent, fires);
}

#[test]
fn each_alert_leads_to_a_runbook_that_exists_and_no_runbook_is_left_over() {
    let rules = rules(&on());
    for rule in rules["groups"][0]["rules"].as_array().unwrap() {
        let url = rule["annotations"]["runbook_url"].as_str().unwrap();
        let (_, path) = url.split_once("/blob/main/").unwrap();
        let page = read(path);
        let alert = rule["alert"].as_str().unwrap();
        assert!(page.starts_with(&format!("# {alert}\n")), "{path}");
        for part in ["## What it means", "## What to do"] {
            assert!(page.contains(part), "{path} has no {part}");
        }
        for key in ["summary", "description"] {
            assert!(
                rule["annotations"][key]
                    .as_str()
                    .is_some_and(|text| !text.is_empty()),
                "{alert}: {key}"
            );
        }
        assert!(["info", "warning", "critical"].contains(&rule["labels"]["severity"].as_str().unwrap()));
    }
    let pages = std::fs::read_dir(root().join("docs/runbooks")).unwrap();
    let pages: BTreeSet<_> = pages
        .map(|entry| {
            entry
                .unwrap()
                .path()
                .file_stem()
                .unwrap()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    assert_eq!(pages, names(&rules));
}

#[test]
fn alerts_select_what_the_monitors_label() {
    for kind in ["serviceMonitor", "podMonitor"] {
        let objects =
            render(&json!({"metrics": {kind: {"enabled": true}, "prometheusRule": {"enabled": true}}}));
        let monitor = objects
            .iter()
            .find(|o| o["kind"].as_str().unwrap().ends_with("Monitor"))
            .unwrap();
        let spec = &monitor["spec"];
        let endpoint = if kind == "podMonitor" {
            &spec["podMetricsEndpoints"][0]
        } else {
            &spec["endpoints"][0]
        };
        let job = json!({"targetLabel": "job", "replacement": format!("{NAMESPACE}/{RELEASE}-leasewarden")});
        assert_eq!(endpoint["relabelings"][0], job);
        let rules = one(&objects, "PrometheusRule")["spec"].clone();
        for rule in rules["groups"][0]["rules"].as_array().unwrap() {
            let selector = format!("job=\"{}\"", job["replacement"].as_str().unwrap());
            let expr = rule["expr"].as_str().unwrap();
            assert_eq!(
                expr.matches("leasewarden_").count(),
                expr.matches(&selector).count(),
                "{expr}"
            );
        }
    }
}

#[test]
fn alerts_can_be_left_out_and_labelled() {
    let values = json!({"metrics": {"prometheusRule": {
        "enabled": true, "job": "mine", "alertLabels": {"team": "a", "severity": "page"},
        "disabled": ["LeasewardenNoLeader"], "runbookUrl": "https://example.com/",
    }}});
    let rules = rules(&values);
    assert_eq!(names(&rules).len(), 4);
    assert!(!names(&rules).contains("LeasewardenNoLeader"));
    for rule in rules["groups"][0]["rules"].as_array().unwrap() {
        assert_eq!(
            rule["labels"],
            json!({"job": "mine", "team": "a", "severity": "page"})
        );
        let url = format!("https://example.com/{}.md", rule["alert"].as_str().unwrap());
        assert_eq!(rule["annotations"]["runbook_url"], url);
        assert!(rule["expr"].as_str().unwrap().contains("job=\"mine\""));
    }
}
