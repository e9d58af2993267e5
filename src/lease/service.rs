//! [`LeaseLockService`]: what a program embeds.

use std::{fmt, sync::Arc, time::Duration};

use tokio::sync::{mpsc, oneshot};

use super::{
    client::client,
    delivery::Delivery,
    name::{InvalidPrefix, Prefix, prefixed_lease_name},
    worker::{self, Job, Settings},
};
use crate::lock::{
    AcquireRequest, BoxFuture, Changes, Clock, ExtendRequest, LockError, LockRecord, LockService, LockState,
    Outcome, ReleaseRequest, Released, StreamName, SystemClock,
};

/// The default bound on how far the clocks of API servers differ or step.
const DEFAULT_ALLOWANCE: Duration = Duration::from_secs(5);

/// The lock on `coordination.k8s.io/v1` Leases: one Lease per stream, by compare-and-set.
///
/// Cheap to clone; clones are the same service. Requests are sent by a thread of its own, which ends when the last clone
/// is dropped (or by [`shutdown`](Self::shutdown)).
///
/// Needs the permissions `get`, `create` and `update` on leases of its namespace; with `list` and `watch` too, a
/// contender sees a holder's renewals as they happen, and so takes an expired lock over as early as that is safe.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use leasewarden::{InstanceId, LockServiceExt, StreamName, Ttl, lease::LeaseLockService};
///
/// let locks = LeaseLockService::builder(kube::Config::infer().await?).build()?;
/// let (stream, me) = (StreamName::new("orders")?, InstanceId::unique("worker")?);
/// if locks.try_acquire(&stream, &me, Ttl::from_secs(15)?).await {
///     // … work, and renew every 5 s …
///     locks.try_release(&stream, &me).await;
/// }
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct LeaseLockService {
    jobs: mpsc::UnboundedSender<Job>,
    settings: Arc<Settings>,
}

/// Why a [`LeaseLockService`] could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The namespace is no DNS label.
    #[error(
        "{0:?} is no namespace: use 1 to 63 of the characters a-z, 0-9 and -, with a letter or digit at both ends"
    )]
    Namespace(String),
    /// The name prefix is no DNS label.
    #[error(transparent)]
    Prefix(#[from] InvalidPrefix),
    /// The client could not be set up: certificates, TLS, authentication.
    #[error("the Kubernetes client could not be set up")]
    Client(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The operating system refused a thread.
    #[error("the thread that sends lock requests could not be started")]
    Thread(#[source] std::io::Error),
}

/// Sets a [`LeaseLockService`] up.
#[derive(Clone)]
#[must_use]
pub struct LeaseLockServiceBuilder {
    config: kube::Config,
    namespace: String,
    prefix: Option<String>,
    allowance: Option<Duration>,
    clock: Arc<dyn Clock>,
}

impl LeaseLockServiceBuilder {
    /// Where the Leases live. Default: the config's namespace, which in a Pod is the Pod's.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// Puts `prefix.` before every Lease name, so that several applications can share a namespace. Default: none.
    pub fn name_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = Some(prefix.into());
        self
    }

    /// How far the clocks of the API servers may differ from each other, or step: by so much more than the TTL must the
    /// server's time show before it proves an expiry. `None` switches that evidence off, so that a process must always
    /// have seen a Lease unchanged for its TTL itself. Default: 5 s.
    pub fn server_time_allowance(mut self, allowance: Option<Duration>) -> Self {
        self.allowance = allowance;
        self
    }

    /// Another clock. Default: [`SystemClock`].
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Starts the service. Sends nothing yet.
    ///
    /// # Errors
    /// [`BuildError`].
    pub fn build(self) -> Result<LeaseLockService, BuildError> {
        if Prefix::new(&self.namespace).is_err() {
            return Err(BuildError::Namespace(self.namespace));
        }
        let settings = Settings {
            namespace: self.namespace,
            prefix: self.prefix.as_deref().map(Prefix::new).transpose()?,
            allowance: self.allowance,
            clock: self.clock,
        };
        let mut config = self.config;
        // Kube's default retries one write for a minute; a lock must know which attempt was answered.
        config.default_retry = false;
        let jobs = start(settings.clone(), config)?;
        Ok(LeaseLockService {
            jobs,
            settings: Arc::new(settings),
        })
    }
}

/// Starts the thread and waits until its client is set up.
fn start(settings: Settings, config: kube::Config) -> Result<mpsc::UnboundedSender<Job>, BuildError> {
    let (sender, receiver) = mpsc::unbounded_channel();
    let weak = sender.downgrade();
    let (ready, built) = std::sync::mpsc::channel();
    let run = move || {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return drop(ready.send(Err(BuildError::Thread(error)))),
        };
        runtime.block_on(async move {
            // The client's own tasks belong to the runtime that it is made in.
            match client(&config) {
                Ok(client) => {
                    let _ = ready.send(Ok(()));
                    worker::run(settings, client, receiver, weak).await;
                }
                Err(error) => drop(ready.send(Err(BuildError::Client(Box::new(error))))),
            }
        });
    };
    std::thread::Builder::new()
        .name("leasewarden".to_owned())
        .spawn(run)
        .map_err(BuildError::Thread)?;
    match built.recv() {
        Ok(Ok(())) => Ok(sender),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(BuildError::Client("its thread ended while it was set up".into())),
    }
}

