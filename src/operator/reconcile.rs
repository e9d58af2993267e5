//! One look at one Lease and the objects that show it: the side effects around the [`projection`](super::projection).

use std::{sync::Arc, time::Duration};

use kube::ResourceExt;

use super::{
    api::{ApiError, LEASES},
    controller::Shared,
    index::{Key, Snapshot},
    naming::{discovered, is_discovered, lease_of, stream_of},
    projection::{Projection, Sight, Subject, WriteReason, project},
    view::{LeaseView, is_older},
};
use crate::crd::{ChangeStreamLeader, ChangeStreamLeaderStatus, HELD};

/// When to look again whether the watch has shown what a read has shown.
const WATCH_LAG: Duration = Duration::from_millis(300);
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
        let Some((decision, transitions)) = decide(shared, key, snapshot, &object).await? else {
            return Ok((false, Some(WATCH_LAG)));
        };
        let Some(reason) = decision.write else {
            return Ok((true, decision.requeue_after));
        };
        let mut update = ChangeStreamLeader::clone(&object);
        update.status = Some(decision.status);
        match shared.server.write_status(&key.namespace, &update).await {
            Ok(written) => {
                tracing::debug!(
                    namespace = key.namespace,
                    object = object.name_any(),
                    ?reason,
                    "wrote a status"
                );
                for transition in &transitions {
                    say(key, &object, transition);
                }
                see(shared, written);
                return Ok((true, decision.requeue_after));
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

/// What to write, and each transition in it. `None` when the watch lags behind a read and should be given a moment.
async fn decide(
    shared: &Shared,
    key: &Key,
    snapshot: &Snapshot,
    object: &ChangeStreamLeader,
) -> Result<Option<(Projection, Vec<Transition>)>, ApiError> {
    let subject = Subject {
        stream: &object.spec.stream_name,
        lease: &key.lease,
        generation: object.metadata.generation,
        policy: object.spec.status_policy.unwrap_or_default(),
    };
    let mut status = object.status.clone().unwrap_or_default();
    let mut transitions = Vec::new();
    for step in &snapshot.steps {
        let sight = Sight {
            lease: Some(&step.view),
            before: step.before.as_deref(),
            // As it was then.
            fresh: true,
            now: step.view.received_at,
        };
        let decision = project(subject, &status, sight);
        if decision.write == Some(WriteReason::Transition) {
            transitions.push((status, decision.status.clone()));
        }
        status = decision.status;
    }
    let stepped = !transitions.is_empty();
    let sight = |lease, fresh| Sight {
        lease,
        before: None,
        fresh,
        now: shared.now(),
    };
    let mut decision = project(subject, &status, sight(snapshot.latest.as_deref(), false));
    if decision.read_first {
        let read = shared.server.lease(key).await?;
        if lags(shared, key, snapshot.latest.as_deref(), read.as_ref()) {
            return Ok(None);
        }
        // The same version: what is known of when it was first seen stays.
        let same = |known: &&LeaseView| {
            read.as_ref()
                .is_some_and(|r| r.uid == known.uid && r.resource_version == known.resource_version)
        };
        let read = snapshot.latest.as_deref().filter(same).or(read.as_ref());
        decision = project(subject, &status, sight(read, true));
    }
    if decision.write == Some(WriteReason::Transition) {
        transitions.push((status, decision.status.clone()));
    }
    if stepped && decision.write.is_none() {
        decision.write = Some(WriteReason::Transition);
    }
    Ok(Some((decision, transitions)))
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
        tracing::debug!(
            namespace = key.namespace,
            lease = key.lease,
            "the watch of {LEASES} lags; believing a read"
        );
    }
    waiting
}

fn see(shared: &Shared, mut object: ChangeStreamLeader) {
    object.metadata.managed_fields = None;
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
    if reason == reason_of(before) && leader_of(before) == leader_of(after) {
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
