//! Every schedule of one stream's machine up to a depth: time, wishes, answers, and work that ends when it likes.
//!
//! The lock service is left open: whatever was asked may be answered in any way. What is looked at is what the
//! machine alone is responsible for: that nothing is released while work or a guard of it lives, and that a term that was cut
//! off never starts again. That leaders exclude each other is the lock's part, in its own model.

use std::time::Duration;

use stateright::{Checker, HasDiscoveries, Model, Property};

use super::{
    super::{
        settings::ElectionSettings,
        status::{AfterWork, DeploymentMode, LossReason},
    },
    Answer, CallId, End, Freed, Input, Machine, Moment, News, Output, TermNo, Wish,
};
use crate::{
    lock::Ttl,
    rules::{Rule, Rules},
};

const DEPTH: usize = 16;

struct Schedules(Option<Rule>);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    /// Seconds.
    time: u64,
    machine: Machine,
    /// What was asked and not answered.
    acquiring: Option<CallId>,
    extending: Option<CallId>,
    releasing: Option<CallId>,
    /// The term whose work runs, and the one of whose guard a clone lives.
    working: Option<TermNo>,
    guarding: Option<TermNo>,
    /// The latest term that started.
    started: Option<TermNo>,
    released_early: bool,
    started_again: bool,
    released: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Tick,
    Start,
    Stop,
    Granted,
    Refused,
    Extended,
    Over,
    Unknown,
    Lost,
    Freed,
    WorkEnds,
    GuardsGo,
}

fn at(time: u64) -> Moment {
    Moment::from_origin(Duration::from_secs(100 + time))
}

impl State {
    fn step(&mut self, input: Input) {
        for output in self.machine.step(at(self.time), input) {
            match output {
                Output::Acquire(id, _) => self.acquiring = Some(id),
                Output::Extend(id, _) => self.extending = Some(id),
                Output::Release(id, _) => {
                    self.releasing = Some(id);
                    self.released = true;
                    self.released_early |= self.working.is_some() || self.guarding.is_some();
                }
                Output::StartWork { term, .. } => {
                    self.started_again |=
                        self.started.is_some_and(|started| started >= term) || self.working.is_some();
                    (self.started, self.working, self.guarding) = (Some(term), Some(term), Some(term));
                }
                _ => {}
            }
        }
    }
}

impl Model for Schedules {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let settings = ElectionSettings::with_ttl(Ttl::from_secs(6).unwrap()).unwrap();
        let mut machine = Machine::new(settings, DeploymentMode::SingleLeader, AfterWork::ContendAgain, 1);
        machine.rules = Rules::without(self.0);
        vec![State {
            time: 0,
            machine,
            acquiring: None,
            extending: None,
            releasing: None,
            working: None,
            guarding: None,
            started: None,
            released_early: false,
            started_again: false,
            released: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        use Action::{
            Extended, Freed, Granted, GuardsGo, Lost, Over, Refused, Start, Stop, Tick, Unknown, WorkEnds,
        };
        actions.extend([Tick, Start, Stop]);
        if state.acquiring.is_some() {
            actions.extend([Granted, Refused, Unknown]);
        }
        if state.extending.is_some() {
            actions.extend([Extended, Over]);
        }
        if state.releasing.is_some() {
            actions.push(Freed);
        }
        if state.working.is_some() {
            actions.extend([Lost, WorkEnds]);
        } else if state.guarding.is_some() {
            actions.push(GuardsGo);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut next = last.clone();
        let until = at(last.time + 5);
        let granted = || Answer::Granted {
            valid_until: until,
            token: None,
        };
        match action {
            Action::Tick => {
                next.time += 1;
                next.step(Input::Tick);
            }
            Action::Start => next.step(Input::Wish(Wish::Start)),
            Action::Stop => next.step(Input::Wish(Wish::Stop)),
            Action::Granted => {
                let id = next.acquiring.take()?;
                next.step(Input::Acquired(id, granted()));
            }
            Action::Refused => {
                let id = next.acquiring.take()?;
                next.step(Input::Acquired(id, Answer::NotHeld));
            }
            Action::Unknown => {
                let id = next.acquiring.take()?;
                next.step(Input::Acquired(id, Answer::Unknown("timed out".into())));
            }
            Action::Extended => {
                let id = next.extending.take()?;
                next.step(Input::Extended(id, granted()));
            }
            Action::Over => {
                let id = next.extending.take()?;
                next.step(Input::Extended(id, Answer::Over));
            }
            Action::Lost => next.step(Input::News(News::Lost(next.working?, LossReason::Deleted))),
            Action::Freed => {
                let id = next.releasing.take()?;
                next.step(Input::Released(id, Freed::Done));
            }
            Action::WorkEnds => {
                let term = next.working.take()?;
                next.step(Input::WorkEnded(term, End::Returned));
            }
            Action::GuardsGo => {
                let term = next.guarding.take()?;
                next.step(Input::GuardsGone(term));
            }
        }
        (next != *last).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("a release follows the work", |_, state: &State| {
                !state.released_early
            }),
            Property::always("no term starts twice", |_, state: &State| !state.started_again),
            Property::sometimes("a release", |_, state: &State| state.released),
            Property::sometimes("a second term's work", |_, state: &State| {
                state.started > Some(TermNo(1))
            }),
        ]
    }
}

#[test]
fn no_schedule_releases_before_the_work_has_ended_or_starts_a_term_again() {
    let checker = Schedules(None)
        .checker()
        .threads(2)
        .target_max_depth(DEPTH)
        .spawn_bfs()
        .join();
    eprintln!(
        "election: {} states, {} unique, to a depth of {DEPTH}",
        checker.state_count(),
        checker.unique_state_count()
    );
    checker.assert_properties();
}

#[test]
fn a_release_before_the_work_ended_is_caught() {
    let name = "a release follows the work";
    let finish = HasDiscoveries::AnyOf([name].into());
    let broken = Schedules(Some(Rule::ReleaseAfterWork))
        .checker()
        .target_max_depth(DEPTH)
        .finish_when(finish);
    let path = broken.spawn_bfs().join().assert_any_discovery(name);
    eprintln!("without ReleaseAfterWork: {:?}", path.into_actions());
}
