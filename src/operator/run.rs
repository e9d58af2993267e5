//! Starting and stopping the operator.

use std::{fmt, future::Future, io, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use kube::{Client, Config};
use tokio::task::JoinSet;

use super::{
    api::Server,
    clock::ServerClock,
    controller::work,
    index::Key,
    metrics::Metrics,
    observe::{Nobody, Observer},
    shared::{Settings, Shared},
    watch,
};
use crate::{
    crd::StatusPolicy,
    lock::{Clock, SystemClock},
};

/// How long a connection to the API server may take to be made.
const CONNECT: Duration = Duration::from_secs(5);
/// How long a connection may be silent: longer than a watch lasts.
const SILENCE: Duration = Duration::from_secs(75);
/// How long a stop waits for the watches, which end where they next wait: at once.
const LAST_WATCHES: Duration = Duration::from_secs(1);
const ASK_AGAIN: Duration = Duration::from_secs(1);
const SAY_AGAIN: Duration = Duration::from_secs(30);

/// Status writes a second that no transition asks for.
const WRITES_PER_SECOND: u32 = 20;

/// The operator, to be run.
#[derive(Clone)]
pub struct Operator {
    config: Config,
    namespaces: Vec<String>,
    settings: Settings,
    clock: Arc<dyn Clock>,
    metrics: Option<Arc<Metrics>>,
}

impl fmt::Debug for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operator")
            .field("server", &self.config.cluster_url)
            .field("namespaces", &self.namespaces)
            .finish_non_exhaustive()
    }
}

/// Why the operator could not be started. Once started it stays up, whatever the API server says.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OperatorError {
    /// The configuration makes no client: a certificate that cannot be read, say.
    #[error("no client can be made from this configuration: {0}")]
    Client(#[source] kube::Error),
    /// An address is not there to be listened on.
    #[error("cannot listen on {address}: {source}; choose another with {option}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The program's option for it.
        option: &'static str,
        /// What the system says.
        source: io::Error,
    },
    /// The certificate for the metrics cannot be used.
    #[error("metrics cannot be served securely: {0}")]
    Certificate(String),
    /// The replicas' election cannot be as it is set.
    #[error("the election among replicas: {0}")]
    Election(String),
}

