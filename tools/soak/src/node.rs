//! One of the processes: contends for all streams, and does their work in small steps.
//!
//! A side effect is begun while the guard is valid, and nothing takes it back then: a process that is stopped in the
//! middle of one finishes it when it goes on, as a request on its way would. What the guard said, and when, goes to the
//! driver, a line each, by the boot clock, which all processes of a machine share.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use clap::Args;
use leasewarden::{
    InstanceId, StreamName, Ttl,
    election::{DeploymentMode, ElectionSettings, LeaderElectionCoordinator, Leadership, StreamSpec},
    lease::LeaseLockService,
};
use leasewarden_electors::now;
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;

use crate::{Error, store::Client};

#[derive(Debug, Clone, Args)]
pub(crate) struct Part {
    #[arg(long)]
    pub(crate) id: String,
    #[arg(long)]
    pub(crate) kubeconfig: PathBuf,
    #[arg(long)]
    pub(crate) namespace: String,
    #[arg(long)]
    pub(crate) store: String,
    #[arg(long)]
    pub(crate) streams: usize,
    #[arg(long)]
    pub(crate) ttl: u64,
    #[arg(long)]
    pub(crate) term_ms: u64,
    #[arg(long)]
    pub(crate) seed: u64,
}

impl Part {
    /// The lots of one use: the same in every run of this seed.
    fn lots(&self, stream: &str, token: i64) -> fastrand::Rng {
        let mut hasher = DefaultHasher::new();
        (self.seed, stream, token).hash(&mut hasher);
        fastrand::Rng::with_seed(hasher.finish())
    }
}

/// What a process says of one of its leaderships. Times are nanoseconds of the boot clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Line {
    pub(crate) stream: String,
    pub(crate) token: i64,
    /// The guard was valid here: read just before it was first asked.
    pub(crate) first: u64,
    /// And here: read just before it was last found valid.
    pub(crate) last: u64,
    /// Whether the work ended because it was asked to stop, with a valid guard until then.
    pub(crate) handed_over: bool,
}

/// The name of a stream. None begins with another.
pub(crate) fn stream_name(n: usize) -> String {
    format!("stream-{n:05}")
}

/// How often the guard is asked while a side effect is under way.
const GUARD_ASKED_EVERY: Duration = Duration::from_millis(5);

/// How often, in nanoseconds, a leadership that goes on is told of.
const EVERY: u64 = 50_000_000;

/// Runs until its input ends.
pub(crate) async fn run(part: Part) -> Result<(), Error> {
    // Its input ends when the driver does; but a process that is stopped just then would not notice.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let kubeconfig = kube::config::Kubeconfig::read_from(&part.kubeconfig)?;
    let options = kube::config::KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await?;
    let locks = LeaseLockService::builder(config)
        .namespace(&part.namespace)
        .build()?;
    let ttl = Ttl::from_secs(part.ttl)?;
    let coordinator = LeaderElectionCoordinator::builder(Arc::new(locks))
        .instance_id(InstanceId::new(&part.id)?)
        .settings(ElectionSettings::with_ttl(ttl)?)
        .build()?;
    let part = Arc::new(part);
    let store = Arc::new(Client::connect(&part.store, &part.id).await?);
    let streams = (0..part.streams).map(|n| StreamName::new(stream_name(n)));
    let streams = streams.collect::<Result<Vec<_>, _>>()?;
    // When each leadership began, for the hand-overs.
    let led: Arc<Mutex<HashMap<StreamName, u64>>> = Arc::default();
    for stream in &streams {
        let (store, led) = (Arc::clone(&store), Arc::clone(&led));
        let part = Arc::clone(&part);
        let work = move |leadership: Leadership| {
            work(
                Arc::clone(&part),
                leadership,
                Arc::clone(&store),
                Arc::clone(&led),
            )
        };
        coordinator.register(StreamSpec::new(
            stream.clone(),
            DeploymentMode::SingleLeader,
            work,
        ))?;
    }
    coordinator.start_all();
    let handing_over = async {
        let lots = part.lots("", 0);
        hand_over(&coordinator, &led, part.term_ms, lots).await;
    };
    let mut input = [0; 16];
    let ended = async {
        while tokio::io::stdin()
            .read(&mut input)
            .await
            .is_ok_and(|read| read > 0)
        {}
    };
    tokio::select! {
        () = ended => {}
        () = handing_over => {}
    }
    // What cannot be released is left to expire; it was said either way.
    let _ = coordinator.shutdown(Duration::from_secs(10)).await;
    Ok(())
}

