//! A process: the production machine, a clock of its own, at most one operation under way, and what its caller believes.

use std::hash::{Hash, Hasher};

use super::{
    super::{
        Acquire, AcquireRequest, Claim, Duration, Extend, ExtendRequest, Input, InstanceId, Machine, Moment,
        Now, Operation, Outcome, Release, ReleaseRequest, Released, Step, StreamName, Term, Ttl,
    },
    bounds::{Bounds, Candidate},
    server::{digest, wall},
};
use crate::rules::Rules;

#[derive(Debug, Clone)]
pub(super) enum Op {
    Acquire(Acquire),
    Extend(Extend),
    Release(Release),
}

/// What a caller asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    Acquire,
    Extend,
    /// The same under the shorter TTL that the bounds name.
    Shorten,
    Release,
}

pub(super) enum Answer {
    Outcome(Outcome),
    Released(Released),
    Failed,
}

/// How the last step of a process came about, where that is worth reaching. Gone with its next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Feat {
    Nothing,
    /// Sent a takeover because it had seen the record unchanged for its TTL.
    TookObserved,
    /// Sent one because the server's time proved it.
    TookByServerTime,
    /// Was granted by a reply to a read: the write's own reply was lost.
    GrantedByRead,
    Released,
}

#[derive(Debug, Clone)]
#[allow(clippy::struct_excessive_bools)]
pub(super) struct Process {
    pub(super) machine: Machine,
    pub(super) op: Option<Op>,
    /// The operation pauses.
    pub(super) paused: bool,
    /// Whether its last request was a read.
    pub(super) reading: bool,
    /// What the caller was granted, and until when it believes in it.
    pub(super) grant: Option<(Term, Moment)>,
    /// The acquisition's number, and whether its outcome is open: then the same is asked again.
    pub(super) acquisitions: u8,
    pub(super) open: bool,
    /// How many operations it may still begin.
    pub(super) left: u8,
    /// The term of the last guard, and whether it has been seen false since.
    guarded: Option<(Term, bool)>,
    pub(super) revived: bool,
    /// A guard ended before its deadline, though the server's Lease still shows its term.
    pub(super) ended_unproven: bool,
    pub(super) feat: Feat,
    digest: u64,
}

impl Process {
    pub(super) fn new(bounds: &Bounds, candidate: &Candidate) -> Self {
        let stream = StreamName::new("orders").unwrap();
        let allowance = bounds.allowance.map(Duration::from_secs);
        let mut machine = Machine::new(stream, "orders".into(), "ns".into(), allowance);
        machine.rules = Rules::without(bounds.off);
        let mut new = Self {
            machine,
            op: None,
            paused: false,
            reading: false,
            grant: None,
            acquisitions: 0,
            open: false,
            left: candidate.operations,
            guarded: None,
            revived: false,
            ended_unproven: false,
            feat: Feat::Nothing,
            digest: 0,
        };
        new.seal();
        new
    }

    /// To be called after every change.
    pub(super) fn seal(&mut self) {
        self.digest = 0;
        self.digest = digest(self);
    }

    /// The terms under which something may be done here now: what the machine says, and what the caller was told.
    pub(super) fn valid_terms(&self, now: Moment) -> impl Iterator<Item = &Term> {
        let own = self.machine.own.as_ref();
        let own = own.filter(|own| own.valid_until().is_some_and(|until| now < until));
        let told = self.grant.as_ref().filter(|(_, until)| now < *until);
        own.map(|own| &own.term)
            .into_iter()
            .chain(told.map(|(term, _)| term))
    }

    pub(super) fn holds(&self, now: Moment) -> bool {
        self.grant.as_ref().is_some_and(|(_, until)| now < *until)
    }

    /// Notes whether the guard is true, after a step or a tick.
    pub(super) fn look(&mut self, now: Moment) {
        let own = self.machine.own.as_ref();
        let valid = own.filter(|own| own.valid_until().is_some_and(|until| now < until));
        match (&mut self.guarded, valid) {
            (Some((term, was_false)), Some(own)) if *term == own.term => self.revived |= *was_false,
            (guarded, Some(own)) => *guarded = Some((own.term.clone(), false)),
            (Some((_, was_false)), None) => *was_false = true,
            (None, None) => {}
        }
    }

