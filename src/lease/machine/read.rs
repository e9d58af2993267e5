//! Reading: who holds the Lease, for people and programs that ask. Grants nothing.
//!
//! So the server's time in the same reply decides without the allowance for clocks, and a state never lies in the past.

use std::time::{Duration, SystemTime};

use super::{
    DEFAULT_TTL, Input, LockError, LockRecord, LockState, Machine, Moment, Now, Operation, Record, Seen,
    Step, Unknown, pause,
};

/// How long a read is tried.
const LIMIT: Duration = Duration::from_secs(10);
const ATTEMPT: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(crate) struct Read {
    tries: u32,
    give_up: Option<Moment>,
    /// What was known when the request was sent. Reads run beside writes: a reply "there is none" is news only where
    /// nothing was learnt since.
    known: u64,
}

impl Read {
    fn read(&mut self, machine: &Machine) -> Step<<Self as Operation>::Answer> {
        self.known = machine.version;
        Step::Get
    }
}

impl Operation for Read {
    type Answer = Result<Option<LockRecord>, LockError>;

    fn step(&mut self, machine: &mut Machine, now: Now, input: Input) -> Step<Self::Answer> {
        let give_up = *self.give_up.get_or_insert(now.at + LIMIT);
        match input {
            Input::Continue | Input::Conflict => self.read(machine),
            Input::Missing if machine.version != self.known => {
                let late = Unknown::new("the API server's answer was overtaken by news");
                self.step(machine, now, Input::Unknown(late))
            }
            Input::Missing => {
                machine.missing(now.at);
                Step::Done(Ok(None))
            }
            Input::Lease(lease, date) => Step::Done(answer(machine, now, *lease, date)),
            Input::Unknown(unknown) if now.at >= give_up => Step::Done(Err(machine.unavailable(&unknown))),
            Input::Unknown(Unknown { .. }) => {
                self.tries += 1;
                Step::Wait(pause(self.tries))
            }
            Input::Refused(error) => Step::Done(Err(error)),
        }
    }

    fn attempt_timeout(&self) -> Duration {
        ATTEMPT
    }
}

fn answer(
    machine: &mut Machine,
    now: Now,
    lease: super::Lease,
    date: Option<SystemTime>,
) -> Result<Option<LockRecord>, LockError> {
    let current = machine.observe(now.at, lease)?;
    let date = date.filter(|_| current);
    let Some(seen) = &machine.seen else {
        return Ok(None);
    };
    let record = &seen.record;
    machine.check_stream(record)?;
    let Some(holder) = record.counted_holder() else {
        return Ok(None);
    };
    let time = date.unwrap_or(now.wall);
    let acquired_at = record
        .acquire_time
        .or(record.renew_time)
        .or(record.written)
        .unwrap_or(time);
    let state = LockState::new(
        machine.stream.clone(),
        holder,
        acquired_at,
        expires_at(record, time),
    )
    .with_token(record.shown_token())
    .with_transitions(u64::try_from(record.transitions).ok());
    Ok(Some(LockRecord::new(state, is_expired(seen, now, date))))
}

/// Whether a reader takes it for expired: by the server's time in the same reply, or because this process has seen it
/// unchanged for its TTL.
pub(super) fn is_expired(seen: &Seen, now: Now, date: Option<SystemTime>) -> bool {
    let observed = seen.record.contender_ttl().is_some() && now.at >= seen.sighting.expires(DEFAULT_TTL);
    observed || date.unwrap_or(now.wall) >= expires_at(&seen.record, date.unwrap_or(now.wall))
}

/// When the record ends, by the clock of the server that wrote it.
///
/// `managedFields` has whole seconds, rounded down. `renewTime` is finer, and is used where it agrees with its server;
/// otherwise the write was before the end of the server's second.
pub(super) fn expires_at(record: &Record, date: SystemTime) -> SystemTime {
    const SECOND: Duration = Duration::from_secs(1);
    let base = match (record.written, record.renew_time) {
        (Some(written), Some(renewed)) if renewed >= written && renewed < written + SECOND => renewed,
        (Some(written), _) => written + SECOND,
        (None, Some(renewed)) => renewed,
        // A Lease without any time never proves its end to a reader.
        (None, None) => date,
    };
    match record.shown_ttl() {
        Some(ttl) => base.checked_add(ttl).unwrap_or(base),
        // Nor does one without a duration: only its holder knows.
        None => date + DEFAULT_TTL,
    }
}
