//! Every fault, against a server of a few lines that notes what reaches it.
#![allow(clippy::unwrap_used, missing_docs)]

mod upstream;

use std::time::{Duration, Instant, SystemTime};

use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use leasewarden_faultproxy::{Canned, Fault, FaultProxy, Match, Method};
use upstream::{DATE, LIMIT, Upstream, wait_until};

/// A client that asks once.
fn client(proxy: &FaultProxy, upstream: &Upstream) -> Client {
    let mut config = proxy.kube_config(&upstream.config());
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

async fn send(client: &Client, method: &str, path: &str) -> Result<http::Response<String>, kube::Error> {
    let body = if method == "GET" {
        Body::empty()
    } else {
        Body::from(b"{\"renew\":1}".to_vec())
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("user-agent", "tester/1")
        .body(body)
        .unwrap();
    let (parts, body) = client.send(request).await?.into_parts();
    let body = body.collect().await?.to_bytes();
    Ok(http::Response::from_parts(
        parts,
        String::from_utf8(body.to_vec()).unwrap(),
    ))
}

#[tokio::test]
async fn without_rules_everything_passes_and_is_recorded() {
    let upstream = Upstream::start();
    let proxy = FaultProxy::start(&upstream.config()).unwrap();
    let client = client(&proxy, &upstream);
    let reply = send(&client, "PUT", "/leases/a?dryRun=All").await.unwrap();
    assert_eq!((reply.status(), reply.body().as_str()), (StatusCode::OK, "{}"));
    assert_eq!(reply.headers()["date"], DATE);
    assert_eq!(upstream.seen(), ["PUT /leases/a?dryRun=All {\"renew\":1}"]);
    // The server says who the proxy is, by the base configuration.
    assert_eq!(upstream.authorization(), ["Bearer of-the-base"]);
    assert_eq!(client.apiserver_version().await.unwrap().minor, "37");

    let seen = proxy.seen();
    assert_eq!(seen.len(), 2);
    assert_eq!(
        (seen[0].method.as_str(), seen[0].path.as_str()),
        ("PUT", "/leases/a?dryRun=All")
    );
    assert_eq!(
        (seen[0].user_agent.as_str(), seen[0].status()),
        ("tester/1", Some(StatusCode::OK))
    );
    assert_eq!(proxy.count(|seen| seen.method == Method::PUT), 1);
    proxy.forget_seen();
    assert_eq!(proxy.seen().len(), 0);
}

#[tokio::test]
async fn a_watch_comes_through_event_by_event() {
    let upstream = Upstream::start();
    let proxy = FaultProxy::start(&upstream.config()).unwrap();
    let mut watch = watch(&client(&proxy, &upstream)).await;
    for event in ["one\n", "two\n"] {
        upstream.event(event);
        let frame = tokio::time::timeout(LIMIT, watch.frame())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        assert_eq!(frame.into_data().unwrap(), event.as_bytes());
    }
    drop(watch);
    wait_until("the server has noticed the client's end", || {
        upstream.watches() == 0
    })
    .await;
}

async fn watch(client: &Client) -> Body {
    let request = Request::get("/leases?watch=true").body(Body::empty()).unwrap();
    client.send(request).await.unwrap().into_body()
}

#[tokio::test]
async fn a_dropped_reply_is_of_a_request_that_was_done() {
    let upstream = Upstream::start();
    let proxy = FaultProxy::start(&upstream.config()).unwrap();
    let client = client(&proxy, &upstream);
    let rule = proxy.rule(Match::put("/leases/").nth(2), Fault::DropReply);
    send(&client, "PUT", "/leases/a").await.unwrap();
    assert_eq!(rule.fired(), 0);
    send(&client, "PUT", "/leases/a").await.unwrap_err();
    rule.wait_fired(1, LIMIT).await.unwrap();
    send(&client, "PUT", "/leases/a").await.unwrap();
    assert_eq!((rule.fired(), upstream.seen().len()), (1, 3));
    assert_eq!(proxy.seen()[1].status(), Some(StatusCode::OK));
}

#[tokio::test]
async fn a_cut_request_never_reaches_the_server() {
    let upstream = Upstream::start();
    let proxy = FaultProxy::start(&upstream.config()).unwrap();
    let client = client(&proxy, &upstream);
    let rule = proxy.rule(Match::any().body("renew").times(1), Fault::Cut);
    send(&client, "GET", "/leases/a").await.unwrap();
    send(&client, "PUT", "/leases/a").await.unwrap_err();
    send(&client, "PUT", "/leases/b").await.unwrap();
    assert_eq!(upstream.seen(), ["GET /leases/a ", "PUT /leases/b {\"renew\":1}"]);
    assert_eq!((rule.fired(), proxy.seen()[1].status()), (1, None));
}

#[tokio::test]
async fn a_held_request_arrives_when_it_is_released_though_its_client_has_gone() {
    let upstream = Upstream::start();
    let proxy = FaultProxy::start(&upstream.config()).unwrap();
    let rule = proxy.rule(Match::put("/leases/"), Fault::Hold);
    let held = tokio::spawn({
        let client = client(&proxy, &upstream);
        async move { send(&client, "PUT", "/leases/a").await }
    });
    rule.wait_fired(1, LIMIT).await.unwrap();
    // Client, connection and all.
    held.abort();
    assert!(held.await.unwrap_err().is_cancelled());
    assert!(upstream.seen().is_empty());
    rule.release();
    wait_until("it has arrived", || {
        upstream.seen() == ["PUT /leases/a {\"renew\":1}"]
    })
    .await;
    // Released, the rule holds nothing any more.
    send(&client(&proxy, &upstream), "PUT", "/leases/b")
        .await
        .unwrap();
}

#[tokio::test]
async fn a_rule_that_is_removed_keeps_what_it_holds() {
    let upstream = Upstream::start();
    let proxy = FaultProxy::start(&upstream.config()).unwrap();
    let rule = proxy.rule(Match::put("/leases/a"), Fault::Hold);
    let one = client(&proxy, &upstream);
    let held = tokio::spawn(async move { send(&one, "PUT", "/leases/a").await });
    rule.wait_fired(1, LIMIT).await.unwrap();
    rule.remove();
    send(&client(&proxy, &upstream), "PUT", "/leases/a")
        .await
        .unwrap();
    assert_eq!(upstream.seen().len(), 1);
    proxy.clear_rules();
    held.await.unwrap().unwrap();
    assert_eq!(upstream.seen().len(), 2);
}

#[tokio::test]
async fn a_held_reply_is_of_a_request_that_was_done() {
    let upstream = Upstream::start();
    let proxy = FaultProxy::start(&upstream.config()).unwrap();
    let rule = proxy.rule(Match::any(), Fault::HoldReply);
    let client = client(&proxy, &upstream);
    let waiting = tokio::spawn(async move { send(&client, "PUT", "/leases/a").await });
    rule.wait_fired(1, LIMIT).await.unwrap();
    assert_eq!(upstream.seen().len(), 1);
    assert!(!waiting.is_finished());
    rule.release();
    assert_eq!(waiting.await.unwrap().unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn delays_come_before_and_after_the_server() {
    let upstream = Upstream::start();
    let proxy = FaultProxy::start(&upstream.config()).unwrap();
    let client = client(&proxy, &upstream);
    // Longer than a busy machine takes for a request that is not delayed.
    let delay = Duration::from_secs(1);
    for fault in [Fault::Delay(delay), Fault::DelayReply(delay)] {
        let rule = proxy.rule(Match::any().times(1), fault);
        let start = Instant::now();
        send(&client, "PUT", "/leases/a").await.unwrap();
        assert!(start.elapsed() >= delay && rule.fired() == 1);
    }
    let arrivals = upstream.arrivals();
    let (before, after) = (arrivals[0] - proxy.seen()[0].at, arrivals[1] - proxy.seen()[1].at);
    assert!(before >= delay && after < before, "{before:?} {after:?}");
}

#[tokio::test]
async fn others_may_answer_in_the_servers_stead() {
    let upstream = Upstream::start();
    let proxy = FaultProxy::start(&upstream.config()).unwrap();
    let client = client(&proxy, &upstream);
    for (code, reason) in [
        (429, "TooManyRequests"),
        (500, "InternalError"),
        (503, "ServiceUnavailable"),
    ] {
        let canned = Canned::status(StatusCode::from_u16(code).unwrap(), reason).header("Retry-After", "30");
        let forged = proxy.rule(
            Match::get("/leases/").user_agent("tester").times(1),
            Fault::Respond(canned),
        );
        let reply = send(&client, "GET", "/leases/a").await.unwrap();
        assert_eq!(
            (reply.status().as_u16(), &reply.headers()["retry-after"]),
            (code, &"30".parse().unwrap())
        );
        let status: serde_json::Value = serde_json::from_str(reply.body()).unwrap();
        assert_eq!(
            (status["kind"].as_str(), status["code"].as_u64()),
            (Some("Status"), Some(code.into()))
        );
        assert_eq!(
            (forged.fired(), proxy.seen().last().unwrap().status()),
            (1, Some(reply.status()))
        );
    }

    proxy.rule(
        Match::any(),
        Fault::Respond(Canned::plain(StatusCode::NOT_FOUND, "404 page not found\n")),
    );
    let reply = send(&client, "GET", "/leases/a").await.unwrap();
    assert_eq!(
        (reply.status().as_u16(), reply.body().as_str()),
        (404, "404 page not found\n")
    );
    assert!(!reply.headers().contains_key("date"));
    assert!(upstream.seen().is_empty());
}

#[tokio::test]
async fn the_servers_clock_may_be_off_and_more_may_go_wrong_at_once() {
    let upstream = Upstream::start();
    let proxy = FaultProxy::start(&upstream.config()).unwrap();
    let client = client(&proxy, &upstream);
    let dates = [
        (Fault::ShiftDate(-61), Some("Tue, 01 Dec 2026 02:58:59 GMT")),
        (Fault::ShiftDate(3600), Some("Tue, 01 Dec 2026 04:00:00 GMT")),
        (
            Fault::Date(SystemTime::UNIX_EPOCH),
            Some("Thu, 01 Jan 1970 00:00:00 GMT"),
        ),
        (Fault::NoDate, None),
    ];
    for (fault, expected) in dates {
        let rule = proxy.rule(Match::any().times(1), fault);
        let slow = proxy.rule(Match::any().times(1), Fault::Delay(Duration::from_millis(1)));
        let reply = send(&client, "GET", "/leases/a").await.unwrap();
        assert_eq!(
            reply.headers().get("date").map(|date| date.to_str().unwrap()),
            expected
        );
        assert_eq!((rule.fired(), slow.fired()), (1, 1));
    }
}

#[tokio::test]
async fn everything_may_be_cut_and_restored() {
    let upstream = Upstream::start();
    let proxy = FaultProxy::start(&upstream.config()).unwrap();
    let client = client(&proxy, &upstream);
    let mut open = watch(&client).await;
    upstream.event("one\n");
    assert!(open.frame().await.unwrap().is_ok());
    proxy.cut_all();
    let end = tokio::time::timeout(LIMIT, open.frame()).await.unwrap();
    assert!(matches!(end, Some(Err(_))), "{end:?}");
    send(&client, "GET", "/leases/a").await.unwrap_err();
    proxy.restore();
    send(&client, "GET", "/leases/a").await.unwrap();

    let mut open = watch(&client).await;
    proxy.cut_connections();
    let end = tokio::time::timeout(LIMIT, open.frame()).await.unwrap();
    assert!(matches!(end, Some(Err(_))), "{end:?}");
    send(&client, "GET", "/leases/a").await.unwrap();
    assert_eq!(
        upstream
            .seen()
            .iter()
            .filter(|seen| seen.contains("/leases/a"))
            .count(),
        2
    );
}

#[tokio::test]
async fn a_server_that_is_away_gives_no_answer() {
    let upstream = Upstream::start();
    let mut nobody = upstream.config();
    nobody.cluster_url = "http://127.0.0.1:1".parse().unwrap();
    let proxy = FaultProxy::start(&nobody).unwrap();
    send(&client(&proxy, &upstream), "GET", "/leases/a")
        .await
        .unwrap_err();
    assert_eq!(proxy.seen()[0].status(), None);
}

#[tokio::test(start_paused = true)]
async fn the_proxy_keeps_real_time_when_the_tests_clock_is_paused() {
    let upstream = Upstream::start();
    let proxy = FaultProxy::start(&upstream.config()).unwrap();
    let rule = proxy.rule(Match::any(), Fault::Delay(Duration::from_millis(100)));
    let client = client(&proxy, &upstream);
    let start = Instant::now();
    let too_soon = rule.wait_fired(1, Duration::from_millis(50)).await.unwrap_err();
    assert!(start.elapsed() >= Duration::from_millis(50));
    assert!(
        too_soon
            .to_string()
            .contains("fired 0 times within 50ms, not 1 times"),
        "{too_soon}"
    );
    tokio::time::resume();
    send(&client, "GET", "/leases/a").await.unwrap();
    rule.wait_fired(1, LIMIT).await.unwrap();
}

#[tokio::test]
async fn another_program_gets_through_by_a_kubeconfig() {
    let upstream = Upstream::start();
    let proxy = FaultProxy::start(&upstream.config()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kubeconfig");
    proxy.write_kubeconfig(&file).unwrap();
    let kubeconfig = kube::config::Kubeconfig::read_from(&file).unwrap();
    let config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &kube::config::KubeConfigOptions::default())
            .await
            .unwrap();
    assert_eq!(
        Client::try_from(config)
            .unwrap()
            .apiserver_version()
            .await
            .unwrap()
            .major,
        "1"
    );
}
