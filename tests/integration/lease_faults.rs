//! Requests and replies that are lost, late, forged or refused on their way: each test proves that its fault happened.

use std::time::Duration;

use leasewarden::{
    AcquireRequest, Claim, ExtendRequest, LockError, LockService, LockServiceExt, Outcome, Refusal, Released,
    Term, lease::LeaseLockService, lock::ReleaseRequest,
};
use leasewarden_faultproxy::{Canned, Fault, FaultProxy, Match, StatusCode};

use crate::support::{
    LIMIT, World, eventually, granted, granted_at_last, instance, refused_by, secs, stream,
};

struct Faulty {
    world: World,
    proxy: FaultProxy,
    locks: LeaseLockService,
}

async fn faulty(prefix: &str) -> Faulty {
    let world = World::new(prefix).await;
    let base = world.plane.kube_config();
    let proxy = FaultProxy::start(&base).unwrap();
    let locks = world.locks_with(proxy.kube_config(&base));
    Faulty { world, proxy, locks }
}

fn lease(world: &World) -> String {
    format!("/namespaces/{}/leases/orders", world.ns())
}

#[tokio::test]
async fn an_acquisition_whose_reply_is_lost_is_read_back_and_not_written_twice() {
    let Faulty { world, proxy, locks } = faulty("lost-reply").await;
    let lost = proxy.rule(Match::put(lease(&world)).nth(1), Fault::DropReply);
    let grant = granted(&locks, "orders", "a", secs(60)).await;
    assert_eq!(lost.fired(), 1);
    assert_eq!(proxy.count(|seen| seen.method == "PUT"), 1);
    let annotations = world.lease("orders").await["metadata"]["annotations"].clone();
    assert_eq!(
        annotations["leasewarden.dev/fencing-token"],
        grant.token.unwrap().to_string()
    );
}

#[tokio::test]
async fn scenario_03_two_renewals_in_a_row_that_are_never_answered_lose_nothing() {
    let Faulty { world, proxy, locks } = faulty("held").await;
    let first = granted(&locks, "orders", "a", secs(12)).await;
    let held = proxy.rule(Match::put(lease(&world)).times(2), Fault::Hold);
    let request = ExtendRequest::new(&stream("orders"), &instance("a"), secs(12));
    let second = locks
        .extend(request)
        .await
        .unwrap()
        .granted()
        .expect("the third attempt is answered");
    assert_eq!(held.fired(), 2);
    assert_eq!((&second.term, second.token), (&first.term, first.token));
    // Delivered after all, they change nothing: the resourceVersion has moved.
    let before = world.lease("orders").await;
    held.release();
    eventually("the held writes were refused", || async {
        (proxy.count(|seen| seen.method == "PUT" && seen.status() == Some(StatusCode::CONFLICT)) == 2)
            .then_some(())
    })
    .await;
    assert_eq!(world.lease("orders").await, before);
}

#[tokio::test]
async fn scenario_04_a_late_reply_counts_from_its_send() {
    let Faulty { world, proxy, locks } = faulty("late").await;
    granted(&locks, "orders", "a", secs(30)).await;
    let late = proxy.rule(
        Match::put(lease(&world)),
        Fault::DelayReply(Duration::from_secs(2)),
    );
    let request = ExtendRequest::new(&stream("orders"), &instance("a"), secs(30));
    let grant = locks.extend(request).await.unwrap().granted().unwrap();
    let answered = locks.clock().now();
    assert!(late.fired() >= 1);
    assert!(grant.valid_until + Duration::from_secs(2) <= answered + secs(30).holder_share());
}

#[tokio::test]
async fn scenario_22_one_failed_renewal_costs_no_leadership() {
    for (code, reason) in [
        (429, "TooManyRequests"),
        (500, "InternalError"),
        (503, "ServiceUnavailable"),
    ] {
        let Faulty { world, proxy, locks } = faulty("failed").await;
        let first = granted(&locks, "orders", "a", secs(60)).await;
        // A server that asks to come back in an hour is not obeyed beyond what the term allows.
        let canned =
            Canned::status(StatusCode::from_u16(code).unwrap(), reason).header("Retry-After", "3600");
        let failed = proxy.rule(Match::put(lease(&world)).nth(1), Fault::Respond(canned));
        let request = ExtendRequest::new(&stream("orders"), &instance("a"), secs(60));
        let second = locks.extend(request).await.unwrap().granted().expect(reason);
        assert_eq!(failed.fired(), 1);
        assert_eq!(second.term, first.term);
    }
}

