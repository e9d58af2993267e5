//! What a metrics hook hears: attempts, acquisitions, changes of role and losses. The hook runs on a thread of its own, behind a
//! bounded queue, so that it may be slow, block or panic: then events are missed, and counted, and no renewal waits.
//!
//! No metrics library is named here; `docs/observability.md` shows an adapter.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{SyncSender, sync_channel},
    },
    time::Duration,
};

use super::{
    machine::{Answer, Freed},
    status::{LossReason, Role},
};
use crate::{
    lock::{FencingToken, StreamName},
    telemetry,
};

/// How many events wait for a slow hook: some seconds of a thousand streams' renewals.
const QUEUE: usize = 4096;

/// What a metrics hook does with an event.
pub(super) type Hook = Box<dyn FnMut(&ElectionEvent) + Send>;

/// Something that happened to a stream, for counters and histograms. For what is true *now*, read
/// [`statuses`](super::LeaderElectionCoordinator::statuses): an event may be missed, a status is not.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ElectionEvent {
    /// The stream.
    pub stream: StreamName,
    /// What happened.
    pub kind: ElectionEventKind,
    /// How many events of this coordinator the hook had missed, in all, when this one was told: its queue was full.
    pub missed: u64,
}

/// What happened to a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ElectionEventKind {
    /// A request to the lock service has ended. Renewals are those with [`Attempt::Extend`].
    Attempt {
        /// What was asked.
        attempt: Attempt,
        /// How it ended.
        outcome: AttemptOutcome,
        /// From its sending until then.
        duration: Duration,
    },
    /// This instance became the leader.
    Acquired {
        /// Under which token, where the lock service has tokens.
        token: Option<FencingToken>,
    },
    /// This instance is the leader no more. Its work may still be ending.
    Lost {
        /// Why.
        reason: LossReason,
    },
    /// The role changed; told beside [`Acquired`](Self::Acquired) and [`Lost`](Self::Lost).
    RoleChanged {
        /// What it was.
        from: Role,
        /// What it is.
        to: Role,
    },
}

/// What was asked of the lock service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Attempt {
    /// The lock.
    Acquire,
    /// A renewal.
    Extend,
    /// The lock's release.
    Release,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AttemptOutcome {
    /// Done: granted, renewed, or released.
    Done,
    /// Refused: somebody else holds the lock, or nobody does and it was to be renewed.
    Refused,
    /// It may have been applied.
    Unknown,
    /// It was not applied: an error.
    Failed,
    /// Not answered in the time that there was for it.
    TimedOut,
}

impl Attempt {
    /// As a metric's label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Acquire => "acquire",
            Self::Extend => "extend",
            Self::Release => "release",
        }
    }
}

impl AttemptOutcome {
    /// As a metric's label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Refused => "refused",
            Self::Unknown => "unknown",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
        }
    }

    pub(super) fn of_answer(answer: &Answer) -> Self {
        match answer {
            Answer::Granted { .. } => Self::Done,
            Answer::HeldBy { .. } | Answer::NotHeld | Answer::Missing | Answer::Over => Self::Refused,
            Answer::Unknown(_) => Self::Unknown,
            Answer::Failed(_) => Self::Failed,
        }
    }

    pub(super) fn of_release(freed: &Freed) -> Self {
        match freed {
            Freed::Done => Self::Done,
            Freed::Unknown(_) => Self::Unknown,
        }
    }
}

impl LossReason {
    /// As a metric's label: one of a few words, without names, tokens or texts.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::TakenOver { .. } => "taken_over",
            Self::Deleted => "deleted",
            Self::ExpiredUnreachable { .. } => "expired_unreachable",
            Self::WorkEnded => "work_ended",
            Self::WorkPanicked { .. } => "work_panicked",
            Self::Stopped => "stopped",
        }
    }
}

impl Role {
    /// As a metric's label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Leader => "leader",
            Self::Standby => "standby",
            Self::NotApplicable => "not_applicable",
        }
    }
}

/// The way to the hook, if there is one. Never blocks.
#[derive(Clone, Default)]
pub(super) struct Metrics(Option<(SyncSender<ElectionEvent>, Arc<AtomicU64>)>);

impl Metrics {
    /// Starts the hook's thread, which ends when the last clone of this is dropped.
    pub(super) fn start(mut hook: Hook) -> std::io::Result<Self> {
        let (sender, events) = sync_channel::<ElectionEvent>(QUEUE);
        std::thread::Builder::new()
            .name("leasewarden-metrics".to_owned())
            .spawn(move || {
                let mut told = false;
                for event in events {
                    // It is asked again for the next event: one bad event must not end all metrics.
                    let panicked = catch_unwind(AssertUnwindSafe(|| hook(&event))).is_err();
                    if panicked && !std::mem::replace(&mut told, true) {
                        tracing::error!(
                            target: telemetry::ELECTION,
                            stream = %event.stream,
                            "the metrics hook panicked; further panics of it are not logged"
                        );
                    }
                }
            })?;
        Ok(Self(Some((sender, Arc::default()))))
    }

    pub(super) fn tell(&self, stream: &StreamName, kind: ElectionEventKind) {
        let Some((sender, missed)) = &self.0 else { return };
        let event = ElectionEvent {
            stream: stream.clone(),
            kind,
            missed: missed.load(Ordering::Relaxed),
        };
        if sender.try_send(event).is_err() {
            missed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_blocks_nobody_and_what_was_missed_is_told() {
        let (unblock, blocked) = std::sync::mpsc::channel::<()>();
        let (hear, heard) = std::sync::mpsc::channel();
        let metrics = Metrics::start(Box::new(move |event| {
            // Until the sender is gone.
            let _ = blocked.recv();
            let _ = hear.send(event.missed);
        }))
        .unwrap();
        let stream = StreamName::new("orders").unwrap();
        let tell = || metrics.tell(&stream, ElectionEventKind::Acquired { token: None });
        // One may be with the hook, the queue is full, and ten at least are missed.
        for _ in 0..QUEUE + 11 {
            tell();
        }
        drop(unblock);
        let first: Vec<_> = (0..QUEUE).map(|_| heard.recv().unwrap()).collect();
        assert!(first.iter().all(|missed| *missed == 0));
        tell();
        drop(metrics);
        let missed = heard.iter().last().unwrap();
        assert!((10..=11).contains(&missed), "{missed}");
    }
}
