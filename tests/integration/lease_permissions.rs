//! A missing permission is named: verb, resource, namespace.

use leasewarden::{AcquireRequest, LockError, LockService, LockServiceExt, lock::ReleaseRequest};

use crate::support::{World, eventually, granted, instance, secs, stream, user};

#[tokio::test]
async fn each_missing_verb_is_named_with_the_resource() {
    let world = World::new("forbidden").await;
    granted(&world.locks(), "exists", "holder", secs(1)).await;
    let cases: [(&str, &[&str], &str); 3] = [
        ("get", &["create", "update"], "new"),
        ("create", &["get", "update"], "new"),
        ("update", &["get", "create"], "fresh"),
    ];
    for (missing, verbs, name) in cases {
        let locks = world.locks_with(user(&world, &format!("lacks-{missing}"), verbs).await);
        let expected = format!(
            "not permitted to {missing} leases.coordination.k8s.io in namespace {}",
            world.ns()
        );
        // The authorizer learns of a new Role through a watch of its own.
        eventually(("the missing verb is named", missing), || async {
            let request = AcquireRequest::new(&stream(name), &instance("a"), secs(15));
            let error = locks.acquire(request).await.err()?;
            (matches!(error, LockError::Forbidden { .. }) && error.to_string().contains(&expected))
                .then_some(())
        })
        .await;
        assert!(
            !locks.try_acquire(&stream(name), &instance("a"), secs(15)).await,
            "contract A: false"
        );
    }
}

#[tokio::test]
async fn without_list_and_watch_the_lock_works_all_the_same() {
    let world = World::new("no-watch").await;
    let config = user(&world, "least", &["get", "create", "update"]).await;
    let (a, b) = (world.locks_with(config.clone()), world.locks_with(config));
    let asked = || async {
        a.acquire(AcquireRequest::new(&stream("s"), &instance("a"), secs(2)))
            .await
            .ok()?
            .granted()
    };
    eventually("the role is in force", asked).await;
    let taken = || async {
        b.acquire(AcquireRequest::new(&stream("s"), &instance("b"), secs(60)))
            .await
            .ok()?
            .granted()
    };
    eventually("an expired lock is taken over by asking", taken).await;
}

#[tokio::test]
async fn a_permission_taken_away_and_given_back_is_followed() {
    let world = World::new("revoked").await;
    let config = user(&world, "changing", &["get", "create", "update"]).await;
    let locks = world.locks_with(config);
    let request = || AcquireRequest::new(&stream("s"), &instance("a"), secs(60));
    eventually("granted", || async {
        locks.acquire(request()).await.ok()?.granted()
    })
    .await;
    user(&world, "changing", &["get"]).await;
    let error = eventually("the release is forbidden", || async {
        locks
            .release(ReleaseRequest::new(&stream("s"), &instance("a")))
            .await
            .err()
    })
    .await;
    assert!(
        error
            .to_string()
            .contains("not permitted to update leases.coordination.k8s.io"),
        "{error}"
    );
    user(&world, "changing", &["get", "create", "update"]).await;
    eventually("granted again", || async {
        locks.acquire(request()).await.ok()?.granted()
    })
    .await;
}
