//! From a Lease to a status: what it says, whether it is worth a write, and when to look again. Pure.
//!
//! A status is written on every transition. In between it is written only when the `expirationTime` that is stored is
//! about to lapse while the Lease is being renewed, which is about once per two thirds of the TTL: `expirationTime` is
//! a lower bound that lies in the future for a live leader. An expiry and a deletion are believed only after the Lease
//! was read once more.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{
    blindness::{self, Blindness},
    conditions::{self, Saying},
    history::{end, how_it_ended, whole},
    observe::WriteReason,
    view::{Hold, LeaseView, is_older},
};
use crate::crd::{ChangeStreamLeaderStatus, Ended, StatusPolicy};
use worth::decide;
pub(crate) use worth::refresh_lead;

/// Below this TTL `expirationTime` is left out: the server's times are whole seconds, and a status that is written
/// every second is a heartbeat.
const SHORTEST_SHOWN_TTL: Duration = Duration::from_secs(3);
/// The reason of Held while there is no Lease.
const NOT_FOUND: &str = "LeaseNotFound";
/// The reason of Held while nobody holds the Lease, and nothing tells who did.
const FREE: &str = "LeaseFree";
/// How often a Lease is read that no watch finds.
const POLL: Duration = Duration::from_secs(15);
/// How often a Lease is looked for that does not exist: other tools may create it without our labels.
const LOOK_FOR: Duration = Duration::from_secs(60);

/// What is asked for: the facts of one `ChangeStreamLeader`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub(crate) stream: &'a str,
    pub(crate) lease: &'a str,
    pub(crate) generation: Option<i64>,
    pub(crate) policy: StatusPolicy,
}

/// Where a [`Sight`] comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// What the watch has brought last.
    Watch,
    /// What the watch had brought then: a change of leadership that was not written yet.
    Step,
    /// A read that was made just now, to make sure.
    Read,
}

/// What is known of the Lease.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sight<'a> {
    /// The Lease; `None` when there is none.
    pub(crate) lease: Option<&'a LeaseView>,
    /// What it looked like right before, if the watch has seen every change since.
    pub(crate) before: Option<&'a LeaseView>,
    pub(crate) source: Source,
    /// The time on the API server's clock; never ahead of it.
    pub(crate) now: Timestamp,
    /// The second is here in which the stored `expirationTime` can be written again: any later one is worth it.
    pub(crate) refresh_due: bool,
    /// Why changes are not seen, if they are not.
    pub(crate) blind: Option<&'a Blindness>,
}

/// The decision.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Projection {
    /// The status to write; the previous one when there is nothing to write.
    pub(crate) status: ChangeStreamLeaderStatus,
    /// Why to write it, if at all.
    pub(crate) write: Option<WriteReason>,
    /// When to look again, unless something happens before.
    pub(crate) requeue_after: Option<Duration>,
    /// Read the Lease and ask again: what would be said must not rest on a cache.
    pub(crate) read_first: bool,
    /// How long the Lease outlives a renewal.
    pub(crate) ttl: Option<Duration>,
}

impl Projection {
    /// Looks again after this long, if not before.
    pub(crate) fn look_again(mut self, after: Option<Duration>) -> Self {
        self.requeue_after = self.requeue_after.into_iter().chain(after).min();
        self
    }
}

