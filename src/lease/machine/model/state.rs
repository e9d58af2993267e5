//! All there is at a moment, and what one action makes of it.

use std::{hash::Hash, sync::Arc};

use super::{
    super::{Input, Step, Unknown},
    bounds::{Bounds, Meddling, Start},
    process::{Answer, Op, Process, Wish, now},
    server::{Reply, Request, Server, digest},
};

/// A request, and its reply once the server has handled it.
#[derive(Debug, Clone)]
pub(super) struct Flight {
    pub(super) process: usize,
    pub(super) request: Request,
    /// Whether its sender still waits for the reply.
    pub(super) awaited: bool,
    pub(super) reply: Option<Reply>,
    digest: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Tick,
    Begin(usize, Wish),
    /// The server handles a request; `true`: the one whose clock is ahead.
    Handle(usize, bool),
    /// It arrives twice, and the second reply is what reaches the sender.
    Twice(usize),
    /// The reply arrives.
    Answer(usize),
    /// The sender waits no longer. What the server has not handled yet may arrive later, or never.
    GiveUp(usize),
    /// A pause is over.
    Resume(usize),
    /// A watch delivers a version.
    News(usize, usize),
    Meddle(Meddling),
}

#[derive(Debug, Clone)]
pub(super) struct State {
    pub(super) time: u64,
    pub(super) server: Server,
    pub(super) processes: Vec<Arc<Process>>,
    pub(super) flights: Vec<Flight>,
    faults: u8,
    news: u8,
    meddlings: u8,
    /// Terms whose Lease a third party rewrote while they held it: these may overlap with any other.
    pub(super) rewritten: Vec<String>,
    /// Terms whose Lease was deleted while they held it, and which processes had it as their last news (bits): only the
    /// others may overlap with it.
    pub(super) deleted: Vec<(String, u8)>,
    /// A write was applied that its sender had given up.
    pub(super) late_write: bool,
}

impl Hash for State {
    fn hash<H: std::hash::Hasher>(&self, to: &mut H) {
        (self.time, self.faults, self.news, self.meddlings, self.late_write).hash(to);
        (&self.server, &self.processes, &self.rewritten, &self.deleted).hash(to);
        for flight in &self.flights {
            to.write_u64(flight.digest);
        }
    }
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        let hash = |state: &Self| {
            let mut to = std::hash::DefaultHasher::new();
            state.hash(&mut to);
            std::hash::Hasher::finish(&to)
        };
        hash(self) == hash(other)
    }
}

impl Flight {
    fn seal(&mut self) {
        self.digest = 0;
        self.digest = digest(&(self.process, &self.request, self.awaited, &self.reply));
    }
}

impl State {
    pub(super) fn new(bounds: &Bounds) -> Self {
        let processes = bounds
            .candidates
            .iter()
            .map(|c| Arc::new(Process::new(bounds, c)));
        let mut state = Self {
            time: 0,
            server: Server::new(),
            processes: processes.collect(),
            flights: Vec::new(),
            faults: bounds.faults,
            news: bounds.news,
            meddlings: bounds.meddlings,
            rewritten: Vec::new(),
            deleted: Vec::new(),
            late_write: false,
        };
        if bounds.start != Start::Nothing {
            state.begin(bounds, 0, Wish::Acquire);
            while state.processes[0].op.is_some() {
                state.handle(0, false, bounds);
                state.answer(bounds, 0);
            }
            state.with(bounds, 0, |process| {
                process.left = bounds.candidates[0].operations;
            });
            let (first, last) = (1, state.server.history.len() - 1);
            if bounds.start == Start::Led {
                for process in first..state.processes.len() {
                    state.tell(bounds, process, last);
                }
            }
            state.news = bounds.news;
        }
        state
    }

