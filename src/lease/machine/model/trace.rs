//! A schedule in words.

use stateright::Path;

use super::{
    bounds::{Bounds, Meddling},
    process::Wish,
    server::{Reply, Request},
    state::{Action, State},
};

/// One line an action; ticks in a row are one.
pub(super) fn lines(bounds: &Bounds, path: Path<State, Action>) -> Vec<String> {
    let steps: Vec<(State, Option<Action>)> = path.into();
    let mut lines = Vec::new();
    let mut ticks = 0;
    for pair in steps.windows(2) {
        let [(before, Some(action)), (after, _)] = pair else {
            continue;
        };
        if *action == Action::Tick {
            ticks += 1;
            continue;
        }
        passed(&mut lines, &mut ticks, before.time);
        lines.push(line(bounds, before, *action, after));
    }
    let end = steps.last().map_or(0, |(state, _)| state.time);
    passed(&mut lines, &mut ticks, end);
    lines
}

fn passed(lines: &mut Vec<String>, ticks: &mut u64, time: u64) {
    if *ticks > 0 {
        let passed = if *ticks == 1 {
            "a tick passes".to_owned()
        } else {
            format!("{ticks} ticks pass")
        };
        lines.push(format!("{passed}: it is {time}"));
    }
    *ticks = 0;
}

/// What an action made of a state.
pub(super) fn line(bounds: &Bounds, before: &State, action: Action, after: &State) -> String {
    let name = |process: usize| bounds.candidates[process].name;
    let verb = |request: &Request| match request {
        Request::Get => "read",
        Request::Create(_) => "creation",
        Request::Put(_) => "write",
    };
    let then = |process: usize| {
        let (was, is) = (&before.processes[process], &after.processes[process]);
        let sends = after
            .flights
            .iter()
            .rev()
            .find(|f| f.process == process && f.awaited);
        match (sends, is.op.is_some()) {
            (Some(flight), _) => match &flight.reply {
                None => format!(", and sends a {}", verb(&flight.request)),
                Some(Reply::Missing) => ", and reads: there is none".to_owned(),
                Some(_) => ", and reads what is stored".to_owned(),
            },
            (None, true) => ", and pauses".to_owned(),
            (None, false) => match (&is.grant, &was.grant) {
                (Some(grant), was) if was.as_ref() != Some(grant) => {
                    format!(
                        ": granted, until {:?} of its clock",
                        grant.1.since_origin().saturating_sub(ORIGIN)
                    )
                }
                (Some(_), _) => ": as before".to_owned(),
                (None, _) => ": done, without a grant".to_owned(),
            },
        }
    };
    let result = |at: usize, ahead: bool| {
        let mut after = before.clone();
        after.flights[at].awaited = true;
        after.handle(at, ahead, bounds);
        match &after.flights[at].reply {
            Some(Reply::Lease(..)) if matches!(before.flights[at].request, Request::Get) => "",
            Some(Reply::Lease(..)) => ": applied",
            Some(Reply::Missing) => ": there is none",
            _ => ": conflict",
        }
    };
    match action {
        Action::Tick => String::new(),
        Action::Begin(process, wish) => {
            let what = match wish {
                Wish::Acquire => "asks for the lock",
                Wish::Extend => "extends",
                Wish::Shorten => "extends under a shorter TTL",
                Wish::Release => "releases",
            };
            format!("{} {what}{}", name(process), then(process))
        }
        Action::Handle(at, ahead) => {
            let flight = &before.flights[at];
            let server = if ahead {
                "the server whose clock is ahead"
            } else {
                "the server"
            };
            let late = if flight.awaited { "" } else { ", given up before," };
            let (whose, verb) = (name(flight.process), verb(&flight.request));
            let result = result(at, ahead);
            let reads = if result == ": conflict" && flight.awaited {
                then(flight.process)
            } else {
                String::new()
            };
            format!("{server} handles {whose}'s {verb}{late}{result}{reads}")
        }
        Action::Twice(at) => {
            let flight = &before.flights[at];
            format!(
                "{}'s {} arrives twice",
                name(flight.process),
                verb(&flight.request)
            )
        }
        Action::Answer(process) => format!("{} gets the reply{}", name(process), then(process)),
        Action::GiveUp(process) => {
            format!("{} waits no longer for the reply{}", name(process), then(process))
        }
        Action::Resume(process) => format!("{} goes on{}", name(process), then(process)),
        Action::News(process, version) => {
            let version = &before.server.history[version];
            let stale = before
                .server
                .lease
                .as_ref()
                .is_none_or(|lease| lease.record != version.record);
            let stale = if stale { " old" } else { "" };
            format!(
                "a watch brings {}{stale} version {}",
                name(process),
                version.record.resource_version
            )
        }
        Action::Meddle(meddling) => format!("somebody {}", deed(meddling)),
    }
}

fn deed(meddling: Meddling) -> &'static str {
    match meddling {
        Meddling::Labels => "removes the labels",
        Meddling::ShorterTtl => "shortens the recorded TTL",
        Meddling::LongerTtl => "lengthens the recorded TTL",
        Meddling::Wipe => "wipes the holder",
        Meddling::Delete => "deletes the Lease",
        Meddling::TakeOver => "takes the Lease over by other rules",
        Meddling::Transitions => "sets the transitions back",
    }
}

const ORIGIN: std::time::Duration = std::time::Duration::from_secs(1000);
