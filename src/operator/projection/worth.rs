//! Whether a status is worth a write, what kind of write that is, and when it will be.

use std::time::Duration;

use jiff::Timestamp;

use super::{Projection, Sight};
use crate::{
    crd::{ChangeStreamLeaderStatus, HELD},
    operator::{blindness, observe::WriteReason, view::Hold},
};

/// How long before it lapses an `expirationTime` is written again.
pub(crate) fn refresh_lead(ttl: Duration) -> Duration {
    (ttl / 6).max(Duration::from_millis(1500))
}

/// What is left of the status when everything is taken out that moves without a transition.
fn facts(status: &ChangeStreamLeaderStatus) -> ChangeStreamLeaderStatus {
    let mut facts = status.clone();
    (
        facts.observed_generation,
        facts.lease_resource_version,
        facts.expiration_time,
    ) = (None, None, None);
    facts
        .conditions
        .iter_mut()
        .for_each(|c| c.observed_generation = None);
    facts
}

/// Whether who leads is the same in both, and all that changed is a condition: Ready, or either when nothing was seen.
fn same_leadership(previous: &ChangeStreamLeaderStatus, next: &ChangeStreamLeaderStatus) -> bool {
    let blind = blindness::is_told(previous) || blindness::is_told(next);
    let bare = |status: &ChangeStreamLeaderStatus| {
        let mut bare = facts(status);
        bare.conditions.retain(|c| c.type_ == HELD && !blind);
        bare
    };
    !previous.conditions.is_empty() && bare(previous) == bare(next)
}

pub(super) fn decide(
    previous: &ChangeStreamLeaderStatus,
    status: ChangeStreamLeaderStatus,
    sight: Sight<'_>,
    expires: Option<Timestamp>,
) -> Projection {
    let until = |at: Timestamp| Duration::try_from(at.duration_since(sight.now)).unwrap_or(Duration::ZERO);
    let ttl = sight.lease.and_then(|lease| lease.ttl);
    let mut requeue_after = expires
        .filter(|_| {
            sight
                .lease
                .is_some_and(|l| matches!(l.hold, Hold::Held(_) | Hold::Wiped(_)))
        })
        .map(until);
    let write = if facts(&status) != facts(previous) {
        Some(if same_leadership(previous, &status) {
            WriteReason::Condition
        } else {
            WriteReason::Transition
        })
    } else if status.observed_generation != previous.observed_generation {
        Some(WriteReason::Spec)
    } else {
        match (&status.expiration_time, &previous.expiration_time) {
            (new, old) if new == old => None,
            (Some(new), Some(old)) if new.0 > old.0 => {
                let ttl = ttl.unwrap_or_default();
                let left = until(old.0);
                // A renewal in the last third is worth a write; without one, the last sixth is the time for it. The
                // added second is what the server's times are rounded by.
                if left <= ttl / 3 + Duration::from_secs(1) || sight.refresh_due {
                    Some(WriteReason::Refresh)
                } else {
                    let refresh = left.saturating_sub(refresh_lead(ttl));
                    requeue_after = Some(requeue_after.map_or(refresh, |after| after.min(refresh)));
                    None
                }
            }
            _ => Some(WriteReason::Refresh),
        }
    };
    let status = if write.is_some() { status } else { previous.clone() };
    Projection {
        status,
        write,
        requeue_after,
        read_first: false,
        ttl,
    }
}
