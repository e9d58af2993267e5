//! A process: a machine, clocks of its own that run fast or slow, and the callers that share them.

use super::{server::Server, world::Rng, *};

#[derive(Debug)]
pub(super) enum Op {
    Acquire(Acquire),
    Extend(Extend),
    Release(Release),
    Read(Read),
}

pub(super) enum Answer {
    Outcome(Result<Outcome, LockError>),
    Other,
}

impl Op {
    pub(super) fn step(&mut self, machine: &mut Machine, now: Now, input: Input) -> Step<Answer> {
        fn map<A>(step: Step<A>, answer: impl FnOnce(A) -> Answer) -> Step<Answer> {
            match step {
                Step::Get => Step::Get,
                Step::Create(lease) => Step::Create(lease),
                Step::Put(lease) => Step::Put(lease),
                Step::Wait(pause) => Step::Wait(pause),
                Step::Done(done) => Step::Done(answer(done)),
            }
        }
        match self {
            Op::Acquire(op) => map(op.step(machine, now, input), Answer::Outcome),
            Op::Extend(op) => map(op.step(machine, now, input), Answer::Outcome),
            Op::Release(op) => map(op.step(machine, now, input), |_| Answer::Other),
            Op::Read(op) => map(op.step(machine, now, input), |_| Answer::Other),
        }
    }

    pub(super) fn timeout(&self) -> Duration {
        match self {
            Op::Acquire(op) => op.attempt_timeout(),
            Op::Extend(op) => op.attempt_timeout(),
            Op::Release(op) => op.attempt_timeout(),
            Op::Read(op) => op.attempt_timeout(),
        }
    }
}

pub(super) struct Running {
    pub(super) id: u64,
    pub(super) op: Op,
    /// Who asked; nobody waits for a read.
    pub(super) caller: Option<usize>,
    /// When the request times out or the wait is over, on the process's clock.
    pub(super) until: Moment,
    pub(super) waiting: bool,
    /// Whether every request so far was answered in time and without a fault, and how many there were.
    pub(super) clean: bool,
    pub(super) requests: u32,
}

pub(super) struct Caller {
    pub(super) instance: InstanceId,
    pub(super) claim: Claim,
    pub(super) by_term: bool,
    pub(super) grant: Option<Grant>,
    /// The last answer was "unknown": ask again with the same claim.
    pub(super) unknown: bool,
}

pub(super) struct Process {
    pub(super) machine: Machine,
    /// Parts per thousand of true time.
    pub(super) rate: u64,
    pub(super) origin: Duration,
    pub(super) wall: i64,
    /// The first one holds the gate; reads run beside it.
    pub(super) running: Vec<Running>,
    pub(super) callers: Vec<Caller>,
}

impl Process {
    pub(super) fn new(rng: &mut Rng, index: usize) -> Self {
        let stream = StreamName::new(STREAM).unwrap();
        let allowance = rng.chance(50).then_some(Duration::from_secs(5));
        let wall = match rng.below(4) {
            0 => 3_600_000,
            1 => -3_600_000,
            _ => i64::try_from(rng.below(4000)).unwrap() - 2000,
        };
        let caller = |id: String, by_term| Caller {
            instance: InstanceId::new(id).unwrap(),
            claim: if by_term {
                Claim::Term(Term::random())
            } else {
                Claim::Instance
            },
            by_term,
            grant: None,
            unknown: false,
        };
        Self {
            machine: Machine::new(stream, STREAM.into(), "ns".into(), allowance),
            rate: [950, 1050, 950 + rng.below(101)][rng.index(3)],
            origin: Duration::from_secs(rng.below(1_000_000)),
            wall,
            running: Vec::new(),
            callers: vec![
                caller(format!("p{index}"), false),
                // The same id asked for by another part of the same program, and by twins everywhere.
                caller(format!("p{index}"), true),
                caller("twin".into(), true),
                caller(format!("q{index}"), false),
            ],
        }
    }

    pub(super) fn now(&self, server: &Server) -> Now {
        let at = Moment::from_origin(self.origin) + Duration::from_micros(server.micros * self.rate / 1000);
        let offset = Duration::from_millis(self.wall.unsigned_abs());
        let wall = if self.wall < 0 {
            server.wall() - offset
        } else {
            server.wall() + offset
        };
        Now { at, wall }
    }
}
