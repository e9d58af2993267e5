//! One replica of the operator, as it is deployed: of several, one keeps the statuses; all serve probes and metrics.
//!
//! They elect by this crate's own lock. A replica that stands by watches nothing: what would it do with it? The one that takes
//! over lists everything first, and begins to write when it knows all.

use std::{future::Future, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use axum::Router;
#[cfg(feature = "cli")]
use axum::middleware::from_fn_with_state;
use kube::{Client, runtime::events::Reporter};
use tokio::{net::TcpListener, task::JoinSet, time::Instant};

#[cfg(feature = "cli")]
use super::secure::{Encrypted, Guarded, Secure, guard};
use super::{
    events::Events,
    hidden::create_hidden,
    http::{Health, figures, listen, probes, serve},
    index::Key,
    metrics::Metrics,
    observe::Observer,
    run::{Operator, OperatorError, find},
};
use crate::{
    InstanceId, StreamName, Ttl,
    election::{DeploymentMode, ElectionSettings, LeaderElectionCoordinator, Leadership, StreamSpec},
    lease::LeaseLockService,
    lock::BoxFuture,
};

const CONTROLLER: &str = "leasewarden-operator";

/// How often the same trouble is said.
const SAY_AGAIN: Duration = Duration::from_secs(30);

/// How long a stop may take in all: a Pod is killed after 30 s.
const STOP: Duration = Duration::from_secs(25);

/// Among whom the replicas elect.
#[derive(Debug, Clone)]
pub struct ReplicaElection {
    /// Where the Lease is.
    pub namespace: String,
    /// The Lease's name, the same for all replicas.
    pub lease_name: String,
    /// How long the lock outlives its last renewal: after a crash the statuses stand still for so long.
    pub ttl: Ttl,
    /// Who this replica is.
    pub instance: InstanceId,
}

/// A replica of the operator, to be run.
#[derive(Debug, Clone)]
pub struct Replica {
    operator: Operator,
    election: Option<ReplicaElection>,
    metrics: Option<SocketAddr>,
    #[cfg(feature = "cli")]
    secure: Option<Secure>,
    probes: Option<SocketAddr>,
    events: bool,
}

impl Replica {
    /// Alone, without an election, and serving nothing; it sends Events.
    pub fn new(operator: Operator) -> Self {
        Self {
            operator,
            election: None,
            metrics: None,
            #[cfg(feature = "cli")]
            secure: None,
            probes: None,
            events: true,
        }
    }

    /// Elects one of several. Without it, two operators would write the same statuses: right, but twice the requests.
    #[must_use]
    pub fn election(mut self, election: Option<ReplicaElection>) -> Self {
        self.election = election;
        self
    }

    /// Where `/metrics` and `/debug/leases` are served, in plain text and to everybody who gets there.
    #[must_use]
    pub fn metrics_address(mut self, address: Option<SocketAddr>) -> Self {
        self.metrics = address;
        self
    }

    /// Serves the metrics over TLS, to those whom the API server permits to read them.
    #[cfg(feature = "cli")]
    #[must_use]
    pub fn secure(mut self, secure: Option<Secure>) -> Self {
        self.secure = secure;
        self
    }

    /// Where `/healthz` and `/readyz` are served.
    #[must_use]
    pub fn probe_address(mut self, address: Option<SocketAddr>) -> Self {
        self.probes = address;
        self
    }

    /// Whether Events are sent.
    #[must_use]
    pub fn events(mut self, events: bool) -> Self {
        self.events = events;
        self
    }

    /// Runs until `stop` is ready, then until what it is writing is written and its lock is released.
    ///
    /// Cancellation: dropping the future stops it at once. The lock is then left to expire.
    ///
    /// # Errors
    /// [`OperatorError`], before anything was started.
    pub async fn run(mut self, stop: impl Future<Output = ()> + Send) -> Result<(), OperatorError> {
        let metrics = Arc::new(Metrics::new());
        let health = Arc::new(Health::new(Arc::clone(&metrics)));
        // Dropped with this, and what it serves and sends with it.
        let mut aside = JoinSet::new();
        if let Some(address) = self.probes {
            let listener = listen(address, "--health-probe-bind-address").await?;
            serving("/healthz and /readyz", &listener);
            aside.spawn(serve(listener, probes(Arc::clone(&health))));
        }
        let config = self.operator.prepared_config();
        if let Some(address) = self.metrics {
            let listener = listen(address, "--metrics-bind-address").await?;
            serving("/metrics and /debug/leases", &listener);
            let pages = figures(Arc::clone(&metrics));
            aside.spawn(self.pages(listener, pages, &config, &metrics)?);
        }
        let mut observers: Vec<Arc<dyn Observer>> = vec![Arc::clone(&metrics) as _];
        if self.events {
            let client = Client::try_from(config.clone()).map_err(OperatorError::Client)?;
            let reporter = Reporter {
                controller: CONTROLLER.to_owned(),
                instance: self
                    .election
                    .as_ref()
                    .map(|election| election.instance.to_string()),
            };
            let (events, sending) = Events::new(client, reporter, Arc::clone(&metrics));
            observers.push(Arc::new(events));
            aside.spawn(sending);
        }
        self.operator = self
            .operator
            .observer(Arc::new(observers))
            .metrics(Arc::clone(&metrics));

        let mut stop = pin!(stop);
        tokio::select! {
            () = &mut stop => return Ok(()),
            found = find(config.clone()) => found?,
        }
        health.found();
        match self.election.take() {
            None => self.operator.run(stop).await,
            Some(election) => self.contend(election, config, &health, stop).await,
        }
    }

    /// The metrics and the rest, to everybody or to those who may.
    #[cfg_attr(not(feature = "cli"), allow(clippy::unused_self, clippy::unnecessary_wraps))]
    fn pages(
        &self,
        listener: TcpListener,
        pages: Router,
        config: &kube::Config,
        metrics: &Arc<Metrics>,
    ) -> Result<BoxFuture<'static, ()>, OperatorError> {
        #[cfg(feature = "cli")]
        if let Some(secure) = &self.secure {
            let client = Client::try_from(config.clone()).map_err(OperatorError::Client)?;
            let guarded =
                Guarded::new(secure, client, Arc::clone(metrics)).map_err(OperatorError::Certificate)?;
            let guarded = Arc::new(guarded);
            // Of the pages that there are: other paths must not fill what is kept of verdicts.
            let pages = pages.route_layer(from_fn_with_state(Arc::clone(&guarded), guard));
            return Ok(Box::pin(serve(Encrypted::new(listener, guarded), pages)));
        }
        let _ = (config, metrics);
        Ok(Box::pin(serve(listener, pages)))
    }

    async fn contend(
        self,
        election: ReplicaElection,
        config: kube::Config,
        health: &Health,
        stop: impl Future<Output = ()> + Send,
    ) -> Result<(), OperatorError> {
        let refused = |problem: String| OperatorError::Election(problem);
        let stream = StreamName::new(election.lease_name.as_str()).map_err(|e| refused(e.to_string()))?;
        let client = Client::try_from(config.clone()).map_err(OperatorError::Client)?;
        let locks = LeaseLockService::builder(config)
            .namespace(&election.namespace)
            .build()
            .map_err(|e| refused(e.to_string()))?;
        if locks.lease_name(&stream) != election.lease_name {
            let name = &election.lease_name;
            return Err(refused(format!("{name:?} cannot be the name of a Lease")));
        }
        let settings = ElectionSettings::with_ttl(election.ttl).map_err(|e| refused(e.to_string()))?;
        let coordinator = LeaderElectionCoordinator::builder(Arc::new(locks.clone()))
            .instance_id(election.instance.clone())
            .settings(settings)
            .build()
            .map_err(|e| refused(e.to_string()))?;
        let coordinator = Arc::new(coordinator);
        let operator = self.operator.own_lease(Key {
            namespace: election.namespace.clone(),
            lease: election.lease_name.clone(),
        });
        let work = move |leadership: Leadership| leads(operator.clone(), leadership);
        let spec = StreamSpec::new(stream.clone(), DeploymentMode::SingleLeader, work);
        coordinator.register(spec).map_err(|e| refused(e.to_string()))?;
        health.elects(Arc::clone(&coordinator), stream.clone());
        tracing::info!(
            instance = %election.instance,
            namespace = election.namespace,
            lease = election.lease_name,
            "standing by"
        );
        create_hidden(client, &election.namespace, &election.lease_name).await;
        coordinator.start_all();
        tokio::select! {
            () = stop => {}
            () = tell_trouble(&coordinator, &stream) => {}
        }
        if let Err(unfinished) = coordinator.shutdown(STOP).await {
            tracing::warn!("{unfinished}");
        }
        locks.shutdown().await;
        Ok(())
    }
}

