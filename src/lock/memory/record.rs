//! What may be granted on one record: pure decisions over the record, the request and the time.
//!
//! A record has expired for *contenders* when its TTL has passed since the write. The *holder's* grant ends earlier
//! ([`Ttl::holder_share`]), and once it has ended it never revives: whatever follows is a new term with a higher token.

use std::time::SystemTime;

use super::super::{
    change::Change,
    clock::Moment,
    outcome::{Grant, LockRecord, LockState, Outcome, Refusal},
    service::{AcquireRequest, Claim, ExtendRequest, IfExpired, ReleaseRequest},
    types::{FencingToken, InstanceId, StreamName, Term, Ttl},
};

/// One stream's lock. Release clears the tenure and keeps the counters.
#[derive(Debug)]
pub(super) struct Record {
    held: Option<Tenure>,
    /// The last term, also after its release: it can never be acquired again.
    last_term: Option<Term>,
    transitions: u64,
}

/// Who holds it, and until when.
#[derive(Debug)]
struct Tenure {
    holder: InstanceId,
    term: Term,
    /// The process that wrote the term.
    process: u64,
    token: i64,
    acquired_at: SystemTime,
    /// For contenders.
    expires: Moment,
    expires_at: SystemTime,
    /// For the holder.
    valid_until: Moment,
}

/// A write that is about to happen: by whom, and when.
#[derive(Debug, Clone, Copy)]
pub(super) struct Write {
    pub(super) process: u64,
    pub(super) sent: Moment,
    pub(super) now: Moment,
    pub(super) wall: SystemTime,
    pub(super) revision: i64,
}

/// Whose a tenure is, to an asker.
enum Standing {
    /// The asker's, and its grant still counts: it may go on under the same term.
    Continues,
    /// The asker's by its instance id, not expired, but another process wrote the term.
    Twin,
    /// The asker's, but its grant or the record is over.
    Over,
    /// Somebody else's.
    Other,
}

impl Tenure {
    fn standing(&self, asker: &InstanceId, claim: &Claim, write: &Write) -> Standing {
        if !self.is_of(asker, claim) {
            return Standing::Other;
        }
        let wrote_it = matches!(claim, Claim::Term(_)) || self.process == write.process;
        if wrote_it && write.now < self.valid_until {
            Standing::Continues
        } else if !wrote_it && !self.expired(write.now) {
            Standing::Twin
        } else {
            Standing::Over
        }
    }

    fn is_of(&self, asker: &InstanceId, claim: &Claim) -> bool {
        self.holder == *asker
            && match claim {
                Claim::Instance => true,
                Claim::Term(term) => self.term == *term,
            }
    }

    fn expired(&self, now: Moment) -> bool {
        now >= self.expires
    }

    fn keep(&mut self, ttl: Ttl, write: &Write) {
        self.expires = write.now + ttl.as_duration();
        self.expires_at = later(write.wall, ttl);
        self.valid_until = write.sent + ttl.holder_share();
    }

    fn grant(&self, stream: &StreamName) -> Outcome {
        Outcome::Granted(
            Grant::new(
                stream.clone(),
                self.holder.clone(),
                self.term.clone(),
                self.valid_until,
            )
            .with_token(FencingToken::new(self.token))
            .with_times(self.acquired_at, self.expires_at),
        )
    }

    fn refusal(&self) -> Refusal {
        Refusal::HeldBy {
            holder: self.holder.to_string(),
            expires_at: Some(self.expires_at),
            token: FencingToken::new(self.token),
        }
    }
}

impl Record {
    /// A record that nobody has held yet.
    pub(super) fn free() -> Self {
        Self {
            held: None,
            last_term: None,
            transitions: 0,
        }
    }

    pub(super) fn acquire(&mut self, request: &AcquireRequest, write: &Write) -> Outcome {
        let AcquireRequest {
            stream,
            instance,
            ttl,
            claim,
            ..
        } = request;
        if let Some(tenure) = &mut self.held {
            match tenure.standing(instance, claim, write) {
                Standing::Continues => {
                    tenure.keep(*ttl, write);
                    return tenure.grant(stream);
                }
                Standing::Other if !tenure.expired(write.now) => return Outcome::Refused(tenure.refusal()),
                Standing::Twin | Standing::Over | Standing::Other => {}
            }
        }
        let term = match claim {
            // A term that is over, or released, is spent: a guard that was once false would come back to life.
            Claim::Term(term) if self.last_term.as_ref() == Some(term) => {
                return Outcome::Refused(Refusal::Expired);
            }
            Claim::Term(term) => term.clone(),
            Claim::Instance => Term::random(),
        };
        self.begin(stream, instance, *ttl, term, write)
    }

