//! While the operator cannot see, each status says so; when it sees again, each is right at once.

use std::time::SystemTime;

use leasewarden::crd::{Ended, HELD};
use leasewarden_faultproxy::{Canned, Fault, Match, Method, Seen, StatusCode};

use super::*;

const TTL: Duration = Duration::from_secs(600);

fn forbidden() -> Fault {
    Fault::Respond(Canned::status(StatusCode::FORBIDDEN, "Forbidden"))
}

impl Stage {
    async fn behind_a_proxy(name: &str) -> (Self, FaultProxy) {
        let mut stage = Self::empty(name).await;
        let proxy = FaultProxy::start(&stage.control_plane.kube_config()).unwrap();
        stage.start_behind(&proxy);
        (stage, proxy)
    }
}

#[tokio::test]
async fn a_watch_that_is_forbidden_is_said_and_its_end_too() {
    let (stage, proxy) = Stage::behind_a_proxy("watch-forbidden").await;
    let (a, b) = (stage.instance("a"), stage.instance("b"));
    a.acquire("orders", TTL).await;
    a.acquire("short", Duration::from_secs(10)).await;
    stage.holder_is("orders", Some("a")).await;
    let watch = proxy.rule(Match::watch("/leases"), forbidden());
    proxy.cut_connections();

    let orders = stage.says("orders", READY, "WatchForbidden").await;
    assert_eq!(condition(&orders, READY).0, "Unknown");
    let message = &orders.condition(READY).unwrap().message;
    assert!(
        message.contains("not permitted to watch leases.coordination.k8s.io"),
        "{message}"
    );
    // The last leader is shown as the last, until its time is over; and nothing is promised.
    assert_eq!(condition(&orders, HELD), is("True", "LeaseHeld"));
    assert_eq!(
        (orders.holder_identity.as_deref(), orders.expiration_time),
        (Some("a"), None)
    );
    // What can be read is read before an end is told; who leads since then nobody sees.
    let short = stage.status("short", |s| !s.history.is_empty()).await;
    assert_eq!(short.history[0].ended, Ended::Expired);
    assert_eq!(condition(&short, READY), is("Unknown", "WatchForbidden"));
    assert_eq!(condition(&short, HELD), is("Unknown", "LeaseNotSeen"));

    a.release("orders").await;
    b.acquire("orders", TTL).await;
    watch.remove();
    let orders = stage.holder_is("orders", Some("b")).await;
    assert_eq!(condition(&orders, READY), is("True", "UpToDate"));
    let short = stage.is_up_to_date("short").await;
    assert_eq!(condition(&short, HELD), is("False", "LeaseExpired"));
    assert_eq!(short.history.len(), 1);
}

#[tokio::test]
async fn a_leader_is_not_shown_beyond_its_time_when_nothing_can_be_read() {
    let (stage, proxy) = Stage::behind_a_proxy("nothing-read").await;
    let (a, ttl) = (stage.instance("a"), Duration::from_secs(15));
    a.acquire("orders", ttl).await;
    stage.holder_is("orders", Some("a")).await;
    // It leads on all the time, and nobody sees it.
    let renewing = Inside(tokio::spawn(async move {
        while a.still_leads("orders", ttl).await {
            tokio::time::sleep(ttl / 15).await;
        }
    }));
    let all = proxy.rule(Match::get("/leases"), forbidden());
    proxy.cut_connections();
    let status = stage.says("orders", HELD, "LeaseNotSeen").await;
    assert_eq!(condition(&status, HELD).0, "Unknown");
    assert_eq!(condition(&status, READY).0, "Unknown");
    assert_eq!(
        status.holder_identity.as_deref(),
        Some("a"),
        "the last that was seen"
    );
    assert_eq!(status.expiration_time, None);
    assert!(status.history.is_empty(), "nobody saw an end");

    all.remove();
    let status = stage.is_up_to_date("orders").await;
    assert_eq!(condition(&status, HELD), is("True", "LeaseHeld"));
    assert!(status.history.is_empty(), "{status:#?}");
    stage.status("orders", |s| s.expiration_time.is_some()).await;
    drop(renewing);
}

