//! `ChangeStreamLeader`: who leads a change stream, as `kubectl get csl` shows it.
//!
//! The object is a mirror. It locks nothing, and no instance reads it: the lock is the Lease that `status.leaseName`
//! names. A person may write one for a stream before any instance has started; the operator writes one for every Lease
//! of ours that has none.
//!
//! The doc comments of the fields are what `kubectl explain csl` prints, so they are written for its reader. The
//! installed form is `crds/changestreamleaders.leasewarden.dev.yaml`, printed by `leasewarden crd`.

// The derive repeats the structs inside function bodies, where `pub` reaches nobody.
#![allow(unreachable_pub)]
// Comments are printed by kubectl, where a backtick is noise; clippy takes the columns for one attribute repeated.
#![allow(clippy::doc_markdown, clippy::duplicated_attributes)]

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, CustomResourceExt, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The condition that says whether the status is truthful.
pub const READY: &str = "Ready";
/// The condition that says whether an instance leads.
pub const HELD: &str = "Held";
/// How many past leaders a status keeps.
pub const HISTORY_MAX: usize = 10;

/// Which stream, and how its leader is shown.
// Both names are immutable: an object that jumps to another lock would mix the histories of two. Delete and create.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[kube(
    group = "leasewarden.dev",
    version = "v1beta1",
    kind = "ChangeStreamLeader",
    plural = "changestreamleaders",
    singular = "changestreamleader",
    shortname = "csl",
    namespaced,
    status = "ChangeStreamLeaderStatus",
    derive = "PartialEq",
    doc = "Shows which instance leads a change stream, since when and until when. It is a mirror of the Lease that is the lock; to change who leads, stop or start instances.",
    selectable = ".spec.streamName",
    selectable = ".status.holderIdentity",
    printcolumn(
        name = "Holder",
        type_ = "string",
        json_path = ".status.holderIdentity",
        description = "The instance that leads; empty while nobody does"
    ),
    printcolumn(
        name = "Held",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Held")].status"#,
        description = "Whether an instance leads: True, False or Unknown"
    ),
    printcolumn(
        name = "Since",
        type_ = "date",
        json_path = ".status.acquireTime",
        description = "How long this instance has been leading"
    ),
    // A string: kubectl prints a date that lies in the future as <invalid>.
    printcolumn(
        name = "Expires",
        type_ = "string",
        json_path = ".status.expirationTime",
        description = "The leadership lasts at least until this time (UTC)"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Lease",
        type_ = "string",
        json_path = ".status.leaseName",
        priority = 1,
        description = "The Lease that is the lock"
    ),
    printcolumn(
        name = "TTL",
        type_ = "integer",
        json_path = ".status.leaseDurationSeconds",
        priority = 1,
        description = "Seconds that the lock outlives its last renewal"
    ),
    printcolumn(
        name = "Transitions",
        type_ = "integer",
        json_path = ".status.leaseTransitions",
        priority = 1,
        description = "How often the holder has changed"
    ),
    printcolumn(
        name = "Token",
        type_ = "integer",
        json_path = ".status.fencingToken",
        priority = 1,
        description = "The fencing token of this leadership"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Held")].reason"#,
        priority = 1,
        description = "Why it is held or not"
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.leaseName) == has(oldSelf.leaseName) && (!has(self.leaseName) || self.leaseName == oldSelf.leaseName)")
        .message("leaseName cannot be changed: delete this object and create another")
        .field_path(".leaseName")
)]
pub struct ChangeStreamLeaderSpec {
    /// The name of the change stream, exactly as the instances give it: case matters, and any characters but control
    /// characters may occur; at most 1024 bytes. Cannot be changed.
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^\P{Cc}+$"))]
    #[x_kube(
        validation = Rule::new("self == oldSelf").message("streamName cannot be changed: delete this object and create another"),
        validation = Rule::new("size(bytes(self)) <= 1024").message("streamName must be at most 1024 bytes long")
    )]
    pub stream_name: String,

    /// The name of the Lease that is this stream's lock, in the same namespace. Leave it out unless the instances use
    /// a name prefix or a name of their own: the default is the name that they derive from the stream name. Cannot be
    /// changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
    )]
    pub lease_name: Option<String>,

    /// When the status is written; [`StatusPolicy::Full`] unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_policy: Option<StatusPolicy>,
}

