//! The rules of the in-memory lock that the contract kit cannot see from outside, or leaves to each service.

use std::time::Duration;

use super::super::{
    clock::ManualClock,
    outcome::{Grant, Refusal},
    service::{Claim, IfExpired},
    types::{InstanceId, Term, Ttl},
};
use super::*;

const TTL: u64 = 21;

fn stream() -> StreamName {
    StreamName::new("orders").unwrap()
}

fn id(id: &str) -> InstanceId {
    InstanceId::new(id).unwrap()
}

fn ttl(secs: u64) -> Ttl {
    Ttl::from_secs(secs).unwrap()
}

fn acquire(instance: &str) -> AcquireRequest {
    AcquireRequest::new(&stream(), &id(instance), ttl(TTL))
}

fn extend(instance: &str) -> ExtendRequest {
    ExtendRequest::new(&stream(), &id(instance), ttl(TTL))
}

fn driven() -> (ManualClock, InMemoryLockService) {
    let clock = ManualClock::new();
    let service = InMemoryLockService::with_clock(Arc::new(clock.clone()));
    (clock, service)
}

async fn granted(service: &InMemoryLockService, request: AcquireRequest) -> Grant {
    let outcome = service.acquire(request).await.unwrap();
    outcome.clone().granted().unwrap_or_else(|| panic!("{outcome:?}"))
}

async fn refused(service: &InMemoryLockService, request: AcquireRequest) -> Refusal {
    match service.acquire(request).await.unwrap() {
        Outcome::Refused(refusal) => refusal,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_holders_grant_ends_before_the_contenders_turn() {
    let (clock, a) = driven();
    let before = clock.now();
    let grant = granted(&a, acquire("a")).await;
    assert_eq!(grant.valid_until.since(before), Duration::from_secs(19));
    let b = a.peer();
    clock.advance(Duration::from_millis(20_999));
    assert!(matches!(
        refused(&b, acquire("b")).await,
        Refusal::HeldBy { holder, .. } if holder == "a"
    ));
    clock.advance(Duration::from_millis(1));
    granted(&b, acquire("b")).await;
}

#[tokio::test]
async fn a_grant_that_is_over_does_not_revive_though_the_record_lives() {
    let (clock, a) = driven();
    let first = granted(&a, acquire("a")).await;
    clock.advance(Duration::from_secs(20));
    let outcome = a.extend(extend("a")).await.unwrap();
    assert!(
        matches!(outcome, Outcome::Refused(Refusal::Expired)),
        "{outcome:?}"
    );
    assert!(a.state(&stream()).await.unwrap().is_some());

    let again = granted(&a, acquire("a")).await;
    assert!(again.term != first.term && again.token > first.token);
    assert_eq!(again.acquired_at, first.acquired_at);
}

#[tokio::test]
async fn a_clone_continues_the_term_and_a_peer_starts_another() {
    let (_, a) = driven();
    let first = granted(&a, acquire("a")).await;
    let same = granted(&a.clone(), acquire("a")).await;
    assert_eq!((&same.term, same.token), (&first.term, first.token));
    let twin = granted(&a.peer(), acquire("a")).await;
    assert!(twin.term != first.term && twin.token > first.token);
    let late = a
        .extend(extend("a").claim(Claim::Term(first.term)))
        .await
        .unwrap();
    assert!(
        matches!(late, Outcome::Refused(Refusal::HeldBy { .. })),
        "{late:?}"
    );
}

#[tokio::test]
async fn a_spent_term_is_never_acquired_again() {
    let (clock, a) = driven();
    let claim = Claim::Term(Term::random());
    granted(&a, acquire("a").claim(claim.clone())).await;
    clock.advance(Duration::from_secs(30));
    assert_eq!(
        refused(&a, acquire("a").claim(claim.clone())).await,
        Refusal::Expired
    );
    let taken_again = extend("a").claim(claim.clone()).if_expired(IfExpired::TakeAgain);
    let grant = a.extend(taken_again).await.unwrap().granted().unwrap();
    assert_ne!(Claim::Term(grant.term.clone()), claim);

    let own = Claim::Term(grant.term);
    let release = ReleaseRequest::new(&stream(), &id("a")).claim(own.clone());
    assert!(matches!(a.release(release).await.unwrap(), Released::Released));
    assert_eq!(
        refused(&a, acquire("a").claim(own.clone())).await,
        Refusal::Expired
    );
    let late = a.extend(extend("a").claim(own)).await.unwrap();
    assert!(matches!(late, Outcome::Refused(Refusal::Expired)), "{late:?}");
}

#[tokio::test]
async fn transitions_count_changes_of_holder_and_nothing_else() {
    let (clock, a) = driven();
    let count = async || a.state(&stream()).await.unwrap().unwrap().transitions;
    granted(&a, acquire("a")).await;
    granted(&a, acquire("a")).await;
    assert_eq!(count().await, Some(1));
    clock.advance(Duration::from_secs(30));
    granted(&a, acquire("a")).await;
    assert_eq!(count().await, Some(1), "the holder stayed, though its term ended");
    clock.advance(Duration::from_secs(30));
    granted(&a, acquire("b")).await;
    assert_eq!(count().await, Some(2));
}

#[tokio::test]
async fn tokens_rise_over_a_deletion() {
    let (_, a) = driven();
    let first = granted(&a, acquire("a")).await;
    assert!(a.delete(&stream()) && !a.delete(&stream()));
    assert!(granted(&a, acquire("b")).await.token > first.token);
}

#[tokio::test]
async fn the_longest_ttl_overflows_nothing() {
    let (clock, a) = driven();
    let request = AcquireRequest::new(&stream(), &id("a"), Ttl::MAX);
    let before = clock.now();
    let grant = granted(&a, request).await;
    assert!(grant.valid_until < before + Ttl::MAX.as_duration());
    clock.advance(Ttl::MAX.as_duration());
    granted(&a, acquire("b")).await;
}
