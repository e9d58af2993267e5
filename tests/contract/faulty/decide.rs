//! What the faulty service may grant, and where it grants too much or too little.

use std::time::Duration;

use leasewarden::{
    FencingToken, Grant, InstanceId, Outcome, Refusal, StreamName, Term, Ttl,
    lock::{AcquireRequest, Claim, Clock, ExtendRequest, IfExpired, Moment},
};

use super::{Fault, Faulty, Record};

impl Faulty {
    fn ttl(&self, ttl: Ttl) -> Duration {
        match self.fault {
            Fault::TtlRoundsDown => Duration::from_secs(ttl.as_millis() / 1000),
            Fault::TtlWraps => Duration::from_millis(ttl.as_millis() % (1 << 32)),
            _ => ttl.as_duration(),
        }
    }

    pub(super) fn is_of(&self, record: &Record, asker: &InstanceId, claim: &Claim) -> bool {
        let same = if self.has(Fault::IdsFoldCase) {
            record.holder.to_lowercase() == asker.as_str().to_lowercase()
        } else {
            record.holder == asker.as_str()
        };
        let claimed = match claim {
            Claim::Term(term) if !self.has(Fault::ClaimsByIdOnly) && !self.has(Fault::IgnoresTerms) => {
                record.term == *term
            }
            _ => true,
        };
        same && claimed
    }

    pub(super) fn expired(&self, record: &Record) -> bool {
        let ttl = match self.fault {
            Fault::NeverExpires => Duration::MAX,
            Fault::ExpiresEarly => record.ttl / 2,
            _ => record.ttl,
        };
        self.clock.now() >= record.renewed + ttl
    }

    /// Whether the holder's own grant, as this service wrote it, goes on.
    fn goes_on(&self, record: &Record, claim: &Claim) -> bool {
        let wrote_it = record.writer == self.me
            || matches!(claim, Claim::Term(_))
            || self.has(Fault::ServicesShareTerms);
        wrote_it && self.clock.now() < record.valid_until
    }

    fn keep(&self, record: &mut Record, ttl: Ttl) {
        let mut ttl = self.ttl(ttl);
        let now = self.clock.now();
        if self.has(Fault::TtlNeverShrinks) {
            ttl = ttl.max(record.ttl);
        }
        if !self.has(Fault::RenewalWritesNothing) {
            record.ttl = ttl;
            record.renewed = now;
            record.expires_at = self.clock.wall() + ttl;
        }
        record.valid_until = now + share(ttl) * if self.has(Fault::HolderCountsTwice) { 2 } else { 1 };
    }

    /// A new term.
    fn begin(
        &self,
        old: Option<&Record>,
        revision: i64,
        asker: &InstanceId,
        ttl: Ttl,
        claim: &Claim,
    ) -> Record {
        let stays = old.filter(|old| !old.released && old.holder == asker.as_str());
        let term = match claim {
            Claim::Term(term) if !self.has(Fault::IgnoresTerms) => term.clone(),
            _ => Term::random(),
        };
        let transitions = old.map_or(0, |old| old.transitions);
        let change = stays.is_none() && !self.has(Fault::TransitionsStandStill);
        let mut record = Record {
            holder: asker.to_string(),
            released: false,
            term,
            writer: self.me,
            token: if self.has(Fault::TokensRepeat) {
                1
            } else {
                revision
            },
            acquired_at: stays.map_or(self.clock.wall(), |old| old.acquired_at),
            renewed: self.clock.now(),
            ttl: self.ttl(ttl),
            expires_at: self.clock.wall() + self.ttl(ttl),
            valid_until: Moment::ORIGIN,
            transitions: transitions + u64::from(change),
        };
        self.keep(&mut record, ttl);
        record
    }

    fn grant(stream: &StreamName, asker: &InstanceId, record: &Record) -> Outcome {
        let grant = Grant::new(
            stream.clone(),
            asker.clone(),
            record.term.clone(),
            record.valid_until,
        );
        let grant = grant.with_token(FencingToken::new(record.token));
        Outcome::Granted(grant.with_times(record.acquired_at, record.expires_at))
    }

