//! Leases that lie, objects that people edit all the time, clocks that are wrong, an API server that is slow or has
//! forgotten where a watch was.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::SystemTime,
};

use kube::api::DeleteParams;
use leasewarden::{
    crd::{Ended, HELD},
    lock::{Clock, Moment, SystemClock},
};
use leasewarden_faultproxy::{Canned, Fault, Match, StatusCode};

use super::*;

const TTL: Duration = Duration::from_secs(600);

#[tokio::test]
async fn a_lease_whose_annotations_lie_is_shown_by_its_spec() {
    let stage = Stage::new("lies").await;
    let a = stage.instance("a");
    a.acquire("orders", TTL).await;
    let token = stage.holder_is("orders", Some("a")).await.fencing_token;
    // Another tool takes the Lease, and leaves what it does not know: term, token and TTL are another's.
    let stolen =
        json!({"spec": {"holderIdentity": "thief", "leaseTransitions": 7, "leaseDurationSeconds": 3600}});
    stage.patch_lease("orders", stolen).await;
    let status = stage.holder_is("orders", Some("thief")).await;
    assert_eq!(
        (status.fencing_token, status.lease_duration_seconds),
        (None, Some(3600))
    );
    assert_eq!(
        (status.history[0].fencing_token, status.history[0].ended),
        (token, Ended::TakenOver)
    );
    // And somebody writes whatever there is to write.
    let liar = json!({"metadata": {"annotations": {
        "leasewarden.dev/term": json!({"id": "t", "holder": "thief", "transitions": 99, "released": true}).to_string(),
        "leasewarden.dev/ttl-ms": "1", "leasewarden.dev/fencing-token": "9223372036854775807",
    }}});
    stage.patch_lease("orders", liar).await;
    let status = stage.says("orders", READY, "FencingTokenUnusable").await;
    assert_eq!(condition(&status, HELD), is("True", "LeaseHeld"));
    assert_eq!(
        (status.holder_identity.as_deref(), status.fencing_token),
        (Some("thief"), None)
    );
    // It says to be another stream's: whose it was is a conflict, and the other stream is shown.
    let other = json!({"metadata": {"annotations": {
        "leasewarden.dev/stream": "payments", "leasewarden.dev/fencing-token": token.unwrap().to_string(),
    }}});
    stage.patch_lease("orders", other).await;
    let status = stage.says("orders", READY, "LeaseConflict").await;
    assert_eq!(status.holder_identity, None);
    stage.holder_is("orders.discovered", Some("thief")).await;
    let payments = stage.objects().get("orders.discovered").await.unwrap();
    assert_eq!(payments.spec.stream_name, "payments");
}

