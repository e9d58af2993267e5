//! What a Lease says, and how much of it is believed.
//!
//! Other tools change the spec and leave annotations as they are, so *our annotations speak only for the write that
//! set them*: `term` and `ttl-ms` are believed only while the transitions are still those of `term`, and the holder is
//! still its holder, or empty. Otherwise the spec alone counts. Nothing here decides who may take a Lease; see
//! [`evidence`](super::evidence).

use std::time::{Duration, SystemTime};

use super::{
    time,
    wire::{Lease, STREAM_ANNOTATION, TERM_ANNOTATION, TOKEN_ANNOTATION, TTL_ANNOTATION, TermMark},
};
use crate::lock::FencingToken;

/// A Lease, read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) uid: String,
    /// Kubernetes promises that resourceVersions of one resource type are decimal and rise.
    pub(crate) resource_version: u64,
    pub(crate) stream: Option<String>,
    /// Empty when nobody is named.
    pub(crate) holder: String,
    /// `leaseDurationSeconds`, where it says anything.
    pub(crate) duration: Option<Duration>,
    pub(crate) acquire_time: Option<SystemTime>,
    pub(crate) renew_time: Option<SystemTime>,
    /// As written: two renewals are told apart by it.
    pub(crate) renew_text: Option<String>,
    pub(crate) transitions: i64,
    /// The term annotation as found, believed or not.
    pub(crate) mark: Option<TermMark>,
    /// `ttl-ms`, as found.
    ttl_ms: Option<Duration>,
    pub(crate) token: StoredToken,
    /// The API server's time of the last write to anything in `spec`; whole seconds, rounded down.
    pub(crate) written: Option<SystemTime>,
}

/// The token annotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StoredToken {
    Absent,
    Valid(FencingToken),
    /// No number, below 1, or one that no higher can follow: as found, shortened.
    Absurd(String),
}

/// Who has the Lease, before any question of expiry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holding<'a> {
    /// Nobody: never held, freed by the tool that held it, or released by us.
    Free,
    /// The named holder.
    Held(&'a str),
    /// Nobody is named, but the believed term was not released: somebody else wiped the holder, who may still act.
    Wiped(&'a str),
}

/// A Lease that no lock can be built on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unreadable {
    #[error("it has no metadata.uid")]
    NoUid,
    #[error("its resourceVersion {0:?} is not a number, so no fencing token can be drawn from it")]
    ResourceVersion(String),
}

impl Record {
    pub(crate) fn read(lease: &Lease) -> Result<Self, Unreadable> {
        let meta = &lease.metadata;
        let uid = meta
            .uid
            .clone()
            .filter(|uid| !uid.is_empty())
            .ok_or(Unreadable::NoUid)?;
        let version = meta.resource_version.as_deref().unwrap_or_default();
        let resource_version = version
            .parse()
            .map_err(|_| Unreadable::ResourceVersion(version.to_owned()))?;
        let spec = lease.spec.as_ref();
        let at = |text: Option<&String>| text.and_then(|t| time::parse(t));
        Ok(Self {
            uid,
            resource_version,
            stream: lease.annotation(STREAM_ANNOTATION).map(str::to_owned),
            holder: spec.and_then(|s| s.holder_identity.clone()).unwrap_or_default(),
            duration: spec
                .and_then(|s| s.lease_duration_seconds)
                .and_then(|secs| u64::try_from(secs).ok())
                .filter(|&secs| secs > 0)
                .map(Duration::from_secs),
            acquire_time: at(spec.and_then(|s| s.acquire_time.as_ref())),
            renew_time: at(spec.and_then(|s| s.renew_time.as_ref())),
            renew_text: spec.and_then(|s| s.renew_time.clone()),
            transitions: spec.and_then(|s| s.lease_transitions).unwrap_or(0),
            mark: lease
                .annotation(TERM_ANNOTATION)
                .and_then(|text| serde_json::from_str(text).ok()),
            ttl_ms: lease
                .annotation(TTL_ANNOTATION)
                .and_then(|text| text.parse().ok())
                .filter(|&ms| ms > 0)
                .map(Duration::from_millis),
            token: StoredToken::read(lease.annotation(TOKEN_ANNOTATION)),
            written: spec_written(lease),
        })
    }

