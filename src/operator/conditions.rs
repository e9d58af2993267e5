//! The two conditions of a status, and the words of their reasons.
//!
//! `Ready` says whether the status is truthful, and is True also while nobody leads, so that `helm --wait` never hangs.
//! `Held` says whether an instance leads. Messages hold nothing that changes while the reason stays: a status that
//! differed with every renewal would be a second heartbeat.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::history::whole;
use crate::crd::{ChangeStreamLeaderStatus, HELD, READY};

/// What a condition says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Saying {
    pub(crate) status: &'static str,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Saying {
    pub(crate) fn new(status: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            reason,
            message: message.into(),
        }
    }

    /// The status shows the Lease as it is.
    pub(crate) fn up_to_date() -> Self {
        Self::new("True", "UpToDate", "The status shows the Lease as it is.")
    }
}

/// Writes both conditions. `lastTransitionTime` moves only when a condition's status does, to `at` (Held) or `now`.
pub(crate) fn set(
    status: &mut ChangeStreamLeaderStatus,
    generation: Option<i64>,
    ready: Saying,
    held: Saying,
    at: Timestamp,
    now: Timestamp,
) {
    let before = std::mem::take(&mut status.conditions);
    let condition = |type_: &str, saying: Saying, at: Timestamp| {
        let unchanged = before
            .iter()
            .find(|c| c.type_ == type_ && c.status == saying.status)
            .map(|c| c.last_transition_time.clone());
        Condition {
            type_: type_.to_owned(),
            status: saying.status.to_owned(),
            reason: saying.reason.to_owned(),
            message: saying.message,
            observed_generation: generation,
            last_transition_time: unchanged.unwrap_or_else(|| whole(at)),
        }
    };
    status.conditions = vec![condition(READY, ready, now), condition(HELD, held, at)];
}
