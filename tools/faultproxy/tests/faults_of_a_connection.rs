//! Faults of a connection that is not simply gone, as a client sees them that writes and reads the bytes itself.
#![allow(clippy::unwrap_used, missing_docs)]

mod upstream;

use std::time::{Duration, Instant};

use leasewarden_faultproxy::{Fault, FaultProxy, Match, StatusCode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use upstream::{LIMIT, Upstream, wait_until};

async fn connect(proxy: &FaultProxy) -> TcpStream {
    let address = proxy.url().replace("http://", "");
    TcpStream::connect(address).await.unwrap()
}

/// Sends a `PUT` of `{}`.
async fn put(connection: &mut TcpStream, path: &str) {
    let request = format!("PUT {path} HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n{{}}");
    connection.write_all(request.as_bytes()).await.unwrap();
}

/// Reads until the reply, whose body is `{}`, is here; answers it, and how many bytes its first read brought.
async fn reply(connection: &mut TcpStream) -> (String, usize) {
    let (mut reply, mut first) = (Vec::new(), 0);
    let whole = async {
        while !reply.ends_with(b"\r\n\r\n{}") {
            let read = connection.read_buf(&mut reply).await.unwrap();
            assert_ne!(read, 0, "it ends in the middle");
            if first == 0 {
                first = read;
            }
        }
    };
    tokio::time::timeout(LIMIT, whole).await.unwrap();
    (String::from_utf8(reply).unwrap(), first)
}

#[tokio::test]
async fn a_slow_reply_trickles_byte_by_byte_and_comes_whole() {
    let upstream = Upstream::start();
    let proxy = FaultProxy::start(&upstream.config()).unwrap();
    let pace = Duration::from_millis(20);
    let slow = proxy.rule(Match::put("/leases/a"), Fault::SlowReply(pace));
    let mut connection = connect(&proxy).await;
    put(&mut connection, "/leases/b").await;
    let (usual, _) = reply(&mut connection).await;

    let start = Instant::now();
    put(&mut connection, "/leases/a").await;
    let (trickled, first) = reply(&mut connection).await;
    let gaps = u32::try_from(trickled.len() - 1).unwrap();
    assert!(start.elapsed() >= pace * gaps, "{:?}", start.elapsed());
    assert_eq!(trickled, usual);
    assert!(first < trickled.len(), "not all at once");
    assert_eq!((slow.fired(), upstream.seen().len()), (1, 2));

    // On the same connection, the next one that no rule is about comes as usual.
    put(&mut connection, "/leases/b").await;
    assert_eq!(reply(&mut connection).await.0, usual);
}

#[tokio::test]
async fn a_slow_body_trickles_after_a_head_that_came_at_once() {
    let upstream = Upstream::start();
    let proxy = FaultProxy::start(&upstream.config()).unwrap();
    // For so long that a head at this pace would never come.
    let slow = proxy.rule(Match::put("/leases/a"), Fault::SlowBody(Duration::from_secs(3)));
    let mut connection = connect(&proxy).await;
    let start = Instant::now();
    put(&mut connection, "/leases/a").await;
    let (trickled, first) = reply(&mut connection).await;
    assert!(start.elapsed() >= Duration::from_secs(3), "{:?}", start.elapsed());
    assert!(first > 1, "the head is not slow");
    assert!(first < trickled.len(), "not all at once");
    put(&mut connection, "/leases/b").await;
    assert_eq!(reply(&mut connection).await.0, trickled);
    assert_eq!((slow.fired(), upstream.seen().len()), (1, 2));
}

#[tokio::test]
async fn a_half_closed_connection_brings_no_reply_and_still_takes_what_is_sent() {
    let upstream = Upstream::start();
    let proxy = FaultProxy::start(&upstream.config()).unwrap();
    let closed = proxy.rule(Match::put("/leases/a"), Fault::HalfClose);
    let mut connection = connect(&proxy).await;
    put(&mut connection, "/leases/a").await;
    let mut received = Vec::new();
    // An end, and no error: it was closed in order.
    let end = connection.read_to_end(&mut received);
    assert_eq!(tokio::time::timeout(LIMIT, end).await.unwrap().unwrap(), 0);
    assert_eq!((closed.fired(), upstream.seen().len()), (1, 1));
    assert_eq!(proxy.seen()[0].status(), Some(StatusCode::OK));
    // Were the other direction closed too, the first write would tell, and a later one would fail.
    for _ in 0..20 {
        connection.write_all(b"P").await.unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(upstream.seen().len(), 1);
}

#[tokio::test]
async fn on_a_deaf_connection_one_reply_comes_and_nothing_that_is_sent_arrives() {
    let upstream = Upstream::start();
    let proxy = FaultProxy::start(&upstream.config()).unwrap();
    let deaf = proxy.rule(Match::put("/leases/a").times(1), Fault::TurnDeaf);
    let mut connection = connect(&proxy).await;
    put(&mut connection, "/leases/a").await;
    assert!(reply(&mut connection).await.0.starts_with("HTTP/1.1 200"));
    assert_eq!(deaf.fired(), 0, "nothing was sent into it yet");
    put(&mut connection, "/leases/b").await;
    deaf.wait_fired(1, LIMIT).await.unwrap();
    let silence = tokio::time::timeout(Duration::from_millis(200), connection.read_u8()).await;
    assert!(silence.is_err(), "neither a reply nor an end: {silence:?}");
    assert_eq!((upstream.seen().len(), proxy.seen().len()), (1, 1));

    let mut another = connect(&proxy).await;
    put(&mut another, "/leases/b").await;
    assert!(reply(&mut another).await.0.starts_with("HTTP/1.1 200"));
    assert_eq!(deaf.fired(), 1);
}

#[tokio::test]
async fn connections_in_trouble_are_cut_with_all_others() {
    let upstream = Upstream::start();
    let proxy = FaultProxy::start(&upstream.config()).unwrap();
    let slow = proxy.rule(Match::put("/slow"), Fault::SlowReply(LIMIT));
    let closed = proxy.rule(Match::put("/closed"), Fault::HalfClose);
    proxy.rule(Match::put("/deaf"), Fault::TurnDeaf);
    let [mut a, mut b, mut c] = [
        connect(&proxy).await,
        connect(&proxy).await,
        connect(&proxy).await,
    ];
    put(&mut a, "/slow").await;
    put(&mut b, "/closed").await;
    put(&mut c, "/deaf").await;
    reply(&mut c).await;
    slow.wait_fired(1, LIMIT).await.unwrap();
    closed.wait_fired(1, LIMIT).await.unwrap();
    proxy.cut_connections();
    let mut received = Vec::new();
    for connection in [&mut a, &mut c] {
        received.clear();
        let end = tokio::time::timeout(LIMIT, connection.read_to_end(&mut received));
        let _ = end.await.expect("it ends");
        assert!(received.len() <= 1);
    }
    // Its sending half is told by an error.
    let start = Instant::now();
    while b.write_all(b"P").await.is_ok() {
        assert!(start.elapsed() < LIMIT, "it still takes what is sent");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_short_watch_is_one_that_the_server_is_asked_to_end_soon() {
    let upstream = Upstream::start();
    let proxy = FaultProxy::start(&upstream.config()).unwrap();
    let short = proxy.rule(Match::watch("/leases"), Fault::ShortWatch(1));
    let mut connection = connect(&proxy).await;
    for path in [
        "/leases?watch=1&timeoutSeconds=240&x=y",
        "/leases?watch=1",
        "/leases?x=y",
    ] {
        let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n");
        connection.write_all(request.as_bytes()).await.unwrap();
        reply(&mut connection).await;
    }
    wait_until("all have arrived", || upstream.seen().len() == 3).await;
    assert_eq!(
        upstream.seen(),
        [
            "GET /leases?watch=1&x=y&timeoutSeconds=1 ",
            "GET /leases?watch=1&timeoutSeconds=1 ",
            "GET /leases?x=y ",
        ]
    );
    assert_eq!(short.fired(), 2);
}
