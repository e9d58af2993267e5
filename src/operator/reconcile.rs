//! One look at one Lease and the objects that show it: the side effects around the [`projection`](super::projection).

use std::{sync::Arc, time::Duration};

use kube::ResourceExt;

use super::{
    api::{ApiError, LEASES},
    blindness::{self, Blindness},
    controller::Shared,
    index::{Key, Snapshot},
    naming::{discovered, is_discovered, lease_of, lighten, stream_of},
    observe::{Suppressed, Watched, WriteReason},
    projection::{Projection, Sight, Source, Subject, previous_is_newer, project},
    view::{LeaseView, is_older},
};
use crate::crd::{ChangeStreamLeader, ChangeStreamLeaderStatus, HELD};

/// When to look again whether the watch has shown what a read has shown.
const WATCH_LAG: Duration = Duration::from_millis(300);
/// How long a Lease that cannot be read may be overdue before that is told.
const HITCH: jiff::SignedDuration = jiff::SignedDuration::from_secs(5);
/// How often a lost race is run again at once.
const RACES: usize = 5;

/// Brings the objects of `key` up to date. Answers when to look again, unless something happens before.
pub(crate) async fn reconcile(shared: &Shared, key: &Key) -> Result<Option<Duration>, ApiError> {
    if !shared.is_ready(key) {
        return Ok(None);
    }
    let snapshot = shared.snapshot(key);
    let written_by_hand = |stream: &str| {
        let mut objects = snapshot.objects.iter();
        objects.any(|o| !is_discovered(o) && o.spec.stream_name == stream)
    };
    if snapshot.objects.is_empty() {
        shared.caught_up(key);
    }
    let mut again: Option<Duration> = None;
    let mut all_shown = true;
    // What fails for one object is told after the others had their turn.
    let mut problem = None;
    for object in &snapshot.objects {
        if is_discovered(object) && written_by_hand(&object.spec.stream_name) {
            problem = problem.or(yield_to_hand_written(shared, key, object).await.err());
            continue;
        }
        match show(shared, key, &snapshot, Arc::clone(object)).await {
            Ok((shown, after)) => {
                all_shown &= shown;
                again = again.into_iter().chain(after).min();
            }
            Err(error) => {
                all_shown = false;
                problem = problem.or(Some(error));
            }
        }
    }
    if all_shown && !(snapshot.objects.is_empty() && snapshot.latest.is_some()) {
        shared.written(key, &snapshot.steps);
    }
    if let Some(lease) = &snapshot.latest
        && shared.blind(key).is_none()
        && !snapshot
            .objects
            .iter()
            .any(|o| o.spec.stream_name == stream_of(lease))
    {
        // Not only where there is no object: one that claims this Lease for another stream must not hide whose it is.
        discover(shared, key, lease).await?;
    }
    problem.map_or(Ok(again), Err)
}

/// Creates the object for a Lease that has none.
async fn discover(shared: &Shared, key: &Key, lease: &LeaseView) -> Result<(), ApiError> {
    if !shared.discovery {
        return Ok(());
    }
    let taken = shared.named(&key.namespace, &key.lease).is_some();
    let object = discovered(lease, taken);
    match shared.server.create(&key.namespace, &object).await {
        Ok(object) => {
            let stream = &object.spec.stream_name;
            tracing::info!(
                stream,
                namespace = key.namespace,
                lease = key.lease,
                "discovered a stream"
            );
            see(shared, object);
            shared.wake(key.clone());
            Ok(())
        }
        Err(ApiError::Conflict) => {
            let name = object.name_any();
            let found = shared.server.object(&key.namespace, &name).await?;
            let is_it = found.spec.stream_name == object.spec.stream_name
                && lease_of(&found).is_ok_and(|found| found == *key);
            see(shared, found);
            // Both names are another's: only a person can mend that, so asking again at once would go on for ever.
            if taken && !is_it {
                return Err(ApiError::NameTaken {
                    name,
                    lease: key.lease.clone(),
                });
            }
            // The watch will show it, or already does; or it is about something else, and the other name is tried.
            shared.wake(key.clone());
            Ok(())
        }
        // It was deleted with its namespace, and the Lease is about to be.
        Err(ApiError::NamespaceEnds) => Ok(()),
        Err(error) => Err(error),
    }
}

async fn yield_to_hand_written(
    shared: &Shared,
    key: &Key,
    object: &ChangeStreamLeader,
) -> Result<(), ApiError> {
    let name = object.name_any();
    match shared.server.delete(&key.namespace, object).await {
        Ok(()) => {
            tracing::info!(
                namespace = key.namespace,
                lease = key.lease,
                object = name,
                "took the discovered object away: another for the same Lease was written by hand"
            );
        }
        Err(ApiError::NotFound(_)) => {}
        // Written meanwhile, by another replica say, or another object by now: looked at again as it is.
        Err(ApiError::Conflict) => match shared.server.object(&key.namespace, &name).await {
            Ok(current) => {
                see(shared, current);
                shared.wake(key.clone());
                return Ok(());
            }
            Err(ApiError::NotFound(_)) => {}
            Err(error) => return Err(error),
        },
        Err(error) => return Err(error),
    }
    shared.lose_object(&key.namespace, &name, object.uid().as_deref());
    Ok(())
}

