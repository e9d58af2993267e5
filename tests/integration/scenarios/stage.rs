//! Instances of a program, and the stage that their work acts on: it sees who acts, and whether two ever did at once.

use std::{
    fmt::Debug,
    future::{Future, poll_fn},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use leasewarden::{
    FencingToken, InstanceId, StreamName,
    election::{
        DeploymentMode, ElectionSettings, LeaderElectionCoordinator, Leadership, LossReason, StreamSpec,
        StreamState, StreamStatus,
    },
    lease::LeaseLockService,
    lock::{Clock, Moment, NewsSource, SystemClock},
};

use crate::support::{World, eventually, instance, secs, stream};

/// What the work of an instance met with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// It began, under this token.
    Began(i64),
    /// It returned, panicked or was dropped.
    Gone,
}

/// A side effect.
#[derive(Debug, Clone)]
pub struct Act {
    pub by: String,
    pub token: i64,
    pub at: Moment,
}

/// Shared by all who contend for a stream.
#[derive(Debug, Clone, Default)]
pub struct Stage(Arc<Mutex<Record>>);

#[derive(Debug, Default)]
struct Record {
    events: Vec<(String, Event)>,
    acts: Vec<Act>,
    clashes: Vec<(Act, Act)>,
}

impl Stage {
    fn record(&self) -> MutexGuard<'_, Record> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Notes that the work begins, and when what is returned is dropped, that it is gone.
    pub fn begin(&self, by: &str, leadership: &Leadership) -> Begun {
        let token = leadership.token().unwrap().get();
        self.record().events.push((by.to_owned(), Event::Began(token)));
        Begun(self.clone(), by.to_owned())
    }

    /// A side effect, if the guard allows one. The guard is asked and the effect done in one step that no other's comes
    /// between, so two guards that are valid at once show in tokens that fall, or in one that two use.
    pub fn act(&self, by: &str, leadership: &Leadership) {
        let mut record = self.record();
        if !leadership.is_valid() {
            return;
        }
        let act = Act {
            by: by.to_owned(),
            token: leadership.token().unwrap().get(),
            at: SystemClock.now(),
        };
        if let Some(last) = record.acts.last()
            && (last.token > act.token || (last.token == act.token && last.by != act.by))
        {
            let clash = (last.clone(), act.clone());
            record.clashes.push(clash);
        }
        record.acts.push(act);
    }

    /// Work that acts until it is asked to stop.
    pub fn steady(&self, by: &str) -> impl Fn(Leadership) -> WorkFuture + Send + Sync + 'static + use<> {
        let (stage, by) = (self.clone(), by.to_owned());
        move |leadership| {
            let (stage, by) = (stage.clone(), by.clone());
            Box::pin(async move {
                let _begun = stage.begin(&by, &leadership);
                loop {
                    stage.act(&by, &leadership);
                    tokio::select! {
                        _ = leadership.stop_requested() => return,
                        () = pause() => {}
                    }
                }
            })
        }
    }

    /// How often work began.
    pub fn begun(&self) -> usize {
        self.tokens().len()
    }

    /// The tokens under which work began, in order.
    pub fn tokens(&self) -> Vec<i64> {
        let token = |(_, event): &(String, Event)| match event {
            Event::Began(token) => Some(*token),
            Event::Gone => None,
        };
        self.record().events.iter().filter_map(token).collect()
    }

    /// What the work of all instances met with, in order.
    pub fn events(&self) -> Vec<(String, Event)> {
        self.record().events.clone()
    }

    pub fn last_act_of(&self, by: &str) -> Option<Act> {
        self.record().acts.iter().rev().find(|act| act.by == by).cloned()
    }

    /// Waits until work began `n` times in all.
    pub async fn began(&self, n: usize) {
        eventually(("work began", n, "times"), || async {
            (self.begun() >= n).then_some(())
        })
        .await;
    }

    /// Waits until no work lives any more.
    pub async fn is_empty(&self) {
        let gone = |(_, event): &&(String, Event)| *event == Event::Gone;
        eventually("all work is gone", || async {
            let events = self.events();
            (events.iter().filter(gone).count() * 2 == events.len()).then_some(())
        })
        .await;
    }

    /// No two ever acted at once, their tokens rose, and there was something to see.
    pub fn kept_apart(&self) {
        let record = self.record();
        assert!(!record.acts.is_empty(), "nobody acted");
        assert!(record.clashes.is_empty(), "two at once: {:?}", record.clashes);
        drop(record);
        let tokens = self.tokens();
        assert!(tokens.is_sorted_by(|a, b| a < b), "tokens fell: {tokens:?}");
    }
}

pub type WorkFuture = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

/// Work that has begun and is not gone.
pub struct Begun(Stage, String);