    /// The term annotation, where it speaks for what the spec says now.
    pub(crate) fn believed(&self) -> Option<&TermMark> {
        self.mark.as_ref().filter(|mark| {
            mark.transitions == self.transitions
                // A released term has no holder: one that is named all the same was written by another tool.
                && (self.holder.is_empty() || (mark.holder == self.holder && !mark.released))
        })
    }

    pub(crate) fn holding(&self) -> Holding<'_> {
        if !self.holder.is_empty() {
            return Holding::Held(&self.holder);
        }
        match self.believed() {
            Some(mark) if !mark.released => Holding::Wiped(&mark.holder),
            _ => Holding::Free,
        }
    }

    /// Who counts as the holder.
    pub(crate) fn counted_holder(&self) -> Option<&str> {
        match self.holding() {
            Holding::Free => None,
            Holding::Held(holder) | Holding::Wiped(holder) => Some(holder),
        }
    }

    /// How long a contender must see this record unchanged: never less than `ttl-ms` while its term is believed.
    pub(crate) fn contender_ttl(&self) -> Option<Duration> {
        self.duration.max(self.believed_ttl())
    }

    /// How long the holder said it would hold, exactly; for showing.
    pub(crate) fn shown_ttl(&self) -> Option<Duration> {
        self.believed_ttl().or(self.duration)
    }

    fn believed_ttl(&self) -> Option<Duration> {
        self.believed().and(self.ttl_ms)
    }

    /// The token of who holds it now; `None` where it is not ours to believe.
    pub(crate) fn shown_token(&self) -> Option<FencingToken> {
        match (&self.token, self.believed()) {
            (StoredToken::Valid(token), Some(_)) => Some(*token),
            _ => None,
        }
    }
}

impl StoredToken {
    fn read(text: Option<&str>) -> Self {
        let Some(text) = text else { return Self::Absent };
        match text.parse().ok().and_then(FencingToken::new) {
            // i64::MAX is a token that none can follow.
            Some(token) if token.get() < i64::MAX => Self::Valid(token),
            _ => Self::Absurd(text.chars().take(40).collect()),
        }
    }
}

