//! Acquiring: read, create when missing, then one compare-and-set, and a proof.

use std::time::{Duration, SystemTime};

use super::{
    AcquireRequest, Attempt, Claim, Holding, Input, LockError, Machine, Moment, Now, Operation, Outcome,
    OwnTerm, Refusal, Rule, Step, Ttl, Unknown, next_renew_text, overtaken, patient_timeout, pause, write,
};
use crate::lease::time;
use crate::lock::Term;

/// How long an acquisition goes on before it answers that it could not: a TTL, within these bounds.
const LIMIT: Duration = Duration::from_secs(10);
const LIMIT_MIN: Duration = Duration::from_secs(2);

type Answer = Result<Outcome, LockError>;

#[derive(Debug, Clone)]
pub(crate) struct Acquire {
    request: AcquireRequest,
    /// The term of a new acquisition: the same over all attempts of it.
    term: Term,
    give_up: Option<Moment>,
    tries: u32,
    conflicts: u32,
    /// Whether the last request was a write to an existing Lease.
    writing: bool,
    /// Only what is the asker's already by this claim may be taken: an extension that needs a new term.
    only_mine: Option<Claim>,
    /// A write of this operation that may have been applied, and why that is not known.
    unsettled: Option<Unknown>,
    /// The first write of this operation. A grant is one of its own writes, proven.
    wrote: Option<u64>,
}

impl Acquire {
    pub(crate) fn new(request: AcquireRequest) -> Self {
        let term = match &request.claim {
            Claim::Term(term) => term.clone(),
            Claim::Instance => Term::random(),
        };
        Self {
            request,
            term,
            give_up: None,
            tries: 0,
            conflicts: 0,
            writing: false,
            only_mine: None,
            unsettled: None,
            wrote: None,
        }
    }

    /// The acquisition that an extension needs when its own term is over: a new term for what is still the asker's.
    pub(super) fn again(request: AcquireRequest, claim: Claim) -> Self {
        Self {
            only_mine: Some(claim),
            ..Self::new(request)
        }
    }

    /// The term of a grant that this operation may bring.
    pub(crate) fn term(&self) -> &Term {
        &self.term
    }

    /// The TTL that is asked for.
    pub(crate) fn ttl(&self) -> Ttl {
        self.request.ttl
    }

    fn read(&mut self) -> Step<Answer> {
        self.writing = false;
        Step::Get
    }

    /// After a failure: again after a pause, until the limit.
    fn failed(&mut self, machine: &Machine, now: Now, unknown: &Unknown) -> Step<Answer> {
        if self.writing {
            self.unsettled = Some(unknown.clone());
        }
        self.tries += 1;
        self.writing = false;
        if self.give_up.is_some_and(|at| now.at >= at) {
            return Step::Done(match self.unsettled.take() {
                Some(write) => Ok(Outcome::Unknown(write)),
                // Only reads failed, or the creation of a Lease that nobody holds.
                None => Err(machine.unavailable(unknown)),
            });
        }
        Step::Wait(pause(self.tries))
    }

    fn decide(&mut self, machine: &mut Machine, now: Now, date: Option<SystemTime>) -> Step<Answer> {
        let (instance, claim) = (self.request.instance.clone(), self.request.claim.clone());
        let Some(seen) = &machine.seen else {
            return self.create(machine, now);
        };
        if let Err(error) = machine.check_stream(&seen.record) {
            return Step::Done(Err(error));
        }
        if machine.holds(now.at, &instance, &claim) {
            #[cfg(test)]
            if let Some(grant) = machine.already_mine(now, self.request.ttl) {
                return Step::Done(Ok(Outcome::Granted(grant)));
            }
            return match machine.grant_since(self.wrote) {
                Some(grant) => Step::Done(Ok(Outcome::Granted(grant))),
                None => self.renew(machine, now),
            };
        }
        // A guard of this term was given once and is over: it is not revived.
        if machine
            .own
            .as_ref()
            .is_some_and(|own| own.is_for(&instance, &claim) && own.is_over() && own.term == self.term)
        {
            return Step::Done(Ok(Outcome::Refused(Refusal::Expired)));
        }
        self.take(machine, now, date)
    }

