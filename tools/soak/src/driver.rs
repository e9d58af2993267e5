//! Starts everything, lets the faults happen, stops everything, and judges.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    process::{ExitCode, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use leasewarden_controlplane::ControlPlane;
use leasewarden_faultproxy::FaultProxy;
use rustix::process::Pid;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
    task::JoinSet,
};

use crate::{
    Error, Run,
    checker::Checker,
    faults::{ALL, Target},
    node::{Line, Part},
    report::{Needed, Report},
    store::Store,
};

/// What the processes said.
#[derive(Debug, Clone, Default)]
pub(crate) struct Heard(Arc<Mutex<Checker>>);

impl Heard {
    fn checker(&self) -> MutexGuard<'_, Checker> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A process, and its way to the server. Killed when dropped.
pub(crate) struct Node {
    number: usize,
    /// How often it was started.
    life: usize,
    pub(crate) proxy: FaultProxy,
    part: Part,
    child: Option<Child>,
    heard: Heard,
    listening: JoinSet<()>,
}

impl Node {
    pub(crate) fn start(&mut self) -> Result<(), Error> {
        let part = &self.part;
        let mut child = Command::new(std::env::current_exe()?)
            .arg("node")
            .args([
                "--id",
                &part.id,
                "--namespace",
                &part.namespace,
                "--store",
                &part.store,
            ])
            .arg("--kubeconfig")
            .arg(&part.kubeconfig)
            .args([
                "--streams",
                &part.streams.to_string(),
                "--ttl",
                &part.ttl.to_string(),
            ])
            .args(["--term-ms", &part.term_ms.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let stdout = child.stdout.take().ok_or("the process has no output")?;
        // A process that is started again is another one.
        self.life += 1;
        let (heard, number) = (self.heard.clone(), self.number + 1000 * self.life);
        self.listening.spawn(async move {
            let mut lines = BufReader::new(stdout).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                // A process that is killed may leave half a line.
                if let Ok(line) = serde_json::from_str::<Line>(&line) {
                    heard.checker().hear(number, &line);
                }
            }
        });
        self.child = Some(child);
        Ok(())
    }

    pub(crate) fn pid(&self) -> Result<Pid, Error> {
        let id = self
            .child
            .as_ref()
            .and_then(Child::id)
            .ok_or("a process ended by itself")?;
        Pid::from_raw(i32::try_from(id)?).ok_or_else(|| "no process".into())
    }

    /// Nobody but this program ends the processes.
    fn is_alive(&mut self) -> Result<(), Error> {
        match self.child.as_mut().map(Child::try_wait) {
            Some(Ok(None)) => Ok(()),
            ended => Err(format!("{} ended by itself: {ended:?}", self.part.id).into()),
        }
    }

    pub(crate) async fn kill(&mut self) -> Result<(), Error> {
        self.is_alive()?;
        if let Some(mut child) = self.child.take() {
            child.kill().await?;
        }
        Ok(())
    }

    /// Asks it to end, and waits until all that it said is heard.
    async fn end(&mut self) -> Result<(), Error> {
        let Some(mut child) = self.child.take() else {
            return Ok(());
        };
        drop(child.stdin.take());
        match tokio::time::timeout(Duration::from_secs(30), child.wait()).await {
            Ok(status) => {
                let status = status?;
                if !status.success() {
                    return Err(format!("{} ended with {status}", self.part.id).into());
                }
            }
            Err(_) => {
                child.kill().await?;
                return Err(format!("{} did not end when it was asked to", self.part.id).into());
            }
        }
        while self.listening.join_next().await.is_some() {}
        Ok(())
    }
}

/// How often each kind of fault has happened.
type Happened = BTreeMap<&'static str, u64>;

impl Run {
    fn is_over(&self, elapsed: Duration, hand_overs: u64, happened: &Happened) -> bool {
        if let Some(wanted) = self.hand_overs {
            return hand_overs >= wanted;
        }
        // What makes it a soak is waited for: on a loaded machine fewer faults fit into the same time.
        let enough =
            hand_overs >= self.at_least && happened.values().all(|times| *times >= self.faults_at_least);
        elapsed >= if enough { self.lasts } else { self.lasts * 5 }
    }
}

fn progress(elapsed: Duration, hand_overs: u64, happened: &Happened, store: &Store) {
    let (seconds, faults) = (elapsed.as_secs(), happened.values().sum::<u64>());
    eprintln!(
        "[{seconds:5} s] {hand_overs} hand-overs, {faults} faults, {:?}",
        store.tally()
    );
}

/// Ends all processes, without faults.
async fn end(nodes: &mut [Node]) -> Result<(), Error> {
    eprintln!("soak: stopping the processes");
    for node in &mut *nodes {
        node.proxy.clear_rules();
        node.proxy.restore();
    }
    for node in nodes {
        node.end().await?;
    }
    Ok(())
}

pub(crate) async fn run(run: Run) -> Result<ExitCode, Error> {
    let seed = run.seed.unwrap_or_else(|| fastrand::u64(..));
    let mut lots = fastrand::Rng::with_seed(seed);
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
    for number in 0..run.nodes.max(2) {
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
        };
        let mut node = Node {
            number,
            life: 0,
            proxy,
            part,
            child: None,
            heard: heard.clone(),
            listening: JoinSet::new(),
        };
        node.start()?;
        nodes.push(node);
    }

    let target = Target {
        plane: &plane,
        client: &client,
        namespace: namespace.name(),
        streams: run.streams,
        ttl: Duration::from_secs(run.ttl),
    };
    let begun = Instant::now();
    let mut happened: Happened = ALL.iter().map(|kind| (kind.name(), 0)).collect();
    let mut said = begun;
    let mut round: Vec<_> = Vec::new();
    while !run.is_over(begun.elapsed(), heard.checker().hand_overs(), &happened) {
        // Each kind once before any comes again.
        if round.is_empty() {
            round.extend(ALL);
            lots.shuffle(&mut round);
        }
        let Some(kind) = round.pop() else { continue };
        tokio::time::sleep(run.quiet.mul_f64(2.0 * lots.f64())).await;
        let node = lots.usize(..nodes.len());
        if target.inflict(kind, &mut nodes[node], &mut lots).await? {
            *happened.entry(kind.name()).or_default() += 1;
        }
        for node in &nodes {
            node.proxy.forget_seen();
        }
        if said.elapsed() > Duration::from_secs(10) {
            said = Instant::now();
            progress(begun.elapsed(), heard.checker().hand_overs(), &happened, &store);
        }
    }
    let took = begun.elapsed();
    end(&mut nodes).await?;
    drop(background);

    let needed = Needed {
        hand_overs: run.hand_overs.unwrap_or(run.at_least),
        faults: run.faults_at_least,
    };
    let report = Report::new(seed, took, &heard.checker(), happened, store.tally(), needed);
    if run.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        println!("{report}");
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
