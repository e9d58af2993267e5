//! Random schedules: several processes, one server, and a network that loses, delays, holds and doubles what it carries.
//!
//! Each run has a seed, which a failure prints. What must hold in every one: no two terms valid at once, tokens that
//! rise, answers as the contracts want them, and a lock that is free again soon after everybody fell silent.

use std::{collections::HashMap, time::UNIX_EPOCH};

use serde_json::json;

use super::*;
use crate::lock::IfExpired;

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap()
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// What third parties do in a run. None of it deletes or rewrites a held Lease in a way that the lock does not promise
/// to survive, unless it is [`Anything`](Self::Anything).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meddler {
    Nobody,
    Labels,
    Annotations,
    WipedHolders,
    Durations,
    RenewTimes,
    Anything,
}

#[derive(Default)]
struct Server {
    /// True time, in microseconds.
    micros: u64,
    version: u64,
    uids: u64,
    lease: Option<Lease>,
    /// Every version there ever was, for watches that are late.
    history: Vec<Lease>,
    /// The highest token that a write of ours has stored, and its term.
    token: i64,
    term: String,
}

impl Server {
    fn wall(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_700_000_000) + Duration::from_micros(self.micros)
    }

    fn date(&self) -> SystemTime {
        let since = self.wall().duration_since(UNIX_EPOCH).unwrap();
        UNIX_EPOCH + Duration::from_secs(since.as_secs())
    }

    fn store(&mut self, mut lease: Lease) -> Lease {
        let changed = self.lease.as_ref().is_none_or(|old| old.spec != lease.spec);
        if self.lease.as_ref() == Some(&lease) {
            return lease;
        }
        self.version += 1;
        lease.metadata.resource_version = Some(self.version.to_string());
        if changed {
            let time = crate::lease::time::micro_time(self.date()).unwrap();
            lease.metadata.managed_fields =
                serde_json::from_value(json!([{"time": time, "fieldsV1": {"f:spec": {}}}])).unwrap();
        }
        self.history.push(lease.clone());
        self.lease = Some(lease.clone());
        lease
    }

    fn handle(&mut self, request: &Request) -> Input {
        let date = Some(self.date());
        let reply = |lease| Input::Lease(Box::new(lease), date);
        match (request, &self.lease) {
            (Request::Get, Some(lease)) => reply(lease.clone()),
            (Request::Get, None) => Input::Missing,
            (Request::Create(_), Some(_)) | (Request::Put(_), None) => Input::Conflict,
            (Request::Create(lease), None) => {
                let mut lease = lease.clone();
                self.uids += 1;
                lease.metadata.uid = Some(format!("uid-{}", self.uids));
                reply(self.store(lease))
            }
            (Request::Put(lease), Some(found)) => {
                let (sent, found) = (&lease.metadata, &found.metadata);
                if sent.uid != found.uid || sent.resource_version != found.resource_version {
                    return Input::Conflict;
                }
                let stored = self.store(lease.clone());
                self.check_token(&stored);
                reply(stored)
            }
        }
    }

    fn check_token(&mut self, stored: &Lease) {
        let record = Record::read(stored).unwrap();
        let (Some(mark), Some(token)) = (record.believed(), record.shown_token()) else {
            return;
        };
        if mark.id == self.term {
            assert!(token.get() >= self.token, "the token of a term fell");
        } else {
            assert!(token.get() > self.token, "a new term without a higher token");
        }
        (self.term, self.token) = (mark.id.clone(), token.get());
    }
}

#[derive(Debug, Clone)]
enum Request {
    Get,
    Create(Lease),
    Put(Lease),
}

#[derive(Debug)]
enum Op {
    Acquire(Acquire),
    Extend(Extend),
    Release(Release),
    Read(Read),
}

enum Answer {
    Outcome(Result<Outcome, LockError>),
    Other,
}