#[tokio::test]
async fn a_watch_that_hangs_stalls_nothing_else() {
    let (stage, proxy) = Stage::behind_a_proxy("watch-hangs").await;
    let a = stage.instance("a");
    a.acquire("orders", TTL).await;
    stage.holder_is("orders", Some("a")).await;
    let hung = proxy.rule(Match::watch("/leases"), Fault::Hold);
    proxy.cut_connections();
    let status = stage.says("orders", READY, "ApiServerUnreachable").await;
    assert_eq!(condition(&status, HELD), is("True", "LeaseHeld"));
    // The other watch goes on, and so do reads and writes.
    stage.write_object("payments", spec("payments")).await;
    let status = stage.status("payments", |s| !s.conditions.is_empty()).await;
    assert_eq!(condition(&status, READY), is("Unknown", "ApiServerUnreachable"));
    hung.release();
    stage.is_up_to_date("orders").await;
    stage.is_up_to_date("payments").await;
}

#[tokio::test]
async fn an_open_watch_that_brings_nothing_more_is_begun_again() {
    let (mut stage, proxy) = Stage::behind_a_proxy("watch-silent").await;
    let (a, ttl) = (Arc::new(stage.instance("a")), Duration::from_secs(15));
    a.acquire("orders", ttl).await;
    stage.holder_is("orders", Some("a")).await;
    // Accepted, and nothing comes: no error will ever tell.
    let silence = Fault::SlowBody(Duration::from_secs(3600));
    let silent = proxy.rule(Match::watch("/leases").times(1), silence);
    proxy.cut_connections();
    silent.wait_fired(1, LIMIT).await.unwrap();
    let leader = Arc::clone(&a);
    let renewing = Inside(tokio::spawn(async move {
        while leader.still_leads("orders", ttl).await {
            tokio::time::sleep(ttl / 15).await;
        }
    }));
    // What tells is the read at the time when the leader's lock would have expired.
    stage
        .operator()
        .says("the watch does not bring what a read has shown")
        .await;
    drop(renewing);
    a.release("orders").await;
    let status = stage.holder_is("orders", None).await;
    assert_eq!(condition(&status, HELD), is("False", "LeaseReleased"));
    assert_eq!(status.history.len(), 1, "{status:#?}");
}

#[tokio::test]
async fn an_operator_that_never_saw_the_leases_vouches_for_no_leader() {
    let mut stage = Stage::new("never-seen").await;
    let a = stage.instance("a");
    a.acquire("orders", TTL).await;
    stage.holder_is("orders", Some("a")).await;
    stage.operator().signal("-TERM").await;
    let proxy = FaultProxy::start(&stage.control_plane.kube_config()).unwrap();
    let all = proxy.rule(Match::get("/leases"), forbidden());
    stage.start_behind(&proxy);
    let status = stage.says("orders", READY, "WatchForbidden").await;
    assert_eq!(condition(&status, HELD), is("Unknown", "LeaseNotSeen"));
    assert_eq!(status.holder_identity.as_deref(), Some("a"));
    all.remove();
    let status = stage.is_up_to_date("orders").await;
    assert_eq!(condition(&status, HELD), is("True", "LeaseHeld"));
    assert!(status.history.is_empty());
}

#[tokio::test]
async fn many_objects_are_told_one_after_the_other() {
    let stage = Stage::empty("many-blind").await;
    let proxy = FaultProxy::start(&stage.control_plane.kube_config()).unwrap();
    let config = proxy.kube_config(&stage.control_plane.kube_config());
    let _operator = stage.start_inside(config, |operator| operator.status_writes_per_second(2));
    let a = stage.instance("a");
    for n in 0..12 {
        a.acquire(&format!("s-{n}"), TTL).await;
    }
    for n in 0..12 {
        stage.holder_is(&format!("s-{n}"), Some("a")).await;
    }
    let watch = proxy.rule(Match::watch("/leases"), forbidden());
    proxy.cut_connections();
    proxy.forget_seen();
    for n in 0..12 {
        stage.says(&format!("s-{n}"), READY, "WatchForbidden").await;
    }
    let puts = || -> Vec<_> {
        let is_put = |seen: &Seen| seen.method == Method::PUT && seen.status() == Some(StatusCode::OK);
        proxy
            .seen()
            .into_iter()
            .filter(is_put)
            .map(|seen| seen.at)
            .collect()
    };
    let spread = |puts: &[std::time::Instant]| puts[puts.len() - 1] - puts[0];
    let told = puts();
    assert_eq!(told.len(), 12, "one write each");
    assert!(spread(&told) > Duration::from_secs(4), "{:?}", spread(&told));
    proxy.forget_seen();
    watch.remove();
    for n in 0..12 {
        stage.is_up_to_date(&format!("s-{n}")).await;
    }
    let told = puts();
    assert!(spread(&told) > Duration::from_secs(4), "{:?}", spread(&told));
    let status = stage.holder_is("s-0", Some("a")).await;
    assert!(SystemTime::from(status.acquire_time.unwrap().0) <= SystemTime::now());
}
