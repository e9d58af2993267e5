//! The deciding part: one [`Machine`] per stream and service, and one operation on it at a time.
//!
//! Pure: time, replies and watch events in, requests out. No I/O, no clock, no task. The worker drives it against the
//! API server; tests and a model can drive it with any schedule. What each operation does on each reply is in
//! [`acquire`], [`extend`], [`release`] and [`read`]; what they share (what was seen, whose it is, what is expired) is here.

mod acquire;
mod extend;
mod ghost;
mod read;
mod release;
mod standing;

#[cfg(test)]
mod attack;
#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

use std::time::{Duration, SystemTime};

use ghost::Ghost;

use super::{
    evidence::{ServerTime, Sighting},
    record::{Holding, Record},
    term::{Attempt, OwnTerm, Ownership},
    wire::Lease,
    write,
};
use crate::{
    lock::{
        AcquireRequest, Claim, ExtendRequest, Grant, InstanceId, LockError, LockRecord, LockState, Moment,
        Outcome, Refusal, ReleaseRequest, Released, StreamName, Term, Ttl, Unknown,
    },
    rules::{Rule, Rules},
};

/// What the caller knows of the time when something happens.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    pub(crate) at: Moment,
    pub(crate) wall: SystemTime,
}

/// What an operation asks its driver to do next.
#[derive(Debug, Clone)]
pub(crate) enum Step<A> {
    /// Read the Lease.
    Get,
    /// Create it.
    Create(Lease),
    /// Replace it.
    Put(Lease),
    /// Come back with [`Input::Continue`] after this long.
    Wait(Duration),
    /// The answer.
    Done(A),
}

/// What happened to what the operation asked for.
#[derive(Debug)]
pub(crate) enum Input {
    /// Begin, or the wait is over.
    Continue,
    /// The Lease as read or written, and the reply's `Date`.
    Lease(Box<Lease>, Option<SystemTime>),
    /// A `Status` NotFound that names this Lease.
    Missing,
    /// 409: the write was not applied.
    Conflict,
    /// The request failed in a way that leaves open whether it was applied.
    Unknown(Unknown),
    /// The request was definitely refused.
    Refused(LockError),
}

/// An operation on a [`Machine`].
pub(crate) trait Operation {
    /// What it answers.
    type Answer;

    /// Takes what happened, says what comes next.
    fn step(&mut self, machine: &mut Machine, now: Now, input: Input) -> Step<Self::Answer>;

    /// How long one request of it may take.
    fn attempt_timeout(&self) -> Duration;
}

pub(crate) use acquire::Acquire;
pub(crate) use extend::Extend;
pub(crate) use read::Read;
pub(crate) use release::Release;

#[derive(Debug, Clone)]
struct Seen {
    lease: Lease,
    record: Record,
    sighting: Sighting,
}

/// What one service knows of one stream's Lease.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    pub(crate) stream: StreamName,
    pub(crate) name: String,
    pub(crate) namespace: String,
    /// How far API servers' clocks may differ; `None` switches server-time evidence off.
    allowance: Option<Duration>,
    seen: Option<Seen>,
    /// The highest resourceVersion seen. Nothing older is news.
    version: u64,
    ghosts: Vec<Ghost>,
    own: Option<OwnTerm>,
    /// Terms of ours that were proven to be over, until they are told of.
    ended: Vec<(Term, Refusal)>,
    /// The number of the last write that grants.
    serial: u64,
    rules: Rules,
}

impl Machine {
    pub(crate) fn new(
        stream: StreamName,
        name: String,
        namespace: String,
        allowance: Option<Duration>,
    ) -> Self {
        Self {
            stream,
            name,
            namespace,
            allowance,
            seen: None,
            version: 0,
            ghosts: Vec::new(),
            own: None,
            ended: Vec::new(),
            serial: 0,
            rules: Rules::default(),
        }
    }

    /// Where the lock lives, for messages.
    pub(crate) fn location(&self) -> String {
        format!("Lease {}/{}", self.namespace, self.name)
    }

    /// Whether forgetting what this machine knows grants nothing early: no term of ours may be valid or yet applied, and
    /// no deleted Lease's holder may still act.
    pub(crate) fn may_be_forgotten(&mut self, now: Moment) -> bool {
        let live = self
            .own
            .as_mut()
            .is_some_and(|own| own.is_unsettled() || own.is_valid(now));
        !live && self.ghosts.iter().all(|ghost| ghost.is_gone(now))
    }

    /// The term of ours that is valid now.
    pub(crate) fn valid_term(&mut self, now: Moment) -> Option<Term> {
        self.own
            .as_mut()
            .filter(|own| own.proven().is_some())?
            .valid_term(now)
    }