/// How long a process that has handed over contends no more, in nanoseconds.
const AWAY: std::ops::Range<u64> = 100_000_000..500_000_000;

/// Ends leaderships that have lasted for their lot, and contends again: mostly a little later, so that another leads.
async fn hand_over(
    coordinator: &LeaderElectionCoordinator,
    led: &Mutex<HashMap<StreamName, u64>>,
    term_ms: u64,
    mut lots: fastrand::Rng,
) {
    let mut due: HashMap<StreamName, (u64, u64)> = HashMap::new();
    let mut stopped: Vec<(u64, StreamName)> = Vec::new();
    loop {
        tokio::time::sleep(Duration::from_millis(20)).await;
        stopped.retain(|(until, stream)| {
            let waits = now() < *until;
            if !waits {
                let _ = coordinator.start(stream);
            }
            waits
        });
        let began = led.lock().map(|led| led.clone()).unwrap_or_default();
        for (stream, began) in began {
            let lot = lots.u64(0..=2 * term_ms) * 1_000_000;
            let entry = due.entry(stream.clone()).or_insert((began, began + lot));
            if entry.0 != began {
                *entry = (began, began + lot);
            }
            if now() >= entry.1 {
                entry.1 = u64::MAX;
                if lots.u8(..) < 32 {
                    let _ = coordinator.restart(&stream);
                } else if coordinator.stop(&stream).is_ok() {
                    stopped.push((now() + lots.u64(AWAY), stream));
                }
            }
        }
    }
}

/// A leadership that is being told of, also when its work is dropped.
struct Told(Line);

impl Told {
    /// Notes that the guard is still valid.
    fn ask(&mut self, leadership: &Leadership) {
        let before = now();
        if leadership.is_valid() {
            self.0.last = self.0.last.max(before);
        }
    }

    fn say(&self) {
        if let Ok(line) = serde_json::to_string(&self.0) {
            println!("{line}");
        }
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        self.say();
    }
}

async fn work(
    part: Arc<Part>,
    leadership: Leadership,
    store: Arc<Client>,
    led: Arc<Mutex<HashMap<StreamName, u64>>>,
) {
    let Some(token) = leadership.token() else { return };
    let stream = leadership.stream().clone();
    // The clock first: a guard that is valid after the reading was valid at it, also if this process is stopped in between.
    let first = now();
    if !leadership.is_valid() {
        return;
    }
    if let Ok(mut led) = led.lock() {
        led.insert(stream.clone(), first);
    }
    let mut told = Told(Line {
        stream: stream.to_string(),
        token: token.get(),
        first,
        last: first,
        handed_over: false,
    });
    told.say();
    let mut said = first;
    let mut lots = part.lots(&told.0.stream, token.get());
    loop {
        let before = now();
        if !leadership.is_valid() {
            return;
        }
        told.0.last = told.0.last.max(before);
        if before > said + EVERY {
            said = before;
            told.say();
        }
        // Not cancelled when the work is dropped: it was begun.
        let pause = if lots.u8(..) < 32 {
            lots.u64(50..150)
        } else {
            lots.u64(1..10)
        };
        let (store, of) = (Arc::clone(&store), told.0.stream.clone());
        let effect = tokio::spawn(async move { store.effect(of, token, Duration::from_millis(pause)).await });
        // A hand-over lets what was begun end first, so only a leadership that is lost leaves a write on its way: damage
        // in the store that checks nothing comes of faults alone. A store that cannot be reached or refuses the token
        // ends no leadership: the guard does.
        let mut effect = std::pin::pin!(effect);
        loop {
            tokio::select! {
                _ = &mut effect => break,
                () = tokio::time::sleep(GUARD_ASKED_EVERY) => told.ask(&leadership),
            }
        }
        let ended = tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(lots.u64(5..30))) => leadership.is_stop_requested(),
            _ = leadership.stop_requested() => true,
        };
        if ended {
            let before = now();
            if leadership.is_valid() {
                told.0.last = told.0.last.max(before);
                told.0.handed_over = true;
            }
            return;
        }
    }
}
