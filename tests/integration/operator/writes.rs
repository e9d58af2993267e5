//! A status is no second heartbeat: its writes are counted on the wire.

use std::time::SystemTime;

use futures_util::TryStreamExt;
use kube::api::{WatchEvent, WatchParams};
use leasewarden::crd::HELD;

use super::*;

/// Counts the versions of an object from now on.
async fn count(stage: &Stage, name: &str) -> Arc<Mutex<Vec<ChangeStreamLeader>>> {
    let objects = stage.objects();
    let version = objects
        .get(name)
        .await
        .unwrap()
        .metadata
        .resource_version
        .unwrap();
    let params = WatchParams::default()
        .fields(&format!("metadata.name={name}"))
        .timeout(290);
    let mut events = Box::pin(objects.watch(&params, &version).await.unwrap());
    let seen = Arc::<Mutex<Vec<ChangeStreamLeader>>>::default();
    let sink = Arc::clone(&seen);
    tokio::spawn(async move {
        while let Ok(Some(event)) = events.try_next().await {
            if let WatchEvent::Modified(object) = event {
                sink.lock().unwrap().push(object);
            }
        }
    });
    seen
}

#[tokio::test]
async fn a_transition_is_one_write() {
    let stage = Stage::new("one-write").await;
    stage.write_object("orders", spec("orders")).await;
    stage.holder_is("orders", None).await;
    let seen = count(&stage, "orders").await;
    let (a, b) = (stage.instance("a"), stage.instance("b"));
    let ttl = Duration::from_secs(300);
    a.acquire("orders", ttl).await;
    stage.holder_is("orders", Some("a")).await;
    for _ in 0..20 {
        a.renew("orders", ttl).await;
    }
    a.release("orders").await;
    stage.holder_is("orders", None).await;
    b.acquire("orders", ttl).await;
    stage.holder_is("orders", Some("b")).await;
    until("the last write is counted", || async {
        (seen.lock().unwrap().len() >= 3).then_some(())
    })
    .await;
    let holders: Vec<_> = seen
        .lock()
        .unwrap()
        .iter()
        .map(|o| o.status.clone().unwrap_or_default().holder_identity)
        .collect();
    // A Lease is created free before it is acquired; when that is seen by itself it is a change of its own.
    let without_first: Vec<_> = holders.iter().skip_while(|h| h.is_none()).cloned().collect();
    assert_eq!(
        without_first,
        [Some("a".into()), None, Some("b".into())],
        "{holders:?}"
    );
    assert!(holders.len() <= 4, "{holders:?}");
}

#[tokio::test]
async fn renewals_cost_a_write_per_two_thirds_of_the_ttl_and_no_expiry_lapses() {
    let stage = Stage::new("refresh").await;
    let (a, ttl) = (stage.instance("a"), Duration::from_secs(6));
    a.acquire("orders", ttl).await;
    stage.holder_is("orders", Some("a")).await;
    let seen = count(&stage, "orders").await;
    let start = Instant::now();
    let mut renewals = 0;
    let mut slow = false;
    while start.elapsed() < ttl * 4 {
        let before = Instant::now();
        a.renew("orders", ttl).await;
        renewals += 1;
        let now = SystemTime::now();
        let status = stage.objects().get("orders").await.unwrap().status.unwrap();
        tokio::time::sleep((ttl / 3).saturating_sub(before.elapsed())).await;
        // Only a machine that stood still for a second may excuse what follows.
        slow |= before.elapsed() > ttl / 3 + Duration::from_secs(1);
        let expires = SystemTime::from(status.expiration_time.as_ref().unwrap().0);
        assert!(
            slow || expires > now,
            "a live leader shows an expiry that has lapsed"
        );
        assert_eq!(condition(&status, HELD), is("True", "LeaseHeld"));
    }
    let writes = seen.lock().unwrap().len();
    // 24 s at 4 s a write; whole seconds of the server's times cost a few.
    assert!(
        (3..=renewals).contains(&writes) && writes <= 10,
        "{writes} writes for {renewals} renewals"
    );
}

#[tokio::test]
async fn transitions_only_means_that() {
    let stage = Stage::new("transitions-only").await;
    let mut spec = spec("orders");
    spec.status_policy = Some(leasewarden::crd::StatusPolicy::TransitionsOnly);
    stage.write_object("orders", spec).await;
    let (a, ttl) = (stage.instance("a"), Duration::from_secs(6));
    a.acquire("orders", ttl).await;
    let status = stage.holder_is("orders", Some("a")).await;
    assert_eq!(status.expiration_time, None);
    let seen = count(&stage, "orders").await;
    for _ in 0..6 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        a.renew("orders", ttl).await;
    }
    assert_eq!(seen.lock().unwrap().len(), 0);
    // And its expiry is a transition.
    let status = stage.holder_is("orders", None).await;
    assert_eq!(condition(&status, HELD), is("False", "LeaseExpired"));
}

#[tokio::test]
async fn two_operators_on_one_namespace_do_not_fight() {
    let mut stage = Stage::new("two-operators").await;
    let first = stage.operator.take();
    stage.start(&[]);
    let (a, b, ttl) = (stage.instance("a"), stage.instance("b"), Duration::from_secs(300));
    a.acquire("orders", ttl).await;
    stage.holder_is("orders", Some("a")).await;
    let seen = count(&stage, "orders").await;
    for _ in 0..5 {
        a.release("orders").await;
        stage.holder_is("orders", None).await;
        b.acquire("orders", ttl).await;
        stage.holder_is("orders", Some("b")).await;
        b.release("orders").await;
        stage.holder_is("orders", None).await;
        a.acquire("orders", ttl).await;
        stage.holder_is("orders", Some("a")).await;
    }
    until("all writes are counted", || async {
        (seen.lock().unwrap().len() >= 20).then_some(())
    })
    .await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 20, "one write a transition, whoever makes it");
    let status = seen.last().unwrap().status.clone().unwrap();
    assert!(
        status
            .history
            .iter()
            .all(|p| p.ended == leasewarden::crd::Ended::Released),
        "{:#?}",
        status.history
    );
    drop(first);
}
