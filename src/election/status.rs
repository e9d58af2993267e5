//! What is told about a stream: its role, what is known about the lock, and why leadership was last lost.

use std::{
    fmt,
    time::{Duration, SystemTime},
};

use crate::lock::{FencingToken, Moment, NewsSource, StreamName};

/// On how many instances a stream's work runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeploymentMode {
    /// On every instance at once. No lock is asked for; the guard has no token and no deadline.
    AllInstances,
    /// On one instance at a time.
    SingleLeader,
}

/// What this instance is for a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// It leads: its guard may be valid.
    Leader,
    /// It does not lead; by its [`StreamState`] it contends, pauses, or is stopped.
    Standby,
    /// The stream has no leader: [`DeploymentMode::AllInstances`].
    NotApplicable,
}

/// What is going on with a stream in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StreamState {
    /// Not started, stopped, or down since its work ended.
    Stopped,
    /// It asks for the lock, or waits to ask again.
    Contending,
    /// The work runs.
    Working,
    /// The work was asked to stop (or ended, with clones of its guard alive); the lock is kept meanwhile.
    Draining,
    /// The guard is over, and the work, or a clone of its guard, still lives. The lock is not released, and this
    /// instance does not contend.
    Lingering,
    /// The lock is being given up.
    Releasing,
}

/// What happens when the work returns or panics by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum AfterWork {
    /// The lock is released, and contended for again after a growing, bounded pause.
    #[default]
    ContendAgain,
    /// The lock is released, and the stream stays stopped until it is started again.
    StayDown,
}

/// What happens when the guard is over and the work, or a thread with a clone of its guard, lives on: half a
/// [`stop_margin`](super::ElectionSettings::stop_margin) after it was cut off, which is before a contender that goes by
/// the TTL can start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum IfStuck {
    /// An error is logged. The lock is not released, and this instance does not contend before the work is gone.
    #[default]
    Wait,
    /// The process is aborted: for work whose effects no store checks by token.
    AbortProcess,
}

/// Why a leadership ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossReason {
    /// Nobody holds the lock any more, and it was not this instance that gave it up.
    Released,
    /// Somebody else holds it.
    TakenOver {
        /// Who, as found in the store.
        by: String,
        /// Under which token, where that is known.
        token: Option<FencingToken>,
    },
    /// The lock's record was deleted.
    Deleted,
    /// The term ended before a renewal was proven.
    ExpiredUnreachable {
        /// What the last failed request said; none when no request failed (the process stood still, say).
        last_error: Option<String>,
    },
    /// The work returned.
    WorkEnded,
    /// The work panicked.
    WorkPanicked {
        /// The panic's message.
        message: String,
    },
    /// It was asked to stop.
    Stopped,
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Released => f.write_str("released by another hand"),
            Self::TakenOver { by, token: None } => write!(f, "taken over by {by}"),
            Self::TakenOver {
                by,
                token: Some(token),
            } => write!(f, "taken over by {by} with token {token}"),
            Self::Deleted => f.write_str("the lock was deleted"),
            Self::ExpiredUnreachable { last_error: None } => f.write_str("expired before it was renewed"),
            Self::ExpiredUnreachable {
                last_error: Some(error),
            } => write!(f, "expired before it was renewed; the last error: {error}"),
            Self::WorkEnded => f.write_str("the work ended"),
            Self::WorkPanicked { message } => write!(f, "the work panicked: {message}"),
            Self::Stopped => f.write_str("stopped"),
        }
    }
}

/// A leadership that ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loss {
    /// Why.
    pub reason: LossReason,
    /// When, on the wall clock.
    pub at: SystemTime,
}

/// The holder as it was last seen.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct HolderSeen {
    /// Who, as found in the store; `None` when nobody held the lock.
    pub holder: Option<String>,
    /// When this was seen, on the lock service's clock.
    pub seen_at: Moment,
}

impl HolderSeen {
    /// How old the fact is at `now`, a reading of the lock service's clock.
    pub fn age(&self, now: Moment) -> Duration {
        now.since(self.seen_at)
    }
}

/// What is known about a stream. A snapshot: it grants nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamStatus {
    /// The stream.
    pub stream: StreamName,
    /// On how many instances it runs.
    pub mode: DeploymentMode,
    /// What this instance is for it.
    pub role: Role,
    /// What is going on.
    pub state: StreamState,
    /// The holder as last seen.
    pub holder: Option<HolderSeen>,
    /// The fencing token of this instance's leadership.
    pub token: Option<FencingToken>,
    /// Until when this instance's leadership is proven, on the lock service's clock.
    pub valid_until: Option<Moment>,
    /// What the last failed request said; none since one has succeeded.
    pub last_error: Option<String>,
    /// Why leadership was last lost.
    pub last_loss: Option<Loss>,
    /// How this instance learns of changes while it does not lead.
    pub source: NewsSource,
}
