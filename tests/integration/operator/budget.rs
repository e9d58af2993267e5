//! More Leases than status writes a second: what is shown never lapses, and what cannot be kept is not shown.

use std::time::SystemTime;

use futures_util::TryStreamExt;
use kube::api::{ListParams, WatchEvent, WatchParams};
use leasewarden::crd::{HELD, StatusPolicy};

use super::*;

const TTL: Duration = Duration::from_secs(9);
const LEASES: usize = 24;

/// Renews all of these until dropped.
fn renewing(instance: Arc<Instance>, streams: Arc<Mutex<Vec<String>>>) -> Inside {
    Inside(tokio::spawn(async move {
        loop {
            let streams = streams.lock().unwrap().clone();
            let pause = TTL / 3 / u32::try_from(streams.len()).unwrap();
            for stream in streams {
                // One that was released meanwhile is renewed no more.
                instance.still_leads(&stream, TTL).await;
                tokio::time::sleep(pause).await;
            }
        }
    }))
}

#[tokio::test]
async fn where_it_does_not_suffice_expiries_are_left_out_and_come_back() {
    let stage = Stage::empty("budget").await;
    let a = Arc::new(stage.instance("a"));
    let streams: Vec<_> = (0..LEASES).map(|n| format!("s-{n}")).collect();
    let _operator = stage.start_inside(stage.control_plane.kube_config(), |operator| {
        operator.status_writes_per_second(1)
    });
    for stream in &streams {
        a.acquire(stream, TTL).await;
    }
    let streams = Arc::new(Mutex::new(streams));
    let _renewing = renewing(Arc::clone(&a), Arc::clone(&streams));
    for n in 0..LEASES {
        stage.holder_is(&format!("s-{n}"), Some("a")).await;
    }

    // 24 Leases at TTL 9 need three writes a second.
    let objects = stage.objects();
    let version = objects.list(&ListParams::default()).await.unwrap().metadata;
    let watch = WatchParams::default().timeout(290);
    let mut events = Box::pin(
        objects
            .watch(&watch, &version.resource_version.unwrap())
            .await
            .unwrap(),
    );
    let begun = Instant::now();
    let (mut writes, mut with, mut without) = (0, 0, 0);
    while begun.elapsed() < TTL * 3 {
        let Ok(event) = tokio::time::timeout(Duration::from_secs(1), events.try_next()).await else {
            continue;
        };
        let Some(WatchEvent::Modified(object)) = event.unwrap() else {
            continue;
        };
        let status = object.status.unwrap();
        // A renewal that came late on a busy machine is an expiry, which is no write of the budget's.
        if condition(&status, HELD) == is("True", "LeaseHeld") {
            writes += 1;
            match status.expiration_time {
                Some(_) => with += 1,
                None => without += 1,
            }
        }
    }
    let seconds = begun.elapsed().as_secs();
    assert!(
        writes <= 2 * seconds + 5,
        "{writes} writes in {seconds} s: {with} with, {without} without"
    );
    let shown = objects.list(&ListParams::default()).await.unwrap().items;
    let shown = shown
        .iter()
        .filter(|o| o.status.as_ref().is_some_and(|s| s.expiration_time.is_some()));
    assert!(shown.count() < LEASES, "one write a second keeps not all of them");

    // With fewer Leases it suffices.
    let released = streams.lock().unwrap().split_off(3);
    for stream in &released {
        a.release(stream).await;
    }
    for n in 0..3 {
        stage
            .status(&format!("s-{n}"), |s| {
                s.holder_identity.is_some() && s.expiration_time.is_some()
            })
            .await;
    }
}

#[tokio::test]
async fn no_expiry_that_is_shown_lapses_while_the_leader_renews() {
    let stage = Stage::empty("no-lapse").await;
    let a = Arc::new(stage.instance("a"));
    let streams: Vec<_> = (0..8).map(|n| format!("s-{n}")).collect();
    let _operator = stage.start_inside(stage.control_plane.kube_config(), |operator| {
        operator.status_writes_per_second(1)
    });
    for stream in &streams {
        a.acquire(stream, TTL).await;
    }
    let _renewing = renewing(Arc::clone(&a), Arc::new(Mutex::new(streams.clone())));
    for stream in &streams {
        stage.holder_is(stream, Some("a")).await;
    }
    let begun = Instant::now();
    while begun.elapsed() < TTL * 2 {
        let asked = SystemTime::now();
        let objects = stage.objects().list(&ListParams::default()).await.unwrap().items;
        for object in objects {
            let status = object.status.unwrap_or_default();
            let Some(expires) = status.expiration_time.clone() else {
                continue;
            };
            let held = status
                .conditions
                .iter()
                .any(|c| c.type_ == HELD && c.status == "True");
            // Where the machine stood still and nobody renewed, the expiry is the truth.
            let lease = stage
                .leases()
                .get(status.lease_name.as_deref().unwrap())
                .await
                .unwrap();
            let renewed = SystemTime::from(lease.spec.unwrap().renew_time.unwrap().0);
            let in_time = renewed + TTL > SystemTime::now() + Duration::from_secs(1)
                && renewed + TTL / 3 < SystemTime::from(expires.0);
            assert!(
                !held || !in_time || SystemTime::from(expires.0) > asked,
                "a live leader shows an expiry that has lapsed: {status:#?}"
            );
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test]
async fn the_default_policy_is_for_objects_that_have_none() {
    let stage = Stage::empty("policy").await;
    let a = stage.instance("a");
    let mut full = spec("full");
    full.status_policy = Some(StatusPolicy::Full);
    stage.write_object("full", full).await;
    let _operator = stage.start_inside(stage.control_plane.kube_config(), |operator| {
        operator.status_policy(StatusPolicy::TransitionsOnly)
    });
    for stream in ["full", "plain"] {
        a.acquire(stream, LIMIT).await;
    }
    assert!(stage.holder_is("full", Some("a")).await.expiration_time.is_some());
    assert!(
        stage
            .holder_is("plain", Some("a"))
            .await
            .expiration_time
            .is_none()
    );
}

#[tokio::test]
async fn what_people_hang_on_an_object_survives_its_status() {
    // The operator keeps none of it in memory.
    let mut stage = Stage::empty("metadata").await;
    stage.write_object("orders", spec("orders")).await;
    let metadata = json!({"metadata": {
        "labels": {"team": "shop"}, "annotations": {"note": "x".repeat(10_000)}, "finalizers": ["example.org/keep"],
    }});
    let params = PatchParams::apply("somebody");
    stage
        .objects()
        .patch("orders", &params, &Patch::Merge(metadata))
        .await
        .unwrap();
    let before = stage.objects().get("orders").await.unwrap().metadata;
    stage.start(&[]);
    stage.instance("a").acquire("orders", LIMIT).await;
    stage.holder_is("orders", Some("a")).await;
    let after = stage.objects().get("orders").await.unwrap().metadata;
    assert_eq!(
        (after.labels, after.annotations, after.finalizers),
        (before.labels, before.annotations, before.finalizers)
    );
    let managers = |fields: &[k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry]| {
        fields
            .iter()
            .filter_map(|f| f.manager.clone())
            .collect::<Vec<_>>()
    };
    let managed = managers(&after.managed_fields.unwrap());
    assert!(
        managed.contains(&"somebody".to_owned()) && managed.contains(&"leasewarden-operator".to_owned()),
        "{managed:?}"
    );
    stage
        .objects()
        .patch(
            "orders",
            &params,
            &Patch::Merge(json!({"metadata": {"finalizers": null}})),
        )
        .await
        .unwrap();
}
