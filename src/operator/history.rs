//! How a leadership ended, and the list of those that did.
//!
//! The end is what was observed: by the record itself (a release is marked, another uid proves a deletion), or by the
//! watch that saw the Lease right before. Where neither tells, the entry says so and invents nothing.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::view::{Hold, LeaseView};
use crate::crd::{ChangeStreamLeaderStatus, Ended, HISTORY_MAX, PastLeader};

/// How the leadership that `previous` shows ended, given that `now` shows another or none, and when. `before` is what
/// the Lease looked like right before, if the watch was there.
pub(crate) fn how_it_ended(
    previous: &ChangeStreamLeaderStatus,
    before: Option<&LeaseView>,
    now: &LeaseView,
) -> (Ended, Option<Timestamp>) {
    let of_previous = |holder: &String| {
        Some(holder) == previous.holder_identity.as_ref() && now.token == previous.fencing_token
    };
    if previous.lease_uid.as_ref() != Some(&now.uid) {
        return (Ended::Deleted, None);
    }
    match &now.hold {
        Hold::Released(holder) if of_previous(holder) => return (Ended::Released, Some(now.changed_at())),
        Hold::Wiped(holder) if of_previous(holder) => return (Ended::Wiped, Some(now.changed_at())),
        _ => {}
    }
    // Without what came before, anything may have happened in between.
    let Some(before) = before.filter(
        |b| matches!(&b.hold, Hold::Held(holder) if Some(holder) == previous.holder_identity.as_ref()),
    ) else {
        return (Ended::Unknown, None);
    };
    let at = now.changed_at();
    match &now.hold {
        Hold::Held(holder) => {
            let expired = before
                .ttl
                .and_then(|ttl| before.renewed_at().checked_add(ttl).ok());
            match expired {
                Some(expired) if expired <= at => (Ended::Expired, Some(expired)),
                _ if Some(holder) == previous.holder_identity.as_ref() => (Ended::Reacquired, Some(at)),
                _ => (Ended::TakenOver, Some(at)),
            }
        }
        // A holder without a term of ours (client-go) clears the holder to release, and leaves no mark.
        Hold::Free if previous.fencing_token.is_none() => (Ended::Released, Some(at)),
        Hold::Free => (Ended::Wiped, Some(at)),
        // Another's end: what was between the two is not known, however close they follow on each other.
        Hold::Released(_) | Hold::Wiped(_) => (Ended::Unknown, None),
    }
}

/// Puts the leadership that `status` shows into its history, and takes it out of its fields.
pub(crate) fn end(status: &mut ChangeStreamLeaderStatus, ended: Ended, to: Option<Timestamp>) {
    let Some(holder_identity) = status.holder_identity.take() else {
        return;
    };
    let past = PastLeader {
        holder_identity,
        fencing_token: status.fencing_token.take(),
        from: status.acquire_time.take(),
        to: to.map(whole),
        ended,
    };
    status.expiration_time = None;
    status.history.insert(0, past);
    status.history.truncate(HISTORY_MAX);
}

/// A time as it comes back from the API server: whole seconds.
pub(crate) fn whole(at: Timestamp) -> Time {
    let seconds = at.as_second() - i64::from(at.subsec_nanosecond() < 0);
    Time(Timestamp::from_second(seconds).unwrap_or(at))
}
