//! Sets a coordinator up, and starts its thread.

use std::{sync::Arc, time::Duration};

use tokio::{runtime::Handle, sync::mpsc, task::LocalSet};

use super::{
    coordinator::{LeaderElectionCoordinator, Parts, command},
    error::CoordinatorError,
    metrics::{ElectionEvent, Hook, Metrics},
    settings::ElectionSettings,
};
use crate::lock::{InstanceId, LockService};

/// The longest sleep of a stream's loop.
const SLICE: Duration = Duration::from_secs(1);

/// Sets a [`LeaderElectionCoordinator`] up.
#[must_use]
pub struct CoordinatorBuilder {
    service: Arc<dyn LockService>,
    instance: Option<InstanceId>,
    settings: ElectionSettings,
    runtime: Option<Handle>,
    slice: Duration,
    metrics: Option<Hook>,
}

impl CoordinatorBuilder {
    pub(super) fn new(service: Arc<dyn LockService>) -> Self {
        Self {
            service,
            instance: None,
            settings: ElectionSettings::default(),
            runtime: None,
            slice: SLICE,
            metrics: None,
        }
    }

    /// Who contends. Default: unique, from the host's name. Two processes that share an id are still two: at most one
    /// may act.
    pub fn instance_id(mut self, instance: InstanceId) -> Self {
        self.instance = Some(instance);
        self
    }

    /// How it keeps time. Default: a TTL of 15 s.
    pub fn settings(mut self, settings: ElectionSettings) -> Self {
        self.settings = settings;
        self
    }

    /// Where the work runs. Default: the runtime that [`build`](Self::build) is called in.
    pub fn runtime(mut self, runtime: Handle) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// How long a loop sleeps at most before it asks the clock again. Default: 1 s. For tests that drive a
    /// [`ManualClock`](crate::lock::ManualClock): the runtime's timers do not follow it, so a millisecond is right
    /// there.
    pub fn longest_sleep(mut self, slice: Duration) -> Self {
        self.slice = slice;
        self
    }

    /// Who hears of attempts, acquisitions, losses and changes of role. Default: nobody.
    ///
    /// It is called on a thread of its own. One that is slow misses events and delays nothing; one that panics is
    /// called again for the next event. It may be called for some time after the coordinator is gone.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use leasewarden::{election::{ElectionEventKind, LeaderElectionCoordinator}, lock::InMemoryLockService};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut losses = 0;
    /// let coordinator = LeaderElectionCoordinator::builder(Arc::new(InMemoryLockService::new()))
    ///     .metrics(move |event| {
    ///         if let ElectionEventKind::Lost { reason } = &event.kind {
    ///             losses += 1;
    ///             println!("{}: loss {losses}, {}", event.stream, reason.as_str());
    ///         }
    ///     })
    ///     .build()?;
    /// # Ok(()) }
    /// ```
    pub fn metrics(mut self, hook: impl FnMut(&ElectionEvent) + Send + 'static) -> Self {
        self.metrics = Some(Box::new(hook));
        self
    }

    /// Starts the coordinator's thread. No stream is registered yet, and nothing is sent.
    ///
    /// # Errors
    /// [`CoordinatorError`].
    pub fn build(self) -> Result<LeaderElectionCoordinator, CoordinatorError> {
        let runtime = match self.runtime {
            Some(runtime) => runtime,
            None => Handle::try_current().map_err(|_| CoordinatorError::NoRuntime)?,
        };
        let instance = match self.instance {
            Some(instance) => instance,
            None => {
                let host = std::env::var("HOSTNAME").unwrap_or_default();
                InstanceId::unique(if host.is_empty() { "instance" } else { &host })?
            }
        };
        let metrics = match self.metrics {
            Some(hook) => Metrics::start(hook).map_err(CoordinatorError::Thread)?,
            None => Metrics::default(),
        };
        let (commands, receiver) = mpsc::unbounded_channel();
        let own = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(CoordinatorError::Thread)?;
        std::thread::Builder::new()
            .name("leasewarden-election".to_owned())
            .spawn(move || own.block_on(LocalSet::new().run_until(command(receiver))))
            .map_err(CoordinatorError::Thread)?;
        Ok(LeaderElectionCoordinator::new(Parts {
            service: self.service,
            instance,
            settings: self.settings,
            runtime,
            slice: self.slice,
            metrics,
            commands,
        }))
    }
}
