//! What holds for everything that the chart renders, whatever the values.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::{
    cases::cases,
    support::{
        FULLNAME, NAMESPACE, RELEASE, all, chart, kind, name, objects, output, program, read, render,
        template,
    },
};

#[test]
fn helm_lints_it_strictly() {
    for case in cases("other") {
        let file = crate::support::values_file(&case.values);
        let mut helm = program("helm");
        helm.args(["lint", "--strict", "--values"])
            .arg(file.path())
            .arg(chart());
        output(&mut helm).unwrap_or_else(|said| panic!("{}: {said}", case.name));
    }
}

#[test]
fn the_same_values_render_the_same_bytes() {
    for case in cases("other") {
        let [one, two] = [0, 1].map(|_| template(NAMESPACE, &case.values).unwrap());
        assert_eq!(one, two, "{}", case.name);
    }
}

/// The values that a person sets: `metrics.port`, and maps that are free as one.
fn leaves(path: &str, values: &Value, found: &mut BTreeSet<String>) {
    match values {
        Value::Object(map) if !map.is_empty() && !free(path) => {
            for (key, value) in map {
                let path = if path.is_empty() {
                    key.clone()
                } else {
                    format!("{path}.{key}")
                };
                leaves(&path, value, found);
            }
        }
        _ => {
            found.insert(path.to_owned());
        }
    }
}

/// Whether the schema lets anything stand there.
fn free(path: &str) -> bool {
    let mut schema: Value = serde_json::from_str(&read("charts/leasewarden/values.schema.json")).unwrap();
    for key in path.split('.').filter(|key| !key.is_empty()) {
        schema = schema["properties"][key].take();
    }
    schema["additionalProperties"] != json!(false)
}

#[test]
fn every_value_is_set_by_some_case_to_something_else_than_its_default() {
    let defaults: Value = serde_saphyr::from_str(&read("charts/leasewarden/values.yaml")).unwrap();
    let mut missing = BTreeSet::new();
    leaves("", &defaults, &mut missing);
    assert!(missing.len() > 90, "{missing:?}");
    let at = |values: &Value, path: &str| {
        let pointer = format!("/{}", path.replace('.', "/"));
        values.pointer(&pointer).cloned()
    };
    for case in cases("other") {
        missing.retain(|path| match at(&case.values, path) {
            None => true,
            Some(value) => Some(value) == at(&defaults, path),
        });
    }
    assert_eq!(missing, BTreeSet::new(), "no case sets these");
}

#[test]
fn every_object_has_the_standard_labels_and_those_of_the_user() {
    let common = json!({"commonLabels": {"team": "a"}, "commonAnnotations": {"owner": "b"}});
    for case in cases("other") {
        let mut values = case.values.clone();
        values
            .as_object_mut()
            .unwrap()
            .extend(common.as_object().unwrap().clone());
        values.as_object_mut().unwrap().remove("extraObjects");
        for object in render(&values) {
            let (labels, what) = (
                &object["metadata"]["labels"],
                format!("{} {}", kind(&object), name(&object)),
            );
            assert_eq!(object["metadata"]["annotations"]["owner"], "b", "{what}");
            if kind(&object) == "Lease" {
                // The lock's own labels, by which it is watched.
                assert_eq!(labels["app.kubernetes.io/managed-by"], "leasewarden", "{what}");
                continue;
            }
            assert_eq!(labels["team"], "a", "{what}");
            assert_eq!(labels["app.kubernetes.io/instance"], RELEASE, "{what}");
            assert_eq!(labels["app.kubernetes.io/managed-by"], "Helm", "{what}");
            for label in ["name", "component", "version", "part-of"] {
                assert!(
                    labels[format!("app.kubernetes.io/{label}")].is_string(),
                    "{what}: {label}"
                );
            }
            assert_eq!(labels["helm.sh/chart"], "leasewarden-0.1.0", "{what}");
        }
    }
}