#[tokio::test]
async fn a_proxys_plain_404_is_no_deletion() {
    let Faulty { world, proxy, locks } = faulty("plain-404").await;
    let first = granted(&locks, "orders", "a", secs(60)).await;
    let plain = Canned::plain(StatusCode::NOT_FOUND, "no such backend");
    let on_put = proxy.rule(Match::put(lease(&world)).times(2), Fault::Respond(plain.clone()));
    let on_get = proxy.rule(Match::get(lease(&world)).times(2), Fault::Respond(plain));
    let request = ExtendRequest::new(&stream("orders"), &instance("a"), secs(60));
    let second = locks
        .extend(request)
        .await
        .unwrap()
        .granted()
        .expect("still the leader");
    assert_eq!((on_put.fired(), second.term), (2, first.term));
    assert!(locks.state(&stream("orders")).await.unwrap().is_some());
    assert_eq!(on_get.fired(), 2);
}

#[tokio::test]
async fn scenario_01_a_release_that_meets_a_conflict_reads_and_releases_or_leaves_the_winner_alone() {
    // (a) The Lease moved under its hand: here, because the release's own reply was lost.
    let Faulty { world, proxy, locks } = faulty("release").await;
    granted(&locks, "orders", "a", secs(60)).await;
    let lost = proxy.rule(Match::put(lease(&world)).nth(1), Fault::DropReply);
    assert!(matches!(
        locks
            .release(ReleaseRequest::new(&stream("orders"), &instance("a")))
            .await
            .unwrap(),
        Released::Released
    ));
    assert_eq!(lost.fired(), 1);
    // (b) Another took over in between.
    granted(&locks, "orders", "a", secs(1)).await;
    let other = world.locks();
    granted_at_last(&other, "orders", "b", secs(60)).await;
    let before = world.lease("orders").await;
    let _ = locks
        .release(ReleaseRequest::new(&stream("orders"), &instance("a")))
        .await
        .unwrap();
    assert_eq!(
        world.lease("orders").await,
        before,
        "the winner's Lease is untouched"
    );
}

#[tokio::test]
async fn a_term_that_no_reply_proves_is_over_and_stays_over() {
    let Faulty { world, proxy, locks } = faulty("dark").await;
    let first = granted(&locks, "orders", "a", secs(3)).await;
    proxy.cut_all();
    let request = || ExtendRequest::new(&stream("orders"), &instance("a"), secs(3));
    let outcome = locks.extend(request()).await.unwrap();
    assert!(
        matches!(outcome, Outcome::Refused(Refusal::Expired)),
        "{outcome:?}"
    );
    assert!(locks.clock().now() >= first.valid_until);
    proxy.restore();
    assert!(
        !locks
            .extend(request())
            .await
            .is_ok_and(|outcome| outcome.is_granted())
    );
    let (again, _) = granted_at_last(&locks, "orders", "a", secs(60)).await;
    assert_ne!(again.term, first.term);
    assert!(again.token > first.token);
    drop(world);
}

#[tokio::test]
async fn an_acquisition_that_nobody_settles_is_given_up_by_moving_the_version() {
    let Faulty { world, proxy, locks } = faulty("settle").await;
    granted(&locks, "orders", "a", secs(1)).await;
    locks
        .release(ReleaseRequest::new(&stream("orders"), &instance("a")))
        .await
        .unwrap();
    let held = proxy.rule(Match::put(lease(&world)), Fault::Hold);
    let asked = AcquireRequest::new(&stream("orders"), &instance("a"), secs(1));
    let outcome = locks.acquire(asked).await.unwrap();
    assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
    let fired = held.fired();
    assert!(fired >= 1);
    held.remove();
    assert!(locks.try_release(&stream("orders"), &instance("a")).await);
    held.release();
    eventually("the held writes were answered", || async {
        let conflicts = |seen: &leasewarden_faultproxy::Seen| seen.status() == Some(StatusCode::CONFLICT);
        (proxy.count(conflicts) as u64 >= fired).then_some(())
    })
    .await;
    assert_eq!(
        world.lease("orders").await["spec"].get("holderIdentity"),
        None,
        "held by nobody"
    );
}

#[tokio::test]
async fn a_date_header_that_is_off_vetoes_the_servers_time() {
    for (ahead, fault) in [(true, Fault::ShiftDate(3600)), (false, Fault::NoDate)] {
        let Faulty { world, proxy, locks } = faulty("date").await;
        granted(&world.locks(), "orders", "dead", secs(600)).await;
        let shifted = proxy.rule(Match::get(lease(&world)), fault);
        assert_eq!(
            refused_by(&locks, "orders", "b", secs(1)).await,
            "dead",
            "ahead: {ahead}"
        );
        assert!(shifted.fired() >= 1);
    }
}

#[tokio::test]
async fn scenario_26_watches_that_are_cut_lose_no_takeover_and_no_lock() {
    let Faulty { world, proxy, locks } = faulty("watch-cut").await;
    let holder = world.locks();
    granted(&holder, "orders", "a", secs(4)).await;
    assert_eq!(refused_by(&locks, "orders", "b", secs(4)).await, "a");
    let watches = || proxy.count(|seen| seen.path.contains("watch=true"));
    eventually("watched", || async { (watches() > 0).then_some(()) }).await;
    for _ in 0..5 {
        granted(&holder, "orders", "a", secs(4)).await;
        let before = watches();
        proxy.cut_connections();
        eventually("watched again", || async { (watches() > before).then_some(()) }).await;
    }
    let (grant, _) = granted_at_last(&locks, "orders", "b", secs(60)).await;
    assert!(grant.token.is_some());
}

