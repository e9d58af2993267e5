//! Events on `ChangeStreamLeader`s: one for each transition. The same again within minutes is one event with a count, which
//! kube's recorder sees to.
//!
//! They wait in a queue of their own, so that a slow API server delays no status; when it is full, events are dropped and
//! counted.

use std::{
    collections::{HashMap, VecDeque},
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client, Resource, ResourceExt,
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use sha2::{Digest, Sha256};
use tokio::{sync::mpsc, time::Instant};

use super::{blindness, metrics::Metrics, observe::Observer};
use crate::crd::{ChangeStreamLeader, ChangeStreamLeaderStatus, HELD};

/// How many events wait at most.
const WAITING: usize = 1000;
/// How long one may take to be sent.
const TIMEOUT: Duration = Duration::from_secs(10);
const SAY_AGAIN: Duration = Duration::from_secs(300);
/// So many changes of leader in so long are flapping: a rollout of a few instances is not.
const FLAPPING: usize = 6;
const WITHIN: Duration = Duration::from_secs(600);
/// The API server takes a note of 1 kB.
const NOTE_MAX: usize = 1000;

/// Makes events of what it observes.
pub(crate) struct Events {
    queue: mpsc::Sender<(Event, ObjectReference)>,
    metrics: Arc<Metrics>,
    /// When the leader changed, by the object's uid.
    changes: Mutex<HashMap<String, VecDeque<Instant>>>,
}

impl Events {
    /// And what sends them, until this is dropped.
    pub(crate) fn new(
        client: Client,
        reporter: Reporter,
        metrics: Arc<Metrics>,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let (queue, waiting) = mpsc::channel(WAITING);
        let sending = send(Recorder::new(client, reporter), waiting, Arc::clone(&metrics));
        let events = Self {
            queue,
            metrics,
            changes: Mutex::default(),
        };
        (events, sending)
    }

    fn tell(&self, object: &ChangeStreamLeader, (type_, reason, note): (EventType, &'static str, String)) {
        let event = Event {
            type_,
            reason: reason.to_owned(),
            action: action(&note),
            note: Some(note.chars().take(NOTE_MAX).collect()),
            secondary: None,
        };
        if self.queue.try_send((event, object.object_ref(&()))).is_err() {
            self.metrics.event_dropped();
        }
    }

    /// How often the leader has changed lately, told once each time that it is too often.
    fn flaps(&self, object: &ChangeStreamLeader) -> bool {
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        changes.retain(|_, times| times.back().is_some_and(|last| now - *last < WITHIN));
        let times = changes.entry(object.uid().unwrap_or_default()).or_default();
        times.push_back(now);
        while times.front().is_some_and(|first| now - *first >= WITHIN) {
            times.pop_front();
        }
        let flaps = times.len() >= FLAPPING;
        if flaps {
            times.clear();
        }
        flaps
    }
}

impl Observer for Events {
    fn transition(
        &self,
        object: &ChangeStreamLeader,
        before: &ChangeStreamLeaderStatus,
        after: &ChangeStreamLeaderStatus,
    ) {
        let Some(event) = event_of(before, after) else {
            return;
        };
        let elected = matches!(event.1, "LeaderElected" | "LeaderChanged");
        self.tell(object, event);
        if elected && self.flaps(object) {
            let note = format!(
                "The leader changed {FLAPPING} times within {} minutes; see status.history for who and how it ended.",
                WITHIN.as_secs() / 60
            );
            self.tell(object, (EventType::Warning, "LeaderFlapping", note));
        }
    }

    fn throttled(&self, object: &ChangeStreamLeader, throttled: bool) {
        if throttled {
            let note = "More status writes are needed than may be made in a second, so expirationTime is left out; allow \
                        more, or use statusPolicy TransitionsOnly."
                .to_owned();
            self.tell(object, (EventType::Warning, "StatusWritesThrottled", note));
        }
    }
}

/// kube's recorder counts events of one reason and action as one, and keeps the note of the first. Only those are the same
/// that say the same.
fn action(note: &str) -> String {
    let hash = Sha256::digest(note.as_bytes());
    format!("Watch-{}", data_encoding::HEXLOWER.encode(&hash[..6]))
}

/// The event of a transition; none where the same leader goes on, or where only what can be seen has changed.
fn event_of(
    before: &ChangeStreamLeaderStatus,
    after: &ChangeStreamLeaderStatus,
) -> Option<(EventType, &'static str, String)> {
    let leader = |status: &ChangeStreamLeaderStatus| (status.holder_identity.clone(), status.fencing_token);
    let reason = |status: &ChangeStreamLeaderStatus| status.condition(HELD).map(|held| held.reason.clone());
    let (was, is) = (leader(before), leader(after));
    let blind = blindness::is_told(before) || blindness::is_told(after);
    if was == is && (blind || reason(before) == reason(after)) {
        return None;
    }
    // Without the token: the same leader once more is the same event once more.
    let of = |leader: &(Option<String>, Option<i64>)| leader.0.clone().unwrap_or_else(|| "nobody".to_owned());
    if is.0.is_some() {
        if was == is {
            return None;
        }
        let event = if was.0.is_none() || was.0 == is.0 {
            (EventType::Normal, "LeaderElected", format!("{} leads.", of(&is)))
        } else {
            let note = format!("{} leads, after {}.", of(&is), of(&was));
            (EventType::Normal, "LeaderChanged", note)
        };
        return Some(event);
    }
    let reason = reason(after)?;
    let event = match reason.as_str() {
        "LeaseReleased" => (
            EventType::Normal,
            "LeaderReleased",
            format!("{} released the lock.", of(&was)),
        ),
        "LeaseExpired" => (
            EventType::Warning,
            "LeaseExpired",
            format!("{} did not renew the lock in time.", of(&was)),
        ),
        "HolderWiped" => (
            EventType::Warning,
            "HolderWiped",
            format!("Somebody else cleared the holder, which was {}.", of(&was)),
        ),
        "LeaseNotFound" => (
            EventType::Warning,
            "LeaseNotFound",
            "There is no Lease for this stream: no instance has started yet, or somebody deleted it."
                .to_owned(),
        ),
        "LeaseConflict" => (
            EventType::Warning,
            "LeaseConflict",
            "The Lease belongs to another stream.".to_owned(),
        ),
        _ => return None,
    };
    Some(event)
}

async fn send(
    recorder: Recorder,
    mut waiting: mpsc::Receiver<(Event, ObjectReference)>,
    metrics: Arc<Metrics>,
) {
    let mut said: Option<Instant> = None;
    while let Some((event, object)) = waiting.recv().await {
        let sent = tokio::time::timeout(TIMEOUT, recorder.publish(&event, &object)).await;
        let problem = match sent {
            Ok(Ok(())) => {
                said = None;
                continue;
            }
            // Its namespace is being deleted, or the object's series was: nobody misses it.
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => continue,
            Ok(Err(kube::Error::Api(status))) if status.code == 403 => format!(
                "not permitted to create and patch events.events.k8s.io; grant it to the operator's identity, or run it \
                 with --events=false ({})",
                status.message
            ),
            Ok(Err(error)) => format!("an event could not be sent: {error}"),
            Err(_) => format!("an event could not be sent within {TIMEOUT:?}"),
        };
        metrics.event_dropped();
        if said.is_none_or(|at| at.elapsed() >= SAY_AGAIN) {
            tracing::warn!("{problem}");
            said = Some(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(holder: Option<&str>, reason: &str) -> ChangeStreamLeaderStatus {
        let conditions = serde_json::json!([{
            "type": HELD, "status": if holder.is_some() { "True" } else { "False" }, "reason": reason, "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]);
        ChangeStreamLeaderStatus {
            holder_identity: holder.map(str::to_owned),
            conditions: serde_json::from_value(conditions).unwrap(),
            ..ChangeStreamLeaderStatus::default()
        }
    }

    #[test]
    fn each_transition_has_its_reason_and_what_is_none_has_none() {
        let nobody = ChangeStreamLeaderStatus::default();
        let (a, b) = (status(Some("a"), "LeaseHeld"), status(Some("b"), "LeaseHeld"));
        let told = |before: &ChangeStreamLeaderStatus, after: &ChangeStreamLeaderStatus| {
            event_of(before, after).map(|(_, reason, note)| format!("{reason}: {note}"))
        };
        assert_eq!(told(&nobody, &a).as_deref(), Some("LeaderElected: a leads."));
        assert_eq!(told(&a, &b).as_deref(), Some("LeaderChanged: b leads, after a."));
        assert_eq!(told(&a, &a), None);
        for (reason, event) in [
            ("LeaseReleased", "LeaderReleased: a "),
            ("LeaseExpired", "LeaseExpired: a "),
            ("HolderWiped", "HolderWiped: "),
            ("LeaseNotFound", "LeaseNotFound: "),
            ("LeaseConflict", "LeaseConflict: "),
        ] {
            let after = status(None, reason);
            assert!(told(&a, &after).unwrap().starts_with(event), "{reason}");
            assert_eq!(told(&after, &after), None);
        }
    }

    #[test]
    fn only_events_that_say_the_same_are_counted_as_one() {
        assert_eq!(action("a leads."), action("a leads."));
        assert_ne!(action("a leads."), action("b leads."));
    }
}
