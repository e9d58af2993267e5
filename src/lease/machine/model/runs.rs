//! The runs: bounds under which every schedule keeps every property.

use std::time::Instant;

use stateright::{Checker, Model};

use super::{
    bounds::{Bounds, Candidate, Meddling, Reach, Start},
    trace,
};

/// A leads with a slow clock, B has a fast one and a watch; requests and replies are lost, late and doubled.
pub(super) fn faults() -> Bounds {
    Bounds {
        start: Start::Led,
        faults: 1,
        news: 1,
        reaches: &[
            Reach::TwoHolders,
            Reach::Observed,
            Reach::Release,
            Reach::GrantedByRead,
            Reach::LateWrite,
        ],
        ..Bounds::new(
            "a leader, a contender, lost and late requests",
            vec![
                Candidate::new('A', 1).rate(950),
                Candidate::new('B', 1).rate(1050).only_acquires(),
            ],
            4,
        )
    }
}

/// Nothing is lost, but requests and replies take as long as they like.
pub(super) fn slow() -> Bounds {
    Bounds {
        faults: 0,
        reaches: &[Reach::TwoHolders, Reach::Observed],
        ..Bounds {
            name: "a leader, a contender, slow requests",
            candidates: vec![
                Candidate::new('A', 1).rate(950).never_releases(),
                Candidate::new('B', 1).rate(1050).only_acquires(),
            ],
            ..faults()
        }
    }
}

/// The same to somebody who never saw the leader.
pub(super) fn unseen() -> Bounds {
    Bounds {
        start: Start::LedUnseen,
        name: "a leader, a contender that never saw it, and a meddler",
        reaches: &[Reach::TwoHolders],
        ..meddler()
    }
}

/// The leader asks again while it leads, and writes arrive twice.
pub(super) fn again() -> Bounds {
    let mut leader = Candidate::new('A', 1).rate(950);
    leader.asks_again = true;
    Bounds {
        start: Start::Led,
        faults: 1,
        twice: true,
        reaches: &[Reach::TwoHolders, Reach::Observed],
        ..Bounds::new(
            "a leader that asks again, writes that arrive twice",
            vec![leader, Candidate::new('B', 1).rate(1050).only_acquires()],
            4,
        )
    }
}

/// The leader extends under a shorter TTL.
pub(super) fn shorter() -> Bounds {
    let mut leader = Candidate::new('A', 1).rate(950).never_releases();
    leader.shorter = Some(1);
    Bounds {
        start: Start::Led,
        faults: 1,
        news: 1,
        reaches: &[Reach::TwoHolders, Reach::Observed],
        ..Bounds::new(
            "a leader that shortens its TTL",
            vec![leader, Candidate::new('B', 2).rate(1050).only_acquires()],
            3,
        )
    }
}

/// A third party edits, wipes, deletes and takes over.
pub(super) fn meddler() -> Bounds {
    Bounds {
        start: Start::Led,
        faults: 1,
        meddlings: 1,
        meddler: Meddling::ALL,
        reaches: &[Reach::TwoHolders, Reach::Observed],
        ..Bounds::new(
            "a leader, a contender and a meddler",
            vec![
                Candidate::new('A', 1).rate(950).never_releases(),
                Candidate::new('B', 1).rate(1050).only_acquires(),
            ],
            3,
        )
    }
}

/// The same instance id twice.
pub(super) fn twins() -> Bounds {
    let mut twin = Candidate::new('B', 2).rate(1050).never_releases();
    twin.id = "host-a";
    Bounds {
        start: Start::LedUnseen,
        faults: 1,
        reaches: &[Reach::TwoHolders],
        ..Bounds::new(
            "twins with one id",
            vec![Candidate::new('A', 1).rate(950), twin],
            3,
        )
    }
}

/// The contender's own TTL is shorter than the leader's, and its wall clock is ahead.
pub(super) fn impatient() -> Bounds {
    let mut contender = Candidate::new('B', 1).rate(1050).ttl(1).only_acquires();
    contender.wall = 3;
    Bounds {
        start: Start::Led,
        faults: 1,
        reaches: &[Reach::TwoHolders, Reach::Observed],
        ..Bounds::new(
            "a contender with a short TTL and a wall clock that is ahead",
            vec![Candidate::new('A', 1).rate(950), contender],
            4,
        )
    }
}