fn serving(what: &str, listener: &TcpListener) {
    if let Ok(address) = listener.local_addr() {
        tracing::info!(%address, what, "serving");
    }
}

/// The work: the operator, for as long as it is wanted and this replica leads.
async fn leads(operator: Operator, leadership: Leadership) {
    let over = async {
        tokio::select! {
            _ = leadership.stop_requested() => {}
            _ = leadership.lost() => {}
        }
    };
    // By the guard too: a process that stood still must not write first and then look whether it may.
    match leadership.run(operator.run(over)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::error!("{error}"),
        Err(lost) => tracing::warn!("{lost}"),
    }
}

/// Says what keeps this replica from contending: a permission, say. For ever.
async fn tell_trouble(coordinator: &LeaderElectionCoordinator, stream: &StreamName) {
    let mut said: Option<(String, Instant)> = None;
    while let Some(mut status) = coordinator.watch(stream) {
        let error = status.borrow_and_update().last_error.clone();
        if let Some(error) = error
            && said
                .as_ref()
                .is_none_or(|(text, at)| *text != error || at.elapsed() >= SAY_AGAIN)
        {
            tracing::warn!(lease = %stream, "the election among replicas: {error}");
            said = Some((error, Instant::now()));
        }
        if status.changed().await.is_err() {
            break;
        }
    }
    std::future::pending::<()>().await;
}
