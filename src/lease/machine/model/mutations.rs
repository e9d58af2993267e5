//! Each rule taken away once. Under the bounds that pass with all rules, some schedule must then break a property; the
//! shortest one is printed, and must be what `docs/proof.md` shows. With `PROOF_DIR` set, each is written there instead, to
//! be copied.

use std::fmt::Write as _;

use stateright::{Checker, HasDiscoveries, Model};

use super::{bounds::Bounds, properties, runs, trace};
use crate::rules::Rule;

/// The bounds that catch it, what it breaks, and the shortest schedule in which it does.
fn shortest(rule: Rule, bounds: &Bounds, property: &'static str) -> Vec<String> {
    let broken = bounds.without(rule);
    // One thread: breadth first is exactly so, and the same trace is found each time.
    let begun = std::time::Instant::now();
    let checker = broken
        .clone()
        .checker()
        .finish_when(HasDiscoveries::AnyOf([property].into()))
        .spawn_bfs()
        .join();
    let states = checker.unique_state_count();
    let path = checker
        .discovery(property)
        .unwrap_or_else(|| panic!("in {states} states nothing notices that {rule:?} is broken"));
    let lines = trace::lines(&broken, path);
    eprintln!(
        "without {rule:?}, {}: not \"{property}\" ({states} states, {:.1?})\n  {}",
        bounds.name,
        begun.elapsed(),
        lines.join("\n  ")
    );
    lines
}

/// The trace's section in `docs/proof.md`.
fn documented(rule: Rule, bounds: &Bounds, property: &'static str) {
    let lines = shortest(rule, bounds, property);
    let mut section = format!(
        "### Without `{rule:?}`\n\nUnder \"{}\", not: {property}.\n\n",
        bounds.name
    );
    for (n, line) in lines.iter().enumerate() {
        writeln!(section, "{}. {line}", n + 1).unwrap();
    }
    if let Some(dir) = std::env::var_os("PROOF_DIR") {
        let path = std::path::Path::new(&dir).join(format!("{rule:?}.md"));
        return std::fs::write(path, section).unwrap();
    }
    let proof = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/proof.md")).unwrap();
    assert!(proof.contains(&section), "docs/proof.md is to say:\n\n{section}");
}

macro_rules! mutations {
    ($($name:ident: $rule:ident under $bounds:ident breaks $property:ident;)*) => {
        $(
            #[test]
            fn $name() {
                documented(Rule::$rule, &runs::$bounds(), properties::$property);
            }
        )*
    };
}

mutations! {
    a_deadline_from_the_reply_is_caught: DeadlineFromSend under slow breaks ONE_GUARD;
    a_read_back_by_term_without_renew_time_is_caught: ProvenByRenewTime under faults breaks ONE_GUARD;
    the_second_attempts_send_time_is_caught: SendOfProvenAttempt under faults breaks ONE_GUARD;
    a_shorter_ttl_bound_only_on_reply_is_caught: ShorterBindsAtOnce under shorter breaks ONE_GUARD;
    already_mine_without_a_write_is_caught: GrantIsWrite under again breaks ONE_GUARD;
    a_grant_after_the_release_was_sent_is_caught: OverOnceReleased under faults breaks ONE_GUARD;
    no_uid_is_caught: Uid under meddler breaks TOKENS;
    no_resource_version_is_caught: ResourceVersion under nothing breaks ONE_GUARD;
    the_contenders_own_ttl_is_caught: RecordedTtl under impatient breaks ONE_GUARD;
    node_clocks_that_grant_are_caught: NodeClocksGrantNothing under impatient breaks ONE_GUARD;
    a_wiped_holder_taken_at_once_is_caught: WipedIsHeld under meddler breaks ONE_GUARD;
    a_deletion_taken_at_once_is_caught: DeletionWaits under meddler breaks ONE_GUARD;
    own_id_as_mine_is_caught: TermNotId under twins breaks ONE_GUARD;
    a_revived_guard_is_caught: NoRevival under faults breaks NO_REVIVAL;
    old_news_believed_is_caught: OldNewsDropped under faults breaks PROOF;
    no_drift_allowance_is_caught: DriftAllowance under slow breaks ONE_GUARD;
    server_time_without_its_allowance_is_caught: ServerTimeAllowance under server_time breaks ONE_GUARD;
    creating_as_holder_is_caught: CreatedFree under unseen breaks TOKENS;
}