/// Decides. See the module.
pub(crate) fn project(
    subject: Subject<'_>,
    previous: &ChangeStreamLeaderStatus,
    sight: Sight<'_>,
) -> Projection {
    let keep = |read_first| Projection {
        status: previous.clone(),
        write: None,
        requeue_after: None,
        read_first,
        ttl: sight.lease.and_then(|lease| lease.ttl),
    };
    if let Some(blind) = sight.blind.filter(|_| sight.source == Source::Watch) {
        return blindness::project(subject, previous, sight.lease, blind, sight.now);
    }
    // Another replica has seen more, unless the status lies: then a read that was made after it was seen says so.
    if sight.source != Source::Read && previous_is_newer(previous, sight.lease) {
        return keep(sight.source == Source::Watch);
    }
    // What ended stays ended: another replica may have told so, by a clock that is a little ahead of this one.
    let over = sight.lease.is_some_and(|lease| shows_the_end(previous, lease));
    let expired_from = sight.lease.and_then(LeaseView::expired_from);
    let expired = over || expired_from.is_some_and(|from| from <= sight.now);
    if sight.source == Source::Watch && (sight.lease.is_none() || (expired && !over)) {
        return keep(true);
    }

    let mut status = previous.clone();
    status.observed_generation = subject.generation;
    status.lease_name = Some(subject.lease.to_owned());
    let Some(lease) = sight.lease else {
        missing(&mut status, subject, sight);
        return decide(previous, status, sight, None).look_again(Some(LOOK_FOR));
    };
    status.lease_uid = Some(lease.uid.clone());
    status.lease_resource_version = Some(lease.resource_version.clone());
    if let Some(other) = lease.stream.as_deref().filter(|s| *s != subject.stream) {
        conflict(&mut status, subject, other, sight.now);
        let nobody = Sight { lease: None, ..sight };
        return decide(previous, status, nobody, None);
    }

    let (mut held, at) = show(&mut status, previous, lease, sight, expired);
    if sight.blind.is_some() && held.status != "True" {
        held = blindness::not_seen();
    }
    // While changes are not seen, nothing is promised of the future.
    let shown = subject.policy == StatusPolicy::Full && lease.labelled && sight.blind.is_none();
    status.expiration_time = (shown && status.holder_identity.is_some())
        .then(|| expiration(lease))
        .flatten();
    conditions::set(
        &mut status,
        subject.generation,
        sight
            .blind
            .map_or_else(|| ready(subject, lease), Blindness::saying),
        held,
        at,
        sight.now,
    );

    decide(previous, status, sight, expired_from.filter(|_| !expired))
        .look_again((!lease.labelled).then_some(POLL))
}

/// Fills in the holder, and moves one that is over into the history. Answers what `Held` says, and since when.
fn show(
    status: &mut ChangeStreamLeaderStatus,
    previous: &ChangeStreamLeaderStatus,
    lease: &LeaseView,
    sight: Sight<'_>,
    expired: bool,
) -> (Saying, Timestamp) {
    status.lease_duration_seconds = lease.duration_seconds;
    status.lease_transitions = lease.transitions;
    let written = lease.renewed_at();
    let same = matches!(&lease.hold, Hold::Held(holder) if Some(holder) == previous.holder_identity.as_ref())
        && previous.fencing_token == lease.token
        && previous.lease_transitions == lease.transitions
        && previous.lease_uid.as_ref() == Some(&lease.uid);
    if !same && status.holder_identity.is_some() {
        let (ended, to) = how_it_ended(previous, sight.before, lease);
        end(status, ended, to);
    }
    match &lease.hold {
        Hold::Held(holder) if expired => {
            let to = expired_at(lease).unwrap_or(written);
            if !same && !shows_the_end(previous, lease) {
                hold(status, holder, lease, sight.before.is_some());
            }
            end(status, Ended::Expired, Some(to));
            let says =
                "Nobody leads: the last leader did not renew in time. Any instance that asks can take over.";
            (Saying::new("False", "LeaseExpired", says), to)
        }
        Hold::Held(holder) => {
            if !same {
                hold(status, holder, lease, sight.before.is_some());
            }
            let since = status.acquire_time.as_ref().map_or(written, |t| t.0);
            (
                Saying::new("True", "LeaseHeld", "An instance leads and renews in time."),
                since,
            )
        }
        Hold::Wiped(_) if !expired => {
            let says = "Somebody else cleared the holder. The instance that led may act until its TTL has passed, and \
                        the others wait for that.";
            (Saying::new("Unknown", "HolderWiped", says), lease.changed_at())
        }
        Hold::Released(_) => {
            let says = "Nobody leads: the last leader released the lock. Any instance that asks gets it.";
            (Saying::new("False", "LeaseReleased", says), lease.changed_at())
        }
        Hold::Wiped(_) | Hold::Free => (
            Saying::new(
                "False",
                FREE,
                "Nobody leads. Any instance that asks gets the lock.",
            ),
            lease.changed_at(),
        ),
    }
}

fn hold(status: &mut ChangeStreamLeaderStatus, holder: &str, lease: &LeaseView, seen: bool) {
    let written = lease.renewed_at();
    // The acquiring write tells the server's time of it: seen as it happened, or before the first renewal. Later only the
    // holder's word is left, and that is later neither than the last renewal nor earlier than the end of the one before.
    let told = lease
        .acquire_time
        .filter(|acquired| !seen && lease.renew_time.is_some_and(|renewed| renewed > *acquired));
    let acquired = told.map_or(written, |acquired| acquired.min(written));
    let ended = status
        .history
        .first()
        .and_then(|past| past.to.as_ref())
        .map(|t| t.0);
    let acquired = ended.map_or(acquired, |ended| acquired.max(ended.min(written)));
    status.holder_identity = Some(holder.to_owned());
    status.acquire_time = Some(whole(acquired));
    status.fencing_token = lease.token;
}

