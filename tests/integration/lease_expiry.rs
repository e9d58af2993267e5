//! Takeovers: not before the evidence, and soon after it.

use std::time::{Duration, Instant, SystemTime};

use leasewarden::{LockService, lease::LeaseLockService, lock::ManualClock};
use serde_json::json;

use crate::support::{World, acquire, eventually, granted, granted_at_last, refused_by, secs, stream};

#[tokio::test]
async fn who_only_asks_gets_an_expired_lock_and_never_before_the_ttl() {
    let world = World::new("expiry").await;
    let (a, b) = (world.locks(), world.locks());
    let begun = Instant::now();
    let first = granted(&a, "orders", "a", secs(3)).await;
    let (second, _) = granted_at_last(&b, "orders", "b", secs(3)).await;
    assert!(begun.elapsed() >= Duration::from_secs(3), "{:?}", begun.elapsed());
    assert!(a.clock().now() >= first.valid_until, "one valid grant at a time");
    assert!(second.token > first.token);
    assert_eq!(refused_by(&a, "orders", "a", secs(3)).await, "b");
}

#[tokio::test]
async fn a_contender_that_asks_rarely_still_sees_every_renewal() {
    let world = World::new("watched").await;
    let a = world.locks();
    let b = LeaseLockService::builder(world.plane.kube_config())
        .namespace(world.ns())
        .server_time_allowance(None)
        .build()
        .unwrap();
    granted(&a, "orders", "a", secs(4)).await;
    assert_eq!(refused_by(&b, "orders", "b", secs(4)).await, "a");
    // Renewed for longer than a TTL while `b` asks nothing.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(6) {
        granted(&a, "orders", "a", secs(4)).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    granted(&a, "orders", "a", secs(30)).await;
    assert_eq!(refused_by(&b, "orders", "b", secs(4)).await, "a");
    // Renewed once more, and then asked only once, long after: who had not seen that renewal when it came would have to
    // watch it for a TTL first.
    granted(&a, "orders", "a", secs(4)).await;
    tokio::time::sleep(Duration::from_secs(4 + 10)).await;
    granted(&b, "orders", "b", secs(4)).await;
}

#[tokio::test]
async fn scenario_06_a_contenders_own_shorter_ttl_steals_nothing() {
    let world = World::new("own-ttl").await;
    let (a, b) = (world.locks(), world.locks());
    granted(&a, "orders", "a", secs(60)).await;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(3) {
        assert_eq!(refused_by(&b, "orders", "b", secs(1)).await, "a");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn server_time_lets_a_fresh_process_take_a_long_dead_holders_lease_at_once() {
    let world = World::new("server-time").await;
    granted(&world.locks(), "orders", "dead", secs(1)).await;
    let server_proves = Duration::from_secs(1 + 6 + 2);
    let begun = Instant::now();
    eventually("the server's time proves the expiry", || async {
        (begun.elapsed() > server_proves).then_some(())
    })
    .await;
    // One question by a process that never saw the Lease before.
    let grant = granted(&world.locks(), "orders", "b", secs(60)).await;
    assert!(grant.token.is_some());
    world.delete("orders").await;
}

#[tokio::test]
async fn without_server_time_a_fresh_process_waits_the_whole_ttl() {
    let world = World::new("no-server-time").await;
    granted(&world.locks(), "orders", "dead", secs(2)).await;
    let begun = Instant::now();
    eventually("long dead", || async {
        (begun.elapsed() > Duration::from_secs(9)).then_some(())
    })
    .await;
    let config = world.plane.kube_config();
    let b = LeaseLockService::builder(config)
        .namespace(world.ns())
        .server_time_allowance(None)
        .build()
        .unwrap();
    let asked = Instant::now();
    assert_eq!(refused_by(&b, "orders", "b", secs(2)).await, "dead");
    granted_at_last(&b, "orders", "b", secs(2)).await;
    assert!(asked.elapsed() >= Duration::from_secs(2));
}

#[tokio::test]
async fn scenario_05_a_contenders_clock_that_is_far_off_steals_nothing() {
    let world = World::new("clock").await;
    granted(&world.locks(), "orders", "a", secs(600)).await;
    for offset in [60, 3600] {
        for ahead in [true, false] {
            let clock = ManualClock::new();
            let (now, offset) = (SystemTime::now(), Duration::from_secs(offset));
            clock.set_wall(if ahead { now + offset } else { now - offset });
            let builder = LeaseLockService::builder(world.plane.kube_config()).namespace(world.ns());
            let b = builder.clock(std::sync::Arc::new(clock)).build().unwrap();
            assert_eq!(refused_by(&b, "orders", "b", secs(1)).await, "a");
        }
    }
}

#[tokio::test]
async fn the_state_of_an_expired_lock_is_empty_and_its_record_is_not() {
    let world = World::new("state").await;
    let (a, reader) = (world.locks(), world.locks());
    granted(&a, "orders", "a", secs(1)).await;
    let record = eventually("the state is empty", || async {
        match reader.state(&stream("orders")).await.unwrap() {
            None => Some(reader.record(&stream("orders")).await.unwrap().unwrap()),
            Some(_) => None,
        }
    })
    .await;
    assert!(record.expired);
    assert_eq!(record.state.instance, "a");
}

#[tokio::test]
async fn scenario_14_a_wiped_holder_is_waited_for_and_a_freed_lease_is_not() {
    let world = World::new("wiped").await;
    let (a, b) = (world.locks(), world.locks());
    granted(&a, "orders", "a", secs(60)).await;
    // Wiped by a tool that did not hold it.
    world
        .patch("orders", json!({"spec": {"holderIdentity": ""}}))
        .await;
    assert_eq!(refused_by(&b, "orders", "b", secs(60)).await, "a");
    assert!(
        leasewarden::LockServiceExt::renew(&a, &stream("orders"), &crate::support::instance("a"), secs(60))
            .await
    );
    assert_eq!(world.lease("orders").await["spec"]["holderIdentity"], "a");
    // Freed by the tool that held it: holder "", absent, and no spec at all.
    world
        .create(
            "empty",
            json!({}),
            json!({"holderIdentity": "", "leaseDurationSeconds": 600}),
        )
        .await;
    world
        .create("absent", json!({}), json!({"leaseDurationSeconds": 600}))
        .await;
    world.create("no-spec", json!({}), json!(null)).await;
    for free in ["empty", "absent", "no-spec"] {
        granted(&b, free, "b", secs(60)).await;
    }
}

#[tokio::test]
async fn a_deleted_lease_whose_live_term_was_seen_is_waited_for() {
    let world = World::new("ghost").await;
    let (a, b) = (world.locks(), world.locks());
    granted(&a, "orders", "a", secs(8)).await;
    assert_eq!(refused_by(&b, "orders", "b", secs(8)).await, "a");
    let deleted = Instant::now();
    world.delete("orders").await;
    assert!(
        !acquire(&b, "orders", "b", secs(8)).await.is_granted(),
        "its holder may not know"
    );
    granted_at_last(&b, "orders", "b", secs(8)).await;
    assert!(deleted.elapsed() >= Duration::from_secs(8));
}
