//! Acquire, extend, release, read: what they leave on the wire.

use leasewarden::{
    ExtendRequest, LockService, LockServiceExt, Outcome, Refusal, Released,
    lease::{LeaseLockService, STREAM_ANNOTATION, TERM_ANNOTATION, TOKEN_ANNOTATION, TTL_ANNOTATION},
    lock::{Claim, IfExpired, ReleaseRequest, Term},
};
use leasewarden_controlplane::ControlPlane;
use serde_json::json;

use crate::support::{World, acquire, granted, instance, refused_by, secs, stream};

#[tokio::test]
async fn an_acquired_lease_is_one_that_every_tool_understands() {
    let world = World::new("wire").await;
    let grant = granted(&world.locks(), "orders", "host:app:1", secs(15)).await;
    let lease = world.lease("orders").await;
    let (meta, spec) = (&lease["metadata"], &lease["spec"]);
    assert_eq!(spec["holderIdentity"], "host:app:1");
    assert_eq!(spec["leaseDurationSeconds"], 15);
    assert_eq!(spec["leaseTransitions"], 1);
    assert_eq!(spec["acquireTime"], spec["renewTime"]);
    assert_eq!(meta["labels"]["app.kubernetes.io/managed-by"], "leasewarden");
    assert_eq!(meta["labels"]["app.kubernetes.io/component"], "stream-lock");
    assert_eq!(meta["annotations"][STREAM_ANNOTATION], "orders");
    assert_eq!(meta["annotations"][TTL_ANNOTATION], "15000");
    assert_eq!(
        meta["annotations"][TOKEN_ANNOTATION],
        grant.token.unwrap().to_string()
    );
    assert!(
        meta["annotations"][TERM_ANNOTATION]
            .as_str()
            .unwrap()
            .contains(grant.term.as_str())
    );
}

#[tokio::test]
async fn a_renewal_moves_renew_time_and_nothing_else() {
    let world = World::new("renew").await;
    let locks = world.locks();
    granted(&locks, "orders", "a", secs(15)).await;
    let before = world.lease("orders").await;
    assert!(locks.renew(&stream("orders"), &instance("a"), secs(15)).await);
    let after = world.lease("orders").await;
    assert_ne!(before["spec"]["renewTime"], after["spec"]["renewTime"]);
    let mut expected = before.clone();
    for path in [
        ["spec", "renewTime"],
        ["metadata", "resourceVersion"],
        ["metadata", "managedFields"],
    ] {
        expected[path[0]][path[1]] = after[path[0]][path[1]].clone();
    }
    assert_eq!(after, expected);
}

#[tokio::test]
async fn scenario_21_the_same_owner_acquires_again_and_keeps_time_transitions_and_token() {
    let world = World::new("again").await;
    let locks = world.locks();
    let first = granted(&locks, "orders", "a", secs(15)).await;
    let before = world.lease("orders").await;
    let second = granted(&locks, "orders", "a", secs(15)).await;
    let after = world.lease("orders").await;
    assert_eq!((first.term, first.token), (second.term, second.token));
    for field in ["acquireTime", "leaseTransitions"] {
        assert_eq!(before["spec"][field], after["spec"][field]);
    }
    assert!(second.valid_until > first.valid_until);
}

