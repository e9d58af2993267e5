//! Leases that other tools wrote: data, never trusted, never a panic.

use leasewarden::{
    AcquireRequest, LockError, LockService, LockServiceExt,
    lease::{STREAM_ANNOTATION, TOKEN_ANNOTATION},
};
use serde_json::json;

use crate::support::{World, granted, instance, refused_by, secs, stream};

#[tokio::test]
async fn a_lease_of_another_stream_is_an_error_and_never_a_shared_lock() {
    let world = World::new("conflict").await;
    world
        .create("orders", json!({STREAM_ANNOTATION: "Orders (legacy)"}), json!({}))
        .await;
    let before = world.lease("orders").await;
    let locks = world.locks();
    let request = AcquireRequest::new(&stream("orders"), &instance("a"), secs(15));
    let error = locks.acquire(request).await.unwrap_err();
    assert!(matches!(&error, LockError::StreamConflict { found, .. } if found == "Orders (legacy)"));
    assert!(
        error
            .to_string()
            .contains(&format!("Lease {}/orders", world.ns())),
        "{error}"
    );
    assert!(locks.state(&stream("orders")).await.is_err());
    assert!(!locks.renew(&stream("orders"), &instance("a"), secs(15)).await);
    assert!(!locks.try_release(&stream("orders"), &instance("a")).await);
    assert_eq!(world.lease("orders").await, before);
}

#[tokio::test]
async fn an_absurd_token_is_an_error_that_says_how_to_mend_it() {
    let world = World::new("token").await;
    for (n, absurd) in ["18446744073709551615", "9223372036854775807", "-1", "x"]
        .into_iter()
        .enumerate()
    {
        let name = format!("t{n}");
        world
            .create(&name, json!({TOKEN_ANNOTATION: absurd}), json!({}))
            .await;
        let request = AcquireRequest::new(&stream(&name), &instance("a"), secs(15));
        let error = world.locks().acquire(request).await.unwrap_err().to_string();
        assert!(
            error.contains(absurd) && error.contains("set it to the highest token"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_stored_token_is_the_floor_of_the_next() {
    let world = World::new("floor").await;
    world
        .create("orders", json!({TOKEN_ANNOTATION: "1000000000000"}), json!({}))
        .await;
    let grant = granted(&world.locks(), "orders", "a", secs(15)).await;
    assert_eq!(grant.token.unwrap().get(), 1_000_000_000_001);
}

#[tokio::test]
async fn scenario_08_odd_durations_of_foreign_holders_never_overflow_and_never_expire_early() {
    let world = World::new("durations").await;
    let now = "2026-01-01T00:00:00.000000Z";
    let holders = [
        (
            "forever",
            json!({"holderIdentity": "x", "leaseDurationSeconds": i32::MAX, "renewTime": now}),
        ),
        ("none", json!({"holderIdentity": "x", "renewTime": now})),
        ("bare", json!({"holderIdentity": "x"})),
        (
            "long",
            json!({"holderIdentity": "h".repeat(100_000), "leaseDurationSeconds": 600, "renewTime": now}),
        ),
    ];
    let locks = world.locks();
    for (name, spec) in holders {
        world.create(name, json!({}), spec).await;
        let holder = refused_by(&locks, name, "b", secs(600)).await;
        assert!(holder == "x" || holder.len() == 100_000);
        locks.state(&stream(name)).await.unwrap();
        locks
            .record(&stream(name))
            .await
            .unwrap()
            .expect("a holder is named");
    }
}

#[tokio::test]
async fn scenario_23_odd_names_lock_different_leases() {
    let world = World::new("names").await;
    let locks = world.locks();
    let long = "x".repeat(300);
    let names = [
        "Orders", "orders", "ORDERS", "a/b", "a:b", "a b", "🦀", "日本", &long, "-", "..",
    ];
    for (n, name) in names.iter().enumerate() {
        granted(&locks, name, &format!("holder-{n}"), secs(600)).await;
    }
    for (n, name) in names.iter().enumerate() {
        assert_eq!(
            locks.current_leader(&stream(name)).await,
            Some(format!("holder-{n}")),
            "{name}"
        );
    }
}

#[tokio::test]
async fn lying_annotations_of_a_foreign_holder_are_not_believed() {
    let world = World::new("lies").await;
    let term = r#"{"id":"t","holder":"old","transitions":3}"#;
    let annotations = json!({"leasewarden.dev/term": term, "leasewarden.dev/ttl-ms": "1"});
    let spec = json!({"holderIdentity": "client-go", "leaseTransitions": 4, "leaseDurationSeconds": 600,
        "renewTime": "2026-01-01T00:00:00.000000Z"});
    world.create("orders", annotations, spec).await;
    assert_eq!(
        refused_by(&world.locks(), "orders", "b", secs(600)).await,
        "client-go"
    );
}
