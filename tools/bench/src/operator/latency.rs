//! From a transition to its status: every half of a hand-over is timed from the moment when the Lease's write is sent to
//! the moment when the watch of the statuses brings one that has it. Beside that all Leases are renewed.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::{StreamExt, TryStreamExt, stream};
use kube::{
    Api,
    api::{ListParams, WatchEvent, WatchParams},
};
use leasewarden::{
    AcquireRequest, InstanceId, LockService, StreamName, Ttl,
    crd::{ChangeStreamLeader, ChangeStreamLeaderStatus},
    lease::LeaseLockService,
    lock::{Claim, ExtendRequest, ReleaseRequest},
};

use crate::{
    Error, Options,
    footprint::{Footprint, Meter},
    say,
    stage::{LIMIT, Stage, wait},
    stats::Summary,
};

const NAMESPACE: &str = "latency";

pub(crate) struct Truth {
    pub(crate) latency: Summary,
    pub(crate) rate: f64,
    pub(crate) renewals: f64,
    pub(crate) beside: Footprint,
}

/// One half of a hand-over, as a status tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Half {
    Released,
    Acquired,
}

/// What was sent and not seen yet, and how long it took for what was.
#[derive(Default)]
struct Pending {
    sent: HashMap<(String, Half, i64), Instant>,
    /// A status may come before the reply that tells the token.
    seen: HashMap<(String, Half, i64), Instant>,
    seconds: Vec<f64>,
}

impl Pending {
    fn sent(&mut self, what: (String, Half, i64), at: Instant) {
        match self.seen.remove(&what) {
            Some(seen) => self.seconds.push((seen - at).as_secs_f64()),
            None => drop(self.sent.insert(what, at)),
        }
    }

    fn seen(&mut self, what: (String, Half, i64), at: Instant, new: bool) {
        match self.sent.remove(&what) {
            Some(sent) => self.seconds.push((at - sent).as_secs_f64()),
            None if new => drop(self.seen.insert(what, at)),
            None => {}
        }
    }
}

/// A stream, and who leads it with which token.
struct Held {
    stream: StreamName,
    leader: usize,
    token: i64,
}

struct Leaders {
    locks: [(LeaseLockService, InstanceId); 2],
    ttl: Ttl,
}

impl Leaders {
    async fn acquire(&self, leader: usize, stream: &StreamName) -> Result<i64, Error> {
        let (locks, id) = &self.locks[leader];
        let request = AcquireRequest::new(stream, id, self.ttl).claim(Claim::Instance);
        let grant = locks.acquire(request).await?.granted();
        let token = grant
            .and_then(|grant| grant.token)
            .map(leasewarden::FencingToken::get);
        token.ok_or_else(|| Error::Failed(format!("{id} was not granted {stream}")))
    }
}

pub(crate) async fn measure(stage: &Stage, options: &Options) -> Result<Truth, Error> {
    stage.namespace(NAMESPACE).await?;
    let service = |id: &str| {
        let locks = LeaseLockService::builder(stage.plane.kube_config())
            .namespace(NAMESPACE)
            .build()?;
        Ok::<_, Error>((locks, InstanceId::new(id)?))
    };
    let leaders = Arc::new(Leaders {
        locks: [service("a")?, service("b")?],
        ttl: Ttl::new(options.ttl())?,
    });
    let operator = stage.operator(NAMESPACE)?;
    say(&format!("{} Leases are acquired", options.streams));
    let held: Vec<_> = stream::iter(0..options.streams)
        .map(|n| {
            let leaders = Arc::clone(&leaders);
            async move {
                let stream = StreamName::new(format!("stream-{n}"))?;
                let token = leaders.acquire(0, &stream).await?;
                let held = Held {
                    stream,
                    leader: 0,
                    token,
                };
                Ok::<_, Error>(Arc::new(tokio::sync::Mutex::new(held)))
            }
        })
        .buffer_unordered(16)
        .try_collect()
        .await?;

    let renewals = Arc::new(AtomicU64::new(0));
    let renewing = tokio::spawn(renew(
        Arc::clone(&leaders),
        held.clone(),
        options.ttl(),
        Arc::clone(&renewals),
    ));
    let objects = Api::<ChangeStreamLeader>::namespaced(stage.client.clone(), NAMESPACE);
    wait("every leader is shown", || async {
        let Ok(all) = objects.list(&ListParams::default()).await else {
            return false;
        };
        let shown = |o: &ChangeStreamLeader| o.status.as_ref().is_some_and(|s| s.holder_identity.is_some());
        all.items.iter().filter(|o| shown(o)).count() == options.streams
    })
    .await?;

    let pending = Arc::<Mutex<Pending>>::default();
    let watching = tokio::spawn(watch(objects, Arc::clone(&pending)));
    tokio::time::sleep(Duration::from_secs(2)).await;
    say(&format!(
        "{} transitions a second for {} s",
        options.transitions, options.seconds
    ));
    let meter = Meter::start(operator.pid())?;
    let before = renewals.load(Ordering::SeqCst);
    let begun = Instant::now();
    let between = Duration::from_secs(1) / options.transitions;
    let mut ticks = tokio::time::interval(between * 2);
    let mut handovers = tokio::task::JoinSet::new();
    let mut transitions = 0_u32;
    for held in held.iter().cycle() {
        ticks.tick().await;
        if begun.elapsed() >= options.window() {
            break;
        }
        let (held, leaders, pending) = (Arc::clone(held), Arc::clone(&leaders), Arc::clone(&pending));
        handovers.spawn(async move { hand_over(&leaders, &held, between, &pending).await });
        transitions += 2;
    }
    let window = begun.elapsed();
    while let Some(done) = handovers.join_next().await {
        done.map_err(|e| Error::Failed(e.to_string()))??;
    }
    let renewed = renewals.load(Ordering::SeqCst) - before;
    let mut beside = meter.stop()?;
    beside.leases = options.streams;
    wait("every transition is shown", || async {
        lock(&pending).sent.is_empty()
    })
    .await?;
    renewing.abort();
    watching.abort();

    let seconds = std::mem::take(&mut lock(&pending).seconds);
    if seconds.len() < usize::try_from(transitions).unwrap_or_default() {
        return Err(Error::Failed(format!(
            "{transitions} transitions, and {} were timed",
            seconds.len()
        )));
    }
    let latency = Summary::of(seconds).ok_or_else(|| Error::Failed("no samples".to_owned()))?;
    #[allow(clippy::cast_precision_loss)]
    Ok(Truth {
        latency,
        rate: f64::from(transitions) / window.as_secs_f64(),
        renewals: renewed as f64 / window.as_secs_f64(),
        beside,
    })
}

