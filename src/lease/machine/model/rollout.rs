//! What follows from a state when nothing fails any more: always the same schedule, so that a promise that something
//! *will* happen can be checked state by state.

use super::{
    super::Input,
    bounds::{Bounds, Candidate},
    process::{Process, Wish, now},
    state::State,
};

/// Runs a process's operation to its end, every request handled and answered at once.
fn finish(state: &mut State, bounds: &Bounds, process: usize) {
    for _ in 0..100 {
        if state.processes[process].op.is_none() {
            return;
        }
        if state.processes[process].paused {
            state.step(bounds, process, Input::Continue);
            continue;
        }
        let flight = state
            .flights
            .iter()
            .position(|f| f.process == process && f.awaited);
        let at = flight.expect("an operation waits for a reply");
        if state.flights[at].reply.is_none() {
            state.handle(at, false, bounds);
        }
        state.answer(bounds, process);
    }
    panic!("an operation without end");
}

/// What is late arrives now.
fn deliver(state: &mut State, bounds: &Bounds) {
    while let Some(at) = state.flights.iter().position(|f| !f.awaited) {
        state.handle(at, false, bounds);
    }
}

/// Whoever leads, and has a tick left, leads on after its present request was lost: late writes arrive, it extends every tick.
pub(super) fn leads_on(bounds: &Bounds, state: &State) -> bool {
    (0..state.processes.len()).all(|at| {
        let candidate = &bounds.candidates[at];
        let valid = |state: &State, time| {
            let now = now(candidate, time).at;
            state.processes[at].holds(now) && state.processes[at].valid_terms(now).count() == 2
        };
        if !valid(state, state.time) || !valid(state, state.time + 1) {
            return true;
        }
        let mut state = state.clone();
        if state.processes[at].op.is_some() {
            if !state.processes[at].paused {
                state.give_up(bounds, at);
            }
            state.time += 1;
            deliver(&mut state, bounds);
            finish(&mut state, bounds, at);
        } else {
            deliver(&mut state, bounds);
        }
        (0..=candidate.ttl).all(|_| {
            let led = valid(&state, state.time);
            let mut process = Process::clone(&state.processes[at]);
            process.left = 9;
            state.processes[at] = process.into();
            state.begin(bounds, at, Wish::Extend);
            finish(&mut state, bounds, at);
            let leads = led && valid(&state, state.time);
            state.time += 1;
            leads
        })
    })
}

/// Everybody falls silent, whatever is under way arrives, and a newcomer asks once a tick: it leads within the longest
/// TTL and a tick, by its own eyes.
pub(super) fn is_free_again(bounds: &Bounds, state: &State) -> bool {
    let mut state = state.clone();
    for flight in &mut state.flights {
        flight.awaited = false;
    }
    state.flights.retain(|flight| flight.reply.is_none());
    deliver(&mut state, bounds);
    let newcomer = Candidate::new('C', u8::MAX);
    let mut bounds = bounds.clone();
    bounds.allowance = None;
    bounds.candidates.push(newcomer.clone());
    let at = state.processes.len();
    state.processes.push(Process::new(&bounds, &newcomer).into());
    // The longest TTL that anybody, meddlers too, may leave on the Lease.
    let longest = bounds.candidates.iter().map(|c| c.ttl).max().unwrap_or(0).max(5);
    let last = state.time + longest + 1;
    while state.time <= last {
        state.begin(&bounds, at, Wish::Acquire);
        finish(&mut state, &bounds, at);
        if state.processes[at].holds(now(&newcomer, state.time).at) {
            return true;
        }
        state.time += 1;
    }
    false
}