    /// Whether `term` is the one that was last written here and is not settled against.
    pub(crate) fn pursues(&self, term: &Term) -> bool {
        self.own.as_ref().is_some_and(|own| own.term == *term)
    }

    /// Whether anything is known that a deletion would change.
    pub(crate) fn has_seen(&self) -> bool {
        self.seen.is_some()
    }

    /// Whether the Lease was last seen without our labels, so that the watch by label does not show it.
    pub(crate) fn left_selector(&self) -> bool {
        self.seen.as_ref().is_some_and(|seen| !seen.lease.is_labelled())
    }

    /// Takes in a version of the Lease, from a reply or a watch. Older news than what is known is dropped.
    ///
    /// Whether it was: the `Date` of the reply that brought older news says nothing about the record that is kept.
    ///
    /// # Errors
    /// When no lock can be built on what it says.
    pub(crate) fn observe(&mut self, now: Moment, lease: Lease) -> Result<bool, LockError> {
        let record = Record::read(&lease).map_err(|problem| LockError::UnusableRecord {
            stream: self.stream.clone(),
            location: self.location(),
            problem: problem.to_string(),
        })?;
        if record.resource_version < self.version && self.rules.keeps(Rule::OldNewsDropped) {
            return Ok(false);
        }
        self.version = self.version.max(record.resource_version);
        let sighting = match self.seen.take() {
            Some(seen) if seen.record.uid == record.uid => {
                let mut sighting = seen.sighting;
                sighting.update(now, &record);
                sighting
            }
            replaced => {
                self.haunt(now, replaced);
                Sighting::new(now, &record)
            }
        };
        if let Some(own) = &mut self.own {
            let was_over = own.is_over();
            let kept = settle(own, now, &record);
            if own.is_over() && !was_over && own.ownership(&record) == Ownership::Lost {
                self.ended
                    .push((own.term.clone(), standing::why_over(own, &record)));
            }
            if !kept {
                self.own = None;
            }
        }
        self.seen = Some(Seen {
            lease,
            record,
            sighting,
        });
        Ok(true)
    }

    /// The Lease is proven to be gone.
    pub(crate) fn missing(&mut self, now: Moment) {
        let seen = self.seen.take();
        self.haunt(now, seen);
        match &mut self.own {
            Some(own) if own.proven().is_some() => {
                if !own.is_over() {
                    self.ended.push((own.term.clone(), Refusal::Missing));
                }
                own.end();
            }
            // What was never granted is not over; it was written to a Lease that is gone.
            _ => self.own = None,
        }
    }

    /// The Lease of this name must be this stream's.
    fn check_stream(&self, record: &Record) -> Result<(), LockError> {
        match &record.stream {
            Some(found) if found != self.stream.as_str() => Err(LockError::StreamConflict {
                stream: self.stream.clone(),
                found: found.clone(),
                location: self.location(),
            }),
            // A Lease of the right name that names no stream is adopted.
            _ => Ok(()),
        }
    }

    /// Whether what was just read proves that the Lease has expired.
    fn proves_expiry(&self, now: Now, date: Option<SystemTime>, own_ttl: Ttl) -> bool {
        let Some(seen) = &self.seen else { return false };
        let own_ttl = own_ttl.as_duration();
        let expires = if self.rules.keeps(Rule::RecordedTtl) {
            seen.sighting.expires(own_ttl)
        } else {
            seen.sighting.since + own_ttl
        };
        if now.at >= expires || self.node_clock_grants(now, seen) {
            return true;
        }
        let (Some(date), Some(allowance)) = (date, self.allowance) else {
            return false;
        };
        let allowance = if self.rules.keeps(Rule::ServerTimeAllowance) {
            allowance
        } else {
            Duration::ZERO
        };
        let time = ServerTime { date, wall: now.wall };
        time.proves_expiry(&seen.record, seen.sighting.ttl_or(own_ttl), allowance)
    }

    /// Never: what a node's clock says of another's renewTime is worth nothing.
    fn node_clock_grants(&self, now: Now, seen: &Seen) -> bool {
        let ended = |ttl| Some(seen.record.renew_time?.checked_add(ttl)? <= now.wall);
        !self.rules.keeps(Rule::NodeClocksGrantNothing)
            && seen.record.shown_ttl().and_then(ended).unwrap_or(false)
    }

    /// Whether the record shows our own term, and our term is still good.
    fn holds(&mut self, now: Moment, instance: &InstanceId, claim: &Claim) -> bool {
        let (Some(own), Some(seen)) = (&mut self.own, &self.seen) else {
            return false;
        };
        own.is_for(instance, claim) && own.ownership(&seen.record) == Ownership::Ours && own.is_valid(now)
    }

