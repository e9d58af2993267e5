//! Starts everything, lets the faults happen, stops everything, and judges.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    path::PathBuf,
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use futures_util::future::try_join_all;
use leasewarden_controlplane::ControlPlane;
use leasewarden_electors::now;
use leasewarden_faultproxy::FaultProxy;
use tokio::task::JoinSet;

use crate::{
    Error, Run,
    checker::Checker,
    faults::{ALL, Inflicted, Kind, Target},
    kept::keep,
    node::Part,
    process::{Heard, Node},
    report::{Needed, Report, damage_after},
    store::Store,
};

/// How often each kind of fault has happened.
pub(crate) type Happened = BTreeMap<&'static str, u64>;

impl Run {
    fn is_over(&self, elapsed: Duration, hand_overs: u64, happened: &Happened) -> bool {
        let faults = happened.values().all(|times| *times >= self.faults_at_least);
        if let Some(wanted) = self.hand_overs {
            return (hand_overs >= wanted && faults) || elapsed >= self.at_most;
        }
        // What makes it a soak is waited for: on a loaded machine fewer faults fit into the same time.
        let enough = hand_overs >= self.at_least && faults;
        elapsed >= if enough { self.lasts } else { self.lasts * 5 }
    }
}

/// The faults of a run, as they happen: several at once, each on a process that no other is done to.
struct Faults<'a> {
    run: &'a Run,
    target: Target<'a>,
    store: &'a Store,
    begun: Instant,
    nodes: &'a [tokio::sync::Mutex<Node>],
    state: RefCell<State>,
}

struct State {
    lots: fastrand::Rng,
    /// Each kind once before any comes again.
    round: Vec<Kind>,
    happened: Happened,
    inflicted: Vec<Inflicted>,
    said: Instant,
}

impl Faults<'_> {
    fn is_over(&self) -> bool {
        let hand_overs = self.target.heard.checker(Checker::hand_overs);
        let elapsed = self.begun.elapsed();
        self.run
            .is_over(elapsed, hand_overs, &self.state.borrow().happened)
    }

    /// The next kind, and lots for it.
    fn next(&self) -> Option<(Kind, fastrand::Rng)> {
        let State { lots, round, .. } = &mut *self.state.borrow_mut();
        if round.is_empty() {
            round.extend(ALL);
            lots.shuffle(round);
        }
        Some((round.pop()?, lots.fork()))
    }

    /// One fault after another, until there were enough.
    async fn inflict(&self) -> Result<(), Error> {
        while !self.is_over() {
            let Some((kind, mut lots)) = self.next() else {
                continue;
            };
            tokio::time::sleep(self.run.quiet.mul_f64(2.0 * lots.f64())).await;
            let mut order: Vec<usize> = (0..self.nodes.len()).collect();
            lots.shuffle(&mut order);
            // There are more processes than faults at once.
            let Some(mut node) = order.iter().find_map(|nth| self.nodes[*nth].try_lock().ok()) else {
                continue;
            };
            let from = now();
            let happened = self.target.inflict(kind, &mut node, &mut lots).await?;
            node.proxy.forget_seen();
            let mut state = self.state.borrow_mut();
            if happened {
                *state.happened.entry(kind.name()).or_default() += 1;
                state.inflicted.push(Inflicted {
                    kind: kind.name(),
                    on: node.id().to_owned(),
                    from,
                    to: now(),
                });
            }
            self.progress(&mut state);
        }
        Ok(())
    }

    fn progress(&self, state: &mut State) {
        if state.said.elapsed() < Duration::from_secs(10) {
            return;
        }
        state.said = Instant::now();
        let hand_overs = self.target.heard.checker(Checker::hand_overs);
        let (seconds, faults) = (self.begun.elapsed().as_secs(), state.inflicted.len());
        eprintln!(
            "[{seconds:5} s] {hand_overs} hand-overs, {faults} faults, {:?}",
            self.store.tally()
        );
    }
}

/// Ends all processes, without faults.
async fn end(nodes: &mut [tokio::sync::Mutex<Node>]) -> Result<(), Error> {
    eprintln!("soak: stopping the processes");
    for node in &mut *nodes {
        let node = node.get_mut();
        node.proxy.clear_rules();
        node.proxy.restore();
    }
    for node in nodes {
        node.get_mut().end().await?;
    }
    Ok(())
}

pub(crate) async fn run(run: Run) -> Result<ExitCode, Error> {
    let seed = run.seed.unwrap_or_else(|| fastrand::u64(..));
    eprintln!("soak: seed {seed}; starting etcd and kube-apiserver");
    let plane = ControlPlane::builder()
        .without_controller_manager()
        .start()
        .await?;
    let namespace = plane.namespace("soak").await?;
    let (config, client) = (plane.kube_config(), plane.client()?);
    let store = Arc::new(Store::default());
    let (address, serving) = Arc::clone(&store).serve().await?;
    let mut background = JoinSet::new();
    background.spawn(serving);
    let folder = tempfile::tempdir()?;
    let heard = Heard::default();
    let mut nodes = Vec::new();
    let at_once = run.at_once.max(1);
    for number in 0..run.nodes.max(at_once + 1) {
        let proxy = FaultProxy::start(&config)?;
        let kubeconfig: PathBuf = folder.path().join(format!("node-{number}"));
        proxy.write_kubeconfig(&kubeconfig)?;
        let part = Part {
            id: format!("node-{number}"),
            kubeconfig,
            namespace: namespace.name().to_owned(),
            store: address.clone(),
            streams: run.streams,
            ttl: run.ttl,
            term_ms: u64::try_from(run.term.as_millis())?,
            seed,
        };
        let mut node = Node::new(number, proxy, part, heard.clone());
        node.start()?;
        nodes.push(tokio::sync::Mutex::new(node));
    }

    let begun = Instant::now();
    let faults = Faults {
        run: &run,
        target: Target {
            plane: &plane,
            client: &client,
            namespace: namespace.name(),
            streams: run.streams,
            ttl: Duration::from_secs(run.ttl),
            heard: &heard,
            server: tokio::sync::Mutex::default(),
            long_pauses: Mutex::default(),
        },
        store: &store,
        begun,
        nodes: &nodes,
        state: RefCell::new(State {
            lots: fastrand::Rng::with_seed(seed),
            round: Vec::new(),
            happened: ALL.iter().map(|kind| (kind.name(), 0)).collect(),
            inflicted: Vec::new(),
            said: begun,
        }),
    };
    // In this task, and so on this thread: see `Node::start`.
    try_join_all((0..at_once).map(|_| faults.inflict())).await?;
    let took = begun.elapsed();
    let State {
        happened, inflicted, ..
    } = faults.state.into_inner();
    let pauses = faults
        .target
        .long_pauses
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    end(&mut nodes).await?;
    drop(background);

    let needed = Needed {
        hand_overs: run.hand_overs.unwrap_or(run.at_least),
        faults: run.faults_at_least,
    };
    let damage = (store.tally(), damage_after(&pauses, &store.late()));
    let unreadable = heard.unreadable();
    let report =
        heard.checker(|checker| Report::new((seed, took), checker, unreadable, happened, damage, needed));
    if run.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        println!("{report}");
    }
    let clashes = heard.checker(|checker| !checker.clashes().is_empty());
    if clashes {
        let file = heard.checker(|checker| keep(&run.keep, seed, checker, &inflicted))?;
        eprintln!("soak: what shows it is in {}", file.display());
    }
    drop(nodes);
    drop(namespace);
    plane.stop()?;
    Ok(if report.failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