    pub(super) fn actions(&self, bounds: &Bounds, actions: &mut Vec<Action>) {
        if self.time < bounds.horizon {
            actions.push(Action::Tick);
        }
        for (at, flight) in self.flights.iter().enumerate() {
            if flight.reply.is_none() {
                actions.push(Action::Handle(at, false));
                let read = matches!(flight.request, Request::Get);
                if bounds.skew > 0 && read {
                    actions.push(Action::Handle(at, true));
                }
                if bounds.twice && self.faults > 0 && flight.awaited && !read {
                    actions.push(Action::Twice(at));
                }
            }
        }
        for (at, process) in self.processes.iter().enumerate() {
            let candidate = &bounds.candidates[at];
            match &process.op {
                Some(_) if process.paused => actions.push(Action::Resume(at)),
                Some(_) => {
                    if self
                        .flights
                        .iter()
                        .any(|f| f.process == at && f.awaited && f.reply.is_some())
                    {
                        actions.push(Action::Answer(at));
                    }
                    let may_be_lost = |f: &Flight| {
                        let read = matches!(f.request, Request::Get);
                        f.process == at && f.awaited && !(read && bounds.reduced)
                    };
                    if self.faults > 0 && self.flights.iter().any(may_be_lost) {
                        actions.push(Action::GiveUp(at));
                    }
                }
                None if process.left > 0 => {
                    let holds = process.holds(now(candidate, self.time).at);
                    if !holds || candidate.asks_again {
                        actions.push(Action::Begin(at, Wish::Acquire));
                    }
                    if holds && candidate.extends {
                        actions.push(Action::Begin(at, Wish::Extend));
                    }
                    if holds && candidate.shorter.is_some() {
                        actions.push(Action::Begin(at, Wish::Shorten));
                    }
                    if candidate.releases && (process.grant.is_some() || process.open) {
                        actions.push(Action::Begin(at, Wish::Release));
                    }
                }
                None => {}
            }
            if self.news > 0 {
                actions.extend((0..self.server.history.len()).map(|version| Action::News(at, version)));
            }
        }
        if self.meddlings > 0 && self.server.lease.is_some() {
            actions.extend(bounds.meddler.iter().map(|&meddling| Action::Meddle(meddling)));
        }
    }

    pub(super) fn next(&self, bounds: &Bounds, action: Action) -> Option<Self> {
        let mut next = self.clone();
        next.late_write = false;
        match action {
            Action::Tick => {
                next.time += 1;
                for at in 0..next.processes.len() {
                    let now = now(&bounds.candidates[at], next.time).at;
                    let mut looked = Process::clone(&next.processes[at]);
                    looked.look(now);
                    looked.seal();
                    if looked != *next.processes[at] {
                        next.processes[at] = Arc::new(looked);
                    }
                }
            }
            Action::Begin(process, wish) => next.begin(bounds, process, wish),
            Action::Handle(at, ahead) => {
                let (process, awaited) = (next.flights[at].process, next.flights[at].awaited);
                next.handle(at, ahead, bounds);
                // A write that lost stays lost: one whose conflict is told later is one that arrived later.
                if bounds.reduced && awaited && matches!(next.flights[at].reply, Some(Reply::Conflict)) {
                    next.answer(bounds, process);
                }
            }
            Action::Twice(at) => {
                next.faults -= 1;
                let flight = next.flights[at].clone();
                next.server.handle(next.time, 0, &flight.request);
                next.handle(at, false, bounds);
            }
            Action::Answer(process) => next.answer(bounds, process),
            Action::GiveUp(process) => {
                next.faults -= 1;
                next.give_up(bounds, process);
            }
            Action::Resume(process) => next.step(bounds, process, Input::Continue),
            Action::News(process, version) => {
                next.tell(bounds, process, version);
                if next.processes[process] == self.processes[process] {
                    return None;
                }
                next.news -= 1;
            }
            Action::Meddle(meddling) => {
                next.meddlings -= 1;
                next.meddle(meddling);
            }
        }
        next.bury(bounds);
        Some(next)
    }

    /// Writes that nobody waits for and that can be applied no more.
    fn bury(&mut self, bounds: &Bounds) {
        let version = self.server.version;
        let deletions = bounds.meddler.contains(&Meddling::Delete);
        self.flights.retain(|flight| {
            let dead = match &flight.request {
                Request::Get => true,
                Request::Create(_) => !deletions && version > 10,
                Request::Put(lease) => match (&lease.metadata.uid, &lease.metadata.resource_version) {
                    (Some(_), Some(sent)) => *sent != version.to_string(),
                    (None, Some(sent)) => !deletions && *sent != version.to_string(),
                    _ => false,
                },
            };
            flight.awaited || !dead
        });
    }

    pub(super) fn begin(&mut self, bounds: &Bounds, process: usize, wish: Wish) {
        let candidate = &bounds.candidates[process];
        let now = now(candidate, self.time);
        self.take_step(bounds, process, |process| process.begin(candidate, now, wish));
    }

    fn with(&mut self, bounds: &Bounds, at: usize, change: impl FnOnce(&mut Process)) {
        let now = now(&bounds.candidates[at], self.time).at;
        let mut changed = Process::clone(&self.processes[at]);
        change(&mut changed);
        changed.look(now);
        changed.seal();
        self.processes[at] = Arc::new(changed);
    }

    pub(super) fn step(&mut self, bounds: &Bounds, process: usize, input: Input) {
        let now = now(&bounds.candidates[process], self.time);
        self.take_step(bounds, process, |process| process.step(now, input));
    }