fn ready(subject: Subject<'_>, lease: &LeaseView) -> Saying {
    if !lease.labelled {
        return Saying::new(
            "False",
            "LeaseNotLabelled",
            format!(
                "Lease {} lacks the labels app.kubernetes.io/managed-by=leasewarden and \
                 app.kubernetes.io/component=stream-lock, so changes are seen late. An instance that acquires the lock adds \
                 them; or: kubectl label lease {} app.kubernetes.io/managed-by=leasewarden \
                 app.kubernetes.io/component=stream-lock",
                subject.lease, subject.lease
            ),
        );
    }
    if let Some(token) = &lease.bad_token {
        return Saying::new(
            "False",
            "FencingTokenUnusable",
            format!(
                "The annotation leasewarden.dev/fencing-token of Lease {} is {token:?}. No instance can acquire the lock until \
                 it is a number below 9223372036854775807 that is at least the highest token in the stream's store.",
                subject.lease
            ),
        );
    }
    Saying::up_to_date()
}

fn missing(status: &mut ChangeStreamLeaderStatus, subject: Subject<'_>, sight: Sight<'_>) {
    let now = sight.now;
    end(status, Ended::Deleted, Some(now));
    (status.lease_duration_seconds, status.lease_transitions) = (None, None);
    let says = format!(
        "Nobody leads: there is no Lease {}. The first instance that asks for stream {:?} creates it.",
        subject.lease, subject.stream
    );
    let (ready, held) = match sight.blind {
        Some(blind) => (blind.saying(), blindness::not_seen()),
        None => (
            Saying::new("True", "UpToDate", "The status shows that there is no Lease."),
            Saying::new("False", NOT_FOUND, says),
        ),
    };
    conditions::set(status, subject.generation, ready, held, now, now);
}

fn conflict(status: &mut ChangeStreamLeaderStatus, subject: Subject<'_>, other: &str, now: Timestamp) {
    end(status, Ended::Unknown, None);
    (status.lease_duration_seconds, status.lease_transitions) = (None, None);
    let other: String = other.chars().take(200).collect();
    let says = format!(
        "Lease {} locks stream {other:?}, not {:?}. Correct spec.leaseName or spec.streamName by creating this object again.",
        subject.lease, subject.stream
    );
    let ready = Saying::new("False", "LeaseConflict", says.clone());
    conditions::set(
        status,
        subject.generation,
        ready,
        Saying::new("Unknown", "LeaseConflict", says),
        now,
        now,
    );
}

/// A status never goes back: not to an older version of the same Lease, and not to a Lease that was seen gone.
pub(crate) fn previous_is_newer(previous: &ChangeStreamLeaderStatus, lease: Option<&LeaseView>) -> bool {
    let (Some(lease), Some(version)) = (lease, previous.lease_resource_version.as_deref()) else {
        return false;
    };
    let gone = previous
        .condition(crate::crd::HELD)
        .is_some_and(|c| c.reason == NOT_FOUND);
    previous.lease_uid.as_ref() == Some(&lease.uid) && (gone || is_older(&lease.resource_version, version))
}

/// Whether the previous status already says of this very record that its time is over.
fn shows_the_end(previous: &ChangeStreamLeaderStatus, lease: &LeaseView) -> bool {
    if previous.lease_uid.as_ref() != Some(&lease.uid) {
        return false;
    }
    let same_version = previous.lease_resource_version.as_ref() == Some(&lease.resource_version);
    match &lease.hold {
        Hold::Held(holder) => previous.history.first().is_some_and(|past| {
            past.ended == Ended::Expired
                && past.holder_identity == *holder
                && past.fencing_token == lease.token
                && previous.holder_identity.is_none()
                && (same_version || past.to == expired_at(lease).map(whole))
        }),
        Hold::Wiped(_) => {
            same_version
                && previous
                    .condition(crate::crd::HELD)
                    .is_some_and(|c| c.reason == FREE)
        }
        Hold::Released(_) | Hold::Free => false,
    }
}

/// When a record is over unless it is renewed, as the status shows it.
fn expired_at(lease: &LeaseView) -> Option<Timestamp> {
    lease.renewed_at().checked_add(lease.ttl?).ok()
}

fn expiration(lease: &LeaseView) -> Option<Time> {
    lease.ttl.filter(|ttl| *ttl >= SHORTEST_SHOWN_TTL)?;
    expired_at(lease).map(whole)
}

#[cfg(test)]
mod tests;
mod worth;
