//! One look at one Lease and the objects that show it: the side effects around the [`projection`](super::projection).

use std::{sync::Arc, time::Duration};

use kube::ResourceExt;

use super::{
    api::ApiError,
    blindness,
    decide::{Decided, Look, Transition, decide},
    index::{Key, Snapshot},
    naming::{discovered, is_discovered, lease_of, lighten, stream_of},
    observe::Suppressed,
    shared::Shared,
    view::LeaseView,
};
use crate::crd::{ChangeStreamLeader, ChangeStreamLeaderStatus, HELD};

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
    if !shared.discovers(key) || lease.hidden {
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
        let Decided {
            mut decision,
            transitions,
            problem,
        } = match decide(shared, key, snapshot, &object).await? {
            Look::Decided(decided) => *decided,
            Look::Wait(pause) => return Ok((false, Some(pause))),
        };
        // Where nothing is seen, it was asked for a moment to write in before a read was made for it.
        if !blindness::is_told(&decision.status) {
            let afforded = shared.afford(&uid, &previous, decision);
            decision = afforded.decision;
            if afforded.throttled && decision.write.is_none() {
                shared.suppressed(key, Suppressed::Throttled);
            }
            if let Some(without) = afforded.without {
                shared.observer.throttled(&object, without);
            }
        }
        let Some(reason) = decision.write else {
            shared.suppressed(key, Suppressed::Unchanged);
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

fn see(shared: &Shared, mut object: ChangeStreamLeader) {
    lighten(&mut object);
    if let Ok(key) = lease_of(&object) {
        shared.see_object(key, object);
    }
}

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