    fn held(&self, record: &Record) -> Outcome {
        let named = !self.has(Fault::NamesNoHolder);
        Outcome::Refused(Refusal::HeldBy {
            holder: if named {
                record.holder.clone()
            } else {
                String::new()
            },
            expires_at: named.then_some(record.expires_at),
            token: FencingToken::new(record.token),
        })
    }

    pub(super) fn decide_acquire(
        &self,
        found: &mut Option<Record>,
        revision: i64,
        request: &AcquireRequest,
    ) -> Outcome {
        let (stream, asker) = (&request.stream, &request.instance);
        if self.has(Fault::NeverGrants) {
            return Outcome::Refused(Refusal::NotHeld);
        }
        if let Some(record) = found.as_mut().filter(|r| !r.released) {
            let mine = self.is_of(record, asker, &request.claim);
            let expired = self.expired(record);
            if mine && self.has(Fault::RefusesOwnAcquire) && !expired {
                return self.held(record);
            }
            if mine && self.has(Fault::RefusesOwnExpired) && expired {
                return Outcome::Refused(Refusal::Expired);
            }
            let goes_on = self.goes_on(record, &request.claim) || self.has(Fault::ExpiredTermGoesOn);
            if mine && goes_on && !self.has(Fault::OwnAcquireStartsAnew) {
                self.keep(record, request.ttl);
                return Self::grant(stream, asker, record);
            }
            if !mine && !expired && !self.has(Fault::GrantsToAll) {
                if self.has(Fault::StrangersExtend) {
                    record.expires_at = self.clock.wall() + self.ttl(request.ttl);
                }
                return self.held(record);
            }
        }
        let record = self.begin(found.as_ref(), revision, asker, request.ttl, &request.claim);
        let answer = Self::grant(stream, asker, &record);
        *found = Some(record);
        answer
    }

    pub(super) fn decide_extend(
        &self,
        found: &mut Option<Record>,
        revision: i64,
        request: &ExtendRequest,
    ) -> Outcome {
        let (stream, asker) = (&request.stream, &request.instance);
        let released = found.as_ref().is_none_or(|r| r.released);
        if released
            && (self.has(Fault::RenewsNothing) || self.has(Fault::ReleasedCanBeExtended) && found.is_some())
        {
            let record = self.begin(found.as_ref(), revision, asker, request.ttl, &request.claim);
            let answer = Self::grant(stream, asker, &record);
            *found = Some(record);
            return answer;
        }
        let Some(record) = found.as_mut().filter(|r| !r.released) else {
            return Outcome::Refused(Refusal::NotHeld);
        };
        if self.has(Fault::RefusesRenewals) {
            return Outcome::Refused(Refusal::Expired);
        }
        if !self.is_of(record, asker, &request.claim) && !self.has(Fault::AnybodyRenews) {
            return self.held(record);
        }
        let revives = self.has(Fault::RenewalRevives) || self.has(Fault::AnybodyRenews);
        let again = request.if_expired == IfExpired::TakeAgain;
        if self.goes_on(record, &request.claim) || revives || again && self.has(Fault::TakeAgainKeepsTerm) {
            self.keep(record, request.ttl);
            if self.has(Fault::RenewalMovesAcquiredAt) {
                record.acquired_at = self.clock.wall();
            }
            return Self::grant(stream, asker, record);
        }
        let twin = record.writer != self.me && request.claim == Claim::Instance && !self.expired(record);
        let takes_again = again && !self.has(Fault::TakeAgainIsRefused);
        if !twin && !takes_again {
            return Outcome::Refused(Refusal::Expired);
        }
        let record = self.begin(found.as_ref(), revision, asker, request.ttl, &Claim::Instance);
        let answer = Self::grant(stream, asker, &record);
        *found = Some(record);
        answer
    }
}

/// As [`Ttl::holder_share`], for what is no [`Ttl`] any more once a fault has bent it.
fn share(ttl: Duration) -> Duration {
    ttl / 21 * 19
}