    pub(super) fn begin(&mut self, candidate: &Candidate, now: Now, wish: Wish) -> Step<Answer> {
        let stream = self.machine.stream.clone();
        let id = InstanceId::new(candidate.id).unwrap();
        let seconds = if wish == Wish::Shorten {
            candidate.shorter.unwrap()
        } else {
            candidate.ttl
        };
        let ttl = Ttl::from_secs(seconds).unwrap();
        let holds = self.holds(now.at);
        if wish == Wish::Acquire && !holds && !self.open {
            self.acquisitions += 1;
        }
        let term = Term::named(&format!("{}{}", candidate.name, self.acquisitions));
        let claim = Claim::Term(term);
        self.left -= 1;
        let op = match wish {
            Wish::Acquire => Op::Acquire(Acquire::new(AcquireRequest::new(&stream, &id, ttl).claim(claim))),
            Wish::Extend | Wish::Shorten => {
                // Who asks for less has less, from that moment.
                if let Some((_, until)) = &mut self.grant {
                    *until = (*until).min(now.at + ttl.holder_share());
                }
                Op::Extend(Extend::new(ExtendRequest::new(&stream, &id, ttl).claim(claim)))
            }
            Wish::Release => {
                self.grant = None;
                Op::Release(Release::new(ReleaseRequest::new(&stream, &id).claim(claim)))
            }
        };
        self.op = Some(op);
        self.step(now, Input::Continue)
    }

    pub(super) fn step(&mut self, now: Now, input: Input) -> Step<Answer> {
        fn map<A>(step: Step<A>, answer: impl FnOnce(A) -> Answer) -> Step<Answer> {
            match step {
                Step::Get => Step::Get,
                Step::Create(lease) => Step::Create(lease),
                Step::Put(lease) => Step::Put(lease),
                Step::Wait(pause) => Step::Wait(pause),
                Step::Done(done) => Step::Done(answer(done)),
            }
        }
        self.paused = false;
        let read = self.reading && matches!(input, Input::Lease(..));
        self.feat = Feat::Nothing;
        let machine = &mut self.machine;
        let step = match self.op.as_mut().expect("an operation is under way") {
            Op::Acquire(op) => map(op.step(machine, now, input), |a| {
                a.map_or(Answer::Failed, Answer::Outcome)
            }),
            Op::Extend(op) => map(op.step(machine, now, input), |a| {
                a.map_or(Answer::Failed, Answer::Outcome)
            }),
            Op::Release(op) => map(op.step(machine, now, input), |a| {
                a.map_or(Answer::Failed, Answer::Released)
            }),
        };
        match &step {
            Step::Get => self.reading = true,
            Step::Create(_) => self.reading = false,
            Step::Put(_) => {
                self.reading = false;
                self.note_takeover(now);
            }
            Step::Wait(_) => self.paused = true,
            Step::Done(answer) => {
                self.op = None;
                self.reading = false;
                self.answered(answer, read);
            }
        }
        step
    }

    fn note_takeover(&mut self, now: Now) {
        let (Some(Op::Acquire(_)), Some(seen), Some(own)) = (&self.op, &self.machine.seen, &self.machine.own)
        else {
            return;
        };
        let others = seen
            .record
            .mark
            .as_ref()
            .is_some_and(|mark| mark.id != own.term.as_str());
        if others && seen.record.counted_holder().is_some() {
            let observed = now.at >= seen.sighting.expires(Duration::ZERO);
            self.feat = if observed {
                Feat::TookObserved
            } else {
                Feat::TookByServerTime
            };
        }
    }

    fn answered(&mut self, answer: &Answer, read: bool) {
        match answer {
            Answer::Outcome(Outcome::Granted(grant)) => {
                self.open = false;
                self.grant = Some((grant.term.clone(), grant.valid_until));
                if read {
                    self.feat = Feat::GrantedByRead;
                }
            }
            Answer::Outcome(Outcome::Unknown(_))
            | Answer::Failed
            | Answer::Released(Released::Unknown(_)) => {
                self.open = true;
            }
            Answer::Outcome(_) => {
                self.open = false;
                self.grant = None;
            }
            Answer::Released(released) => {
                self.open = false;
                if matches!(released, Released::Released) {
                    self.feat = Feat::Released;
                }
            }
        }
    }
}

impl Hash for Process {
    fn hash<H: Hasher>(&self, to: &mut H) {
        to.write_u64(self.digest);
    }
}

impl PartialEq for Process {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

/// The clocks of a process at a time.
pub(super) fn now(candidate: &Candidate, time: u64) -> Now {
    let at = Moment::from_origin(Duration::from_millis(1_000_000 + time * candidate.rate));
    let ahead = Duration::from_secs(candidate.wall.unsigned_abs());
    let wall = if candidate.wall < 0 {
        wall(time) - ahead
    } else {
        wall(time) + ahead
    };
    Now { at, wall }
}