impl Drop for Begun {
    fn drop(&mut self) {
        self.0.record().events.push((self.1.clone(), Event::Gone));
    }
}

/// Between two side effects.
pub async fn pause() {
    tokio::time::sleep(Duration::from_millis(5)).await;
}

/// The settings that follow from a TTL.
pub fn settings(ttl: u64) -> ElectionSettings {
    ElectionSettings::with_ttl(secs(ttl)).unwrap()
}

/// An instance of a program, with a coordinator that contends for one stream.
pub struct Instance {
    pub coordinator: LeaderElectionCoordinator,
    pub stream: StreamName,
    /// The token under which its work last ran.
    ran: Arc<Mutex<Option<FencingToken>>>,
}

impl Instance {
    /// Contends for `orders` with work that acts until it is asked to stop.
    pub fn steady(locks: LeaseLockService, id: &str, ttl: u64, stage: &Stage) -> Self {
        Self::run(locks, instance(id), settings(ttl), stage.steady(id))
    }

    /// Contends for `orders`.
    pub fn run<F>(
        locks: LeaseLockService,
        id: InstanceId,
        settings: ElectionSettings,
        work: impl Fn(Leadership) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self::of(&stream("orders"), locks, id, settings, work)
    }

    /// Contends for a stream.
    pub fn of<F>(
        stream: &StreamName,
        locks: LeaseLockService,
        id: InstanceId,
        settings: ElectionSettings,
        work: impl Fn(Leadership) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let coordinator = LeaderElectionCoordinator::builder(Arc::new(locks))
            .instance_id(id)
            .settings(settings)
            .build()
            .unwrap();
        let ran = Arc::<Mutex<Option<FencingToken>>>::default();
        let noted = Arc::clone(&ran);
        let work = move |leadership: Leadership| {
            let (token, noted) = (leadership.token(), Arc::clone(&noted));
            let mut work = Box::pin(work(leadership));
            poll_fn(move |context| {
                let polled = work.as_mut().poll(context);
                *noted.lock().unwrap() = token;
                polled
            })
        };
        let spec = StreamSpec::new(stream.clone(), DeploymentMode::SingleLeader, work);
        coordinator.register(spec).unwrap();
        coordinator.start(stream).unwrap();
        Self {
            coordinator,
            stream: stream.clone(),
            ran,
        }
    }

    pub fn status(&self) -> StreamStatus {
        self.coordinator.status(&self.stream).unwrap()
    }

    /// Waits until the status is such, and answers what was looked for.
    pub async fn shows<T>(&self, what: impl Debug, look: impl Fn(StreamStatus) -> Option<T>) -> T {
        let id = self.coordinator.instance_id();
        eventually((id, "shows", what), || async { look(self.status()) }).await
    }

    pub async fn is(&self, state: StreamState) {
        self.shows(state, |status| (status.state == state).then_some(()))
            .await;
    }

    /// Waits until it leads and its work has begun to run: the status is told a moment before.
    pub async fn leads(&self) {
        self.shows("working", |status| {
            let ran = *self.ran.lock().unwrap();
            (status.state == StreamState::Working && ran == status.token).then_some(())
        })
        .await;
    }

    /// Waits until it contends, and knows who leads.
    pub async fn stands_by(&self) {
        self.is(StreamState::Contending).await;
        self.knows_the_holder().await;
    }

    pub async fn knows_the_holder(&self) {
        self.shows("the holder", |status| status.holder?.holder).await;
    }

    pub async fn follows(&self, source: NewsSource) {
        self.shows(source, |status| (status.source == source).then_some(()))
            .await;
    }

    /// Waits for two renewals that it is told of: after that nothing that it asked before is under way.
    pub async fn hears_of_renewals(&self) {
        let seen_at = |status: StreamStatus| status.holder.map(|holder| holder.seen_at);
        for _ in 0..2 {
            let before = seen_at(self.status());
            self.shows("a renewal", |status| (seen_at(status) > before).then_some(()))
                .await;
        }
    }

    /// Waits for `n` renewals more.
    pub async fn renews(&self, n: usize) {
        let mut before = self.status().valid_until;
        for _ in 0..n {
            before = self
                .shows(("valid for longer than", before), |status| {
                    (status.valid_until > before).then_some(status.valid_until)
                })
                .await;
        }
    }

    /// Waits until a leadership was lost, and answers why.
    pub async fn loses(&self) -> LossReason {
        self.shows("a loss", |status| status.last_loss).await.reason
    }

    pub async fn stop(&self) {
        self.coordinator.stop(&self.stream).unwrap().finished().await;
    }
}

/// Whether the Lease `orders` is held by nobody.
pub async fn is_free(world: &World) -> bool {
    let lease = world.lease("orders").await;
    lease["spec"]["holderIdentity"].as_str().is_none_or(str::is_empty)
}
