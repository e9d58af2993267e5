//! One object that cannot be written, or not even read, is one object: the others do not wait for it.

use leasewarden::crd::HELD;
use leasewarden_faultproxy::{Canned, Fault, Match, Method, StatusCode};

use super::*;

const TTL: Duration = Duration::from_secs(600);

#[tokio::test]
async fn an_object_whose_status_is_refused_stalls_no_other_and_is_tried_seldom() {
    let mut stage = Stage::empty("refused").await;
    let proxy = FaultProxy::start(&stage.control_plane.kube_config()).unwrap();
    // As an admission policy would.
    let refused = Canned::status(StatusCode::UNPROCESSABLE_ENTITY, "Invalid");
    let poison = proxy.rule(Match::put("/poison/status"), Fault::Respond(refused));
    stage.start_behind(&proxy);
    let a = stage.instance("a");
    a.acquire("poison", TTL).await;
    poison.wait_fired(1, LIMIT).await.unwrap();
    a.acquire("orders", TTL).await;
    stage.holder_is("orders", Some("a")).await;
    stage.operator().says("refused to update").await;
    poison.wait_fired(3, LIMIT).await.unwrap();
    proxy.forget_seen();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let tried = proxy.count(|seen| seen.path.contains("/poison/status"));
    assert!(tried <= 3, "{tried} times in three seconds");
    poison.remove();
    stage.holder_is("poison", Some("a")).await;
}

#[tokio::test]
async fn many_objects_whose_writes_hang_stall_no_other_for_long() {
    let mut stage = Stage::empty("hanging").await;
    let proxy = FaultProxy::start(&stage.control_plane.kube_config()).unwrap();
    let hanging = proxy.rule(Match::put("/poison-"), Fault::Hold);
    stage.start_behind(&proxy);
    let a = stage.instance("a");
    // More than are worked on side by side, so that the first ones take all the room there is, once.
    for n in 0..20 {
        a.acquire(&format!("poison-{n}"), TTL).await;
    }
    hanging.wait_fired(20, LIMIT).await.unwrap();
    // Those that have failed have little room from then on.
    hanging.wait_fired(24, LIMIT).await.unwrap();
    for n in 0..10 {
        let before = hanging.fired();
        a.acquire(&format!("orders-{n}"), TTL).await;
        stage.holder_is(&format!("orders-{n}"), Some("a")).await;
        let meanwhile = hanging.fired() - before;
        // Four at a time, ten seconds each: were these waited for, there would be many more.
        assert!(
            meanwhile <= 8,
            "{meanwhile} were tried before orders-{n} was shown"
        );
    }
    hanging.release();
    for n in 0..20 {
        stage.holder_is(&format!("poison-{n}"), Some("a")).await;
    }
}

#[tokio::test]
async fn an_object_that_cannot_be_read_stalls_no_other() {
    let mut stage = Stage::empty("undecodable").await;
    stage.write_object("poison", spec("poison")).await;
    // A later version may have statuses that this one does not know. This one is a time that no program of today can
    // hold: an offset takes it beyond the year 9999.
    let odd = json!({"status": {"acquireTime": "9999-12-31T23:59:59-23:00"}});
    let params = PatchParams::default();
    let objects = Api::<kube::core::DynamicObject>::namespaced_with(
        stage.client.clone(),
        stage.namespace.name(),
        &kube::core::ApiResource::erase::<ChangeStreamLeader>(&()),
    );
    objects
        .patch_status("poison", &params, &Patch::Merge(odd))
        .await
        .unwrap();
    assert!(stage.objects().get("poison").await.is_err(), "it is no poison");
    stage.start(&[]);
    let a = stage.instance("a");
    a.acquire("poison", TTL).await;
    a.acquire("orders", TTL).await;
    stage.holder_is("orders", Some("a")).await;
    stage.operator().says("cannot be read and is left alone").await;
    // Mended by hand, it is like any other.
    let mended = json!({"status": {"acquireTime": null}});
    objects
        .patch_status("poison", &params, &Patch::Merge(mended))
        .await
        .unwrap();
    let status = stage.holder_is("poison", Some("a")).await;
    assert_eq!(condition(&status, HELD), is("True", "LeaseHeld"));
}

#[tokio::test]
async fn requests_that_are_never_answered_are_given_up_and_made_again() {
    let mut stage = Stage::empty("unanswered").await;
    let proxy = FaultProxy::start(&stage.control_plane.kube_config()).unwrap();
    // The first of each: the list and the watch of both kinds, the creation, the write.
    let each = [
        Match::get("/leases?").times(1),
        Match::watch("/leases").times(1),
        Match::get("/changestreamleaders?").times(1),
        Match::watch("/changestreamleaders").times(1),
        Match::post("/changestreamleaders").times(1),
        Match::any().method(Method::PUT).path("/status").times(1),
    ];
    let hung: Vec<_> = each
        .into_iter()
        .map(|first| proxy.rule(first, Fault::Hold))
        .collect();
    stage.start_behind(&proxy);
    stage.instance("a").acquire("orders", TTL).await;
    stage.holder_is("orders", Some("a")).await;
    for rule in &hung {
        assert_eq!(rule.fired(), 1, "{rule:?}");
    }
}