/// Brings one object up to date. Answers whether it is, and when to look again.
async fn show(
    shared: &Shared,
    key: &Key,
    snapshot: &Snapshot,
    mut object: Arc<ChangeStreamLeader>,
) -> Result<(bool, Option<Duration>), ApiError> {
    for _ in 0..RACES {
        let uid = object.uid().unwrap_or_default();
        let previous = object.status.clone().unwrap_or_default();
        let (mut decision, transitions, problem) = match decide(shared, key, snapshot, &object).await? {
            Look::Decided(decided) => decided,
            Look::Wait(pause) => return Ok((false, Some(pause))),
        };
        // Where nothing is seen, it was asked for a moment to write in before a read was made for it.
        if !blindness::is_told(&decision.status) {
            let afforded = shared.afford(&uid, &previous, decision);
            decision = afforded.decision;
            if afforded.throttled && decision.write.is_none() {
                shared.observer.suppressed(Suppressed::Throttled);
            }
            tell_of_throttling(shared, &object, &decision, afforded.throttled);
        }
        let Some(reason) = decision.write else {
            shared.observer.suppressed(Suppressed::Unchanged);
            return problem.map_or(Ok((true, decision.requeue_after)), Err);
        };
        let mut update = ChangeStreamLeader::clone(&object);
        update.status = Some(decision.status);
        let written = shared.server.write_status(&key.namespace, &update).await;
        if written.is_err() {
            shared.not_written(&uid, &previous);
        }
        match written {
            Ok(written) => {
                tracing::debug!(
                    namespace = key.namespace,
                    object = object.name_any(),
                    reason = reason.label(),
                    "wrote a status"
                );
                for transition in &transitions {
                    say(key, &object, transition);
                    shared.observer.transition(&object, &transition.0, &transition.1);
                }
                shared.observer.written(&written, reason);
                see(shared, written);
                return problem.map_or(Ok((true, decision.requeue_after)), Err);
            }
            Err(ApiError::Conflict) => {
                let current = shared.server.object(&key.namespace, &object.name_any()).await;
                match current {
                    Ok(current) if current.uid() == object.uid() => {
                        object = Arc::new(current.clone());
                        see(shared, current);
                    }
                    Ok(_) | Err(ApiError::NotFound(_)) => break,
                    Err(error) => return Err(error),
                }
            }
            Err(ApiError::NotFound(_)) => break,
            Err(error) => return Err(error),
        }
    }
    // Gone, replaced or written all the time by somebody else: its watch tells.
    Ok((false, Some(Duration::from_secs(1))))
}

/// What came of a look.
enum Look {
    /// What to write, each transition in it, and what went wrong on the way.
    Decided((Projection, Vec<Transition>, Option<ApiError>)),
    /// Look again in a moment.
    Wait(Duration),
}

async fn decide(
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
        shared.observer.suppressed(Suppressed::Throttled);
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
    Ok(Look::Decided((decision, transitions, problem)))
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

fn tell_of_throttling(shared: &Shared, object: &ChangeStreamLeader, decision: &Projection, throttled: bool) {
    let before = object
        .status
        .as_ref()
        .is_some_and(|s| s.expiration_time.is_some());
    let after = decision.status.expiration_time.is_some();
    if before != after && decision.write.is_some() && (throttled || after) {
        shared.observer.throttled(object, throttled);
    }
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

fn see(shared: &Shared, mut object: ChangeStreamLeader) {
    lighten(&mut object);
    if let Ok(key) = lease_of(&object) {
        shared.see_object(key, object);
    }
}

/// A status and the one that follows it.
type Transition = (ChangeStreamLeaderStatus, ChangeStreamLeaderStatus);

/// The line of a transition.
fn say(key: &Key, object: &ChangeStreamLeader, (before, after): &Transition) {
    let reason_of =
        |s: &ChangeStreamLeaderStatus| s.condition(HELD).map(|c| c.reason.clone()).unwrap_or_default();
    let leader_of = |s: &ChangeStreamLeaderStatus| (s.holder_identity.clone(), s.fencing_token);
    let reason = reason_of(after);
    let blind = blindness::is_told(before) || blindness::is_told(after);
    if (blind || reason == reason_of(before)) && leader_of(before) == leader_of(after) {
        // Something else about it changed: a label, a TTL.
        return;
    }
    // Where nobody leads any more, the line is about who did.
    let (holder, token) = if after.holder_identity.is_some() {
        leader_of(after)
    } else {
        leader_of(before)
    };
    let reason = reason.as_str();
    tracing::info!(
        stream = object.spec.stream_name,
        namespace = key.namespace,
        lease = key.lease,
        holder,
        token,
        reason,
        "{}",
        match reason {
            "LeaseHeld" => "a leader was elected",
            "LeaseReleased" => "the leader released the lock",
            "LeaseExpired" => "the leader's lock expired",
            "HolderWiped" => "somebody cleared the leader",
            "LeaseNotFound" => "there is no Lease",
            "LeaseConflict" => "the Lease belongs to another stream",
            _ => "nobody leads",
        }
    );
}