/// The latest time of all managed-fields entries that own anything in `spec`. An owner without a time makes it unknown.
fn spec_written(lease: &Lease) -> Option<SystemTime> {
    let owners = lease.metadata.managed_fields.as_ref()?.iter().filter(|entry| {
        entry
            .fields_v1
            .as_ref()
            .and_then(|fields| fields.as_object())
            .is_some_and(|f| f.contains_key("f:spec"))
    });
    let mut latest = None;
    for owner in owners {
        latest = latest.max(Some(time::parse(owner.time.as_deref()?)?));
    }
    latest
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::{Value, json};

    use super::*;

    pub(crate) fn lease(annotations: &Value, spec: &Value) -> Lease {
        serde_json::from_value(json!({
            "metadata": {"name": "orders", "uid": "u1", "resourceVersion": "7", "annotations": annotations},
            "spec": spec,
        }))
        .unwrap()
    }

    fn mark(holder: &str, transitions: i64, released: bool) -> String {
        serde_json::to_string(&TermMark {
            id: "t".into(),
            holder: holder.into(),
            transitions,
            released,
        })
        .unwrap()
    }

    fn record(term: Option<String>, holder: &str, transitions: i64) -> Record {
        let mut annotations = json!({TTL_ANNOTATION: "30000", TOKEN_ANNOTATION: "5"});
        if let Some(term) = term {
            annotations[TERM_ANNOTATION] = term.into();
        }
        let spec =
            json!({"holderIdentity": holder, "leaseTransitions": transitions, "leaseDurationSeconds": 10});
        Record::read(&lease(&annotations, &spec)).unwrap()
    }

    #[test]
    fn annotations_speak_only_for_the_write_that_set_them() {
        let (short, long) = (Some(Duration::from_secs(10)), Some(Duration::from_secs(30)));
        let table = [
            (
                "ours",
                record(Some(mark("a", 3, false)), "a", 3),
                Holding::Held("a"),
                long,
            ),
            (
                "another took over",
                record(Some(mark("a", 3, false)), "b", 4),
                Holding::Held("b"),
                short,
            ),
            (
                "another, transitions kept",
                record(Some(mark("a", 3, false)), "b", 3),
                Holding::Held("b"),
                short,
            ),
            (
                "same holder again",
                record(Some(mark("a", 3, false)), "a", 4),
                Holding::Held("a"),
                short,
            ),
            (
                "wiped",
                record(Some(mark("a", 3, false)), "", 3),
                Holding::Wiped("a"),
                long,
            ),
            (
                "released",
                record(Some(mark("a", 3, true)), "", 3),
                Holding::Free,
                long,
            ),
            (
                "released, then named again",
                record(Some(mark("a", 3, true)), "a", 3),
                Holding::Held("a"),
                short,
            ),
            (
                "freed by a foreign holder",
                record(Some(mark("a", 3, false)), "", 4),
                Holding::Free,
                short,
            ),
            (
                "never ours, held",
                record(None, "a", 0),
                Holding::Held("a"),
                short,
            ),
            ("never ours, free", record(None, "", 0), Holding::Free, short),
            (
                "torn annotation",
                record(Some("{".into()), "", 0),
                Holding::Free,
                short,
            ),
        ];
        for (what, record, holding, ttl) in table {
            assert_eq!(record.holding(), holding, "{what}");
            assert_eq!(record.contender_ttl(), ttl, "{what}");
        }
    }

    #[test]
    fn a_lease_with_no_spec_is_free() {
        let lease =
            serde_json::from_value(json!({"metadata": {"name": "o", "uid": "u", "resourceVersion": "1"}}))
                .unwrap();
        let record = Record::read(&lease).unwrap();
        assert_eq!(record.holding(), Holding::Free);
        assert_eq!(record.contender_ttl(), None);
    }

    #[test]
    fn foreign_durations_are_data() {
        for (seconds, read) in [
            (-1, None),
            (0, None),
            (i64::from(i32::MAX), Some(Duration::from_secs(0x7fff_ffff))),
        ] {
            let lease = lease(
                &json!({}),
                &json!({"holderIdentity": "x", "leaseDurationSeconds": seconds}),
            );
            assert_eq!(Record::read(&lease).unwrap().duration, read);
        }
    }

    #[test]
    fn an_absurd_token_is_told_from_a_missing_one() {
        for text in [
            "18446744073709551615",
            "9223372036854775807",
            "0",
            "-1",
            "",
            "x",
            "1.5",
        ] {
            assert!(
                matches!(StoredToken::read(Some(text)), StoredToken::Absurd(_)),
                "{text}"
            );
        }
        assert_eq!(StoredToken::read(None), StoredToken::Absent);
        assert!(matches!(
            StoredToken::read(Some("9223372036854775806")),
            StoredToken::Valid(_)
        ));
    }

    #[test]
    fn the_servers_time_is_the_latest_of_all_owners_of_the_spec() {
        let with = |fields: Value| {
            let mut lease = lease(&json!({}), &json!({}));
            lease.metadata.managed_fields = serde_json::from_value(fields).unwrap();
            Record::read(&lease).unwrap().written
        };
        let spec = json!({"f:spec": {"f:renewTime": {}}});
        let labels = json!({"f:metadata": {"f:labels": {}}});
        let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:09Z");
        assert_eq!(
            with(json!([{"time": late, "fieldsV1": labels}, {"time": early, "fieldsV1": spec}])),
            time::parse(early)
        );
        assert_eq!(
            with(json!([{"time": early, "fieldsV1": spec}, {"time": late, "fieldsV1": spec}])),
            time::parse(late)
        );
        assert_eq!(
            with(json!([{"time": late, "fieldsV1": spec}, {"fieldsV1": spec}])),
            None
        );
        assert_eq!(with(json!([])), None);
    }
}
