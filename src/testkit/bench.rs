//! What a case works with: services on one store, names that nobody else has, and time.
//!
//! No case may depend on finishing within a fraction of a short TTL: where a lock must live, its TTL is [`Bench::long`];
//! where it must end, [`Bench::short`], and the case waits for what it expects up to [`Bench::patience`].

use std::{
    error::Error as StdError,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{task::JoinSet, time::Instant};

use crate::lock::{BoxFuture, InstanceId, LockService, ReleaseRequest, StreamName, Ttl};

use super::{
    actor::{Actor, CALL_LIMIT, fail},
    case::{Step, Stop},
};

/// How many services share the store: enough for a race, few enough for services that open connections.
const PEERS: usize = 4;

/// On top of what the service may need: a loaded machine stalls, and that is no defect of the lock.
const SLACK: Duration = Duration::from_secs(5);

pub(super) type Delete =
    dyn Fn(StreamName) -> BoxFuture<'static, Result<(), Box<dyn StdError + Send + Sync>>> + Send + Sync;

/// What the user gave, and what a run makes of it.
pub(super) struct Setup {
    factory: Box<dyn Fn() -> Arc<dyn LockService> + Send + Sync>,
    pub(super) grant_within: Duration,
    pub(super) advance: Option<Box<dyn Fn(Duration) + Send + Sync>>,
    pub(super) delete: Option<Box<Delete>>,
    services: Vec<Arc<dyn LockService>>,
    /// A random prefix, so that a store with other users will do.
    run: String,
    names: AtomicU64,
    /// How far the clock was driven.
    driven: Mutex<Duration>,
}

/// One case's view of the setup. Clones share what the case has made.
#[derive(Clone)]
pub(super) struct Bench {
    setup: Arc<Setup>,
    made: Arc<Mutex<Made>>,
}

#[derive(Default)]
struct Made {
    streams: Vec<StreamName>,
    actors: Vec<Actor>,
}

/// A point in the run's time, real or driven.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    real: Instant,
    driven: Duration,
}

impl Setup {
    pub(super) fn new(factory: Box<dyn Fn() -> Arc<dyn LockService> + Send + Sync>) -> Self {
        let mut run = format!("kit-{}", uuid::Uuid::new_v4().simple());
        run.truncate(12);
        Self {
            factory,
            grant_within: Duration::from_secs(1),
            advance: None,
            delete: None,
            services: Vec::new(),
            run,
            names: AtomicU64::new(0),
            driven: Mutex::default(),
        }
    }

    pub(super) fn start(mut self) -> Self {
        self.services = (0..PEERS).map(|_| (self.factory)()).collect();
        self
    }
}

impl Bench {
    pub(super) fn new(setup: Arc<Setup>) -> Self {
        Self {
            setup,
            made: Arc::default(),
        }
    }

    /// A stream that nobody has used.
    pub(super) fn stream(&self) -> Step<StreamName> {
        let number = self.number();
        self.stream_named(&number.to_string())
    }

    /// A stream that ends like this, which nobody but this run has used.
    pub(super) fn stream_named(&self, text: &str) -> Step<StreamName> {
        let stream = StreamName::new(format!("{}-{text}", self.setup.run)).map_err(defect)?;
        self.made().streams.push(stream.clone());
        Ok(stream)
    }

    /// Somebody with an id of their own, on the service of this number (modulo how many there are).
    pub(super) fn actor(&self, service: usize, name: &str) -> Step<Actor> {
        let id = format!("{name}-{}-{}", self.setup.run, self.number());
        self.actor_with_id(service, name, &id)
    }

    /// Somebody with this id.
    pub(super) fn actor_with_id(&self, service: usize, name: &str, id: &str) -> Step<Actor> {
        let instance = InstanceId::new(id).map_err(defect)?;
        let service = Arc::clone(&self.setup.services[service % PEERS]);
        let actor = Actor::new(name, instance, service);
        self.made().actors.push(actor.clone());
        Ok(actor)
    }

    /// Two processes and a stream: what most cases are about.
    pub(super) fn two(&self) -> Step<(Actor, Actor, StreamName)> {
        Ok((self.actor(0, "A")?, self.actor(1, "B")?, self.stream()?))
    }

    /// A TTL that no case outlasts.
    pub(super) fn long(&self) -> Step<Ttl> {
        let within = self.setup.grant_within.saturating_mul(10);
        let long = within.max(Duration::from_secs(120));
        Ttl::new(long.min(Ttl::MAX.as_duration())).map_err(defect)
    }

    /// A TTL to wait out. A store that is slow to grant is slow to answer, too.
    pub(super) fn short(&self) -> Step<Ttl> {
        let ttl = self
            .setup
            .grant_within
            .clamp(Duration::from_secs(2), Duration::from_secs(5));
        Ttl::new(ttl).map_err(defect)
    }

    /// How long one who waits for the expiry of this TTL must be ready to wait.
    pub(super) fn patience(&self, ttl: Ttl) -> Duration {
        // A store may round up to whole seconds.
        let rounded = u64::try_from(ttl.lease_duration_seconds()).unwrap_or_default();
        Duration::from_secs(rounded)
            .saturating_add(self.setup.grant_within)
            .saturating_add(SLACK)
    }