    /// Not ours under a valid term: whose, and may it be taken?
    fn take(&mut self, machine: &mut Machine, now: Now, date: Option<SystemTime>) -> Step<Answer> {
        let Some(seen) = &machine.seen else {
            return self.create(machine, now);
        };
        let record = &seen.record;
        // Like a term that is over: who retries its acquisition late would find a guard alive that was once false.
        if record
            .mark
            .as_ref()
            .is_some_and(|mark| mark.released && mark.id == self.term.as_str())
        {
            return Step::Done(Ok(Outcome::Refused(Refusal::Expired)));
        }
        let counted = record.counted_holder();
        let mine = counted == Some(self.request.instance.as_str())
            && match self.only_mine.as_ref().unwrap_or(&self.request.claim) {
                Claim::Instance => true,
                Claim::Term(_) if !machine.rules.keeps(Rule::TermNotId) => true,
                // Or what an earlier attempt of this operation wrote, proven too late to grant.
                Claim::Term(term) => record.mark.as_ref().is_some_and(|mark| {
                    [term.as_str(), self.term.as_str()].contains(&mark.id.as_str()) && !mark.released
                }),
            };
        let free = match record.holding() {
            Holding::Free => true,
            Holding::Wiped(_) => !machine.rules.keeps(Rule::WipedIsHeld),
            Holding::Held(_) => false,
        };
        if !mine && self.only_mine.is_some() {
            return Step::Done(Ok(Outcome::Refused(machine.refusal(now, date))));
        }
        if !mine && !free && !machine.proves_expiry(now, date, self.request.ttl) {
            return Step::Done(Ok(Outcome::Refused(machine.refusal(now, date))));
        }
        if !mine && let Some(refusal) = machine.haunted(now, &self.request.instance, &self.request.claim) {
            return Step::Done(Ok(Outcome::Refused(refusal)));
        }
        if self.give_up.is_some_and(|at| now.at >= at) {
            let late = Unknown::new("the API server answered too late, again and again");
            let unknown = self.unsettled.clone().unwrap_or(late);
            return self.failed(machine, now, &unknown);
        }
        self.write(
            machine,
            now,
            if mine {
                write::Holder::Stays
            } else {
                write::Holder::Changes
            },
        )
    }

    fn create(&mut self, machine: &mut Machine, now: Now) -> Step<Answer> {
        if let Some(refusal) = machine.haunted(now, &self.request.instance, &self.request.claim) {
            return Step::Done(Ok(Outcome::Refused(refusal)));
        }
        #[cfg(test)]
        if !machine.rules.keeps(Rule::CreatedFree) {
            return self.create_held(machine, now);
        }
        self.writing = false;
        Step::Create(write::free(&machine.name, &machine.namespace, &machine.stream))
    }

    fn renew(&mut self, machine: &mut Machine, now: Now) -> Step<Answer> {
        let Some(lease) = machine.renewal(now, self.request.ttl) else {
            return self.read();
        };
        self.writing = true;
        self.wrote.get_or_insert(machine.serial);
        Step::Put(lease)
    }

    pub(super) fn write(&mut self, machine: &mut Machine, now: Now, holder: write::Holder) -> Step<Answer> {
        let Some(seen) = &machine.seen else {
            return self.create(machine, now);
        };
        let token = match write::next_token(&seen.record) {
            Ok(token) => token,
            Err(problem) => return Step::Done(Err(machine.unusable(problem))),
        };
        machine.serial += 1;
        // Attempts of one acquisition are kept together: a read may prove any of them.
        let same = |own: &OwnTerm| own.term == self.term && own.uid == seen.record.uid;
        let mut own = machine.own.take().filter(same).unwrap_or_else(|| {
            OwnTerm::new(
                machine.stream.clone(),
                self.term.clone(),
                self.request.instance.clone(),
                seen.record.uid.clone(),
            )
            .under(machine.rules)
        });
        let renew_text = next_renew_text(now, seen, Some(&own), self.request.ttl);
        let attempt = Attempt {
            sent: now.at,
            sent_wall: now.wall,
            ttl: self.request.ttl,
            token,
            acquired_at: match holder {
                write::Holder::Stays => seen
                    .record
                    .acquire_time
                    .unwrap_or_else(|| time::to_micros(now.wall)),
                write::Holder::Changes => time::to_micros(now.wall),
            },
            renew_text,
            serial: machine.serial,
            condition: seen.record.resource_version,
        };
        let lease = write::acquisition(&seen.lease, &seen.record, &own, &attempt, holder);
        own.sending(attempt);
        machine.own = Some(own);
        self.writing = true;
        self.wrote.get_or_insert(machine.serial);
        Step::Put(lease)
    }
}

impl Operation for Acquire {
    type Answer = Answer;

    fn step(&mut self, machine: &mut Machine, now: Now, input: Input) -> Step<Answer> {
        let limit = self.request.ttl.as_duration().clamp(LIMIT_MIN, LIMIT);
        self.give_up.get_or_insert(now.at + limit);
        match input {
            Input::Lease(lease, date) => match machine.observe(now.at, *lease) {
                Ok(current) => self.decide(machine, now, date.filter(|_| current)),
                Err(error) => Step::Done(Err(error)),
            },
            Input::Missing => {
                machine.missing(now.at);
                if self.only_mine.is_some() {
                    return Step::Done(Ok(Outcome::Refused(Refusal::Missing)));
                }
                self.create(machine, now)
            }
            Input::Continue => self.read(),
            // Somebody else was first, or one of our own attempts: a read tells.
            Input::Conflict => {
                self.conflicts += 1;
                match overtaken(self.conflicts) {
                    Some(unknown) => self.failed(machine, now, &unknown),
                    None => self.read(),
                }
            }
            Input::Unknown(unknown) => self.failed(machine, now, &unknown),
            Input::Refused(error) => {
                if self.writing {
                    machine.write_refused();
                }
                Step::Done(match self.unsettled.take() {
                    Some(write) => Ok(Outcome::Unknown(write)),
                    None => Err(error),
                })
            }
        }
    }

    fn attempt_timeout(&self) -> Duration {
        patient_timeout(self.request.ttl)
    }
}