    /// A new term: for a new holder, or for one that stays.
    fn begin(
        &mut self,
        stream: &StreamName,
        instance: &InstanceId,
        ttl: Ttl,
        term: Term,
        write: &Write,
    ) -> Outcome {
        let since = match self.held.take() {
            Some(tenure) if tenure.holder == *instance => tenure.acquired_at,
            _ => {
                self.transitions += 1;
                write.wall
            }
        };
        self.last_term = Some(term.clone());
        self.held
            .insert(Tenure {
                holder: instance.clone(),
                term,
                process: write.process,
                token: write.revision,
                acquired_at: since,
                expires: write.now + ttl.as_duration(),
                expires_at: later(write.wall, ttl),
                valid_until: write.sent + ttl.holder_share(),
            })
            .grant(stream)
    }

    /// True when it was the asker's and is free now.
    pub(super) fn release(&mut self, request: &ReleaseRequest) -> bool {
        let theirs = |tenure: &mut Tenure| tenure.is_of(&request.instance, &request.claim);
        self.held.take_if(theirs).is_some()
    }

    /// As followers are told.
    pub(super) fn standing(&self) -> Change {
        self.held.as_ref().map_or(Change::Free, |tenure| Change::Held {
            holder: tenure.holder.to_string(),
            token: FencingToken::new(tenure.token),
            expires_at: Some(tenure.expires_at),
            free_from: Some(tenure.expires),
        })
    }

    /// The term that holds it.
    pub(super) fn term(&self) -> Option<&Term> {
        self.held.as_ref().map(|tenure| &tenure.term)
    }

    /// What an extension under a term that is over would be refused with.
    pub(super) fn why_over(&self) -> Refusal {
        self.held.as_ref().map_or(Refusal::Expired, Tenure::refusal)
    }

    /// As readers see it; nothing when it has expired.
    pub(super) fn state(&self, stream: &StreamName, now: Moment) -> Option<LockState> {
        self.whole(stream, now).filter(|r| !r.expired).map(|r| r.state)
    }

    /// As recorded.
    pub(super) fn whole(&self, stream: &StreamName, now: Moment) -> Option<LockRecord> {
        let tenure = self.held.as_ref()?;
        let state = LockState::new(
            stream.clone(),
            tenure.holder.as_str(),
            tenure.acquired_at,
            tenure.expires_at,
        )
        .with_token(FencingToken::new(tenure.token))
        .with_transitions(Some(self.transitions));
        Some(LockRecord::new(state, tenure.expired(now)))
    }
}

pub(super) fn extend(record: Option<&mut Record>, request: &ExtendRequest, write: &Write) -> Outcome {
    let ExtendRequest {
        stream,
        instance,
        ttl,
        claim,
        if_expired,
        ..
    } = request;
    let Some(record) = record else {
        return Outcome::Refused(Refusal::Missing);
    };
    let Some(tenure) = &mut record.held else {
        let own = matches!(claim, Claim::Term(term) if record.last_term.as_ref() == Some(term));
        return Outcome::Refused(if own { Refusal::Expired } else { Refusal::NotHeld });
    };
    match tenure.standing(instance, claim, write) {
        Standing::Continues => {
            tenure.keep(*ttl, write);
            tenure.grant(stream)
        }
        Standing::Other if tenure.expired(write.now) => Outcome::Refused(Refusal::NotHeld),
        Standing::Other => Outcome::Refused(tenure.refusal()),
        Standing::Over if *if_expired == IfExpired::Refuse => Outcome::Refused(Refusal::Expired),
        // Always under another term than the one that is over, also for who claims by that.
        Standing::Twin | Standing::Over => record.begin(stream, instance, *ttl, Term::random(), write),
    }
}

/// Wall times are only shown; one beyond what the system can say is shown as it is now.
fn later(wall: SystemTime, ttl: Ttl) -> SystemTime {
    wall.checked_add(ttl.as_duration()).unwrap_or(wall)
}