    fn take_step(&mut self, bounds: &Bounds, at: usize, step: impl FnOnce(&mut Process) -> Step<Answer>) {
        let mut request = None;
        let before = self.processes[at].clone();
        let held = self.server.lease.clone();
        let now = now(&bounds.candidates[at], self.time).at;
        self.with(bounds, at, |process| {
            request = match step(process) {
                Step::Get => Some(Request::Get),
                Step::Create(lease) => Some(Request::Create(Arc::new(lease))),
                Step::Put(lease) => Some(Request::Put(Arc::new(lease))),
                Step::Wait(_) | Step::Done(_) => None,
            };
            process.ended_unproven |= ended_unproven(&before, process, now, held.as_deref());
        });
        if let Some(request) = request {
            let mut flight = Flight {
                process: at,
                request,
                awaited: true,
                reply: None,
                digest: 0,
            };
            flight.seal();
            self.flights.push(flight);
            // A read that is handled later is one that was sent later: nothing counts from its sending.
            let last = self.flights.len() - 1;
            if bounds.reduced && bounds.skew == 0 && matches!(self.flights[last].request, Request::Get) {
                self.handle(last, false, bounds);
            }
        }
    }

    pub(super) fn handle(&mut self, at: usize, ahead: bool, bounds: &Bounds) {
        let flight = &mut self.flights[at];
        let skew = if ahead { bounds.skew } else { 0 };
        let reply = self.server.handle(self.time, skew, &flight.request);
        if flight.awaited {
            flight.reply = Some(reply);
            flight.seal();
        } else {
            self.flights.remove(at);
            self.late_write |= matches!(reply, Reply::Lease(..));
        }
    }

    pub(super) fn answer(&mut self, bounds: &Bounds, process: usize) {
        let waits = |f: &Flight| f.process == process && f.awaited && f.reply.is_some();
        let at = self.flights.iter().position(waits).expect("a reply is under way");
        let input = match self.flights.remove(at).reply.expect("it is there") {
            Reply::Lease(version, date) => Input::Lease(Box::new(version.lease.clone()), Some(date)),
            Reply::Missing => Input::Missing,
            Reply::Conflict => Input::Conflict,
        };
        self.step(bounds, process, input);
    }

    pub(super) fn give_up(&mut self, bounds: &Bounds, process: usize) {
        if let Some(at) = self
            .flights
            .iter()
            .position(|f| f.process == process && f.awaited)
        {
            if self.flights[at].reply.is_some() {
                self.flights.remove(at);
            } else {
                self.flights[at].awaited = false;
                self.flights[at].seal();
            }
        }
        self.step(bounds, process, Input::Unknown(Unknown::new("timed out")));
    }

    fn tell(&mut self, bounds: &Bounds, process: usize, version: usize) {
        let lease = self.server.history[version].lease.clone();
        let now = now(&bounds.candidates[process], self.time).at;
        let before = self.processes[process].clone();
        let held = self.server.lease.clone();
        self.with(bounds, process, |process| {
            process.machine.observe(now, lease).unwrap();
            process.ended_unproven |= ended_unproven(&before, process, now, held.as_deref());
        });
    }

    /// Two processes whose guards are true at once, where nothing excuses it.
    pub(super) fn clash(&self, bounds: &Bounds) -> bool {
        let mut valid: Vec<(usize, &str)> = Vec::new();
        for (at, process) in self.processes.iter().enumerate() {
            let now = now(&bounds.candidates[at], self.time).at;
            valid.extend(process.valid_terms(now).map(|term| (at, term.as_str())));
        }
        let excused = |a: &(usize, &str), b: &(usize, &str)| {
            self.rewritten.iter().any(|term| term == a.1 || term == b.1)
                || self.deleted.iter().any(|(term, knew)| {
                    (term == a.1 && knew >> b.0 & 1 == 0) || (term == b.1 && knew >> a.0 & 1 == 0)
                })
        };
        let mut pairs = valid.iter().flat_map(|a| valid.iter().map(move |b| (a, b)));
        pairs.any(|(a, b)| a.0 < b.0 && !excused(a, b))
    }
}

/// Whether a guard ended in this step, though its time is not over, nobody released it, and the server shows its term.
fn ended_unproven(
    before: &Process,
    after: &Process,
    now: super::super::Moment,
    held: Option<&super::server::Version>,
) -> bool {
    let valid = |process: &Process| {
        let own = process.machine.own.as_ref()?;
        own.valid_until().filter(|until| now < *until)?;
        Some(own.term.clone())
    };
    let Some(term) = valid(before) else { return false };
    let releasing = |process: &Process| matches!(process.op, Some(Op::Release(_)));
    let shown = held.and_then(super::server::Version::term) == Some(term.as_str());
    shown && valid(after).is_none() && !releasing(before) && !releasing(after)
}