/// Server time as evidence, from two API servers whose clocks differ by the allowance.
pub(super) fn server_time() -> Bounds {
    let mut contender = Candidate::new('B', 1).rate(1050).ttl(2).only_acquires();
    contender.wall = 3;
    Bounds {
        start: Start::LedUnseen,
        faults: 1,
        allowance: Some(3),
        skew: 3,
        reaches: &[Reach::TwoHolders, Reach::ServerTime],
        ..Bounds::new(
            "API servers whose clocks differ",
            vec![
                Candidate::new('A', 1).rate(950).ttl(2).never_releases(),
                contender,
            ],
            4,
        )
    }
}

/// No Lease yet: who creates it, and who acquires.
pub(super) fn nothing() -> Bounds {
    Bounds {
        faults: 1,
        reaches: &[Reach::GrantedByRead, Reach::LateWrite],
        ..Bounds::new(
            "from nothing",
            vec![
                Candidate::new('A', 1).rate(950).never_releases(),
                Candidate::new('B', 1).rate(1050).never_releases(),
            ],
            1,
        )
    }
}

/// What follows without faults, from every state.
pub(super) fn liveness() -> Bounds {
    Bounds {
        name: "what follows without faults, from every state",
        rollout: true,
        news: 0,
        ..faults()
    }
}

/// Three candidates, to a depth.
pub(super) fn three() -> Bounds {
    Bounds {
        start: Start::Led,
        faults: 1,
        depth: Some(11),
        reaches: &[Reach::TwoHolders, Reach::Observed],
        ..Bounds::new(
            "three candidates",
            vec![
                Candidate::new('A', 1).rate(950),
                Candidate::new('B', 1).rate(1050).only_acquires(),
                Candidate::new('C', 1).only_acquires(),
            ],
            4,
        )
    }
}

fn check(bounds: &Bounds) {
    let begun = Instant::now();
    // A depth is exact on one thread only.
    let builder = match bounds.depth {
        Some(depth) => bounds.clone().checker().target_max_depth(depth),
        None => bounds.clone().checker().threads(2),
    };
    let checker = builder.spawn_bfs().join();
    let row = format!(
        "| {} | {} | {} | {} | {} | {} | {} |",
        bounds.name,
        bounds.horizon,
        bounds.faults,
        bounds.news,
        bounds.meddlings,
        bounds.depth.map_or("all".to_owned(), |depth| depth.to_string()),
        checker.unique_state_count(),
    );
    eprintln!(
        "{row} {} states, {} actions deep, in {:.1?}",
        checker.state_count(),
        checker.max_depth(),
        begun.elapsed()
    );
    for (name, path) in checker.discoveries() {
        if checker.discovery_classification(name).to_string() == "counterexample" {
            eprintln!("{name}:\n  {}", trace::lines(bounds, path).join("\n  "));
        }
    }
    checker.assert_properties();
    let proof = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/proof.md")).unwrap();
    assert!(proof.contains(&row), "docs/proof.md is to say:\n{row}");
}

#[test]
fn no_schedule_with_lost_and_late_requests_makes_two_leaders() {
    check(&faults());
}

#[test]
fn no_schedule_with_writes_that_arrive_twice_makes_two_leaders() {
    check(&again());
}

#[test]
fn no_schedule_with_slow_requests_makes_two_leaders() {
    check(&slow());
}

#[test]
fn no_schedule_with_a_meddler_and_a_newcomer_makes_two_leaders() {
    check(&unseen());
}

#[test]
fn no_schedule_with_a_shorter_ttl_makes_two_leaders() {
    check(&shorter());
}

#[test]
fn no_schedule_with_a_meddler_makes_two_leaders() {
    check(&meddler());
}

#[test]
fn no_schedule_of_twins_makes_two_leaders() {
    check(&twins());
}

#[test]
fn no_schedule_with_an_impatient_contender_makes_two_leaders() {
    check(&impatient());
}

#[test]
fn no_schedule_with_server_time_makes_two_leaders() {
    check(&server_time());
}

#[test]
fn no_schedule_from_nothing_makes_two_leaders() {
    check(&nothing());
}

#[test]
fn no_schedule_of_three_candidates_makes_two_leaders() {
    check(&three());
}

#[test]
fn whoever_leads_leads_on_and_whoever_waits_leads_in_the_end() {
    check(&liveness());
}
