//! For each case a fault that makes it fail. A case that cannot fail checks nothing.

use std::collections::BTreeSet;

use super::*;
use crate::faulty::{Fault, Faulty};

/// Each fault with the cases that must find it; others may, too.
const FOUND_BY: &[(Fault, &[&str])] = {
    use Fault::*;
    &[
        (
            NeverGrants,
            &["a_free_lock_is_granted", "upsert_inserts_a_missing_lock"],
        ),
        (
            GrantsToAll,
            &[
                "a_held_lock_is_refused_to_others",
                "racing_acquirers_have_one_winner",
            ],
        ),
        (
            NamesNoHolder,
            &[
                "a_held_lock_is_refused_to_others",
                "upsert_of_anothers_live_lock_names_the_holder",
            ],
        ),
        (
            RefusesOwnAcquire,
            &["the_holder_may_acquire_again", "upsert_refreshes_ones_own_lock"],
        ),
        (
            RefusesOwnExpired,
            &[
                "upsert_refreshes_ones_own_expired_lock",
                "acquiring_after_expiry_starts_a_new_term",
            ],
        ),
        (
            RefusesRenewals,
            &["the_holder_may_renew", "extend_lock_keeps_the_owners_lock"],
        ),
        (
            AnybodyRenews,
            &[
                "renewing_anothers_lock_is_refused",
                "a_deposed_holder_cannot_renew",
                "extend_lock_of_anothers_lock_is_an_error",
                "a_renewal_and_a_takeover_have_one_winner",
            ],
        ),
        (
            RenewsNothing,
            &[
                "renewing_nothing_is_refused",
                "extend_lock_of_a_free_lock_is_an_error",
            ],
        ),
        (
            ForgetsReleases,
            &["a_release_lets_another_in", "release_lock_frees_the_owners_lock"],
        ),
        (
            AnybodyReleases,
            &[
                "a_release_by_another_changes_nothing",
                "release_lock_leaves_others_alone",
            ],
        ),
        (ReleasesAlwaysSucceed, &["a_release_of_what_is_not_held_says_so"]),
        (ReleasedCanBeExtended, &["a_release_ends_the_grant"]),
        (
            StateIsEmpty,
            &["the_state_shows_the_holder", "the_leader_is_the_holder"],
        ),
        (
            StateIsInvented,
            &["the_state_of_nothing_is_empty", "the_leader_of_nothing_is_empty"],
        ),
        (StateShowsReleased, &["the_state_of_nothing_is_empty"]),
        (StateShowsExpired, &["the_state_of_an_expired_lock_is_empty"]),
        (StateShowsOtherToken, &["the_state_shows_the_token"]),
        (RecordHidesExpired, &["lock_info_shows_an_expired_record"]),
        (RecordShowsReleased, &["lock_info_of_nothing_is_none"]),
        (OneLockForAll, &["streams_are_independent"]),
        (
            NeverExpires,
            &[
                "an_expired_lock_goes_to_another",
                "upsert_takes_over_an_expired_lock",
            ],
        ),
        (ExpiresEarly, &["a_lock_is_never_granted_before_it_expires"]),
        (HolderCountsTwice, &["a_grant_ends_before_a_contender_may_take"]),
        (
            RenewalRevives,
            &[
                "renewing_an_expired_lock_is_refused",
                "a_spent_grant_never_revives",
            ],
        ),
        (
            TakeAgainKeepsTerm,
            &["an_expired_lock_is_taken_again_when_asked_to"],
        ),
        (
            TakeAgainIsRefused,
            &[
                "an_expired_lock_is_taken_again_when_asked_to",
                "extend_lock_takes_an_expired_lock_again",
            ],
        ),
        (ExpiredTermGoesOn, &["acquiring_after_expiry_starts_a_new_term"]),
        (RenewalWritesNothing, &["a_renewal_outlives_the_first_ttl"]),
        (TtlNeverShrinks, &["a_shorter_ttl_binds_at_once"]),
        (
            ReadsThenWrites,
            &[
                "racing_acquirers_have_one_winner",
                "racing_takeovers_have_one_winner",
            ],
        ),
        (DroppedCallBlocks, &["a_dropped_acquisition_strands_nothing"]),
        (
            OwnAcquireStartsAnew,
            &["acquiring_again_keeps_term_token_and_times"],
        ),
        (RenewalMovesAcquiredAt, &["renewing_keeps_term_token_and_times"]),
        (
            TokensRepeat,
            &["tokens_rise_over_releases", "tokens_rise_over_an_expiry"],
        ),
        (TokensRestartAfterDeletion, &["tokens_rise_over_a_deletion"]),
        (TransitionsStandStill, &["transitions_count_changes_of_holder"]),
        (StrangersExtend, &["a_stranger_moves_nothing"]),
        (IgnoresTerms, &["a_claim_by_term_keeps_its_term"]),
        (
            ClaimsByIdOnly,
            &[
                "a_twin_with_another_term_is_somebody_else",
                "a_twin_waits_for_the_expiry",
            ],
        ),
        (
            ServicesShareTerms,
            &[
                "the_same_id_elsewhere_supersedes_the_older_grant",
                "an_extension_from_elsewhere_is_a_new_term",
            ],
        ),
        (IdsFoldCase, &["instance_ids_are_compared_exactly"]),
        (NamesFoldCase, &["odd_stream_names_are_distinct_or_refused"]),
        (NamesAreTruncated, &["odd_stream_names_are_distinct_or_refused"]),
        (TtlRoundsDown, &["odd_ttls_expire_late_never_early"]),
        (TtlWraps, &["enormous_ttls_overflow_nothing"]),
        (Panics, &["a_free_lock_is_granted"]),
    ]
};

