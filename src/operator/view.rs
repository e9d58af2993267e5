//! A Lease as plain facts: what is kept in memory, and all that the projection knows.
//!
//! The server's time of the last renewal is taken from `managedFields` here, and then they are dropped: they are the
//! larger part of a Lease.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use serde::Deserialize;

/// The label selector of every watch. One on all Leases would receive every node's heartbeat.
pub(crate) const LABEL_SELECTOR: &str =
    "app.kubernetes.io/managed-by=leasewarden,app.kubernetes.io/component=stream-lock";
const LABELS: [(&str, &str); 2] = [
    ("app.kubernetes.io/managed-by", "leasewarden"),
    ("app.kubernetes.io/component", "stream-lock"),
];
const STREAM: &str = "leasewarden.dev/stream";
const TTL: &str = "leasewarden.dev/ttl-ms";
const TOKEN: &str = "leasewarden.dev/fencing-token";
const TERM: &str = "leasewarden.dev/term";

/// Holder ids are data of any length; a status keeps this many bytes of one.
const HOLDER_MAX: usize = 1024;

/// What a Lease says about its holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Hold {
    /// This instance holds it (or held it last, when it is expired).
    Held(String),
    /// This instance gave it up.
    Released(String),
    /// Somebody else cleared the holder; this instance may not know yet.
    Wiped(String),
    /// Nobody holds it, and nothing tells who did.
    Free,
}

/// The facts of one Lease at one resourceVersion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LeaseView {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    /// The stream that it says it locks.
    pub(crate) stream: Option<String>,
    /// Whether our selector finds it.
    pub(crate) labelled: bool,
    pub(crate) hold: Hold,
    /// How long it outlives its last renewal; absent on a Lease that was never held.
    pub(crate) ttl: Option<Duration>,
    pub(crate) duration_seconds: Option<i32>,
    pub(crate) transitions: Option<i32>,
    /// The token of the term that `hold` is about.
    pub(crate) token: Option<i64>,
    /// A token annotation that no instance can go on from.
    pub(crate) bad_token: Option<String>,
    pub(crate) acquire_time: Option<Timestamp>,
    pub(crate) renew_time: Option<Timestamp>,
    /// When the API server took the last write that moved renewTime: whole seconds, rounded down.
    pub(crate) written_at: Option<Timestamp>,
    /// When the API server took the last write that changed anything in the spec.
    pub(crate) changed_at: Option<Timestamp>,
    /// When it was received, on the API server's clock as estimated.
    pub(crate) received_at: Timestamp,
}

#[derive(Deserialize)]
struct TermMark {
    holder: String,
    transitions: i64,
    #[serde(default)]
    released: bool,
}

impl LeaseView {
    /// Takes the facts from a Lease.
    pub(crate) fn new(lease: &Lease, received_at: Timestamp) -> Self {
        let meta = &lease.metadata;
        let spec = lease.spec.clone().unwrap_or_default();
        let annotation = |key: &str| {
            meta.annotations
                .as_ref()
                .and_then(|a| a.get(key))
                .map(String::as_str)
        };
        let holder = spec.holder_identity.as_deref().unwrap_or_default();

        // Our annotations speak only for the write that set them: other tools change the spec and leave them behind.
        let term = annotation(TERM)
            .and_then(|text| serde_json::from_str::<TermMark>(text).ok())
            .filter(|mark| mark.transitions == i64::from(spec.lease_transitions.unwrap_or(0)))
            .filter(|mark| holder.is_empty() || mark.holder == holder);
        let hold = match &term {
            _ if !holder.is_empty() => Hold::Held(cut(holder)),
            Some(mark) if mark.released => Hold::Released(cut(&mark.holder)),
            Some(mark) => Hold::Wiped(cut(&mark.holder)),
            None => Hold::Free,
        };
        let token = annotation(TOKEN).map(|text| {
            (
                text,
                text.parse::<i64>().ok().filter(|t| (1..i64::MAX).contains(t)),
            )
        });
        let seconds = spec.lease_duration_seconds;
        let ttl = term
            .as_ref()
            .and_then(|_| annotation(TTL)?.parse().ok())
            .filter(|&ms: &u64| ms > 0 && ms <= 1000 * u64::from(i32::MAX.unsigned_abs()))
            .map(Duration::from_millis)
            .or_else(|| {
                seconds
                    .and_then(|s| u64::try_from(s).ok())
                    .map(Duration::from_secs)
            });

        Self {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            resource_version: meta.resource_version.clone().unwrap_or_default(),
            stream: annotation(STREAM).map(str::to_owned),
            labelled: LABELS.iter().all(|(k, v)| {
                meta.labels
                    .as_ref()
                    .and_then(|l| l.get(*k))
                    .is_some_and(|found| found == v)
            }),
            token: term.as_ref().and(token).and_then(|(_, token)| token),
            bad_token: token
                .filter(|(_, token)| token.is_none())
                .map(|(text, _)| text.chars().take(40).collect()),
            hold,
            ttl,
            duration_seconds: seconds,
            transitions: spec.lease_transitions,
            acquire_time: spec.acquire_time.map(|t| t.0),
            renew_time: spec.renew_time.map(|t| t.0),
            written_at: latest(lease, |fields| !fields["f:spec"]["f:renewTime"].is_null()),
            changed_at: latest(lease, |fields| !fields["f:spec"].is_null()),
            received_at,
        }
    }

    /// Whether both show the same leadership (or the same absence of one).
    pub(crate) fn same_tenure(&self, other: &Self) -> bool {
        self.uid == other.uid
            && self.hold == other.hold
            && self.token == other.token
            && self.transitions == other.transitions
    }

