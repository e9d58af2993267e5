//! What to write for one object: every change of leadership that is not written yet, the Lease as it is now, and, where
//! what would be said must not rest on a cache, a read that makes sure.

use std::time::Duration;

use jiff::SignedDuration;
use kube::ResourceExt;

use super::{
    api::{ApiError, LEASES},
    blindness::Blindness,
    index::{Key, Snapshot},
    observe::{Suppressed, Watched, WriteReason},
    projection::{Projection, Sight, Source, Subject, previous_is_newer, project},
    shared::Shared,
    view::{LeaseView, is_older},
};
use crate::crd::{ChangeStreamLeader, ChangeStreamLeaderStatus};

/// When to look again whether the watch has shown what a read has shown.
const WATCH_LAG: Duration = Duration::from_millis(300);
/// How long a Lease that cannot be read may be overdue before that is told.
const HITCH: SignedDuration = SignedDuration::from_secs(5);

/// What came of a look.
pub(crate) enum Look {
    /// What to write.
    Decided(Box<Decided>),
    /// Look again in a moment.
    Wait(Duration),
}

/// What to write for one object.
pub(crate) struct Decided {
    pub(crate) decision: Projection,
    /// Each transition in it.
    pub(crate) transitions: Vec<Transition>,
    /// What went wrong on the way.
    pub(crate) problem: Option<ApiError>,
}

/// A status and the one that follows it.
pub(crate) type Transition = (ChangeStreamLeaderStatus, ChangeStreamLeaderStatus);

/// Decides about one object.
pub(crate) async fn decide(
    shared: &Shared,
    key: &Key,
    snapshot: &Snapshot,
    object: &ChangeStreamLeader,
) -> Result<Look, ApiError> {
    let subject = Subject {
        stream: &object.spec.stream_name,
        lease: &key.lease,
        generation: object.metadata.generation,
        policy: object.spec.status_policy.unwrap_or(shared.policy),
    };
    let uid = object.uid().unwrap_or_default();
    let refresh_due = shared.refresh_due(&uid);
    let blind = shared.blind(key);
    let mut status = object.status.clone().unwrap_or_default();
    let mut transitions = Vec::new();
    for step in &snapshot.steps {
        let sight = Sight {
            lease: Some(&step.view),
            before: step.before.as_deref(),
            source: Source::Step,
            now: step.view.received_at,
            refresh_due: false,
            blind: blind.as_ref(),
        };
        let decision = project(subject, &status, sight);
        if decision.write == Some(WriteReason::Transition) {
            transitions.push((status, decision.status.clone()));
        }
        status = decision.status;
    }
    let stepped = !transitions.is_empty();
    let look = |status: &ChangeStreamLeaderStatus, lease, source, blind| {
        let sight = Sight {
            lease,
            before: None,
            source,
            now: shared.now(),
            refresh_due,
            blind,
        };
        project(subject, status, sight)
    };
    let latest = snapshot.latest.as_deref();
    let mut decision = look(&status, latest, Source::Watch, blind.as_ref());
    let mut problem = None;
    if blind.is_some()
        && !stepped
        && (decision.write.is_some() || decision.read_first)
        && let Err(wait) = shared.pace(&uid)
    {
        shared.suppressed(key, Suppressed::Throttled);
        return Ok(Look::Wait(wait));
    }
    if decision.read_first {
        if previous_is_newer(&status, latest) && shared.wait_for_watch(key) {
            return Ok(Look::Wait(WATCH_LAG));
        }
        match shared.server.lease(key).await {
            Ok(read) => {
                if blind.is_some() && is_news(latest, read.as_ref()) {
                    // No watch will bring it.
                    if let Some(view) = read.as_ref().filter(|view| view.labelled) {
                        let key = shared.see_lease(view.clone(), false);
                        shared.wake(key);
                        return Ok(Look::Wait(WATCH_LAG));
                    }
                } else if blind.is_none() && lags(shared, key, latest, read.as_ref()) {
                    return Ok(Look::Wait(WATCH_LAG));
                }
                // The same version: what is known of when it was first seen stays.
                let same = |known: &&LeaseView| {
                    read.as_ref()
                        .is_some_and(|r| r.uid == known.uid && r.resource_version == known.resource_version)
                };
                let read = latest.filter(same).or(read.as_ref());
                decision = look(&status, read, Source::Read, blind.as_ref());
            }
            Err(error) => {
                let blind = unreadable(shared, latest, blind.as_ref(), &error);
                let Some(blind) = blind else {
                    return Err(error);
                };
                decision = look(&status, latest, Source::Watch, Some(&blind));
                problem = Some(error);
            }
        }
    }
    if decision.write == Some(WriteReason::Transition) {
        transitions.push((status, decision.status.clone()));
    }
    if stepped && decision.write.is_none() {
        decision.write = Some(WriteReason::Transition);
    }
    Ok(Look::Decided(Box::new(Decided {
        decision,
        transitions,
        problem,
    })))
}

/// What it means that a Lease could not be read: nothing yet, as long as that may be a hitch.
fn unreadable(
    shared: &Shared,
    latest: Option<&LeaseView>,
    blind: Option<&Blindness>,
    error: &ApiError,
) -> Option<Blindness> {
    if let Some(blind) = blind {
        return Some(blind.unreadable());
    }
    let for_long = || {
        let since = latest.and_then(LeaseView::expired_from)?;
        Some(shared.now().duration_since(since) >= HITCH)
    };
    (matches!(error, ApiError::Forbidden { .. }) || for_long() == Some(true))
        .then(|| Blindness::of_read(error))
}

/// Whether a read shows another version of the Lease than is known.
fn is_news(known: Option<&LeaseView>, read: Option<&LeaseView>) -> bool {
    let version = |view: &LeaseView| (view.uid.clone(), view.resource_version.clone());
    known.map(version) != read.map(version)
}

/// Whether a read shows something that the watch will deliver in a moment, with all that came before it.
fn lags(shared: &Shared, key: &Key, known: Option<&LeaseView>, read: Option<&LeaseView>) -> bool {
    let newer = match (known, read) {
        (Some(known), Some(read)) => {
            known.uid != read.uid || is_older(&known.resource_version, &read.resource_version)
        }
        (None, Some(read)) => read.labelled,
        (Some(_), None) => true,
        (None, None) => false,
    };
    if !newer {
        shared.caught_up(key);
        return false;
    }
    let waiting = shared.wait_for_watch(key);
    if !waiting {
        shared.lines.begin_again(Watched::Leases, &key.namespace);
        tracing::debug!(
            namespace = key.namespace,
            lease = key.lease,
            "the watch of {LEASES} lags; believing a read"
        );
    }
    waiting
}
