//! What a replica serves: probes, metrics, and what it knows of each Lease.

use std::net::SocketAddr;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::*;

pub(super) const SERVES: [&str; 2] = [
    "--metrics-bind-address=127.0.0.1:0",
    "--health-probe-bind-address=127.0.0.1:0",
];

impl Program {
    /// Where it serves this.
    pub(super) async fn address(&self, path: &str) -> SocketAddr {
        until(("it serves", path), || async {
            let serving = self.events().into_iter().find(|event| {
                event["message"] == "serving"
                    && event["what"].as_str().is_some_and(|what| what.contains(path))
            })?;
            serving["address"].as_str()?.parse().ok()
        })
        .await
    }

    /// The status line's code, and the body.
    pub(super) async fn get(&self, path: &str) -> (u16, String) {
        self.get_at(path, path).await
    }

    /// The same from where something else is served.
    async fn get_at(&self, known: &str, path: &str) -> (u16, String) {
        let address = self.address(known).await;
        let mut connection = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.0\r\nHost: operator\r\n\r\n");
        connection.write_all(request.as_bytes()).await.unwrap();
        let mut reply = String::new();
        connection.read_to_string(&mut reply).await.unwrap();
        let (head, body) = reply.split_once("\r\n\r\n").unwrap();
        let code = head.split_whitespace().nth(1).unwrap().parse().unwrap();
        (code, body.to_owned())
    }

    /// The value of a series, given as it is written.
    pub(super) async fn metric(&self, series: &str) -> Option<f64> {
        let (code, page) = self.get("/metrics").await;
        assert_eq!(code, 200, "{page}");
        let line = page
            .lines()
            .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.map(|value| value.parse().unwrap())
    }
}

#[tokio::test]
async fn metrics_show_who_leads_and_nothing_of_what_is_gone() {
    let mut stage = Stage::empty("metrics").await;
    stage.start(&SERVES);
    let a = stage.instance("a");
    let grant = a.acquire("orders", LIMIT).await;
    stage.holder_is("orders", Some("a")).await;
    let namespace = stage.namespace.name().to_owned();
    let labels = format!("namespace=\"{namespace}\",name=\"orders\",stream=\"orders\"");
    let operator = stage.operator();
    let series = |name: &str| format!("leasewarden_{name}{{{labels}}}");
    let held = series("stream_held");
    until("it is held", || async {
        (operator.metric(&held).await == Some(1.0)).then_some(())
    })
    .await;
    let info = format!("leasewarden_stream_holder_info{{{labels},holder=\"a\"}}");
    assert_eq!(operator.metric(&info).await, Some(1.0));
    assert_eq!(
        operator.metric(&series("stream_transitions_total")).await,
        Some(1.0)
    );
    assert!(
        operator
            .metric(&series("stream_expiration_timestamp_seconds"))
            .await
            > Some(1.7e9)
    );
    for (metric, least) in [
        ("operator_leader", 1.0),
        ("watch_up{resource=\"leases\"}", 1.0),
        ("watch_up{resource=\"changestreamleaders\"}", 1.0),
        ("status_writes_total{reason=\"transition\"}", 1.0),
        ("reconcile_total{result=\"success\"}", 1.0),
        (
            "api_requests_total{verb=\"watch\",resource=\"leases.coordination.k8s.io\",code=\"200\"}",
            1.0,
        ),
        (
            "api_requests_total{verb=\"update\",resource=\"changestreamleaders/status.leasewarden.dev\",code=\"200\"}",
            1.0,
        ),
        ("queue_depth", 0.0),
        ("status_writes_suppressed_total{reason=\"throttled\"}", 0.0),
    ] {
        let value = operator.metric(&format!("leasewarden_{metric}")).await;
        assert!(value >= Some(least), "{metric}: {value:?}");
    }

    a.locks.release(ReleaseRequest::of(&grant)).await.unwrap();
    stage.holder_is("orders", None).await;
    let operator = stage.operator();
    until("nobody leads", || async {
        (operator.metric(&held).await == Some(0.0)).then_some(())
    })
    .await;
    assert_eq!(operator.metric(&info).await, None);

    stage
        .leases()
        .delete("orders", &Default::default())
        .await
        .unwrap();
    // The object goes with its Lease only where the garbage collector runs.
    let _ = stage.objects().delete("orders", &Default::default()).await;
    let operator = stage.operator();
    until("nothing is left", || async {
        let (_, page) = operator.get("/metrics").await;
        (!page.contains("stream=\"orders\"")).then_some(())
    })
    .await;
}