fn lock(pending: &Mutex<Pending>) -> std::sync::MutexGuard<'_, Pending> {
    pending.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Two transitions: the leader releases, and a moment later the other one acquires.
async fn hand_over(
    leaders: &Leaders,
    held: &tokio::sync::Mutex<Held>,
    pause: Duration,
    pending: &Mutex<Pending>,
) -> Result<(), Error> {
    let mut held = held.lock().await;
    let name = held.stream.to_string();
    let sent = Instant::now();
    lock(pending).sent((name.clone(), Half::Released, held.token), sent);
    let (locks, id) = &leaders.locks[held.leader];
    locks.release(ReleaseRequest::new(&held.stream, id)).await?;
    tokio::time::sleep_until((sent + pause).into()).await;
    held.leader = 1 - held.leader;
    let sent = Instant::now();
    held.token = leaders.acquire(held.leader, &held.stream).await?;
    lock(pending).sent((name, Half::Acquired, held.token), sent);
    Ok(())
}

/// Renews each Lease three times per TTL, evenly spread.
async fn renew(
    leaders: Arc<Leaders>,
    all: Vec<Arc<tokio::sync::Mutex<Held>>>,
    ttl: Duration,
    renewals: Arc<AtomicU64>,
) {
    let pause = ttl / 3 / u32::try_from(all.len()).unwrap_or(u32::MAX);
    let mut ticks = tokio::time::interval(pause);
    for held in all.iter().cycle() {
        ticks.tick().await;
        let (held, leaders, renewals) = (Arc::clone(held), Arc::clone(&leaders), Arc::clone(&renewals));
        tokio::spawn(async move {
            // One that is being handed over needs none.
            let Ok(held) = held.try_lock() else { return };
            let (locks, id) = &leaders.locks[held.leader];
            let request = ExtendRequest::new(&held.stream, id, leaders.ttl);
            if locks
                .extend(request)
                .await
                .is_ok_and(|outcome| outcome.is_granted())
            {
                renewals.fetch_add(1, Ordering::SeqCst);
            }
        });
    }
}

/// Takes the time of every status that comes.
async fn watch(objects: Api<ChangeStreamLeader>, pending: Arc<Mutex<Pending>>) {
    let follow = async {
        let listed = objects.list(&ListParams::default()).await?;
        let version = listed.metadata.resource_version.unwrap_or_default();
        let seconds = u32::try_from(LIMIT.as_secs()).unwrap_or(290).min(290);
        let params = WatchParams::default().timeout(seconds);
        let mut events = objects.watch(&params, &version).await?.boxed();
        while let Some(event) = events.try_next().await? {
            if let WatchEvent::Modified(ChangeStreamLeader {
                status: Some(status),
                spec,
                ..
            }) = event
            {
                take(&pending, &spec.stream_name, &status, Instant::now());
            }
        }
        Ok::<_, kube::Error>(())
    };
    if let Err(error) = follow.await {
        say(&format!("the watch of the statuses ended: {error}"));
    }
}

fn take(pending: &Mutex<Pending>, stream: &str, status: &ChangeStreamLeaderStatus, at: Instant) {
    let mut pending = lock(pending);
    // It may be over already when it is shown: then the history has both halves.
    for past in &status.history {
        let Some(token) = past.fencing_token else { continue };
        pending.seen((stream.to_owned(), Half::Released, token), at, false);
        pending.seen((stream.to_owned(), Half::Acquired, token), at, false);
    }
    if let Some(token) = status.fencing_token {
        pending.seen((stream.to_owned(), Half::Acquired, token), at, true);
    }
}