// This text is the field's in `kubectl explain`.
/// When the status is written. Full (the default): on every change of leadership, and in between as often as it takes to
/// keep expirationTime in the future, about once per two thirds of the TTL. TransitionsOnly: on changes of leadership
/// alone; expirationTime is then absent.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatusPolicy {
    /// On every transition, and in between to keep `expirationTime` in the future.
    #[default]
    Full,
    /// On transitions alone.
    TransitionsOnly,
}

/// Who leads, as last seen by the operator. Times are the API server's where it tells them, otherwise those that the
/// instances wrote; all are in UTC, to the second.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ChangeStreamLeaderStatus {
    /// The metadata.generation of this object that the status was made for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// The name of the Lease that is the lock, in the same namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_name: Option<String>,

    /// The id of the instance that leads. Absent while nobody leads. An id longer than 1024 bytes is cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder_identity: Option<String>,

    /// When this instance became the leader. Renewals do not move it. Absent while nobody leads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acquire_time: Option<Time>,

    /// The TTL in seconds: how long the leadership outlives its last renewal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_duration_seconds: Option<i32>,

    /// How often the holder has changed since the Lease was created. It starts again at 0 when the Lease is deleted;
    /// use fencingToken to tell leaderships apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_transitions: Option<i32>,

    /// The leadership lasts at least until this time, and longer while it is renewed. Absent while nobody leads, with
    /// statusPolicy TransitionsOnly, for a TTL below 3 seconds, while the operator does not see the Lease, and where it
    /// would take more writes a second to keep it in the future than the operator may make. A time in the past beside
    /// Held=True means that no operator is running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expiration_time: Option<Time>,

    /// The fencing token of this leadership: a number that is higher for every later one, also after the Lease was
    /// deleted. Absent while nobody leads and for a holder that uses none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fencing_token: Option<i64>,

    /// The uid of the Lease that this status shows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_uid: Option<String>,

    /// The metadata.resourceVersion of the Lease that this status shows. A status never goes back to an older one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_resource_version: Option<String>,

    /// The leaderships before the current one, the latest first; at most 10.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub history: Vec<PastLeader>,

    /// Ready: the status is truthful; also True when nobody leads, and Unknown while the operator cannot see the Lease:
    /// holderIdentity is then the last that was seen. Held: an instance leads. The reason says why, the message what to
    /// do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

impl ChangeStreamLeaderStatus {
    /// The condition of a type.
    pub fn condition(&self, type_: &str) -> Option<&Condition> {
        self.conditions.iter().find(|c| c.type_ == type_)
    }
}

/// A leadership that is over.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PastLeader {
    /// The id of the instance that led. An id longer than 1024 bytes is cut.
    pub holder_identity: String,

    /// The fencing token of that leadership, if it had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fencing_token: Option<i64>,

    /// When that leadership began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Time>,

    /// When that leadership ended. Absent when nobody saw the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Time>,

    /// How it ended, as observed. Released: the holder gave it up. Expired: it was not renewed in time. TakenOver:
    /// another holder was written while it was still live. Reacquired: the same id acquired it again, which began a
    /// new leadership. Wiped: somebody else cleared the holder. Deleted: the Lease was deleted. Unknown: it ended
    /// while no operator was looking.
    pub ended: Ended,
}

/// How a leadership ended, as observed.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The holder gave it up.
    Released,
    /// It was not renewed in time.
    Expired,
    /// Another holder was written while it was live.
    TakenOver,
    /// The same id acquired it again.
    Reacquired,
    /// Somebody else cleared the holder.
    Wiped,
    /// The Lease was deleted.
    Deleted,
    /// Nobody saw it end.
    Unknown,
}

/// The definition to install. The derive's own `ChangeStreamLeader::crd()` is the same with the line breaks of this file
/// in the descriptions, which `kubectl explain` would print as they are.
pub fn definition() -> CustomResourceDefinition {
    let crd = ChangeStreamLeader::crd();
    let reflowed = serde_json::to_value(&crd).and_then(|mut value| {
        reflow(&mut value);
        serde_json::from_value(value)
    });
    reflowed.unwrap_or(crd)
}

fn reflow(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Object(fields) => {
            for (name, field) in fields {
                match field {
                    serde_json::Value::String(text) if name == "description" => {
                        *text = text.replace('\n', " ");
                    }
                    other => reflow(other),
                }
            }
        }
        serde_json::Value::Array(items) => items.iter_mut().for_each(reflow),
        _ => {}
    }
}

#[cfg(test)]
mod tests;
