//! The runs leave out steps that change nothing ([`Bounds::reduced`]). With all steps, under bounds small enough to look at
//! every schedule, the verdicts are the same: nothing breaks with all rules, and each rule taken away breaks what it broke.

use stateright::{Checker, HasDiscoveries, Model};

use super::{bounds::Bounds, properties, runs};
use crate::rules::Rule;

fn explored(bounds: Bounds) -> usize {
    let begun = std::time::Instant::now();
    let name = bounds.name;
    let checker = bounds.checker().threads(2).spawn_bfs().join();
    let states = checker.unique_state_count();
    eprintln!(
        "{name}, with every step: {states} states, {:.1?}",
        begun.elapsed()
    );
    checker.assert_properties();
    states
}

fn breaks(bounds: &Bounds, rule: Rule, property: &'static str) {
    let broken = bounds.without(rule);
    let finish = HasDiscoveries::AnyOf([property].into());
    let checker = broken.checker().threads(2).finish_when(finish).spawn_bfs().join();
    let states = checker.unique_state_count();
    assert!(
        checker.discovery(property).is_some(),
        "{rule:?} is broken, and {states} states with every step do not show it"
    );
}

/// The same run, with less time and no more than its first property to reach.
fn smaller(bounds: Bounds, horizon: u64) -> Bounds {
    Bounds {
        horizon,
        reaches: &[],
        ..bounds
    }
    .unreduced()
}

#[test]
fn with_every_step_slow_requests_break_nothing_and_broken_rules_show() {
    let bounds = smaller(runs::slow(), 4);
    assert!(explored(bounds.clone()) > 10_000);
    breaks(&bounds, Rule::DeadlineFromSend, properties::ONE_GUARD);
    breaks(&bounds, Rule::DriftAllowance, properties::ONE_GUARD);
}

#[test]
fn with_every_step_a_start_from_nothing_breaks_nothing_and_a_broken_rule_shows() {
    let bounds = smaller(runs::nothing(), 1);
    assert!(explored(bounds.clone()) > 10_000);
    breaks(&bounds, Rule::ResourceVersion, properties::ONE_GUARD);
}

#[test]
fn with_every_step_lost_and_late_requests_break_nothing_and_broken_rules_show() {
    let bounds = smaller(runs::faults(), 3);
    assert!(explored(bounds.clone()) > 10_000);
    breaks(&bounds, Rule::ProvenByRenewTime, properties::ONE_GUARD);
    breaks(&bounds, Rule::SendOfProvenAttempt, properties::ONE_GUARD);
    breaks(&bounds, Rule::OverOnceReleased, properties::ONE_GUARD);
    breaks(&bounds, Rule::NoRevival, properties::NO_REVIVAL);
    breaks(&bounds, Rule::OldNewsDropped, properties::PROOF);
}