fn contract(fault: Fault) -> Contract {
    let clock = ManualClock::new();
    let store = Arc::new(Faulty::new(fault, clock.clone()));
    let peers = Arc::clone(&store);
    Contract::new(move || Arc::new(peers.peer()))
        .driven_by(move |by| clock.advance(by))
        .delete(move |stream| {
            store.delete(&stream);
            std::future::ready(Ok::<_, Infallible>(()))
        })
}

#[tokio::test]
async fn without_a_fault_the_faulty_lock_honours_the_contract() {
    contract(Fault::Nothing)
        .run()
        .await
        .assert_passed()
        .assert_nothing_skipped();
}

#[tokio::test]
async fn each_fault_is_found_by_the_cases_that_are_about_it() {
    let mut missed = Vec::new();
    for (fault, must_fail) in FOUND_BY {
        let report = contract(*fault).run().await;
        let failed: BTreeSet<_> = report.failed().map(|r| r.case.name).collect();
        for case in must_fail.iter().filter(|case| !failed.contains(*case)) {
            missed.push(format!("{fault:?} was not found by {case}; it was by {failed:?}"));
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

#[test]
fn no_case_is_missing_from_the_table_of_faults() {
    let all: BTreeSet<_> = cases().map(|c| c.name).collect();
    let found: BTreeSet<_> = FOUND_BY.iter().flat_map(|(_, cases)| *cases).copied().collect();
    assert_eq!(found, all);
}

#[tokio::test]
async fn a_failure_says_what_the_rule_is_and_what_happened() {
    let report = contract(Fault::AnybodyRenews)
        .run_case("renewing_anothers_lock_is_refused")
        .await
        .unwrap();
    let text = report.to_string();
    for part in [
        "lock contract: 1 failed, 0 skipped, 0 passed",
        "FAILED   renewing_anothers_lock_is_refused (contract A)",
        "the rule: only the holder may renew",
        "but here: B extended a lock that A holds, which must be refused; the answer was: granted to B-kit-",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let asserted = std::panic::catch_unwind(|| {
        report.assert_passed();
    });
    let message = *asserted.unwrap_err().downcast::<String>().unwrap();
    assert!(
        message.starts_with("the lock service breaks the lock contract\n"),
        "{message}"
    );
}

#[tokio::test]
async fn a_service_that_panics_fails_its_cases_and_the_run_goes_on() {
    let report = contract(Fault::Panics).run().await;
    assert_eq!(report.results().len(), cases().count());
    assert!(report.to_string().contains("it panicked: the store is on fire"));
}