#[tokio::test]
async fn an_expired_version_of_a_watch_is_listed_again() {
    let Faulty { world, proxy, locks } = faulty("gone").await;
    let gone = Canned::status(StatusCode::GONE, "Expired");
    let expired = proxy.rule(Match::watch("/leases").nth(1), Fault::Respond(gone));
    let holder = world.locks();
    granted(&holder, "orders", "a", secs(60)).await;
    assert_eq!(refused_by(&locks, "orders", "b", secs(60)).await, "a");
    expired.wait_fired(1, LIMIT).await.unwrap();
    eventually("listed and watched again", || async {
        let lists =
            proxy.count(|seen| seen.path.contains("labelSelector") && !seen.path.contains("watch=true"));
        (lists >= 2 && proxy.count(|seen| seen.path.contains("watch=true")) >= 2).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_reader_that_cannot_reach_the_server_gets_an_error_and_no_answer() {
    let Faulty {
        world: _world,
        proxy,
        locks,
    } = faulty("unread").await;
    proxy.cut_all();
    let error = locks.state(&stream("orders")).await.unwrap_err();
    assert!(matches!(error, LockError::Unavailable { .. }), "{error}");
}

#[tokio::test]
async fn an_acquisition_of_unknown_outcome_that_nobody_waits_for_is_not_given_back_once_its_retry_was_granted()
 {
    let Faulty { world, proxy, locks } = faulty("retried").await;
    granted(&locks, "orders", "a", secs(1)).await;
    assert!(locks.try_release(&stream("orders"), &instance("a")).await);
    let claim = Claim::Term(Term::random());
    let asked = |ttl| AcquireRequest::new(&stream("orders"), &instance("a"), ttl).claim(claim.clone());
    // None of the first call's writes is answered, and its caller does not wait to hear that.
    let first = Match::put(lease(&world)).body(r#""leaseDurationSeconds":1,"#);
    let held = proxy.rule(first, Fault::Hold);
    tokio::select! {
        answer = locks.acquire(asked(secs(1))) => panic!("{answer:?}"),
        sent = held.wait_fired(1, LIMIT) => sent.unwrap(),
    };
    let retried = locks.acquire(asked(secs(60))).await.unwrap();
    let grant = retried.granted().expect("the same claim, asked again");
    // What is sent now is answered after any giving back.
    let request = ExtendRequest::new(&stream("orders"), &instance("a"), secs(60)).claim(claim.clone());
    let extended = locks.extend(request).await.unwrap();
    assert!(extended.is_granted(), "{extended:?}");
    assert_eq!(
        refused_by(&world.locks(), "orders", "b", secs(60)).await,
        grant.instance.as_str()
    );
}

#[tokio::test]
async fn a_contenders_read_that_is_never_answered_costs_a_holder_in_the_same_process_nothing() {
    let Faulty { world, proxy, locks } = faulty("giving-way").await;
    let first = granted(&locks, "orders", "a", secs(9)).await;
    let held = proxy.rule(Match::get(lease(&world)), Fault::Hold);
    let contender = locks.clone();
    let asking = tokio::spawn(async move {
        contender
            .acquire(AcquireRequest::new(&stream("orders"), &instance("b"), secs(60)))
            .await
    });
    held.wait_fired(1, LIMIT).await.unwrap();
    let begun = locks.clock().now();
    while locks.clock().now() < begun + Duration::from_secs(11) {
        let outcome = locks.extend(ExtendRequest::of(&first, secs(9))).await.unwrap();
        assert!(outcome.is_granted(), "{outcome:?}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    held.remove();
    held.release();
    let answer = asking.await.unwrap();
    assert!(!answer.is_ok_and(|outcome| outcome.is_granted()));
}

#[tokio::test]
async fn a_holder_that_renews_without_a_pause_keeps_no_contender_in_the_same_process_waiting_for_ever() {
    let Faulty { world, proxy, locks } = faulty("no-pause").await;
    let first = granted(&locks, "orders", "a", secs(600)).await;
    let slow = proxy.rule(
        Match::get(lease(&world)),
        Fault::DelayReply(Duration::from_secs(1)),
    );
    let renewing = async {
        loop {
            let outcome = locks.extend(ExtendRequest::of(&first, secs(600))).await.unwrap();
            assert!(outcome.is_granted(), "{outcome:?}");
        }
    };
    let asking = locks.acquire(AcquireRequest::new(&stream("orders"), &instance("b"), secs(1)));
    let answer = tokio::select! {
        () = renewing => unreachable!("it goes on for ever"),
        answer = tokio::time::timeout(LIMIT, asking) => answer.expect("answered"),
    };
    assert!(slow.fired() >= 1);
    assert!(!answer.is_ok_and(|outcome| outcome.is_granted()));
}
