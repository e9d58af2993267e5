//! Schedules drawn at random, far longer than can be looked at exhaustively: three candidates, many faults, many edits.
//! A schedule that breaks a property is shrunk before it is shown.

use std::fmt::Write as _;

use proptest::{
    collection::vec,
    prelude::any,
    test_runner::{Config, TestCaseError, TestError, TestRunner},
};
use stateright::{Expectation, Model};

use super::{
    bounds::{Bounds, Candidate, Meddling, Start},
    properties,
    state::State,
    trace,
};
use crate::rules::Rule;

/// Which of the actions that are possible comes next, one after the other.
type Schedule = Vec<u16>;

const LONGEST: usize = 250;

/// Three candidates with clocks of their own, many operations, faults and news.
fn crowd() -> Bounds {
    let mut asks_again = Candidate::new('A', 12).rate(950);
    asks_again.asks_again = true;
    Bounds {
        start: Start::Led,
        faults: 8,
        twice: true,
        news: 12,
        ..Bounds::new(
            "three candidates at random",
            vec![
                asks_again,
                Candidate::new('B', 12).rate(1050),
                Candidate::new('C', 12),
            ],
            20,
        )
    }
    .unreduced()
}

/// Follows a schedule, and looks at every property in every state.
fn follow(bounds: &Bounds, schedule: &[u16]) -> Result<State, String> {
    let always = properties::of(bounds);
    let always = always.iter().filter(|p| p.expectation == Expectation::Always);
    let always: Vec<_> = always.collect();
    let mut state = State::new(bounds);
    let mut told = String::new();
    for choice in schedule {
        let mut actions = Vec::new();
        state.actions(bounds, &mut actions);
        let Some(action) = actions.get(usize::from(*choice) % actions.len().max(1)) else {
            break;
        };
        let Some(next) = bounds.next_state(&state, *action) else {
            continue;
        };
        let _ = writeln!(told, "{}", trace::line(bounds, &state, *action, &next));
        for property in &always {
            if !(property.condition)(bounds, &next) {
                return Err(format!("not: {}, after\n{told}", property.name));
            }
        }
        state = next;
    }
    Ok(state)
}

/// The shortest schedule found that breaks something, if any does.
fn search(bounds: &Bounds, cases: u32) -> Option<(Schedule, String)> {
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 4096,
        ..Config::default()
    };
    let mut runner = TestRunner::new(config);
    let found = runner.run(&vec(any::<u16>(), 0..LONGEST), |schedule| {
        follow(bounds, &schedule).map(drop).map_err(TestCaseError::fail)
    });
    match found {
        Ok(()) => None,
        Err(TestError::Fail(told, schedule)) => Some((schedule, told.message().to_owned())),
        Err(TestError::Abort(why)) => panic!("{why}"),
    }
}

fn breaks_nothing(bounds: &Bounds, cases: u32) {
    if let Some((schedule, told)) = search(bounds, cases) {
        panic!("{told}\n{schedule:?}");
    }
}

#[test]
fn no_random_schedule_of_three_candidates_breaks_a_property() {
    breaks_nothing(&crowd(), 600);
}

#[test]
fn no_random_schedule_without_faults_from_some_moment_leaves_the_lock_stranded() {
    let bounds = Bounds {
        rollout: true,
        faults: 3,
        twice: false,
        ..crowd()
    };
    breaks_nothing(&bounds, 60);
}

#[test]
fn no_random_schedule_with_edits_by_others_breaks_a_property() {
    let bounds = Bounds {
        meddlings: 4,
        meddler: Meddling::ALL,
        ..crowd()
    };
    breaks_nothing(&bounds, 600);
}

#[test]
fn random_schedules_hand_over() {
    let mut runner = TestRunner::deterministic();
    let strategy = vec(any::<u16>(), LONGEST..=LONGEST);
    let mut most = 0;
    for _ in 0..50 {
        use proptest::strategy::{Strategy, ValueTree};
        let schedule = strategy.new_tree(&mut runner).unwrap().current();
        let state = follow(&crowd(), &schedule).unwrap_or_else(|told| panic!("{told}"));
        let terms = state.server.history.iter().filter_map(|version| version.term());
        let mut terms: Vec<&str> = terms.collect();
        terms.dedup();
        most = most.max(terms.len());
    }
    assert!(
        most > 3,
        "schedules in which something happens: {most} terms at most"
    );
}

#[test]
fn a_broken_rule_is_found_at_random_and_its_schedule_shrunk() {
    for rule in [
        Rule::ShorterBindsAtOnce,
        Rule::RecordedTtl,
        Rule::DeadlineFromSend,
        Rule::OverOnceReleased,
    ] {
        let mut bounds = Bounds {
            off: Some(rule),
            ..crowd()
        };
        // B is impatient, and A sometimes asks for less.
        bounds.candidates[0].shorter = Some(1);
        bounds.candidates[1].ttl = 1;
        let (schedule, told) = search(&bounds, 20_000).unwrap_or_else(|| panic!("{rule:?} is not missed"));
        eprintln!("without {rule:?}, {} choices, {told}", schedule.len());
        assert!(schedule.len() < LONGEST / 3, "hardly shrunk: {}", schedule.len());
        let again = follow(&bounds, &schedule);
        assert!(again.is_err(), "what is shown is what breaks it");
    }
}