    /// The last renewal on the API server's clock, rounded down: what the status shows counts from it. Where the server
    /// tells nothing, the holder's own word, as long as it does not lie in the future.
    pub(crate) fn renewed_at(&self) -> Timestamp {
        self.written_at.unwrap_or_else(|| {
            self.renew_time
                .map_or(self.received_at, |t| t.min(self.received_at))
        })
    }

    /// The last change of the spec, whoever made it.
    pub(crate) fn changed_at(&self) -> Timestamp {
        self.changed_at.unwrap_or(self.received_at)
    }

    /// The earliest moment, on the API server's clock, at which it is certainly expired unless renewed. A time of
    /// `managedFields` was rounded down, so a second is added; a node's clock proves nothing, so without a server time
    /// it counts from when this record was first seen.
    pub(crate) fn expired_from(&self) -> Option<Timestamp> {
        let renewed = self.changed_at.max(self.written_at).unwrap_or(self.received_at);
        let span = self.ttl?.checked_add(Duration::from_secs(1))?;
        Some(renewed.checked_add(span).unwrap_or(Timestamp::MAX))
    }
}

/// Compares resourceVersions of one resource, which are numbers that rise (Kubernetes 1.35 made that a promise).
pub(crate) fn is_older(version: &str, than: &str) -> bool {
    match (version.parse::<u128>(), than.parse::<u128>()) {
        (Ok(version), Ok(than)) => version < than,
        _ => false,
    }
}

/// The latest time of the managed fields that `owns` accepts.
fn latest(lease: &Lease, owns: impl Fn(&serde_json::Value) -> bool) -> Option<Timestamp> {
    let entries = lease.metadata.managed_fields.iter().flatten();
    entries
        .filter(|e| e.fields_v1.as_ref().is_some_and(|f| owns(&f.0)))
        .filter_map(|e| e.time.as_ref().map(|t| t.0))
        .max()
}

fn cut(text: &str) -> String {
    if text.len() <= HOLDER_MAX {
        return text.to_owned();
    }
    let mark = "…";
    format!(
        "{}{mark}",
        &text[..text.floor_char_boundary(HOLDER_MAX - mark.len())]
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn view(annotations: &Value, spec: &Value, managed: &Value) -> LeaseView {
        let lease: Lease = serde_json::from_value(json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "orders", "annotations": annotations, "managedFields": managed},
            "spec": spec,
        }))
        .unwrap();
        LeaseView::new(&lease, Timestamp::from_second(1000).unwrap())
    }

    fn mark(released: bool) -> String {
        json!({"id": "t", "holder": "a", "transitions": 3, "released": released}).to_string()
    }

    #[test]
    fn annotations_speak_only_for_the_write_that_set_them() {
        let ours = json!({TERM: mark(false), TOKEN: "7", TTL: "1500"});
        let released = json!({TERM: mark(true), TOKEN: "7"});
        let table = [
            (
                &ours,
                json!({"holderIdentity": "a", "leaseTransitions": 3}),
                Hold::Held("a".into()),
                Some(7),
            ),
            (
                &ours,
                json!({"holderIdentity": "b", "leaseTransitions": 3}),
                Hold::Held("b".into()),
                None,
            ),
            (
                &ours,
                json!({"holderIdentity": "a", "leaseTransitions": 4}),
                Hold::Held("a".into()),
                None,
            ),
            (
                &ours,
                json!({"holderIdentity": "", "leaseTransitions": 3}),
                Hold::Wiped("a".into()),
                Some(7),
            ),
            (
                &released,
                json!({"leaseTransitions": 3}),
                Hold::Released("a".into()),
                Some(7),
            ),
            (&released, json!({"leaseTransitions": 4}), Hold::Free, None),
        ];
        for (annotations, spec, hold, token) in table {
            let view = view(annotations, &spec, &json!([]));
            assert_eq!((view.hold, view.token), (hold, token), "{spec}");
        }
    }

    #[test]
    fn odd_leases_are_data() {
        for spec in [
            json!(null),
            json!({}),
            json!({"leaseDurationSeconds": -5}),
            json!({"leaseDurationSeconds": i32::MAX}),
        ] {
            let view = view(
                &json!({TOKEN: "18446744073709551615", TERM: "{", TTL: "-1"}),
                &spec,
                &json!([]),
            );
            assert_eq!((view.hold, view.token), (Hold::Free, None));
            assert_eq!(view.bad_token.as_deref(), Some("18446744073709551615"));
        }
        let long = view(
            &json!({}),
            &json!({"holderIdentity": "é".repeat(50_000)}),
            &json!([]),
        );
        let Hold::Held(holder) = long.hold else { panic!() };
        assert!(holder.len() <= HOLDER_MAX && holder.ends_with('…'));
    }

    #[test]
    fn the_servers_time_is_that_of_whoever_moves_renew_time() {
        let managed = json!([
            {"time": "2026-01-01T00:00:05Z", "fieldsV1": {"f:spec": {"f:renewTime": {}}}},
            {"time": "2026-01-01T00:01:00Z", "fieldsV1": {"f:metadata": {"f:labels": {}}}},
        ]);
        let renewed: Timestamp = "2026-01-01T00:00:05Z".parse().unwrap();
        let view = view(
            &json!({}),
            &json!({"holderIdentity": "a", "leaseDurationSeconds": 15}),
            &managed,
        );
        assert_eq!(view.renewed_at(), renewed);
        assert_eq!(view.expired_from(), Some(renewed + Duration::from_secs(16)));
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!(is_older("9", "10") && !is_older("10", "9") && !is_older("10", "10") && !is_older("a", "10"));
    }
}
