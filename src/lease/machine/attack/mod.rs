//! Random schedules: several processes, one server, and a network that loses, delays, holds and doubles what it carries.
//!
//! Each run has a seed, which a failure prints. What must hold in every one: no two terms valid at once, tokens that
//! rise, answers as the contracts want them, and a lock that is free again soon after everybody fell silent.

mod callers;
mod invariants;
mod meddler;
mod network;
mod process;
mod server;
mod world;

use super::*;
use meddler::Meddler;
use world::World;

const STREAM: &str = "orders";

fn ttl(millis: u64) -> Ttl {
    Ttl::new(Duration::from_millis(millis)).unwrap()
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