#[tokio::test]
async fn what_it_knows_of_each_lease_is_there_for_who_looks_for_a_fault() {
    let mut stage = Stage::empty("debug").await;
    stage.start(&SERVES);
    stage.instance("a").acquire("orders", LIMIT).await;
    stage.holder_is("orders", Some("a")).await;
    let (code, text) = stage.operator().get("/debug/leases").await;
    let seen: Value = serde_json::from_str(&text).unwrap();
    let lease = &seen["leases"][0];
    assert_eq!((code, &seen["leader"]), (200, &json!(true)), "{text}");
    assert_eq!(
        (&lease["name"], &lease["holder"], &lease["state"]),
        (&json!("orders"), &json!("a"), &json!("held")),
        "{text}"
    );
}

#[tokio::test]
async fn it_is_alive_but_not_ready_until_the_api_server_was_found() {
    let (_folder, file) = to_nowhere();
    let mut lost = Program::operator(&file, &SERVES);
    assert_eq!(lost.get("/healthz").await.0, 200);
    let (code, says) = lost.get("/readyz").await;
    assert_eq!(code, 503);
    assert!(says.contains("the API server has not answered yet"), "{says}");
    assert_eq!(lost.signal("-TERM").await.code(), Some(0));

    let mut stage = Stage::empty("ready").await;
    stage.start(&SERVES);
    let operator = stage.operator();
    until("it is ready", || async {
        (operator.get("/readyz").await.0 == 200).then_some(())
    })
    .await;
    assert_eq!(operator.get_at("/healthz", "/nothing").await.0, 404);
}

impl Program {
    /// Waits until it ends by itself with an error, and answers what it said.
    pub(super) async fn refuses(mut self) -> String {
        assert_eq!(self.exit().await.code(), Some(1), "{}", self.log());
        until("it says why", || async {
            let log = self.log();
            log.contains("leasewarden: ").then_some(log)
        })
        .await
    }
}

#[tokio::test]
async fn a_port_that_is_taken_is_named_with_the_option_that_sets_it() {
    let stage = Stage::empty("port").await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let option = format!("--metrics-bind-address={address}");
    let said = Program::operator(stage.control_plane.kubeconfig_path(), &[&option])
        .refuses()
        .await;
    assert!(
        said.contains(&address) && said.contains("choose another with --metrics-bind-address"),
        "{said}"
    );
}

#[tokio::test]
async fn a_client_that_never_ends_its_request_is_cut_off() {
    let mut stage = Stage::empty("half-a-request").await;
    stage.start(&SERVES);
    let operator = stage.operator();
    let address = operator.address("/healthz").await;
    let mut connection = TcpStream::connect(address).await.unwrap();
    connection
        .write_all(b"GET /healthz HTTP/1.1\r\nHost: ")
        .await
        .unwrap();
    let mut rest = Vec::new();
    tokio::time::timeout(LIMIT, connection.read_to_end(&mut rest))
        .await
        .expect("it is not cut off")
        .unwrap();
    assert_eq!(operator.get("/healthz").await.0, 200);
}

#[tokio::test]
async fn a_watch_that_never_came_up_shows_in_the_metrics() {
    let mut stage = Stage::empty("never-up").await;
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("config");
    let user = format!("nobody-of-{}", stage.namespace.name());
    stage
        .control_plane
        .write_kubeconfig_for_user(&kubeconfig, &user, &[])
        .unwrap();
    let mut args = vec!["--namespace", stage.namespace.name()];
    args.extend(SERVES);
    stage.operator = Some(Program::operator(&kubeconfig, &args).keeping(folder));
    let operator = stage.operator();
    until("it is blind", || async {
        let up = operator.metric("leasewarden_watch_up{resource=\"leases\"}").await;
        (up == Some(0.0)).then_some(())
    })
    .await;
}
