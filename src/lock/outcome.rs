//! What a lock service may answer.
//!
//! Outcomes are three, not two: done, refused, unknown. A write that timed out may have been applied, and may still be;
//! who folds that into "no" makes two leaders, who folds it into "yes" makes one too many.

use std::{
    error::Error as StdError,
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use super::{
    clock::Moment,
    types::{FencingToken, InstanceId, StreamName, Term},
};

/// The answer to an acquisition or an extension.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Outcome {
    /// Held: by a successful write, proven by its reply or by a read that shows it.
    Granted(Grant),
    /// Definitely not granted.
    Refused(Refusal),
    /// The write may or may not have been applied, and may be yet. Ask again, with the same [`Claim`](super::Claim).
    Unknown(Unknown),
}

impl Outcome {
    /// The grant, if it is one.
    pub fn granted(self) -> Option<Grant> {
        match self {
            Outcome::Granted(grant) => Some(grant),
            _ => None,
        }
    }

    /// Whether it is a grant.
    pub fn is_granted(&self) -> bool {
        matches!(self, Outcome::Granted(_))
    }
}

/// Leave to act for a stream, until [`valid_until`](Self::valid_until) on the service's clock.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grant {
    /// The stream.
    pub stream: StreamName,
    /// Who holds it.
    pub instance: InstanceId,
    /// Which acquisition this belongs to. Another term is another grant, never a continuation.
    pub term: Term,
    /// The fencing token, where the store has them.
    pub token: Option<FencingToken>,
    /// When the holder acquired it, by the store's record. Stays while the holder stays.
    pub acquired_at: SystemTime,
    /// When it ends unless extended, on the wall clock: for people. What counts is [`valid_until`](Self::valid_until).
    pub expires_at: SystemTime,
    /// The moment from which the holder must not act any more, on the service's [`Clock`](super::Clock): counted from
    /// before the write was sent, and short of the TTL by what clocks may drift.
    pub valid_until: Moment,
}

impl Grant {
    /// A grant. For implementations of [`LockService`](super::LockService).
    pub fn new(stream: StreamName, instance: InstanceId, term: Term, valid_until: Moment) -> Self {
        Self {
            stream,
            instance,
            term,
            token: None,
            acquired_at: SystemTime::UNIX_EPOCH,
            expires_at: SystemTime::UNIX_EPOCH,
            valid_until,
        }
    }

    /// With a fencing token.
    #[must_use]
    pub fn with_token(mut self, token: Option<FencingToken>) -> Self {
        self.token = token;
        self
    }

    /// With the times to show to people.
    #[must_use]
    pub fn with_times(mut self, acquired_at: SystemTime, expires_at: SystemTime) -> Self {
        self.acquired_at = acquired_at;
        self.expires_at = expires_at;
        self
    }
}

/// Why it was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// Somebody else holds it.
    HeldBy {
        /// Who, as found in the store.
        holder: String,
        /// Until when by the store's record, where known. A hint: it may be renewed, and this reader's clock may be off.
        expires_at: Option<SystemTime>,
        /// The holder's fencing token, where known.
        token: Option<FencingToken>,
    },
    /// Nobody holds it, so there is nothing to extend.
    NotHeld,
    /// There is no record of it at all: it was deleted, or never was. Nothing to extend either.
    Missing,
    /// It is (or was last) the asker's own, but over: expired, or released. Only a new acquisition can follow.
    Expired,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::HeldBy {
                holder, expires_at, ..
            } => {
                write!(f, "held by {holder}")?;
                match expires_at {
                    Some(at) => write!(f, " until {}", shown(*at)),
                    None => Ok(()),
                }
            }
            Refusal::NotHeld => f.write_str("held by nobody"),
            Refusal::Missing => f.write_str("there is no record of it"),
            Refusal::Expired => f.write_str("the term is over; acquire again"),
        }
    }
}

/// A time as people read it. Not `httpdate` alone: it panics on times before 1970 or after 9999, and a foreign record
/// may hold any.
pub(crate) fn shown(at: SystemTime) -> String {
    const YEAR_10000: Duration = Duration::from_secs(253_402_300_800);
    match at.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) if since < YEAR_10000 => httpdate::fmt_http_date(at),
        Ok(_) => "after the year 9999".into(),
        Err(_) => "before 1970".into(),
    }
}

/// Why it is not known whether a write was applied.
#[derive(Debug, Clone)]
pub struct Unknown {
    reason: Arc<dyn StdError + Send + Sync>,
}

impl Unknown {
    /// From what happened.
    pub fn new(reason: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self {
            reason: Arc::from(reason.into()),
        }
    }

    /// What happened: a time-out, a broken connection, a 429 or 5xx.
    pub fn reason(&self) -> &(dyn StdError + Send + Sync + 'static) {
        &*self.reason
    }
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

/// The answer to a release.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Released {
    /// It was the asker's, and is free now.
    Released,
    /// It was not the asker's; nothing was changed.
    NotHeld,
    /// It may or may not have been applied. The grant is over either way: a release counts from the moment it is sent.
    Unknown(Unknown),
}

/// Who holds a lock, as a reader sees it. Grants nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockState {
    /// The stream.
    pub stream: StreamName,
    /// Who holds it, as found: foreign tools may write what no [`InstanceId`] can hold.
    pub instance: String,
    /// Since when.
    pub acquired_at: SystemTime,
    /// Until when, unless renewed.
    pub expires_at: SystemTime,
    /// The fencing token of this holder, where the store has them.
    pub token: Option<FencingToken>,
    /// How often the holder has changed, where the store counts it.
    pub transitions: Option<u64>,
}

impl LockState {
    /// A state. For implementations of [`LockService`](super::LockService).
    pub fn new(
        stream: StreamName,
        instance: impl Into<String>,
        acquired_at: SystemTime,
        expires_at: SystemTime,
    ) -> Self {
        Self {
            stream,
            instance: instance.into(),
            acquired_at,
            expires_at,
            token: None,
            transitions: None,
        }
    }

    /// With a fencing token.
    #[must_use]
    pub fn with_token(mut self, token: Option<FencingToken>) -> Self {
        self.token = token;
        self
    }

    /// With the number of changes of holder.
    #[must_use]
    pub fn with_transitions(mut self, transitions: Option<u64>) -> Self {
        self.transitions = transitions;
        self
    }
}

/// The record of a lock, also when it is expired. Contract B's `getLockInfo`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockRecord {
    /// Holder and times as recorded.
    pub state: LockState,
    /// Whether it has expired (but was not taken over).
    pub expired: bool,
}

impl LockRecord {
    /// A record. For implementations of [`LockService`](super::LockService).
    pub fn new(state: LockState, expired: bool) -> Self {
        Self { state, expired }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_shows_any_expiry_that_a_foreign_record_may_hold() {
        let epoch = SystemTime::UNIX_EPOCH;
        let says = |expires_at| {
            let holder = "a".into();
            let token = None;
            let refusal = Refusal::HeldBy {
                holder,
                expires_at,
                token,
            };
            refusal.to_string()
        };
        assert_eq!(says(None), "held by a");
        assert_eq!(says(Some(epoch)), "held by a until Thu, 01 Jan 1970 00:00:00 GMT");
        let far = epoch + Duration::from_secs(253_402_300_799);
        assert_eq!(says(Some(far)), "held by a until Fri, 31 Dec 9999 23:59:59 GMT");
        let beyond = far + Duration::from_secs(1);
        assert_eq!(says(Some(beyond)), "held by a until after the year 9999");
        let before = epoch - Duration::from_secs(1);
        assert_eq!(says(Some(before)), "held by a until before 1970");
    }
}
