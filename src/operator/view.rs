//! A Lease as plain facts: what is kept in memory, and all that the projection knows.
//!
//! The server's time of the last renewal is taken from `managedFields` here, and then they are dropped: they are the
//! larger part of a Lease.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1 as k8s;

use crate::lease::{
    record::{Holding, Record, StoredToken},
    time,
    wire::Lease,
};

/// Holder ids, and what else a Lease may hold, are data of any length: this many bytes of each are kept. A stream name is
/// no longer, so that a longer one is still none that is known.
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
    /// Whether its label says that no object is to be created for it.
    pub(crate) hidden: bool,
    pub(crate) hold: Hold,
    /// How long it outlives its last renewal; absent on a Lease that was never held.
    pub(crate) ttl: Option<Duration>,
    /// How long a contender waits: never less than `ttl`.
    pub(crate) patience: Option<Duration>,
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

impl LeaseView {
    /// Takes the facts from a Lease as a watch or a read brings it. An error says why no lock can be built on it.
    pub(crate) fn new(lease: &k8s::Lease, received_at: Timestamp) -> Result<Self, String> {
        let lease = serde_json::to_value(lease)
            .and_then(serde_json::from_value)
            .map_err(|e| e.to_string())?;
        Self::from_wire(&lease, received_at)
    }

    fn from_wire(lease: &Lease, received_at: Timestamp) -> Result<Self, String> {
        let record = Record::read(lease).map_err(|e| e.to_string())?;
        let released = record.believed().filter(|mark| mark.released);
        let hold = match (record.holding(), released) {
            (Holding::Held(holder), _) => Hold::Held(cut(holder)),
            (Holding::Wiped(holder), _) => Hold::Wiped(cut(holder)),
            (Holding::Free, Some(mark)) => Hold::Released(cut(&mark.holder)),
            (Holding::Free, None) => Hold::Free,
        };
        Ok(Self {
            namespace: lease.metadata.namespace.clone().unwrap_or_default(),
            name: lease.metadata.name.clone(),
            labelled: lease.is_labelled(),
            hidden: lease.metadata.labels.as_ref().is_some_and(|labels| {
                labels
                    .get(super::naming::HIDDEN.0)
                    .is_some_and(|v| v == super::naming::HIDDEN.1)
            }),
            hold,
            ttl: record.shown_ttl(),
            patience: record.contender_ttl(),
            duration_seconds: record.duration.and_then(|d| i32::try_from(d.as_secs()).ok()),
            transitions: i32::try_from(record.transitions).ok(),
            token: record.shown_token().map(crate::lock::FencingToken::get),
            bad_token: match &record.token {
                StoredToken::Absurd(text) => Some(cut(text)),
                StoredToken::Absent | StoredToken::Valid(_) => None,
            },
            acquire_time: record.acquire_time.and_then(timestamp),
            renew_time: record.renew_time.and_then(timestamp),
            written_at: renewal_written(lease),
            changed_at: record.written.and_then(timestamp),
            received_at,
            resource_version: record.resource_version.to_string(),
            uid: record.uid,
            stream: record.stream.as_deref().map(cut),
        })
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
        let span = self.patience?.checked_add(Duration::from_secs(1))?;
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

/// When whoever owns `renewTime` last wrote.
fn renewal_written(lease: &Lease) -> Option<Timestamp> {
    let entries = lease.metadata.managed_fields.iter().flatten();
    entries
        .filter(|e| {
            e.fields_v1
                .as_ref()
                .is_some_and(|fields| !fields["f:spec"]["f:renewTime"].is_null())
        })
        .filter_map(|e| timestamp(time::parse(e.time.as_deref()?)?))
        .max()
}

fn timestamp(at: SystemTime) -> Option<Timestamp> {
    Timestamp::try_from(at).ok()
}

fn cut(text: &str) -> String {
    if text.len() <= HOLDER_MAX {
        return text.to_owned();
    }
    let mark = "…";
    let mut end = HOLDER_MAX - mark.len();
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{mark}", &text[..end])
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::lease::{TERM_ANNOTATION, TOKEN_ANNOTATION};

    fn view(annotations: &Value, spec: &Value, managed: &Value) -> LeaseView {
        let lease: k8s::Lease = serde_json::from_value(json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {
                "name": "orders", "uid": "u", "resourceVersion": "7", "annotations": annotations, "managedFields": managed,
            },
            "spec": spec,
        }))
        .unwrap();
        LeaseView::new(&lease, Timestamp::from_second(1000).unwrap()).unwrap()
    }

    #[test]
    fn a_release_is_told_from_a_wipe_and_from_a_foreign_holder() {
        let ours = |released| {
            json!({
                TERM_ANNOTATION: json!({"id": "t", "holder": "a", "transitions": 3, "released": released}).to_string(),
                TOKEN_ANNOTATION: "7",
            })
        };
        let table = [
            (
                false,
                json!({"holderIdentity": "a", "leaseTransitions": 3}),
                Hold::Held("a".into()),
                Some(7),
            ),
            (
                false,
                json!({"holderIdentity": "b", "leaseTransitions": 3}),
                Hold::Held("b".into()),
                None,
            ),
            (
                false,
                json!({"holderIdentity": "", "leaseTransitions": 3}),
                Hold::Wiped("a".into()),
                Some(7),
            ),
            (
                true,
                json!({"leaseTransitions": 3}),
                Hold::Released("a".into()),
                Some(7),
            ),
            (true, json!({"leaseTransitions": 4}), Hold::Free, None),
        ];
        for (released, spec, hold, token) in table {
            let view = view(&ours(released), &spec, &json!([]));
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
                &json!({TOKEN_ANNOTATION: "18446744073709551615", TERM_ANNOTATION: "{"}),
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
    fn annotations_of_any_length_take_little_memory_and_name_no_stream() {
        let long = "x".repeat(200_000);
        let view = view(
            &json!({"leasewarden.dev/stream": long, TOKEN_ANNOTATION: long}),
            &json!({}),
            &json!([]),
        );
        let (stream, token) = (view.stream.unwrap(), view.bad_token.unwrap());
        assert!(stream.len() <= HOLDER_MAX && token.len() <= HOLDER_MAX);
        assert!(stream.ends_with('…'), "it is not the stream of its first bytes");
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