#[test]
fn two_releases_share_no_object_but_the_crd() {
    let values = json!({
        "metrics": {"serviceMonitor": {"enabled": true}, "secure": {"enabled": true, "readers": [{"name": "p", "namespace": "m"}]}},
        "worker": {"namespaces": ["shared"], "serviceAccounts": [{"name": "w", "namespace": "shared"}]},
        "flowControl": {"enabled": true},
    });
    let key = |object: &Value| {
        format!(
            "{} {}/{}",
            kind(object),
            object["metadata"]["namespace"].as_str().unwrap_or_default(),
            name(object)
        )
    };
    let of = |namespace: &str| -> BTreeSet<String> {
        objects(&template(namespace, &values).unwrap())
            .iter()
            .map(key)
            .collect()
    };
    let (one, two) = (of("one"), of("two"));
    let shared: Vec<_> = one.intersection(&two).collect();
    assert_eq!(
        shared,
        ["CustomResourceDefinition /changestreamleaders.leasewarden.dev"]
    );
}

#[test]
fn namespaced_mode_renders_nothing_that_belongs_to_the_cluster() {
    for case in cases("other")
        .into_iter()
        .filter(|case| case.values["scope"] == "Namespaced")
    {
        for object in render(&case.values) {
            assert!(
                !kind(&object).starts_with("Cluster"),
                "{}: {}",
                case.name,
                kind(&object)
            );
            // Who installs it needs rights for the CRD; with crds.enabled=false not even those.
            if kind(&object) != "CustomResourceDefinition" {
                assert!(
                    object["metadata"]["namespace"].is_string(),
                    "{}: {}",
                    case.name,
                    name(&object)
                );
            }
        }
    }
    let (one, two) = (render(&json!({"scope": "Namespaced"})), render(&json!({})));
    assert!(all(&one, "ClusterRole").is_empty() && !all(&two, "ClusterRole").is_empty());
}

#[test]
fn nothing_may_read_secrets_or_use_wildcards() {
    for case in cases("other") {
        let objects = render(&case.values);
        for role in all(&objects, "ClusterRole")
            .into_iter()
            .chain(all(&objects, "Role"))
        {
            let text = role["rules"].to_string();
            for word in ["secrets", "\"*\"", "pods", "escalate", "bind", "impersonate"] {
                assert!(
                    !text.contains(word),
                    "{}: {} has {word}: {text}",
                    case.name,
                    name(role)
                );
            }
        }
    }
}

#[test]
fn names_fit_whatever_the_release_is_called() {
    let long = "a.very.long-release.name-that-goes-on-until-nobody-reads";
    let mut helm = program("helm");
    helm.args(["template", &long[..53]])
        .arg(chart())
        .args(["--namespace", NAMESPACE]);
    for object in objects(&output(&mut helm).unwrap()) {
        let dots = kind(&object).starts_with("Cluster") || kind(&object) == "CustomResourceDefinition";
        assert!(
            name(&object).len() <= 63 || dots,
            "{} {}",
            kind(&object),
            name(&object)
        );
        assert!(
            !name(&object).contains('.') || dots,
            "{} {}",
            kind(&object),
            name(&object)
        );
    }
    assert!(render(&json!({})).iter().any(|object| name(object) == FULLNAME));
}

#[test]
fn the_chart_says_what_an_artifact_hub_wants_to_know() {
    let chart: Value = serde_saphyr::from_str(&read("charts/leasewarden/Chart.yaml")).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(chart["appVersion"], version);
    assert_eq!(chart["kubeVersion"], ">=1.32.0-0");
    let annotation = |name: &str| {
        chart["annotations"][format!("artifacthub.io/{name}")]
            .as_str()
            .unwrap()
    };
    let images: Value = serde_saphyr::from_str(annotation("images")).unwrap();
    let pod = render(&json!({}));
    assert_eq!(images[0]["image"], crate::support::container(&pod)["image"]);
    let crds: Value = serde_saphyr::from_str(annotation("crds")).unwrap();
    let crd: Value = serde_saphyr::from_str(&read("charts/leasewarden/files/crd.yaml")).unwrap();
    assert_eq!(crds[0]["name"], crd["metadata"]["name"]);
    assert_eq!(crds[0]["version"], crd["spec"]["versions"][0]["name"]);
    let icon = chart["icon"].as_str().unwrap();
    let path = icon.split_once("/main/").unwrap().1;
    assert!(read(path).starts_with("<svg "), "{path}");
    for link in ["links", "crdsExamples"] {
        serde_saphyr::from_str::<Value>(annotation(link)).unwrap();
    }
}