    /// How much earlier than its TTL an expiry may be seen: on a driven clock not at all; otherwise what two clocks of
    /// good machines differ in a TTL.
    pub(super) fn tolerance(&self, ttl: Ttl) -> Duration {
        if self.setup.advance.is_some() {
            Duration::ZERO
        } else {
            ttl.as_duration() / 100
        }
    }

    /// Between two questions of one who waits.
    pub(super) fn step(&self, ttl: Ttl) -> Duration {
        let step = ttl.as_duration() / 20;
        if self.setup.advance.is_some() {
            step
        } else {
            step.clamp(Duration::from_millis(50), Duration::from_millis(250))
        }
    }

    /// Lets time pass.
    pub(super) async fn wait(&self, by: Duration) {
        match &self.setup.advance {
            None => tokio::time::sleep(by).await,
            Some(advance) => {
                advance(by);
                {
                    let mut driven = self.setup.driven.lock().unwrap_or_else(PoisonError::into_inner);
                    *driven = driven.saturating_add(by);
                }
                // Work in the background of a service gets its turn.
                tokio::task::yield_now().await;
            }
        }
    }

    /// Waits so long that a time which is written anew is seen to have moved, by stores that keep whole seconds too.
    pub(super) async fn a_while(&self) {
        self.wait(Duration::from_millis(1100)).await;
    }

    /// Waits until this much time has passed since the mark.
    pub(super) async fn wait_until(&self, mark: Mark, passed: Duration) {
        let left = passed.saturating_sub(self.since(mark));
        if !left.is_zero() {
            self.wait(left).await;
        }
    }

    /// Waits until a lock of this TTL, which was written before now, has expired by every clock.
    pub(super) async fn outlast(&self, ttl: Ttl) {
        self.wait(ttl.as_duration() + self.tolerance(ttl) + Duration::from_millis(1))
            .await;
    }

    /// Now.
    pub(super) fn mark(&self) -> Mark {
        let driven = *self.setup.driven.lock().unwrap_or_else(PoisonError::into_inner);
        Mark {
            real: Instant::now(),
            driven,
        }
    }

    /// How much time has passed.
    pub(super) fn since(&self, mark: Mark) -> Duration {
        if self.setup.advance.is_some() {
            self.mark().driven.saturating_sub(mark.driven)
        } else {
            mark.real.elapsed()
        }
    }

    /// Deletes a stream's record behind the services' back.
    pub(super) async fn delete(&self, stream: &StreamName) -> Step {
        let Some(delete) = &self.setup.delete else {
            return Err(Stop::Skipped(
                "the kit was not told how to delete a record (Contract::delete)".into(),
            ));
        };
        match tokio::time::timeout(CALL_LIMIT, delete(stream.clone())).await {
            Ok(deleted) => {
                deleted.map_err(|error| Stop::Failed(format!("the record could not be deleted: {error}")))
            }
            Err(_) => fail(format!("the record was not deleted within {CALL_LIMIT:?}")),
        }
    }

    /// Runs parts of a case side by side; on a driven clock one after another.
    pub(super) async fn side_by_side(&self, parts: Vec<BoxFuture<'static, Step>>) -> Step {
        if self.setup.advance.is_some() {
            for part in parts {
                part.await?;
            }
            return Ok(());
        }
        together(parts).await.into_iter().collect()
    }

    /// Gives back what the case still holds, as far as that is possible, and deletes its records if it may.
    pub(super) async fn tidy(&self, delete: bool) {
        let (streams, actors) = {
            let made = self.made();
            (made.streams.clone(), made.actors.clone())
        };
        for stream in streams {
            // One look per stream: whom the state shows gives it back.
            let seen = match actors.first() {
                Some(anybody) => anybody.service().state(&stream).await.ok().flatten(),
                None => None,
            };
            let holder = seen.and_then(|seen| actors.iter().find(|a| a.instance().as_str() == seen.instance));
            if let Some(holder) = holder {
                let request = ReleaseRequest::new(&stream, holder.instance());
                if let Err(error) = holder.service().release(request).await {
                    tracing::debug!(%stream, %error, "tidying up: release failed");
                }
            }
            if let (true, Some(delete)) = (delete, &self.setup.delete)
                && let Err(error) = delete(stream.clone()).await
            {
                tracing::debug!(%stream, %error, "tidying up: deletion failed");
            }
        }
    }

    fn number(&self) -> u64 {
        self.setup.names.fetch_add(1, Ordering::Relaxed)
    }

    fn made(&self) -> MutexGuard<'_, Made> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs them at once, each as a task of its own, and gives their results in order.
pub(super) async fn together<T: Send + 'static>(parts: Vec<BoxFuture<'static, Step<T>>>) -> Vec<Step<T>> {
    let mut running = JoinSet::new();
    for (at, part) in parts.into_iter().enumerate() {
        running.spawn(async move { (at, part.await) });
    }
    let mut done = Vec::new();
    while let Some(result) = running.join_next().await {
        done.push(result.unwrap_or_else(|error| {
            let error = Stop::Failed(format!("the service panicked: {error}"));
            (usize::MAX, Err(error))
        }));
    }
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

/// The kit's own names and TTLs are valid; if not, that is the kit's defect, and said so.
#[allow(clippy::needless_pass_by_value)] // As `map_err` wants it.
fn defect(error: crate::lock::InvalidInput) -> Stop {
    Stop::Failed(format!("a defect of the contract kit: {error}"))
}
