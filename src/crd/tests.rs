//! What people and tools rely on in the installed schema.

use serde_json::Value;

use super::*;

fn version() -> Value {
    serde_json::to_value(definition()).unwrap()["spec"]["versions"][0].clone()
}

fn walk(schema: &Value, path: &str, visit: &mut dyn FnMut(&str, &Value)) {
    visit(path, schema);
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        walk(property, &format!("{path}.{name}"), visit);
    }
    if schema["items"].is_object() {
        walk(&schema["items"], &format!("{path}[]"), visit);
    }
}

#[test]
fn the_schema_is_structural_and_pruned() {
    let text = serde_json::to_string(&definition()).unwrap();
    assert!(!text.contains("preserve-unknown-fields") && !text.contains("$ref"));
    walk(
        &version()["schema"]["openAPIV3Schema"],
        "",
        &mut |path, schema| {
            assert!(schema["type"].is_string(), "{path} has no type");
            assert!(
                schema["anyOf"].is_null() && schema["oneOf"].is_null() && schema["allOf"].is_null(),
                "{path}"
            );
            assert!(schema["additionalProperties"].is_null(), "{path}");
        },
    );
}

#[test]
fn every_field_is_explained() {
    walk(
        &version()["schema"]["openAPIV3Schema"],
        "",
        &mut |path, schema| {
            let text = schema["description"].as_str().unwrap_or_default();
            let root = [".spec", ".status"].iter().any(|p| path.starts_with(p));
            assert!(!root || text.len() > 20, "{path}: {text:?}");
            assert!(!text.contains('\n'), "{path} keeps the line breaks of the source");
        },
    );
}

#[test]
fn the_columns_stay_true() {
    let columns: Vec<String> = version()["additionalPrinterColumns"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| {
            format!(
                "{} {} {} {}",
                c["name"].as_str().unwrap(),
                c["type"].as_str().unwrap(),
                c["priority"].as_i64().unwrap_or(0),
                c["jsonPath"].as_str().unwrap()
            )
        })
        .collect();
    assert_eq!(
        columns,
        [
            "Holder string 0 .status.holderIdentity",
            r#"Held string 0 .status.conditions[?(@.type=="Held")].status"#,
            "Since date 0 .status.acquireTime",
            // A date that lies in the future is printed as <invalid>.
            "Expires string 0 .status.expirationTime",
            "Age date 0 .metadata.creationTimestamp",
            "Lease string 1 .status.leaseName",
            "TTL integer 1 .status.leaseDurationSeconds",
            "Transitions integer 1 .status.leaseTransitions",
            "Token integer 1 .status.fencingToken",
            r#"Reason string 1 .status.conditions[?(@.type=="Held")].reason"#,
        ]
    );
}

#[test]
fn conditions_merge_by_type_and_history_is_replaced_whole() {
    let status = version()["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"].clone();
    assert_eq!(status["conditions"]["x-kubernetes-list-type"], "map");
    assert_eq!(
        status["conditions"]["x-kubernetes-list-map-keys"],
        serde_json::json!(["type"])
    );
    assert_eq!(status["history"]["x-kubernetes-list-type"], "atomic");
    assert_eq!(status["history"]["maxItems"], HISTORY_MAX);
    assert_eq!(status["fencingToken"]["format"], "int64");
}

#[test]
fn names_and_fields_are_the_documented_ones() {
    let crd = serde_json::to_value(definition()).unwrap();
    assert_eq!(crd["metadata"]["name"], "changestreamleaders.leasewarden.dev");
    assert_eq!(crd["spec"]["names"]["shortNames"], serde_json::json!(["csl"]));
    assert_eq!(crd["spec"]["scope"], "Namespaced");
    assert_eq!(version()["name"], "v1beta1");
    assert_eq!(version()["subresources"]["status"], serde_json::json!({}));
    assert_eq!(
        version()["selectableFields"],
        serde_json::json!([{"jsonPath": ".spec.streamName"}, {"jsonPath": ".status.holderIdentity"}])
    );
}
