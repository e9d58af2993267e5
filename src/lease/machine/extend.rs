//! Extending: one write from what was last seen, and more attempts until one is proven or the term is over.

use std::time::{Duration, SystemTime};

use super::{
    Acquire, AcquireRequest, Claim, ExtendRequest, Holding, Input, LockError, Machine, Moment, Now,
    Operation, Outcome, Refusal, Step, Unknown, attempt_timeout, overtaken, pause, read,
};
use crate::lock::{IfExpired, Term};

/// How long an extension goes on that has no term of its own to go by; one that has goes on until the term ends.
const LIMIT: Duration = Duration::from_secs(10);
const LIMIT_MIN: Duration = Duration::from_secs(1);

type Answer = Result<Outcome, LockError>;

#[derive(Debug, Clone)]
pub(crate) struct Extend {
    request: ExtendRequest,
    /// The first write of this operation.
    wrote: Option<u64>,
    /// Whether the last request was a write.
    writing: bool,
    tries: u32,
    conflicts: u32,
    /// Whether what was last seen has been overtaken, so that another write from it would be too.
    stale: bool,
    give_up: Option<Moment>,
    /// Set once the extension turned into a new acquisition.
    again: Option<Acquire>,
}

impl Extend {
    pub(crate) fn new(request: ExtendRequest) -> Self {
        Self {
            request,
            wrote: None,
            writing: false,
            tries: 0,
            conflicts: 0,
            stale: false,
            give_up: None,
            again: None,
        }
    }

    /// The term of a new acquisition, where the extension needed one.
    pub(crate) fn new_term(&self) -> Option<&Term> {
        self.again.as_ref().map(Acquire::term)
    }

    /// Writes when the term is ours and valid by what is known; reads otherwise.
    fn write_or_read(&mut self, machine: &mut Machine, now: Now) -> Step<Answer> {
        if machine.holds(now.at, &self.request.instance, &self.request.claim)
            && let Some(lease) = machine.renewal(now, self.request.ttl)
        {
            self.wrote.get_or_insert(machine.serial);
            self.writing = true;
            return Step::Put(lease);
        }
        self.read()
    }

    fn read(&mut self) -> Step<Answer> {
        self.writing = false;
        Step::Get
    }

    fn decide(&mut self, machine: &mut Machine, now: Now, date: Option<SystemTime>) -> Step<Answer> {
        let (instance, claim) = (self.request.instance.clone(), self.request.claim.clone());
        if let Some(seen) = &machine.seen
            && let Err(error) = machine.check_stream(&seen.record)
        {
            return Step::Done(Err(error));
        }
        if machine.holds(now.at, &instance, &claim) {
            return match machine.grant_since(self.wrote) {
                Some(grant) => Step::Done(Ok(Outcome::Granted(grant))),
                None => self.write_or_read(machine, now),
            };
        }
        self.refuse_or_retake(machine, now, date)
    }

    fn refuse_or_retake(
        &mut self,
        machine: &mut Machine,
        now: Now,
        date: Option<SystemTime>,
    ) -> Step<Answer> {
        let refuse = |refusal| Step::Done(Ok(Outcome::Refused(refusal)));
        let own_over = machine
            .own
            .as_ref()
            .is_some_and(|own| own.is_for(&self.request.instance, &self.request.claim) && own.is_over());
        let Some(seen) = &machine.seen else {
            return refuse(Refusal::Missing);
        };
        let record = &seen.record;
        let of_our_term = |term: &Term| record.mark.as_ref().is_some_and(|mark| mark.id == term.as_str());
        match (record.holding(), &self.request.claim) {
            (Holding::Free, Claim::Term(term)) if of_our_term(term) => return refuse(Refusal::Expired),
            (Holding::Free, _) => return refuse(Refusal::NotHeld),
            (Holding::Held(holder) | Holding::Wiped(holder), _)
                if holder != self.request.instance.as_str() =>
            {
                return refuse(machine.refusal(now, date));
            }
            // A twin's.
            (_, Claim::Term(term)) if !of_our_term(term) => return refuse(machine.refusal(now, date)),
            _ => {}
        }
        // Ours, under a term that is over or, by the instance id, that another process wrote.
        let over = own_over || read::is_expired(seen, now, date) || self.request.claim != Claim::Instance;
        match self.request.if_expired {
            IfExpired::Refuse if over => refuse(Refusal::Expired),
            _ => {
                let request = AcquireRequest::new(&machine.stream, &self.request.instance, self.request.ttl);
                let mut acquire = Acquire::again(request, self.request.claim.clone());
                let step = acquire.step(machine, now, Input::Continue);
                self.again = Some(acquire);
                step
            }
        }
    }

    fn failed(&mut self, machine: &mut Machine, now: Now, unknown: Unknown) -> Step<Answer> {
        let had_term = machine.own.as_ref().is_some_and(|own| {
            own.is_for(&self.request.instance, &self.request.claim) && own.proven().is_some()
        });
        if had_term && !machine.holds(now.at, &self.request.instance, &self.request.claim) {
            // The whole term was tried, or a watch has shown its loss. Nothing that was sent can revive it.
            let taken = machine
                .seen
                .as_ref()
                .and_then(|seen| seen.record.counted_holder());
            let taken = taken.is_some_and(|holder| holder != self.request.instance.as_str());
            let refusal = if taken {
                machine.refusal(now, None)
            } else {
                Refusal::Expired
            };
            return Step::Done(Ok(Outcome::Refused(refusal)));
        }
        if !had_term && self.give_up.is_some_and(|at| now.at >= at) {
            return Step::Done(match self.wrote {
                Some(_) => Ok(Outcome::Unknown(unknown)),
                None => Err(machine.unavailable(&unknown)),
            });
        }
        self.tries += 1;
        Step::Wait(pause(self.tries).min(self.attempt_timeout() / 4))
    }
}

impl Operation for Extend {
    type Answer = Answer;

    fn step(&mut self, machine: &mut Machine, now: Now, input: Input) -> Step<Answer> {
        if let Some(acquire) = &mut self.again {
            return acquire.step(machine, now, input);
        }
        let limit = self.request.ttl.as_duration().clamp(LIMIT_MIN, LIMIT);
        self.give_up.get_or_insert(now.at + limit);
        match input {
            Input::Continue if self.stale => self.read(),
            Input::Continue => self.write_or_read(machine, now),
            Input::Lease(lease, date) => match machine.observe(now.at, *lease) {
                Ok(current) => {
                    self.stale = false;
                    self.decide(machine, now, date.filter(|_| current))
                }
                Err(error) => Step::Done(Err(error)),
            },
            Input::Missing => {
                machine.missing(now.at);
                Step::Done(Ok(Outcome::Refused(Refusal::Missing)))
            }
            Input::Conflict => {
                self.stale = true;
                self.conflicts += 1;
                match overtaken(self.conflicts) {
                    Some(unknown) => self.failed(machine, now, unknown),
                    None => self.read(),
                }
            }
            Input::Unknown(unknown) => self.failed(machine, now, unknown),
            Input::Refused(error) => {
                if self.writing {
                    machine.write_refused();
                }
                Step::Done(Err(error))
            }
        }
    }

    fn attempt_timeout(&self) -> Duration {
        attempt_timeout(self.request.ttl)
    }
}