impl Operator {
    /// An operator for all namespaces that creates an object for every Lease it finds.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            namespaces: Vec::new(),
            settings: Settings {
                discovery: true,
                policy: StatusPolicy::Full,
                writes_per_second: WRITES_PER_SECOND,
                observer: Arc::new(Nobody),
                own_lease: None,
            },
            clock: Arc::new(SystemClock),
            metrics: None,
        }
    }

    /// Only these namespaces; all of them when empty. Then no cluster-wide permission is needed.
    #[must_use]
    pub fn namespaces(mut self, namespaces: impl IntoIterator<Item = String>) -> Self {
        self.namespaces = namespaces.into_iter().collect();
        self.namespaces.sort();
        self.namespaces.dedup();
        self
    }

    /// Whether to create an object for every Lease that has none.
    #[must_use]
    pub fn discovery(mut self, discovery: bool) -> Self {
        self.settings.discovery = discovery;
        self
    }

    /// When the status is written of objects without `spec.statusPolicy`; [`StatusPolicy::Full`] unless said otherwise.
    #[must_use]
    pub fn status_policy(mut self, policy: StatusPolicy) -> Self {
        self.settings.policy = policy;
        self
    }

    /// How many statuses may be written a second to keep each `expirationTime` in the future; 20 unless said otherwise.
    /// Where more are needed, `expirationTime` is left out of some. Changes of leadership are written at once in any case.
    /// With 0 no `expirationTime` is shown.
    #[must_use]
    pub fn status_writes_per_second(mut self, writes: u32) -> Self {
        self.settings.writes_per_second = writes;
        self
    }

    /// The clock to measure by, for tests. Its wall clock counts only until the API server has told its own time.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Who is told of everything that the operator does.
    #[must_use]
    pub(crate) fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.settings.observer = observer;
        self
    }

    /// Who shows what the operator knows, for as long as it runs.
    #[must_use]
    pub(crate) fn metrics(mut self, metrics: Arc<Metrics>) -> Self {
        self.metrics = Some(metrics);
        self
    }

    /// The Lease by which the replicas elect. It is a lock like any other, but nobody's stream: none is discovered for it,
    /// or every installation would show one that its users do not know.
    #[must_use]
    pub(crate) fn own_lease(mut self, key: Key) -> Self {
        self.settings.own_lease = Some(key);
        self
    }

    /// The configuration for requests of the operator.
    pub(crate) fn prepared_config(&self) -> Config {
        let mut config = self.config.clone();
        // kube's own retries would hold a write back for a minute; the queue does it better.
        config.default_retry = false;
        config.connect_timeout = Some(CONNECT);
        // A list that is accepted and never answered would otherwise be waited for until the end of time.
        config.read_timeout = Some(SILENCE);
        config.reset_reader_on_write = true;
        config
    }

    /// Runs until `stop` is ready, and then until what it is writing is written (at most ten seconds).
    ///
    /// Cancellation: dropping the future stops it at once; a write in flight may or may not be applied, which the next
    /// operator sees.
    ///
    /// # Errors
    /// [`OperatorError`], before anything was started.
    pub async fn run(self, stop: impl Future<Output = ()> + Send) -> Result<(), OperatorError> {
        let url = self.config.cluster_url.to_string();
        let client = Client::try_from(self.prepared_config()).map_err(OperatorError::Client)?;
        let server = Server::new(
            client.clone(),
            ServerClock::new(self.clock),
            Arc::clone(&self.settings.observer),
        );
        let mut stop = pin!(stop);

        tokio::select! {
            () = &mut stop => return Ok(()),
            () = wait_for(&server, &url) => {}
        }
        let discovery = self.settings.discovery;
        let (shared, requests) = Shared::new(server, self.settings);
        let _shown = self.metrics.map(|metrics| Shown::new(metrics, shared.clone()));
        let scopes: Vec<Option<String>> = match self.namespaces.as_slice() {
            [] => vec![None],
            some => some.iter().cloned().map(Some).collect(),
        };
        // Dropped, and with it the watches stopped, when this is cancelled.
        let mut watches = JoinSet::new();
        for scope in scopes {
            watches.spawn(watch::leases(client.clone(), scope.clone(), shared.clone()));
            watches.spawn(watch::objects(client.clone(), scope, shared.clone()));
        }
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            server = url,
            namespaces = in_words(&self.namespaces),
            discovery,
            "the operator runs"
        );
        work(shared.clone(), requests, &mut stop).await;
        // Before the last word: the client ends with the runtime, and a watch that saw it go would report an API server
        // that cannot be reached.
        let _ = tokio::time::timeout(LAST_WATCHES, watches.shutdown()).await;
        let (leases, objects) = shared.sizes();
        tracing::info!(leases, objects, "the operator stopped");
        Ok(())
    }
}

/// An empty list would read as none.
fn in_words(namespaces: &[String]) -> String {
    match namespaces {
        [] => "all".to_owned(),
        some => some.join(", "),
    }
}

/// Shows what the operator knows until this is dropped.
struct Shown(Arc<Metrics>);

impl Shown {
    fn new(metrics: Arc<Metrics>, shared: Shared) -> Self {
        metrics.leads(Some(shared));
        Self(metrics)
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        self.0.leads(None);
    }
}

/// Waits until the API server answers.
pub(crate) async fn find(config: Config) -> Result<(), OperatorError> {
    let url = config.cluster_url.to_string();
    let client = Client::try_from(config).map_err(OperatorError::Client)?;
    let server = Server::new(client, ServerClock::new(Arc::new(SystemClock)), Arc::new(Nobody));
    wait_for(&server, &url).await;
    Ok(())
}

/// Waits until the API server answers, and learns its time.
async fn wait_for(server: &Server, url: &str) {
    let mut said: Option<tokio::time::Instant> = None;
    while let Err(error) = server.ask_the_time().await {
        if said.is_none_or(|at| at.elapsed() >= SAY_AGAIN) {
            tracing::warn!(server = url, "{error}");
            said = Some(tokio::time::Instant::now());
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}