impl Op {
    fn step(&mut self, machine: &mut Machine, now: Now, input: Input) -> Step<Answer> {
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

    fn timeout(&self) -> Duration {
        match self {
            Op::Acquire(op) => op.attempt_timeout(),
            Op::Extend(op) => op.attempt_timeout(),
            Op::Release(op) => op.attempt_timeout(),
            Op::Read(op) => op.attempt_timeout(),
        }
    }
}

struct Running {
    id: u64,
    op: Op,
    /// Who asked; nobody waits for a read.
    caller: Option<usize>,
    /// When the request times out or the wait is over, on the process's clock.
    until: Moment,
    waiting: bool,
    /// Whether every request so far was answered in time and without a fault, and how many there were.
    clean: bool,
    requests: u32,
}

struct Flight {
    process: usize,
    running: u64,
    request: Request,
    reply: Option<Input>,
}

struct Caller {
    instance: InstanceId,
    claim: Claim,
    by_term: bool,
    grant: Option<Grant>,
    /// The last answer was "unknown": ask again with the same claim.
    unknown: bool,
}

struct Process {
    machine: Machine,
    /// Parts per thousand of true time.
    rate: u64,
    origin: Duration,
    wall: i64,
    /// The first one holds the gate; reads run beside it.
    running: Vec<Running>,
    callers: Vec<Caller>,
}

struct World {
    rng: Rng,
    meddler: Meddler,
    server: Server,
    processes: Vec<Process>,
    flights: Vec<Flight>,
    ids: u64,
    /// Tokens of the terms that were granted.
    granted: HashMap<Term, i64>,
    /// Until when (true time) the grants from before something that no lock survives may overlap others.
    excused: u64,
    grants: u64,
    takeovers: u64,
}

const STREAM: &str = "orders";
const TTLS: [u64; 5] = [700, 1500, 3000, 6000, 15_000];

fn ttl(millis: u64) -> Ttl {
    Ttl::new(Duration::from_millis(millis)).unwrap()
}

impl Process {
    fn new(rng: &mut Rng, index: usize) -> Self {
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

    fn now(&self, server: &Server) -> Now {
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

impl World {
    fn new(seed: u64, meddler: Meddler) -> Self {
        let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let processes = (0..3).map(|index| Process::new(&mut rng, index)).collect();
        Self {
            rng,
            meddler,
            server: Server {
                version: 10,
                ..Server::default()
            },
            processes,
            flights: Vec::new(),
            ids: 0,
            granted: HashMap::new(),
            excused: 0,
            grants: 0,
            takeovers: 0,
        }
    }

    fn pass(&mut self) {
        let micros = match self.rng.below(20) {
            0..8 => self.rng.below(5_000),
            8..18 => self.rng.below(200_000),
            18 => self.rng.below(1_500_000),
            _ => self.rng.below(if self.rng.0.is_multiple_of(8) {
                20_000_000
            } else {
                500_000
            }),
        };
        self.server.micros += micros;
    }

    fn turn(&mut self) {
        self.pass();
        match self.rng.below(100) {
            0..60 => self.network(),
            60..75 => self.clocks(),
            75..88 => self.ask(),
            88..95 => self.news(),
            95 => self.forget(),
            96 | 97 => self.pounce(),
            _ => self.meddle(),
        }
        self.check();
    }

    fn begin(&mut self, process: usize, op: Op, caller: Option<usize>) {
        self.ids += 1;
        let running = Running {
            id: self.ids,
            op,
            caller,
            until: Moment::NEVER,
            waiting: false,
            clean: true,
            requests: 0,
        };
        let id = running.id;
        self.processes[process].running.push(running);
        self.step(process, id, Input::Continue);
    }

    fn step(&mut self, process: usize, id: u64, input: Input) {
        let p = &mut self.processes[process];
        let Some(at) = p.running.iter().position(|r| r.id == id) else {
            return;
        };
        let now = p.now(&self.server);
        let mut running = p.running.swap_remove(at);
        let step = running.op.step(&mut p.machine, now, input);
        running.until = now.at + running.op.timeout();
        running.waiting = false;
        let request = match step {
            Step::Get => Request::Get,
            Step::Create(lease) => Request::Create(lease),
            Step::Put(lease) => Request::Put(lease),
            Step::Wait(pause) => {
                (running.until, running.waiting) = (now.at + pause, true);
                p.running.push(running);
                return;
            }
            Step::Done(answer) => return self.answered(process, &running, answer),
        };
        running.requests += 1;
        p.running.push(running);
        self.flights.push(Flight {
            process,
            running: id,
            request,
            reply: None,
        });
    }

    fn answered(&mut self, process: usize, running: &Running, answer: Answer) {
        let p = &mut self.processes[process];
        let now = p.now(&self.server).at;
        let Some(caller) = running.caller else { return };
        let Answer::Outcome(answer) = answer else { return };
        let strict = self.meddler == Meddler::Nobody;
        let by_extension = matches!(running.op, Op::Extend(_));
        let caller = &mut p.callers[caller];
        let valid_before = caller.grant.as_ref().is_some_and(|grant| now < grant.valid_until);
        caller.unknown = false;
        match answer {
            Ok(Outcome::Granted(grant)) => {
                assert_eq!(grant.instance, caller.instance);
                let token = grant.token.unwrap().get();
                let highest = self.granted.values().copied().max().unwrap_or(0);
                match self.granted.get(&grant.term) {
                    Some(&known) => assert!(token >= known, "the token of a term fell"),
                    None => assert!(token > highest, "tokens rise: {token} after {highest}"),
                }
                if strict
                    && by_extension
                    && let (true, Some(before)) = (valid_before, &caller.grant)
                {
                    assert_eq!(before.term, grant.term, "an extension of a valid term keeps it");
                }
                self.takeovers += u64::from(!self.granted.contains_key(&grant.term));
                self.granted.insert(grant.term.clone(), token);
                self.grants += 1;
                caller.grant = Some(grant);
                if self.rng.chance(50) {
                    self.tell_all();
                }
            }
            Ok(Outcome::Unknown(_)) => caller.unknown = true,
            other => {
                assert!(
                    !(by_extension && valid_before && running.clean && strict),
                    "a valid holder's undisturbed extension was refused: {other:?}"
                );
                caller.grant = None;
            }
        }
        if by_extension && running.clean && valid_before && strict {
            assert_eq!(running.requests, 1, "an extension is one PUT");
        }
    }

    fn network(&mut self) {
        if self.flights.is_empty() {
            return self.ask();
        }
        let at = self.rng.index(self.flights.len());
        let fate = self.rng.below(100);
        let flight = &mut self.flights[at];
        let (process, id) = (flight.process, flight.running);
        if flight.reply.is_none() {
            match fate {
                0..3 => drop(self.flights.swap_remove(at)),
                3..5 => {
                    self.flights.swap_remove(at);
                    self.fail(process, id);
                }
                // Applied twice: the reply is the second one's.
                5..8 => {
                    self.server.handle(&flight.request);
                    flight.reply = Some(self.server.handle(&flight.request));
                    self.disturbed(process, id);
                }
                8..80 => flight.reply = Some(self.server.handle(&flight.request)),
                _ => {}
            }
        } else if fate < 90 {
            let flight = self.flights.swap_remove(at);
            match fate {
                0..4 => {}
                4..8 => self.fail(process, id),
                _ => self.reply(flight),
            }
        }
    }

    fn disturbed(&mut self, process: usize, id: u64) {
        for running in &mut self.processes[process].running {
            running.clean &= running.id != id;
        }
    }

    fn fail(&mut self, process: usize, id: u64) {
        self.disturbed(process, id);
        let waiting = |r: &Running| r.id == id && !r.waiting;
        if self.processes[process].running.iter().any(waiting) && !self.newer(process, id) {
            self.step(process, id, Input::Unknown(Unknown::new("broken")));
        }
    }

    /// Whether the operation has another request under way: then this one is one that it has given up.
    fn newer(&self, process: usize, id: u64) -> bool {
        self.flights
            .iter()
            .any(|f| f.process == process && f.running == id)
    }

    fn reply(&mut self, flight: Flight) {
        let Flight {
            process,
            running,
            reply,
            ..
        } = flight;
        let waits = |r: &Running| r.id == running && !r.waiting;
        // A reply to an attempt that timed out reaches nobody.
        let timed_out = self.processes[process]
            .running
            .iter()
            .any(|r| r.id == running && r.requests > 1)
            && self.newer(process, running);
        if self.processes[process].running.iter().any(waits) && !timed_out {
            self.step(process, running, reply.unwrap());
        }
    }

    /// Time-outs, and waits that are over.
    fn clocks(&mut self) {
        for process in 0..self.processes.len() {
            let p = &self.processes[process];
            let now = p.now(&self.server).at;
            let due: Vec<_> = p
                .running
                .iter()
                .filter(|r| now >= r.until)
                .map(|r| (r.id, r.waiting))
                .collect();
            for (id, waiting) in due {
                self.disturbed(process, id);
                let input = if waiting {
                    Input::Continue
                } else {
                    Input::Unknown(Unknown::new("timed out"))
                };
                // What timed out may reach the server yet, but its reply reaches nobody.
                for flight in &mut self.flights {
                    if flight.process == process && flight.running == id {
                        flight.running = 0;
                    }
                }
                self.step(process, id, input);
            }
        }
    }

    fn ask(&mut self) {
        let process = self.rng.index(self.processes.len());
        let p = &mut self.processes[process];
        if self.rng.chance(10) {
            return self.begin(process, Op::Read(Read::default()), None);
        }
        if p.running.iter().any(|r| !matches!(r.op, Op::Read(_))) {
            return;
        }
        let (index, what) = (self.rng.index(p.callers.len()), self.rng.below(10));
        self.ask_as(process, index, what);
    }

    fn ask_as(&mut self, process: usize, index: usize, what: u64) {
        let p = &mut self.processes[process];
        let stream = StreamName::new(STREAM).unwrap();
        let now = p.now(&self.server).at;
        let ttl = ttl(TTLS[self.rng.index(TTLS.len())]);
        let caller = &mut p.callers[index];
        let instance = caller.instance.clone();
        let holds = caller.grant.as_ref().is_some_and(|grant| now < grant.valid_until);
        if caller.by_term && !holds && !caller.unknown {
            caller.claim = Claim::Term(Term::random());
        }
        let claim = caller.claim.clone();
        // A shorter TTL binds whoever holds the same term, from the moment it is sent.
        let bound = now + ttl.holder_share();
        let op = match what {
            0..2 => Op::Release(Release::new(
                ReleaseRequest::new(&stream, &instance).claim(claim.clone()),
            )),
            2..6 if holds || self.rng.chance(10) => {
                let request = ExtendRequest::new(&stream, &instance, ttl).claim(claim.clone());
                let again = self.rng.chance(30);
                Op::Extend(Extend::new(request.if_expired(if again {
                    IfExpired::TakeAgain
                } else {
                    IfExpired::Refuse
                })))
            }
            _ => Op::Acquire(Acquire::new(
                AcquireRequest::new(&stream, &instance, ttl).claim(claim.clone()),
            )),
        };
        let release = matches!(op, Op::Release(_));
        for other in p.callers.iter_mut().filter(|other| other.instance == instance) {
            let Some(grant) = &mut other.grant else { continue };
            if claim != Claim::Instance && claim != Claim::Term(grant.term.clone()) {
                continue;
            }
            if release {
                other.grant = None;
            } else {
                grant.valid_until = grant.valid_until.min(bound);
            }
        }
        self.begin(process, op, Some(index));
    }

    /// A contender asks at the first moment at which it may believe that the record has expired, and is answered at once.
    fn pounce(&mut self) {
        let process = self.rng.index(self.processes.len());
        let p = &self.processes[process];
        let gated = |r: &Running| !matches!(r.op, Op::Read(_));
        let (Some(seen), false) = (&p.machine.seen, p.running.iter().any(gated)) else {
            return;
        };
        let (expires, now) = (seen.sighting.expires(Duration::ZERO), p.now(&self.server).at);
        let wait = u64::try_from(expires.since(now).as_micros()).unwrap();
        if wait > 20_000_000 {
            return;
        }
        self.server.micros += wait * 1000 / p.rate + 1000;
        let index = self.rng.index(p.callers.len());
        self.ask_as(process, index, 9);
        let id = self.ids;
        while let Some(at) = self.flights.iter().position(|f| f.running == id) {
            let mut flight = self.flights.swap_remove(at);
            flight.reply = Some(self.server.handle(&flight.request));
            self.reply(flight);
        }
    }

    /// A watch brings some version, new or old, or says that there is none.
    fn news(&mut self) {
        let process = self.rng.index(self.processes.len());
        let len = self.server.history.len();
        if self.server.lease.is_none() && self.rng.chance(50) {
            return self.begin(process, Op::Read(Read::default()), None);
        }
        if len == 0 {
            return;
        }
        let back = self.rng.index(len.min(6));
        let lease = self.server.history[len - 1 - back].clone();
        let p = &mut self.processes[process];
        let now = p.now(&self.server).at;
        p.machine.observe(now, lease).unwrap();
    }

    /// A watch that is quick.
    fn tell_all(&mut self) {
        for p in &mut self.processes {
            if let Some(lease) = &self.server.lease {
                let now = p.now(&self.server).at;
                p.machine.observe(now, lease.clone()).unwrap();
            }
        }
    }

    fn forget(&mut self) {
        let process = self.rng.index(self.processes.len());
        let p = &mut self.processes[process];
        let now = p.now(&self.server).at;
        if p.running.is_empty() && p.machine.may_be_forgotten(now) {
            let allowance = p.machine.allowance;
            p.machine = Machine::new(
                StreamName::new(STREAM).unwrap(),
                STREAM.into(),
                "ns".into(),
                allowance,
            );
        }
    }

    fn meddle(&mut self) {
        let Some(mut lease) = self.server.lease.clone() else {
            return;
        };
        let spec = lease.spec.get_or_insert_default();
        let mut kind = self.meddler;
        if kind == Meddler::Anything {
            use Meddler::{Annotations, Anything, Durations, Labels, RenewTimes, WipedHolders};
            let kinds = [Labels, Annotations, WipedHolders, Durations, RenewTimes, Anything];
            kind = kinds[self.rng.index(kinds.len())];
            self.excused = self.server.micros + 18_000_000;
        }
        match kind {
            Meddler::Nobody => return,
            Meddler::Labels => {
                let n = self.rng.below(100).to_string();
                lease.metadata.labels = self.rng.chance(50).then(|| [("n".to_owned(), n)].into());
            }
            Meddler::Annotations => lease.metadata.annotations = None,
            Meddler::WipedHolders => {
                spec.holder_identity = self.rng.chance(50).then(String::new);
                if self.rng.chance(50) {
                    spec.lease_duration_seconds = Some(1);
                    spec.renew_time = crate::lease::time::micro_time(self.server.wall());
                }
            }
            Meddler::Durations => {
                spec.lease_duration_seconds = Some(i64::try_from(self.rng.below(20)).unwrap() - 1);
            }
            Meddler::RenewTimes => {
                let at = self.server.wall() + Duration::from_secs(self.rng.below(10_000));
                spec.renew_time = self
                    .rng
                    .chance(80)
                    .then(|| crate::lease::time::micro_time(at).unwrap());
            }
            Meddler::Anything => match self.rng.below(4) {
                0 | 1 => return self.server.lease = None,
                2 => spec.holder_identity = Some("foreign".into()),
                _ => spec.lease_transitions = Some(i64::try_from(self.rng.below(9)).unwrap()),
            },
        }
        self.server.store(lease);
    }

    fn check(&mut self) {
        let mut valid: Vec<(usize, &Caller, &Grant)> = Vec::new();
        for (index, p) in self.processes.iter().enumerate() {
            let now = p.now(&self.server).at;
            for caller in &p.callers {
                if let Some(grant) = caller.grant.as_ref().filter(|grant| now < grant.valid_until) {
                    valid.push((index, caller, grant));
                }
            }
        }
        // A term that an edit by others shortens is over for its machine before its caller is told. Then the same
        // instance may have a new one; nobody else may.
        let excused = |a: &(usize, &Caller, &Grant), b: &(usize, &Caller, &Grant)| {
            self.meddler != Meddler::Nobody && a.0 == b.0 && a.1.instance == b.1.instance
        };
        let clash = valid
            .iter()
            .any(|a| valid.iter().any(|b| a.2.term != b.2.term && !excused(a, b)));
        if clash && self.server.micros >= self.excused {
            for (process, caller, grant) in &valid {
                eprintln!(
                    "process {process}, {} {:?}: {grant:?}",
                    caller.instance, caller.claim
                );
            }
            panic!(
                "two valid terms at once at {:?}",
                Duration::from_micros(self.server.micros)
            );
        }
    }

    /// Everybody stops; whoever polls gets the lock within the longest TTL, by its own eyes alone.
    fn ends_free(&mut self) {
        for flight in std::mem::take(&mut self.flights) {
            self.server.handle(&flight.request);
        }
        let stream = StreamName::new(STREAM).unwrap();
        let longest = match self.meddler {
            Meddler::Durations | Meddler::Anything => 20_000,
            _ => TTLS[TTLS.len() - 1],
        };
        let begun = self.server.micros;
        let mut machine = Machine::new(stream.clone(), STREAM.into(), "ns".into(), None);
        let id = InstanceId::new("probe").unwrap();
        loop {
            let now = Process {
                machine: machine.clone(),
                rate: 1000,
                origin: Duration::ZERO,
                wall: 0,
                running: Vec::new(),
                callers: Vec::new(),
            }
            .now(&self.server);
            let mut acquire = Acquire::new(AcquireRequest::new(&stream, &id, ttl(1000)));
            let mut step = acquire.step(&mut machine, now, Input::Continue);
            let outcome = loop {
                let request = match step {
                    Step::Get => Request::Get,
                    Step::Create(lease) => Request::Create(lease),
                    Step::Put(lease) => Request::Put(lease),
                    Step::Done(answer) => break answer.unwrap(),
                    Step::Wait(_) => panic!("nothing fails here"),
                };
                let reply = self.server.handle(&request);
                step = acquire.step(&mut machine, now, reply);
            };
            if outcome.is_granted() {
                return;
            }
            let waited = (self.server.micros - begun) / 1000;
            assert!(
                waited <= longest + 100,
                "still not free after {waited} ms: {outcome:?}"
            );
            self.server.micros += 100_000;
        }
    }
}

fn attack(meddler: Meddler, runs: u64, steps: u32) -> (u64, u64) {
    let first = std::env::var("ATTACK_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(1);
    let runs = std::env::var("ATTACK_RUNS")
        .ok()
        .and_then(|runs| runs.parse().ok())
        .unwrap_or(runs);
    let (mut grants, mut takeovers) = (0, 0);
    for seed in first..first + runs {
        let run = std::panic::catch_unwind(|| {
            let mut world = World::new(seed, meddler);
            for _ in 0..steps {
                world.turn();
            }
            world.ends_free();
            (world.grants, world.takeovers)
        });
        match run {
            Ok((g, t)) => (grants, takeovers) = (grants + g, takeovers + t),
            Err(panic) => {
                eprintln!("{meddler:?}: seed {seed} (ATTACK_SEED={seed} ATTACK_RUNS=1 runs it alone)");
                std::panic::resume_unwind(panic);
            }
        }
    }
    eprintln!("{meddler:?}: {grants} grants under {takeovers} terms");
    (grants, takeovers)
}

#[test]
fn random_schedules_make_no_two_holders() {
    let (grants, terms) = attack(Meddler::Nobody, 100, 1500);
    assert!(
        grants > 2000 && terms > 1500,
        "schedules in which something happens: {grants}, {terms}"
    );
}

#[test]
fn random_schedules_with_edits_by_others_make_no_two_holders() {
    use Meddler::{Annotations, Durations, Labels, RenewTimes, WipedHolders};
    for meddler in [Labels, Annotations, WipedHolders, Durations, RenewTimes] {
        attack(meddler, 25, 1500);
    }
}

#[test]
fn tokens_rise_whatever_others_do() {
    attack(Meddler::Anything, 50, 1500);
}
