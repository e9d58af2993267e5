//! Whatever the situation, once it is shown nothing more is asked of the API server: no hot loop.

use leasewarden::crd::{HELD, StatusPolicy};
use leasewarden_faultproxy::{Canned, Fault, Match, Seen, StatusCode};

use super::*;

const TTL: Duration = Duration::from_secs(600);

/// Waits until no request has come for a while, and then counts those of as long again and some.
async fn requests_when_settled(proxy: &FaultProxy) -> Vec<Seen> {
    let start = Instant::now();
    loop {
        proxy.forget_seen();
        tokio::time::sleep(Duration::from_secs(2)).await;
        if proxy.seen().is_empty() {
            break;
        }
        assert!(start.elapsed() < LIMIT, "it does not settle: {:#?}", proxy.seen());
    }
    tokio::time::sleep(Duration::from_secs(4)).await;
    proxy.seen()
}

#[tokio::test]
async fn every_situation_has_its_reason_and_then_there_is_peace() {
    let mut stage = Stage::empty("quiet").await;
    let proxy = FaultProxy::start(&stage.control_plane.kube_config()).unwrap();
    let a = stage.instance("a");
    // Written by hand, without a Lease.
    stage.write_object("missing", spec("missing")).await;
    // Both at once, and a name that another has.
    stage.write_object("by-hand", spec("both")).await;
    stage.write_object("taken", spec("missing-too")).await;
    // Another stream's Lease.
    let mut conflict = spec("conflict");
    conflict.lease_name = Some("discovered".into());
    stage.write_object("conflict", conflict).await;
    let mut transitions_only = spec("transitions-only");
    transitions_only.status_policy = Some(StatusPolicy::TransitionsOnly);
    stage.write_object("transitions-only", transitions_only).await;
    stage.start_behind(&proxy);
    for stream in [
        "discovered",
        "both",
        "taken",
        "released",
        "wiped",
        "deleted",
        "transitions-only",
    ] {
        a.acquire(stream, TTL).await;
    }
    a.acquire("expired", Duration::from_secs(1)).await;
    a.release("released").await;
    stage.holder_is("wiped", Some("a")).await;
    stage
        .patch_lease("wiped", json!({"spec": {"holderIdentity": null}}))
        .await;
    stage.holder_is("deleted", Some("a")).await;
    stage
        .objects()
        .delete("deleted", &kube::api::DeleteParams::default())
        .await
        .unwrap();

    let expected = [
        ("missing", "False", "LeaseNotFound"),
        ("by-hand", "True", "LeaseHeld"),
        ("taken", "False", "LeaseNotFound"),
        ("taken.discovered", "True", "LeaseHeld"),
        ("conflict", "Unknown", "LeaseConflict"),
        ("discovered", "True", "LeaseHeld"),
        ("released", "False", "LeaseReleased"),
        ("wiped", "Unknown", "HolderWiped"),
        ("expired", "False", "LeaseExpired"),
        // Deleted while the stream is held, it comes back.
        ("deleted", "True", "LeaseHeld"),
        ("transitions-only", "True", "LeaseHeld"),
    ];
    for (name, held, reason) in expected {
        let status = stage.says(name, HELD, reason).await;
        assert_eq!(condition(&status, HELD), is(held, reason), "{name}");
    }
    let objects = stage.objects();
    until("the discovered one yields", || async {
        objects.get_opt("both").await.unwrap().is_none().then_some(())
    })
    .await;
    let seen = requests_when_settled(&proxy).await;
    // A watch may begin again meanwhile.
    let asked: Vec<_> = seen.iter().filter(|seen| !seen.path.contains("watch=")).collect();
    assert!(asked.is_empty(), "{asked:#?}");
}

#[tokio::test]
async fn a_lease_that_must_be_looked_for_is_looked_for_seldom() {
    let mut stage = Stage::empty("looked-for").await;
    let proxy = FaultProxy::start(&stage.control_plane.kube_config()).unwrap();
    let lease = json!({"metadata": {"name": "orders"}, "spec": {"holderIdentity": "x", "leaseDurationSeconds": 3600}});
    let lease: Lease = serde_json::from_value(lease).unwrap();
    stage
        .leases()
        .create(&PostParams::default(), &lease)
        .await
        .unwrap();
    stage.write_object("orders", spec("orders")).await;
    stage.start_behind(&proxy);
    stage.says("orders", READY, "LeaseNotLabelled").await;
    let seen = requests_when_settled(&proxy).await;
    let reads = seen.iter().filter(|seen| seen.path.contains("/leases/orders"));
    assert!(reads.count() <= 1, "{seen:#?}");
}

#[tokio::test]
async fn blindness_is_no_hot_loop() {
    let mut stage = Stage::empty("quiet-blind").await;
    let proxy = FaultProxy::start(&stage.control_plane.kube_config()).unwrap();
    stage.start_behind(&proxy);
    let a = stage.instance("a");
    a.acquire("orders", Duration::from_secs(8)).await;
    stage.holder_is("orders", Some("a")).await;
    let forbidden = Canned::status(StatusCode::FORBIDDEN, "Forbidden");
    proxy.rule(Match::get("/leases"), Fault::Respond(forbidden));
    proxy.cut_connections();
    stage.says("orders", HELD, "LeaseNotSeen").await;
    // The pauses between attempts have grown by now.
    tokio::time::sleep(Duration::from_secs(5)).await;
    proxy.forget_seen();
    tokio::time::sleep(Duration::from_secs(6)).await;
    let seen = proxy.seen();
    let leases = seen.iter().filter(|seen| seen.path.contains("/leases")).count();
    assert!((1..=6).contains(&leases), "{seen:#?}");
    let writes = seen.iter().filter(|seen| seen.method != "GET").count();
    assert_eq!(writes, 0, "{seen:#?}");
}

#[tokio::test]
async fn several_namespaces_are_told_apart() {
    let mut stage = Stage::empty("first").await;
    let second = stage.control_plane.namespace("second").await.unwrap();
    let third = stage.control_plane.namespace("third").await.unwrap();
    stage.start(&["--namespace", second.name()]);
    let (here, there) = (
        stage.instance("here"),
        Instance::new(stage.control_plane.kube_config(), second.name(), "there"),
    );
    let elsewhere = Instance::new(stage.control_plane.kube_config(), third.name(), "elsewhere");
    elsewhere.acquire("orders", TTL).await;
    here.acquire("orders", TTL).await;
    there.acquire("orders", TTL).await;
    stage.holder_is("orders", Some("here")).await;
    let objects = |namespace: &str| Api::<ChangeStreamLeader>::namespaced(stage.client.clone(), namespace);
    until("the other namespace's leader", || async {
        let object = objects(second.name()).get_opt("orders").await.unwrap()?;
        object.status?.holder_identity.filter(|holder| holder == "there")
    })
    .await;
    there.release("orders").await;
    until("it is released there", || async {
        let status = objects(second.name()).get("orders").await.unwrap().status?;
        (condition(&status, HELD) == is("False", "LeaseReleased")).then_some(())
    })
    .await;
    stage.holder_is("orders", Some("here")).await;
    // Of a namespace that it was not given it knows nothing.
    assert!(objects(third.name()).get_opt("orders").await.unwrap().is_none());
}