impl LeaseLockService {
    /// A builder, from where the API server is and who asks.
    pub fn builder(config: kube::Config) -> LeaseLockServiceBuilder {
        LeaseLockServiceBuilder {
            namespace: config.default_namespace.clone(),
            config,
            prefix: None,
            allowance: Some(DEFAULT_ALLOWANCE),
            clock: Arc::new(SystemClock),
        }
    }

    /// Where the Leases live.
    pub fn namespace(&self) -> &str {
        &self.settings.namespace
    }

    /// The name of the Lease that locks `stream`.
    pub fn lease_name(&self, stream: &StreamName) -> String {
        prefixed_lease_name(self.settings.prefix.as_ref(), stream)
    }

    /// Finishes what is under way, for up to ten seconds, and ends the thread. Every later request answers
    /// [`LockError::ShutDown`]. Locks that are held stay held until they expire: release them first.
    pub async fn shutdown(&self) {
        let (done, wait) = oneshot::channel();
        if self.jobs.send(Job::ShutDown(done)).is_ok() {
            let _ = wait.await;
        }
    }

    async fn granting(
        &self,
        job: impl FnOnce(oneshot::Sender<Delivery>) -> Job,
    ) -> Result<Outcome, LockError> {
        let (reply, answer) = oneshot::channel();
        self.jobs.send(job(reply)).map_err(|_| LockError::ShutDown)?;
        answer.await.map_err(|_| LockError::ShutDown)?.take()
    }
}

impl fmt::Debug for LeaseLockService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseLockService")
            .field("namespace", &self.settings.namespace)
            .finish_non_exhaustive()
    }
}

impl LockService for LeaseLockService {
    fn acquire(&self, request: AcquireRequest) -> BoxFuture<'_, Result<Outcome, LockError>> {
        Box::pin(self.granting(|reply| Job::Acquire(request, reply)))
    }

    fn extend(&self, request: ExtendRequest) -> BoxFuture<'_, Result<Outcome, LockError>> {
        Box::pin(self.granting(|reply| Job::Extend(request, reply)))
    }

    fn release(&self, request: ReleaseRequest) -> BoxFuture<'_, Result<Released, LockError>> {
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            self.jobs
                .send(Job::Release(request, reply))
                .map_err(|_| LockError::ShutDown)?;
            answer.await.map_err(|_| LockError::ShutDown)?
        })
    }

    fn state(&self, stream: &StreamName) -> BoxFuture<'_, Result<Option<LockState>, LockError>> {
        let record = self.record(stream);
        Box::pin(async move {
            Ok(record
                .await?
                .filter(|record| !record.expired)
                .map(|record| record.state))
        })
    }

    fn record(&self, stream: &StreamName) -> BoxFuture<'_, Result<Option<LockRecord>, LockError>> {
        let stream = stream.clone();
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            self.jobs
                .send(Job::Read(stream, reply))
                .map_err(|_| LockError::ShutDown)?;
            answer.await.map_err(|_| LockError::ShutDown)?
        })
    }

    /// Begins to watch, if nothing of this service has yet.
    fn changes(&self, stream: &StreamName) -> Option<Changes> {
        let (sender, changes) = Changes::channel();
        self.jobs.send(Job::Follow(stream.clone(), sender)).ok()?;
        Some(changes)
    }

    fn clock(&self) -> &dyn Clock {
        &*self.settings.clock
    }
}
