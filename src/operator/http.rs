//! What a replica serves over HTTP: metrics and what it knows for people who look for a fault, and probes for the kubelet.

use std::{
    net::SocketAddr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{
    Json, Router,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
    serve::Listener,
};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinSet};

use super::{
    metrics::Metrics,
    run::OperatorError,
    shared::Shared,
    view::{Hold, LeaseView},
};
use crate::{StreamName, election::LeaderElectionCoordinator};

/// How long a client may take for the head of a request, the first or the next.
const HEAD: Duration = Duration::from_secs(10);
/// How long a connection lasts at most.
const CONNECTION: Duration = Duration::from_secs(300);
/// How many there may be to one address.
const CONNECTIONS: usize = 64;

/// How this replica is.
pub(crate) struct Health {
    /// Whether the API server has answered once. Later outages make nobody unready: no other replica would do better.
    found: AtomicBool,
    election: OnceLock<(Arc<LeaderElectionCoordinator>, StreamName)>,
    metrics: Arc<Metrics>,
}

impl Health {
    pub(crate) fn new(metrics: Arc<Metrics>) -> Self {
        Self {
            found: AtomicBool::new(false),
            election: OnceLock::new(),
            metrics,
        }
    }

    pub(crate) fn found(&self) {
        self.found.store(true, Ordering::Relaxed);
    }

    pub(crate) fn elects(&self, coordinator: Arc<LeaderElectionCoordinator>, stream: StreamName) {
        let _ = self.election.set((coordinator, stream));
    }

    fn is_alive(&self) -> bool {
        let election = self.election.get();
        election.is_none_or(|(coordinator, _)| coordinator.is_alive())
    }

    /// In words, for who reads the probe.
    fn ready(&self) -> Result<String, &'static str> {
        if !self.found.load(Ordering::Relaxed) {
            return Err("not ready: the API server has not answered yet; the log says why\n");
        }
        if self.metrics.shared().is_some() {
            return Ok("ready: this replica keeps the statuses\n".to_owned());
        }
        let status = self
            .election
            .get()
            .and_then(|(coordinator, stream)| coordinator.status(stream));
        let (holder, trouble) = status.map_or((None, None), |status| {
            (status.holder.and_then(|seen| seen.holder), status.last_error)
        });
        Ok(match (holder, trouble) {
            (Some(holder), _) => format!("ready: standing by; {holder} keeps the statuses\n"),
            (None, Some(trouble)) => format!("ready: standing by; {trouble}\n"),
            (None, None) => "ready: standing by\n".to_owned(),
        })
    }
}

/// Listens. Said before anything is started, because nobody mends it by waiting.
pub(crate) async fn listen(address: SocketAddr, option: &'static str) -> Result<TcpListener, OperatorError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| OperatorError::Listen {
            address,
            option,
            source,
        })
}

/// `/healthz` and `/readyz`.
pub(crate) fn probes(health: Arc<Health>) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .with_state(health)
}

async fn healthz(State(health): State<Arc<Health>>) -> (StatusCode, &'static str) {
    if health.is_alive() {
        (StatusCode::OK, "ok\n")
    } else {
        let stuck = "the election's loop has stopped: this replica has to be started again\n";
        (StatusCode::SERVICE_UNAVAILABLE, stuck)
    }
}

async fn readyz(State(health): State<Arc<Health>>) -> (StatusCode, String) {
    match health.ready() {
        Ok(text) => (StatusCode::OK, text),
        Err(text) => (StatusCode::SERVICE_UNAVAILABLE, text.to_owned()),
    }
}

/// `/metrics` and `/debug/leases`.
pub(crate) fn figures(metrics: Arc<Metrics>) -> Router {
    Router::new()
        .route("/metrics", get(page))
        .route("/debug/leases", get(leases))
        .with_state(metrics)
}

async fn page(State(metrics): State<Arc<Metrics>>, headers: HeaderMap) -> Response {
    let accepts = headers
        .get(header::ACCEPT)
        .and_then(|accept| accept.to_str().ok());
    let open_metrics = accepts.is_some_and(|accept| accept.contains("application/openmetrics-text"));
    match metrics.text(open_metrics) {
        Ok((form, text)) => ([(header::CONTENT_TYPE, form)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn leases(State(metrics): State<Arc<Metrics>>) -> Json<Value> {
    let shared = metrics.shared();
    let leases = shared.as_ref().map(Shared::views).unwrap_or_default();
    Json(json!({
        "leader": shared.is_some(),
        "serverTime": shared.map(|shared| shared.now().to_string()),
        "leases": leases.iter().map(|lease| described(lease)).collect::<Vec<_>>(),
    }))
}

/// A Lease as the operator sees it.
fn described(lease: &LeaseView) -> Value {
    let (state, holder) = match &lease.hold {
        Hold::Held(holder) => ("held", Some(holder)),
        Hold::Released(holder) => ("released", Some(holder)),
        Hold::Wiped(holder) => ("wiped", Some(holder)),
        Hold::Free => ("free", None),
    };
    let time = |at: Option<jiff::Timestamp>| at.map(|at| at.to_string());
    json!({
        "namespace": lease.namespace,
        "name": lease.name,
        "uid": lease.uid,
        "resourceVersion": lease.resource_version,
        "stream": lease.stream,
        "state": state,
        "holder": holder,
        "leaseDurationSeconds": lease.duration_seconds,
        "leaseTransitions": lease.transitions,
        "fencingToken": lease.token,
        "acquireTime": time(lease.acquire_time),
        "renewTime": time(lease.renew_time),
        "expiresUnlessRenewed": time(lease.expired_from()),
    })
}

/// Serves until dropped. Who connects and says nothing is cut off, and nobody can take all of the process's files.
pub(crate) async fn serve<L: Listener>(mut listener: L, router: Router) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            (stream, _) = listener.accept(), if connections.len() < CONNECTIONS => {
                let served = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(HEAD)
                    .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router.clone()));
                connections.spawn(tokio::time::timeout(CONNECTION, served));
            }
        }
    }
}
