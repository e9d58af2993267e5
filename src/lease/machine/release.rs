//! Releasing: the term is over before the write is sent; the write clears the holder and keeps the rest.

use std::time::Duration;

use super::{
    Acquire, AcquireRequest, Claim, Input, LockError, Machine, Moment, Now, Operation, Outcome,
    ReleaseRequest, Released, Step, Unknown, overtaken, pause, write,
};
use crate::lease::wire::TermMark;

/// How long a release is tried. The Lease expires by itself, so there is no sense in more.
const LIMIT: Duration = Duration::from_secs(10);
const ATTEMPT: Duration = Duration::from_secs(2);

type Answer = Result<Released, LockError>;

#[derive(Debug, Clone)]
pub(crate) struct Release {
    request: ReleaseRequest,
    tries: u32,
    conflicts: u32,
    give_up: Option<Moment>,
    /// Whether the last request was a write.
    writing: bool,
    /// Whether a write of this operation may have been applied.
    unsettled: bool,
    /// The term that it marks as released.
    released: Option<String>,
    /// An acquisition whose outcome is unknown may be applied yet. It is given up for good only once the
    /// resourceVersion has moved, so it is completed first and then released.
    settle: Option<Acquire>,
}

impl Release {
    pub(crate) fn new(request: ReleaseRequest) -> Self {
        Self {
            request,
            tries: 0,
            conflicts: 0,
            give_up: None,
            writing: false,
            unsettled: false,
            released: None,
            settle: None,
        }
    }

    fn begin(&mut self, machine: &mut Machine, now: Now) -> Step<Answer> {
        let (instance, claim) = (&self.request.instance, &self.request.claim);
        let Some(own) = machine.own.as_mut().filter(|own| own.is_for(instance, claim)) else {
            return self.read();
        };
        if let (true, Some(ttl)) = (own.is_unsettled(), own.last_ttl()) {
            let term = Claim::Term(own.term.clone());
            let acquire = Acquire::new(AcquireRequest::new(&self.request.stream, instance, ttl).claim(term));
            return self.settling(machine, now, acquire, Input::Continue);
        }
        machine.end_own();
        self.release_seen(machine).unwrap_or_else(|| self.read())
    }

    fn settling(
        &mut self,
        machine: &mut Machine,
        now: Now,
        mut acquire: Acquire,
        input: Input,
    ) -> Step<Answer> {
        match acquire.step(machine, now, input) {
            Step::Done(Ok(Outcome::Granted(_))) => {
                machine.end_own();
                self.release_seen(machine).unwrap_or_else(|| self.read())
            }
            Step::Done(Ok(Outcome::Unknown(unknown))) => Step::Done(Ok(Released::Unknown(unknown))),
            Step::Done(Ok(Outcome::Refused(_))) => Step::Done(Ok(Released::NotHeld)),
            Step::Done(Err(error)) => Step::Done(Err(error)),
            Step::Get => self.settle_with(acquire, Step::Get),
            Step::Create(lease) => self.settle_with(acquire, Step::Create(lease)),
            Step::Put(lease) => self.settle_with(acquire, Step::Put(lease)),
            Step::Wait(pause) => self.settle_with(acquire, Step::Wait(pause)),
        }
    }

    fn settle_with(&mut self, acquire: Acquire, step: Step<Answer>) -> Step<Answer> {
        self.settle = Some(acquire);
        step
    }

    fn read(&mut self) -> Step<Answer> {
        self.writing = false;
        Step::Get
    }

    /// The write that releases what was last seen, if that is the asker's.
    fn release_seen(&mut self, machine: &Machine) -> Option<Step<Answer>> {
        let seen = machine.seen.as_ref()?;
        let record = &seen.record;
        if record.counted_holder() != Some(self.request.instance.as_str()) {
            return None;
        }
        let own = machine
            .own
            .as_ref()
            .filter(|own| own.is_for(&self.request.instance, &self.request.claim));
        let mark = match (&self.request.claim, &record.mark, own) {
            (Claim::Term(term), Some(mark), _) if mark.id == term.as_str() => mark.clone(),
            // Our annotations were stripped, but the spec is still our write.
            (Claim::Term(_), None, Some(own)) if own.wrote(record.renew_text.as_deref()) => own.mark(0, true),
            (Claim::Term(_), _, _) => return None,
            (Claim::Instance, _, own) => {
                let id = record
                    .mark
                    .as_ref()
                    .map(|mark| mark.id.clone())
                    .or(own.map(|own| own.term.to_string()));
                TermMark {
                    id: id.unwrap_or_else(|| crate::lock::Term::random().to_string()),
                    holder: self.request.instance.to_string(),
                    transitions: 0,
                    released: true,
                }
            }
        };
        let mark = TermMark {
            holder: self.request.instance.to_string(),
            ..mark
        };
        self.writing = true;
        self.released = Some(mark.id.clone());
        Some(Step::Put(write::release(
            &seen.lease,
            record,
            &machine.stream,
            mark,
        )))
    }

    fn not_held(&self, machine: &Machine) -> Step<Answer> {
        // A write that was sent twice on its way is answered with its own conflict.
        let mark = machine.seen.as_ref().and_then(|seen| seen.record.mark.as_ref());
        let shown = mark.is_some_and(|mark| mark.released && self.released.as_ref() == Some(&mark.id));
        // After a write whose reply was lost, that the Lease is not ours any more is its success.
        Step::Done(Ok(if shown || self.unsettled {
            Released::Released
        } else {
            Released::NotHeld
        }))
    }

    fn failed(&mut self, machine: &Machine, now: Now, unknown: Unknown) -> Step<Answer> {
        if self.give_up.is_some_and(|at| now.at >= at) {
            return Step::Done(if self.unsettled {
                Ok(Released::Unknown(unknown))
            } else {
                Err(machine.unavailable(&unknown))
            });
        }
        self.tries += 1;
        self.writing = false;
        Step::Wait(pause(self.tries))
    }
}

impl Operation for Release {
    type Answer = Answer;

    fn step(&mut self, machine: &mut Machine, now: Now, input: Input) -> Step<Answer> {
        let first = self.give_up.is_none();
        self.give_up.get_or_insert(now.at + LIMIT);
        if let Some(acquire) = self.settle.take() {
            return self.settling(machine, now, acquire, input);
        }
        match input {
            Input::Continue if first => self.begin(machine, now),
            Input::Continue => self.read(),
            Input::Conflict => {
                self.conflicts += 1;
                match overtaken(self.conflicts) {
                    Some(unknown) => self.failed(machine, now, unknown),
                    None => self.read(),
                }
            }
            Input::Lease(lease, _) => {
                if let Err(error) = machine.observe(now.at, *lease) {
                    return Step::Done(Err(error));
                }
                if self.writing {
                    machine.own = machine.own.take().filter(|own| !own.is_over());
                    return Step::Done(Ok(Released::Released));
                }
                if let Some(Err(error)) = machine
                    .seen
                    .as_ref()
                    .map(|seen| machine.check_stream(&seen.record))
                {
                    return Step::Done(Err(error));
                }
                self.release_seen(machine)
                    .unwrap_or_else(|| self.not_held(machine))
            }
            Input::Missing => {
                machine.missing(now.at);
                self.not_held(machine)
            }
            Input::Unknown(unknown) => {
                self.unsettled |= self.writing;
                self.failed(machine, now, unknown)
            }
            Input::Refused(error) => Step::Done(Err(error)),
        }
    }

    fn attempt_timeout(&self) -> Duration {
        ATTEMPT
    }
}
