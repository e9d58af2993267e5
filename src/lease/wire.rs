//! A Lease as it goes over the wire, with everything in it that we do not know.
//!
//! Typed clients drop fields that their version does not know, and a PUT without them erases them. So Leases are read
//! and written through these types, which keep the rest. Times stay text until they are needed: what another tool
//! wrote is data.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Annotation: the stream's name as given.
pub const STREAM_ANNOTATION: &str = "leasewarden.dev/stream";
/// Annotation: the TTL in milliseconds, which `leaseDurationSeconds` cannot say.
pub const TTL_ANNOTATION: &str = "leasewarden.dev/ttl-ms";
/// Annotation: the fencing token of the last acquisition, and the floor of the next.
pub const TOKEN_ANNOTATION: &str = "leasewarden.dev/fencing-token";
/// Annotation: which acquisition this is, whose, and whether it was released.
pub const TERM_ANNOTATION: &str = "leasewarden.dev/term";

/// Labels on every Lease of ours. They are what every watch selects on: a watch on all Leases would receive every
/// node's heartbeat.
pub const LABELS: [(&str, &str); 2] = [
    ("app.kubernetes.io/managed-by", "leasewarden"),
    ("app.kubernetes.io/component", "stream-lock"),
];

/// [`LABELS`] as a label selector.
pub const LABEL_SELECTOR: &str =
    "app.kubernetes.io/managed-by=leasewarden,app.kubernetes.io/component=stream-lock";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Lease {
    #[serde(default = "api_version")]
    pub(crate) api_version: String,
    #[serde(default = "kind")]
    pub(crate) kind: String,
    pub(crate) metadata: Metadata,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) spec: Option<Spec>,
    #[serde(flatten)]
    pub(crate) rest: Map<String, Value>,
}

// Items of a list carry neither.
fn api_version() -> String {
    "coordination.k8s.io/v1".to_owned()
}

fn kind() -> String {
    "Lease".to_owned()
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Metadata {
    pub(crate) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) namespace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) uid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) resource_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) labels: Option<BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) annotations: Option<BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) managed_fields: Option<Vec<ManagedFields>>,
    #[serde(flatten)]
    pub(crate) rest: Map<String, Value>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ManagedFields {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) time: Option<String>,
    #[serde(rename = "fieldsV1", skip_serializing_if = "Option::is_none")]
    pub(crate) fields_v1: Option<Value>,
    #[serde(flatten)]
    pub(crate) rest: Map<String, Value>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Spec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) holder_identity: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lease_duration_seconds: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) acquire_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) renew_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lease_transitions: Option<i64>,
    #[serde(flatten)]
    pub(crate) rest: Map<String, Value>,
}

impl Lease {
    pub(crate) fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    pub(crate) fn annotate(&mut self, key: &str, value: String) {
        self.metadata
            .annotations
            .get_or_insert_default()
            .insert(key.to_owned(), value);
    }

    /// Puts our labels back where they are missing. A Lease that loses them leaves every watch.
    pub(crate) fn label(&mut self) {
        let labels = self.metadata.labels.get_or_insert_default();
        for (key, value) in LABELS {
            labels.insert(key.to_owned(), value.to_owned());
        }
    }

    /// Whether our selector finds it.
    pub(crate) fn is_labelled(&self) -> bool {
        self.metadata.labels.as_ref().is_some_and(|labels| {
            LABELS
                .iter()
                .all(|(k, v)| labels.get(*k).is_some_and(|found| found == v))
        })
    }
}

/// The term annotation: the acquisition's id, and the write it speaks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TermMark {
    pub(crate) id: String,
    pub(crate) holder: String,
    pub(crate) transitions: i64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) released: bool,
}

/// The reply to a list.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct LeaseList {
    pub(crate) metadata: ListMetadata,
    #[serde(default)]
    pub(crate) items: Vec<Lease>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ListMetadata {
    pub(crate) resource_version: Option<String>,
    #[serde(rename = "continue")]
    pub(crate) continue_token: Option<String>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_we_do_not_know_survives_a_round_trip() {
        let object = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "future": {"a": 1},
            "metadata": {
                "name": "orders", "uid": "u", "resourceVersion": "7", "generateName": "o", "labels": {"l": "1"},
                "managedFields": [{"manager": "m", "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:spec": {}}}],
            },
            "spec": {"holderIdentity": "", "strategy": "OldestEmulationVersion", "unheardOf": [1]},
        });
        let lease: Lease = serde_json::from_value(object.clone()).unwrap();
        assert_eq!(serde_json::to_value(lease).unwrap(), object);
    }

    #[test]
    fn a_lease_without_a_spec_is_read() {
        let lease: Lease =
            serde_json::from_value(json!({"metadata": {"name": "a", "labels": null}})).unwrap();
        assert_eq!(lease.spec, None);
        assert!(!lease.is_labelled());
    }
}