    /// The grant that our own term gives, if its last proven write is `first` or a later one: every grant, a
    /// re-acquisition included, is a successful write.
    fn grant_since(&self, first: Option<u64>) -> Option<Grant> {
        let own = self.own.as_ref()?;
        own.grant().filter(|_| {
            own.proven()
                .is_some_and(|proven| first.is_some_and(|first| proven.serial >= first))
        })
    }

    /// The write that renews our own term from what was last seen. Only after [`holds`](Self::holds).
    fn renewal(&mut self, now: Now, ttl: Ttl) -> Option<Lease> {
        let (own, seen) = (self.own.as_mut()?, self.seen.as_ref()?);
        let renew_text = next_renew_text(now, seen, Some(own), ttl);
        let &Attempt {
            token, acquired_at, ..
        } = own.proven()?;
        let condition = seen.record.resource_version;
        self.serial += 1;
        let attempt = Attempt {
            serial: self.serial,
            renew_text,
            sent: now.at,
            sent_wall: now.wall,
            ttl,
            token,
            acquired_at,
            condition,
        };
        let lease = write::renewal(&seen.lease, &seen.record, own, &attempt);
        own.sending(attempt);
        Some(lease)
    }

    /// The last write was definitely not applied: it binds nothing, and there is nothing of it to settle.
    fn write_refused(&mut self) {
        if let Some(own) = &mut self.own {
            own.last_was_refused();
            if own.proven().is_none() && !own.is_unsettled() {
                self.own = None;
            }
        }
    }

    fn refusal(&self, now: Now, date: Option<SystemTime>) -> Refusal {
        let Some(seen) = &self.seen else {
            return Refusal::Missing;
        };
        match seen.record.holding() {
            Holding::Free => Refusal::NotHeld,
            Holding::Held(holder) | Holding::Wiped(holder) => Refusal::HeldBy {
                holder: holder.to_owned(),
                expires_at: Some(read::expires_at(&seen.record, date.unwrap_or(now.wall))),
                token: seen.record.shown_token(),
            },
        }
    }

    fn unusable(&self, problem: String) -> LockError {
        LockError::UnusableRecord {
            stream: self.stream.clone(),
            location: self.location(),
            problem,
        }
    }

    fn unavailable(&self, unknown: &Unknown) -> LockError {
        LockError::Unavailable {
            stream: self.stream.clone(),
            source: unknown.reason().to_string().into(),
        }
    }
}

/// What a newly seen record means for a term of ours. False when the term is to be forgotten: nothing of it was granted,
/// and nothing that was sent can be applied any more.
fn settle(own: &mut OwnTerm, now: Moment, record: &Record) -> bool {
    match own.ownership(record) {
        Ownership::Ours => {
            if let Some(text) = &record.renew_text {
                own.prove(text, now);
            }
            own.bound_by_stored(record.duration);
        }
        // Of an acquisition that was never proven nothing is lost: the record may be what it was sent against.
        Ownership::Lost if own.proven().is_none() => {}
        Ownership::Lost => own.end(),
    }
    own.outlive(record.resource_version) || own.ownership(record) == Ownership::Ours
}

fn next_renew_text(now: Now, seen: &Seen, own: Option<&OwnTerm>, ttl: Ttl) -> String {
    let earlier = [
        seen.record.renew_text.as_deref(),
        own.and_then(OwnTerm::last_renew_text),
    ];
    write::next_renew_text(now.wall, earlier, ttl)
}

/// client-go's default duration of a leader election's Lease.
const DEFAULT_TTL: Duration = Duration::from_secs(15);

/// How long one attempt may take: a sixth of the TTL, so that two that are accepted and never answered leave room for a
/// third before the term ends; no longer than ten seconds, after which no API server answers.
fn attempt_timeout(ttl: Ttl) -> Duration {
    (ttl.as_duration() / 6).clamp(Duration::from_millis(50), Duration::from_secs(10))
}

/// The same for requests that no term depends on: a short TTL makes them no more urgent.
fn patient_timeout(ttl: Ttl) -> Duration {
    attempt_timeout(ttl).max(Duration::from_secs(1))
}

/// What the n-th conflict of an operation counts as: the first few are answered by a read at once. After that they are
/// failures, with a pause and an end: conflicts without end are a store whose versions went back, or a proxy that lies.
fn overtaken(conflicts: u32) -> Option<Unknown> {
    (conflicts > 3).then(|| Unknown::new("another write was first, again and again"))
}

/// The pause before the n-th try after a failure: 20 ms, doubling, at most a second. Without it a connection that is
/// refused at once would be tried thousands of times a second.
fn pause(tries: u32) -> Duration {
    Duration::from_millis(20)
        .saturating_mul(1 << tries.min(6))
        .min(Duration::from_secs(1))
}