#[tokio::test]
async fn an_object_that_is_edited_and_deleted_all_the_time_is_right_in_the_end() {
    let mut stage = Stage::empty("edited").await;
    let proxy = FaultProxy::start(&stage.control_plane.kube_config()).unwrap();
    stage.start_behind(&proxy);
    let (a, b) = (stage.instance("a"), stage.instance("b"));
    a.acquire("orders", TTL).await;
    stage.holder_is("orders", Some("a")).await;
    proxy.forget_seen();
    let objects = stage.objects();
    let params = PatchParams::default();
    for round in 0..6 {
        let lie = json!({"status": {
            "holderIdentity": "liar", "leaseResourceVersion": "99999999999", "leaseUid": "no-such",
            "conditions": [], "expirationTime": "2030-01-01T00:00:00Z",
        }});
        match round % 3 {
            0 => drop(objects.patch_status("orders", &params, &Patch::Merge(&lie)).await),
            1 => {
                let label = json!({"metadata": {"labels": {"round": round.to_string()}}});
                let _ = objects.patch("orders", &params, &Patch::Merge(&label)).await;
                // The very Lease, in a version that there never was.
                let uid = stage.leases().get("orders").await.unwrap().metadata.uid;
                let newer = json!({"status": {"leaseResourceVersion": "99999999999", "leaseUid": uid}});
                let _ = objects
                    .patch_status("orders", &params, &Patch::Merge(&newer))
                    .await;
            }
            _ => drop(objects.delete("orders", &DeleteParams::default()).await),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    a.release("orders").await;
    b.acquire("orders", TTL).await;
    stage.holder_is("orders", Some("b")).await;
    let writes = proxy.count(|seen| seen.method != "GET");
    assert!(writes <= 40, "{writes} writes for six edits and two transitions");
}

#[tokio::test]
async fn a_slow_api_server_makes_late_and_not_wrong() {
    let mut stage = Stage::empty("slow").await;
    let proxy = FaultProxy::start(&stage.control_plane.kube_config()).unwrap();
    let slow = proxy.rule(Match::any(), Fault::Delay(Duration::from_secs(2)));
    stage.start_behind(&proxy);
    let (a, b) = (stage.instance("a"), stage.instance("b"));
    a.acquire("orders", TTL).await;
    let status = stage.holder_is("orders", Some("a")).await;
    assert_eq!(condition(&status, READY), is("True", "UpToDate"));
    a.release("orders").await;
    b.acquire("orders", TTL).await;
    let status = stage.holder_is("orders", Some("b")).await;
    assert_eq!(status.history[0].ended, Ended::Released);
    assert!(slow.fired() > 0);
}

#[tokio::test]
async fn a_watch_whose_place_is_compacted_away_begins_with_a_list() {
    for gone in [
        // As the API server says it: in the watch.
        Canned::plain(
            StatusCode::OK,
            &json!({"type": "ERROR", "object": {
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": "too old resource version", "reason": "Expired", "code": 410,
            }})
            .to_string(),
        ),
        // And as it may: in its stead.
        Canned::status(StatusCode::GONE, "Expired"),
    ] {
        let mut stage = Stage::empty("compacted").await;
        let proxy = FaultProxy::start(&stage.control_plane.kube_config()).unwrap();
        stage.start_behind(&proxy);
        let (a, b) = (stage.instance("a"), stage.instance("b"));
        a.acquire("orders", TTL).await;
        stage.holder_is("orders", Some("a")).await;
        let rule = proxy.rule(Match::watch("/leases").times(1), Fault::Respond(gone));
        proxy.cut_connections();
        a.release("orders").await;
        b.acquire("orders", TTL).await;
        rule.wait_fired(1, LIMIT).await.unwrap();
        let status = stage.holder_is("orders", Some("b")).await;
        assert_eq!(condition(&status, READY), is("True", "UpToDate"));
    }
}

/// A machine whose wall clock is an hour off, and jumps to being an hour off the other way.
#[derive(Debug, Default)]
struct AnHourOff {
    behind: AtomicBool,
}

impl Clock for AnHourOff {
    fn now(&self) -> Moment {
        SystemClock.now()
    }

    fn wall(&self) -> SystemTime {
        let hour = Duration::from_secs(3600);
        if self.behind.load(Ordering::SeqCst) {
            SystemTime::now() - hour
        } else {
            SystemTime::now() + hour
        }
    }
}

#[tokio::test]
async fn the_operators_clock_decides_nothing() {
    let stage = Stage::empty("hour-off").await;
    let clock = Arc::new(AnHourOff::default());
    let _operator = stage.start_inside(stage.control_plane.kube_config(), {
        let clock = Arc::clone(&clock);
        |operator| operator.clock(clock)
    });
    let a = stage.instance("a");
    for stream in ["ahead", "behind"] {
        clock.behind.store(stream == "behind", Ordering::SeqCst);
        a.acquire(stream, TTL).await;
        let status = stage.holder_is(stream, Some("a")).await;
        assert_eq!(
            condition(&status, HELD),
            is("True", "LeaseHeld"),
            "an hour is no expiry"
        );
        let now = SystemTime::now();
        let near = |at: SystemTime, wanted: SystemTime| {
            let (early, late) = (
                wanted - Duration::from_secs(120),
                wanted + Duration::from_secs(120),
            );
            (early..late).contains(&at)
        };
        assert!(near(status.acquire_time.unwrap().0.into(), now), "{stream}");
        assert!(
            near(status.expiration_time.unwrap().0.into(), now + TTL),
            "{stream}"
        );
        let short = format!("short-{stream}");
        a.acquire(&short, Duration::from_secs(2)).await;
        let status = stage.says(&short, HELD, "LeaseExpired").await;
        assert!(
            near(status.history[0].to.clone().unwrap().0.into(), SystemTime::now()),
            "{stream}"
        );
    }
}