#[tokio::test]
async fn a_release_keeps_the_object_and_lets_another_in_with_a_higher_token() {
    let world = World::new("release").await;
    let (a, b) = (world.locks(), world.locks());
    let first = granted(&a, "orders", "a", secs(15)).await;
    let uid = world.lease("orders").await["metadata"]["uid"].clone();
    assert_eq!(refused_by(&b, "orders", "b", secs(15)).await, "a");
    assert!(a.try_release(&stream("orders"), &instance("a")).await);
    let free = world.lease("orders").await;
    assert_eq!(free["spec"].get("holderIdentity"), None);
    assert!(
        free["metadata"]["annotations"][TERM_ANNOTATION]
            .as_str()
            .unwrap()
            .contains(r#""released":true"#)
    );
    assert_eq!(b.state(&stream("orders")).await.unwrap(), None);
    let second = granted(&b, "orders", "b", secs(15)).await;
    assert!(second.token > first.token);
    assert_eq!(world.lease("orders").await["metadata"]["uid"], uid);
    assert_eq!(world.lease("orders").await["spec"]["leaseTransitions"], 2);
}

#[tokio::test]
async fn what_others_put_into_a_lease_stays() {
    let world = World::new("foreign").await;
    let body = json!({"metadata": {"finalizers": ["example.com/keep"], "labels": {"team": "payments"}}});
    world
        .create(
            "orders",
            json!({"team": "payments"}),
            json!({"leaseDurationSeconds": 7}),
        )
        .await;
    world.patch("orders", body).await;
    let locks = world.locks();
    granted(&locks, "orders", "a", secs(15)).await;
    assert!(locks.renew(&stream("orders"), &instance("a"), secs(15)).await);
    assert!(locks.try_release(&stream("orders"), &instance("a")).await);
    let lease = world.lease("orders").await;
    assert_eq!(lease["metadata"]["annotations"]["team"], "payments");
    assert_eq!(lease["metadata"]["labels"]["team"], "payments");
    assert_eq!(lease["metadata"]["finalizers"], json!(["example.com/keep"]));
    assert_eq!(
        lease["metadata"]["annotations"][STREAM_ANNOTATION], "orders",
        "adopted"
    );
    assert_eq!(
        lease["metadata"]["labels"]["app.kubernetes.io/managed-by"],
        "leasewarden"
    );
    world
        .patch("orders", json!({"metadata": {"finalizers": null}}))
        .await;
}

/// Needs a control plane of its own: these fields exist only behind a feature gate, and client types of older
/// Kubernetes versions do not know them.
#[tokio::test]
async fn fields_that_a_client_library_may_not_know_stay() {
    if leasewarden_controlplane::is_existing_cluster() {
        return; // What the feature gates of that cluster are is not ours to choose.
    }
    let plane = ControlPlane::builder()
        .without_controller_manager()
        .apiserver_arg("--feature-gates=CoordinatedLeaderElection=true")
        .apiserver_arg("--runtime-config=coordination.k8s.io/v1beta1=true")
        .start()
        .await
        .unwrap();
    let client = plane.client().unwrap();
    let uri = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let body = json!({"metadata": {"name": "orders"}, "spec": {"strategy": "OldestEmulationVersion", "preferredHolder": "x"}});
    let post = http::Request::post(uri).header("content-type", "application/json");
    let created: serde_json::Value = client
        .request(post.body(serde_json::to_vec(&body).unwrap()).unwrap())
        .await
        .unwrap();
    assert_eq!(
        created["spec"]["strategy"], "OldestEmulationVersion",
        "the gate is on"
    );
    let locks = LeaseLockService::builder(plane.kube_config())
        .namespace("default")
        .build()
        .unwrap();
    granted(&locks, "orders", "a", secs(15)).await;
    assert!(locks.renew(&stream("orders"), &instance("a"), secs(15)).await);
    let get = http::Request::get(format!("{uri}/orders"))
        .body(Vec::new())
        .unwrap();
    let lease: serde_json::Value = client.request(get).await.unwrap();
    assert_eq!(lease["spec"]["strategy"], "OldestEmulationVersion");
    assert_eq!(lease["spec"]["preferredHolder"], "x");
    assert_eq!(lease["spec"]["holderIdentity"], "a");
    plane.stop().unwrap();
}

#[tokio::test]
async fn labels_that_somebody_removed_are_put_back_by_the_next_write() {
    let world = World::new("labels").await;
    let locks = world.locks();
    granted(&locks, "orders", "a", secs(15)).await;
    world.patch("orders", json!({"metadata": {"labels": null}})).await;
    assert!(locks.renew(&stream("orders"), &instance("a"), secs(15)).await);
    assert_eq!(
        world.lease("orders").await["metadata"]["labels"]["app.kubernetes.io/component"],
        "stream-lock"
    );
}

#[tokio::test]
async fn a_second_process_with_the_same_id_ends_the_term_of_the_first() {
    let world = World::new("twin").await;
    let (first, second) = (world.locks(), world.locks());
    let old = granted(&first, "orders", "a", secs(15)).await;
    let new = granted(&second, "orders", "a", secs(15)).await;
    assert!(new.token > old.token);
    assert_ne!(new.term, old.term);
    let request =
        ExtendRequest::new(&stream("orders"), &instance("a"), secs(15)).claim(Claim::Term(old.term));
    let outcome = first.extend(request).await.unwrap();
    assert!(
        matches!(outcome, Outcome::Refused(Refusal::HeldBy { .. })),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn scenario_07_the_same_id_under_another_term_is_somebody_else() {
    let world = World::new("twin-term").await;
    let (first, second) = (world.locks(), world.locks());
    let ask = |locks: leasewarden::lease::LeaseLockService| async move {
        let request = leasewarden::AcquireRequest::new(&stream("orders"), &instance("a"), secs(60));
        locks
            .acquire(request.claim(Claim::Term(Term::random())))
            .await
            .unwrap()
    };
    assert!(ask(first).await.is_granted());
    assert!(matches!(ask(second).await, Outcome::Refused(Refusal::HeldBy { holder, .. }) if holder == "a"));
}

#[tokio::test]
async fn scenario_16_many_who_create_the_same_lease_have_one_winner() {
    let world = World::new("race").await;
    let mut asked = tokio::task::JoinSet::new();
    for n in 0..12 {
        let locks = world.locks();
        asked.spawn(async move {
            acquire(&locks, "orders", &format!("c{n}"), secs(60))
                .await
                .is_granted()
        });
    }
    let granted = asked
        .join_all()
        .await
        .into_iter()
        .filter(|granted| *granted)
        .count();
    assert_eq!(granted, 1);
}

#[tokio::test]
async fn scenario_25_refreshing_twice_within_a_millisecond_is_never_somebody_elses_lock() {
    let world = World::new("twice").await;
    let locks = world.locks();
    granted(&locks, "orders", "a", secs(15)).await;
    let (stream, a) = (stream("orders"), instance("a"));
    for _ in 0..5 {
        let (one, two) = tokio::join!(
            locks.renew(&stream, &a, secs(15)),
            locks.try_acquire(&stream, &a, secs(15))
        );
        assert!(one && two);
    }
}

#[tokio::test]
async fn a_deletion_ends_the_term_and_tokens_rise_over_it() {
    let world = World::new("deleted").await;
    let (a, b) = (world.locks(), world.locks());
    let first = granted(&a, "orders", "a", secs(15)).await;
    world.delete("orders").await;
    assert!(!a.renew(&stream("orders"), &instance("a"), secs(15)).await);
    // `b` never saw the live term; that it may not know is what the token is for.
    let second = granted(&b, "orders", "b", secs(15)).await;
    assert!(second.token > first.token);
}

#[tokio::test]
async fn a_late_write_to_a_deleted_lease_does_not_create_it() {
    let world = World::new("no-create").await;
    let a = world.locks();
    granted(&a, "orders", "a", secs(15)).await;
    world.delete("orders").await;
    let request = ReleaseRequest::new(&stream("orders"), &instance("a"));
    assert!(matches!(
        a.release(request).await.unwrap(),
        Released::NotHeld | Released::Released
    ));
    let request = http::Request::get(format!(
        "/apis/coordination.k8s.io/v1/namespaces/{}/leases/orders",
        world.ns()
    ));
    let missing = world
        .client
        .request::<serde_json::Value>(request.body(Vec::new()).unwrap())
        .await
        .unwrap_err();
    assert!(missing.to_string().contains("not found"), "{missing}");
}

#[tokio::test]
async fn renew_of_an_expired_lock_is_false_and_extend_may_take_it_again_under_a_new_term() {
    let world = World::new("revive").await;
    let locks = world.locks();
    let first = granted(&locks, "orders", "a", secs(1)).await;
    crate::support::eventually("the term is over", || async {
        (locks.clock().now() >= first.valid_until).then_some(())
    })
    .await;
    assert!(
        !locks.renew(&stream("orders"), &instance("a"), secs(1)).await,
        "contract A"
    );
    let request =
        ExtendRequest::new(&stream("orders"), &instance("a"), secs(15)).if_expired(IfExpired::TakeAgain);
    let again = locks
        .extend(request)
        .await
        .unwrap()
        .granted()
        .expect("contract B");
    assert_ne!(again.term, first.term);
    assert!(again.token > first.token);
    assert_eq!(again.acquired_at, first.acquired_at, "the holder stayed");
}

#[tokio::test]
async fn a_grant_that_nobody_waits_for_is_given_back() {
    let world = World::new("dropped").await;
    let (a, b) = (world.locks(), world.locks());
    let (name, id) = (stream("orders"), instance("a"));
    {
        let asked = a.acquire(leasewarden::AcquireRequest::new(&name, &id, secs(600)));
        // Polled once, so that the request is on its way, and dropped.
        let _ = tokio::time::timeout(std::time::Duration::ZERO, asked).await;
    }
    crate::support::granted_at_last(&b, "orders", "b", secs(15)).await;
}

#[tokio::test]
async fn giving_a_forsaken_grant_back_does_not_take_it_from_who_asked_again() {
    let world = World::new("adopted").await;
    let locks = world.locks();
    let (name, id) = (stream("orders"), instance("a"));
    for millis in 0..20 {
        // Dropped at some point of its way: before it is sent, between its requests, or with its answer at the door.
        let asked = locks.acquire(leasewarden::AcquireRequest::new(&name, &id, secs(600)));
        let _ = tokio::time::timeout(std::time::Duration::from_millis(millis), asked).await;
        let grant = granted(&locks, "orders", "a", secs(600)).await;
        // A request that was sent after any giving back has been answered after it.
        let request = ExtendRequest::new(&name, &id, secs(600)).claim(Claim::Term(grant.term.clone()));
        let extended = locks.extend(request).await.unwrap();
        assert!(extended.is_granted(), "{extended:?}");
        assert!(locks.try_release(&name, &id).await);
    }
}
