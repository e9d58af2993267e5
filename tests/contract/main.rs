//! The contract kit against the services of this crate, and against a deliberately wrong one: a kit that is never red
//! shows nothing.

mod faulty;
mod red;
mod slow;

use std::{convert::Infallible, sync::Arc, time::Duration};

use leasewarden::{
    lock::{InMemoryLockService, ManualClock, noop},
    testkit::{Contract, Verdict, cases},
};

fn in_memory(store: &InMemoryLockService) -> Contract {
    let (peers, deleting) = (store.clone(), store.clone());
    Contract::new(move || Arc::new(peers.peer())).delete(move |stream| {
        deleting.delete(&stream);
        std::future::ready(Ok::<_, Infallible>(()))
    })
}

#[tokio::test]
async fn the_in_memory_lock_honours_the_contract_on_a_driven_clock() {
    let clock = ManualClock::new();
    let store = InMemoryLockService::with_clock(Arc::new(clock.clone()));
    in_memory(&store)
        .driven_by(move |by| clock.advance(by))
        .run()
        .await
        .assert_passed()
        .assert_nothing_skipped();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_in_memory_lock_honours_the_contract_on_the_machines_clock() {
    let report = in_memory(&InMemoryLockService::new())
        .grant_within(Duration::from_millis(500))
        .run()
        .await;
    report.assert_passed().assert_nothing_skipped();
    println!("{report}");
}

#[tokio::test]
async fn a_lock_that_grants_everything_fails_and_its_missing_tokens_are_no_pass() {
    let clock = ManualClock::new();
    let report = Contract::new(|| Arc::new(noop()))
        .driven_by(move |by| clock.advance(by))
        .run()
        .await;
    assert!(report.failed().count() > cases().count() / 3, "{report}");
    let skipped = |name: &str| {
        let result = report.results().iter().find(|r| r.case.name == name);
        match result.map(|r| r.verdict.clone()) {
            Some(Verdict::Skipped(why)) => why,
            other => panic!("{name}: {other:?}"),
        }
    };
    assert_eq!(
        skipped("tokens_rise_over_an_expiry"),
        "the service issues no tokens"
    );
    assert!(skipped("upsert_inserts_a_missing_lock").contains("cannot tell expired records"));
}

#[tokio::test]
async fn one_case_runs_by_its_name_and_an_unknown_name_is_an_error() {
    let store = InMemoryLockService::new();
    let report = in_memory(&store)
        .run_case("streams_are_independent")
        .await
        .unwrap();
    report.assert_passed();
    assert_eq!(report.results().len(), 1);
    let unknown = in_memory(&store).run_case("no_such_rule").await.unwrap_err();
    assert!(unknown.to_string().contains("\"no_such_rule\""), "{unknown}");
}

#[test]
fn every_case_has_a_name_of_its_own_and_a_rule_in_words() {
    let mut names: Vec<_> = cases().map(|c| c.name).collect();
    names.sort_unstable();
    let all = names.len();
    names.dedup();
    assert_eq!(names.len(), all);
    assert!(cases().all(|c| c.rule.contains(' ') && !c.rule.ends_with('.')));
}
