//! Processes of their own: this program started again as an instance that is stopped by signals, or that has the same id.

use std::{
    process::Stdio,
    sync::{Arc, Mutex},
    time::Duration,
};

use leasewarden::{
    FencingToken,
    election::{Leadership, StreamState, TokenChecker},
    lease::LeaseLockService,
};
use leasewarden_electors::{is_stopped, now};
use leasewarden_faultproxy::{FaultProxy, Seen};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

use super::stage::{Instance, Stage, pause, settings};
use crate::support::{World, eventually, instance, stream};

/// Where the environment says what instance this process is to be.
const NODE: &str = "LEASEWARDEN_TEST_NODE";

/// In the process that [`Node::start`] started: an instance that prints what its work does, until its input ends.
/// Returns false in any other.
async fn is_node() -> bool {
    let Ok(part) = std::env::var(NODE) else {
        return false;
    };
    let [namespace, id, ttl, kubeconfig] = part.split('|').collect::<Vec<_>>()[..] else {
        panic!("{NODE}={part}");
    };
    let kubeconfig = kube::config::Kubeconfig::read_from(kubeconfig).unwrap();
    let options = kube::config::KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options);
    let locks = LeaseLockService::builder(config.await.unwrap())
        .namespace(namespace)
        .build()
        .unwrap();
    let work = |leadership: Leadership| async move {
        let token = leadership.token().unwrap();
        loop {
            // Read before the guard is asked: what is printed was decided after this moment.
            let at = now();
            if !leadership.is_valid() {
                println!("\nnode: invalid {token} {at}");
                return;
            }
            println!("\nnode: act {token} {at}");
            pause().await;
        }
    };
    let _instance = Instance::run(locks, instance(id), settings(ttl.parse().unwrap()), work);
    let input = tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink()));
    let _ = input.await;
    true
}

/// What the other process said.
#[derive(Debug, Clone)]
struct Said {
    what: String,
    token: FencingToken,
    at: u64,
}

/// Another process. Killed when dropped.
struct Node {
    child: Child,
    said: Arc<Mutex<Vec<Said>>>,
    proxy: FaultProxy,
    _folder: TempDir,
}

impl Node {
    /// Starts the test of this name in a process of its own, which reaches the API server through a proxy.
    fn start(test: &str, world: &World, id: &str, ttl: u64) -> Self {
        let proxy = FaultProxy::start(&world.plane.kube_config()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        proxy.write_kubeconfig(&kubeconfig).unwrap();
        let kubeconfig = kubeconfig.display();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([test, "--exact", "--nocapture"])
            .env(NODE, format!("{}|{id}|{ttl}|{kubeconfig}", world.ns()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let said = Arc::<Mutex<Vec<Said>>>::default();
        let (mut lines, heard) = (
            BufReader::new(child.stdout.take().unwrap()).lines(),
            Arc::clone(&said),
        );
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let Some(line) = line.strip_prefix("node: ") else {
                    continue;
                };
                let [what, token, at] = line.split(' ').collect::<Vec<_>>()[..] else {
                    continue;
                };
                heard.lock().unwrap().push(Said {
                    what: what.to_owned(),
                    token: FencingToken::new(token.parse().unwrap()).unwrap(),
                    at: at.parse().unwrap(),
                });
            }
        });
        Self {
            child,
            said,
            proxy,
            _folder: folder,
        }
    }

    /// Waits until it has said such a thing.
    async fn says(&self, what: &str, such: impl Fn(&Said) -> bool) -> Said {
        eventually(("the other process says", what), || async {
            let said = self.said.lock().unwrap();
            said.iter().find(|said| said.what == what && such(said)).cloned()
        })
        .await
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id().expect("it runs")).unwrap()).unwrap()
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Waits until the kernel says that it stands still.
    async fn stands_still(&self) {
        eventually("it is stopped", || async { is_stopped(self.pid()).then_some(()) }).await;
    }
}

// Reported against Ray (enhancements#65).
#[tokio::test]
async fn scenario_09_a_process_that_stood_still_for_two_terms_does_nothing_more_and_its_token_is_refused() {
    const TTL: u64 = 3;
    if is_node().await {
        return;
    }
    let test = "scenarios::frozen::scenario_09_a_process_that_stood_still_for_two_terms_does_nothing_more_and_its_token_is_refused";
    let world = World::new("frozen").await;
    let node = Node::start(test, &world, "a", TTL);
    let (orders, store) = (stream("orders"), TokenChecker::new());
    let old = node.says("act", |_| true).await.token;
    store.check(&orders, old).unwrap();

    node.signal(Signal::STOP);
    node.stands_still().await;
    let stopped = now();
    let stage = Stage::default();
    let other = Instance::steady(world.locks(), "b", TTL, &stage);
    other.leads().await;
    let new = other.status().token.unwrap();
    assert!(new > old);
    store.check(&orders, new).unwrap();
    let resumed = eventually("two terms have passed", || async {
        let moment = now();
        (u128::from(moment - stopped) > Duration::from_secs(2 * TTL).as_nanos()).then_some(moment)
    })
    .await;
    node.signal(Signal::CONT);
    let refused = store.check(&orders, old);
    assert!(refused.is_err(), "a store that checks tokens refuses the old one");
    other.stop().await;
    let again = node.says("act", |said| said.token > new).await;
    store.check(&orders, again.token).unwrap();
    let late = |said: &&Said| said.what == "act" && said.token == old && said.at > stopped;
    let late = node.said.lock().unwrap().iter().find(late).cloned();
    assert!(
        late.is_none(),
        "it acted after it was resumed at {resumed}: {late:?}"
    );
    stage.kept_apart();
}

#[tokio::test]
async fn scenario_07_two_processes_with_one_instance_id_are_two() {
    if is_node().await {
        return;
    }
    let world = World::new("twin-process").await;
    let stage = Stage::default();
    let first = Instance::steady(world.locks(), "twin", 4, &stage);
    first.leads().await;
    let node = Node::start(
        "scenarios::frozen::scenario_07_two_processes_with_one_instance_id_are_two",
        &world,
        "twin",
        4,
    );
    eventually("the other contends", || async {
        let asked = |seen: &Seen| seen.path.ends_with("/leases/orders") && seen.status().is_some();
        (node.proxy.count(asked) >= 1).then_some(())
    })
    .await;
    first.renews(4).await;
    assert_eq!(first.status().state, StreamState::Working);
    assert!(node.said.lock().unwrap().is_empty(), "it acted beside its twin");
    first.stop().await;
    let acted = node.says("act", |_| true).await;
    let last = stage.last_act_of("twin").unwrap();
    assert!(acted.token.get() > last.token && u128::from(acted.at) > last.at.since_origin().as_nanos());
    stage.kept_apart();
}
