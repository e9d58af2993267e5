//! What a status says while the operator cannot see: a watch that is broken or forbidden, a Lease that cannot be read.
//!
//! `Ready` turns Unknown and names the reason; `expirationTime` goes, for what is not watched can be released any moment.
//! The last leader stays, as the last that was known, and `Held` stays True until that leader's time is over by what was
//! last seen; then it is Unknown too. A lock that nobody held can be taken any moment, so there `Held` is Unknown at
//! once. Pure.

use std::time::Duration;

use jiff::Timestamp;

use super::{
    api::{ApiError, LEASES},
    conditions::{self, Saying},
    observe::WriteReason,
    projection::{Projection, Subject},
    view::{Hold, LeaseView, is_older},
};
use crate::crd::{ChangeStreamLeaderStatus, HELD, READY};

/// The reason of Held while nothing is seen.
const NOT_SEEN: &str = "LeaseNotSeen";

/// Why nothing is seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Blindness {
    reason: &'static str,
    message: String,
    /// Reading the Lease has been tried, and was no use.
    unreadable: bool,
}

impl Blindness {
    /// A watch, or the list before it, has failed with this.
    pub(crate) fn of_watch(error: &ApiError) -> Self {
        let reason = match error {
            ApiError::Forbidden { .. } => "WatchForbidden",
            ApiError::Unreachable { .. } => "ApiServerUnreachable",
            _ => "WatchBroken",
        };
        Self::new(reason, &format!("changes of {LEASES} are not seen"), error)
    }

    /// Reading a Lease, to make sure of what is to be said about it, has failed with this.
    pub(crate) fn of_read(error: &ApiError) -> Self {
        let reason = match error {
            ApiError::Forbidden { .. } => "ReadForbidden",
            ApiError::Unreachable { .. } => "ApiServerUnreachable",
            _ => "LeaseUnreadable",
        };
        Self {
            unreadable: true,
            ..Self::new(reason, "the Lease cannot be read", error)
        }
    }

    fn new(reason: &'static str, what: &str, error: &ApiError) -> Self {
        // The details of a broken connection differ from one attempt to the next, and each would be a write.
        let why = match error {
            ApiError::Unreachable { .. } => "the API server does not answer as it should".to_owned(),
            other => other.to_string().chars().take(500).collect(),
        };
        Self {
            reason,
            message: format!("The status shows what was seen last, and may be out of date: {what}; {why}."),
            unreadable: false,
        }
    }

    /// The same, after a read has failed too.
    pub(crate) fn unreadable(&self) -> Self {
        Self {
            unreadable: true,
            ..self.clone()
        }
    }

    /// What `Ready` says.
    pub(crate) fn saying(&self) -> Saying {
        Saying::new("Unknown", self.reason, self.message.clone())
    }
}

/// What `Held` says of a lock that nobody held when it was last seen: it may have been taken since.
pub(crate) fn not_seen() -> Saying {
    let says =
        "Whether an instance leads is not known; holderIdentity, if there is one, is the last that was seen.";
    Saying::new("Unknown", NOT_SEEN, says)
}

/// Whether a status says that nothing is seen.
pub(crate) fn is_told(status: &ChangeStreamLeaderStatus) -> bool {
    status.condition(READY).is_some_and(|c| c.status == "Unknown")
}

/// What a status says that cannot be compared with the Lease. `last` is the Lease as last seen, if it ever was.
pub(crate) fn project(
    subject: Subject<'_>,
    previous: &ChangeStreamLeaderStatus,
    last: Option<&LeaseView>,
    blind: &Blindness,
    now: Timestamp,
) -> Projection {
    let mut status = previous.clone();
    status.observed_generation = subject.generation;
    status.lease_name = Some(subject.lease.to_owned());
    status.expiration_time = None;
    let held = previous.condition(HELD);
    let leads = held.filter(|held| held.status == "True");
    let lives = leads
        .and_then(|_| lives_until(previous, last))
        .filter(|until| *until > now);
    let (saying, since) = match (lives, leads) {
        (Some(_), Some(held)) => (
            Saying::new("True", "LeaseHeld", held.message.clone()),
            held.last_transition_time.0,
        ),
        _ => (not_seen(), now),
    };
    conditions::set(
        &mut status,
        subject.generation,
        blind.saying(),
        saying,
        since,
        now,
    );
    let ttl = last.and_then(|lease| lease.ttl);
    let look_again = lives.map(|until| Duration::try_from(until.duration_since(now)).unwrap_or_default());
    // A leader whose time seems over may have gone on: where only the watch is broken, a read tells.
    let read_first = leads.is_some() && lives.is_none() && !blind.unreadable;
    let write = (!read_first && status != *previous).then_some(WriteReason::Condition);
    Projection {
        status: if write.is_some() { status } else { previous.clone() },
        write,
        requeue_after: look_again,
        read_first,
        ttl,
    }
}

/// Until when the leader that the status shows leads, by what was seen of it. Of one that was never seen, nobody knows.
fn lives_until(previous: &ChangeStreamLeaderStatus, last: Option<&LeaseView>) -> Option<Timestamp> {
    last.filter(|lease| {
        matches!(&lease.hold, Hold::Held(holder) if Some(holder) == previous.holder_identity.as_ref())
            && previous.lease_uid.as_ref() == Some(&lease.uid)
            && previous.fencing_token == lease.token
            && !previous
                .lease_resource_version
                .as_deref()
                .is_some_and(|shown| is_older(&lease.resource_version, shown))
    })
    .and_then(LeaseView::expired_from)
}

#[cfg(test)]
mod tests;
