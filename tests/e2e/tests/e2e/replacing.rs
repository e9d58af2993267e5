//! A rollout of the operator: how long nobody keeps the statuses.

use std::{
    io::{BufRead as _, BufReader},
    process::Stdio,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use leasewarden_e2e::eventually;

use crate::support::{Namespace, Release, node};

/// When the watch brought which holder; empty for nobody.
type Seen = Arc<Mutex<Vec<(Instant, String)>>>;

/// Follows the holder of a Lease until the process is killed.
fn follow(namespace: &str, lease: &str) -> (std::process::Child, Seen) {
    let column = "custom-columns=HOLDER:.spec.holderIdentity";
    let mut kubectl = node()
        .plane()
        .kubectl()
        .args([
            "get",
            "lease",
            lease,
            "-n",
            namespace,
            "--watch",
            "--no-headers",
            "-o",
            column,
        ])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(kubectl.stdout.take().unwrap()).lines();
    let seen = Seen::default();
    let noted = Arc::clone(&seen);
    thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let holder = line
                .trim()
                .trim_matches(|c| c == '<' || c == '>')
                .replace("none", "");
            noted.lock().unwrap().push((Instant::now(), holder));
        }
    });
    (kubectl, seen)
}

#[test]
fn a_rollout_hands_the_operators_lock_over_within_a_second() {
    let namespace = Namespace::new("rollout");
    let release = Release::install("lw", &namespace, &[]);
    let lease = "lw-leasewarden";
    let holder = || {
        namespace.lease(lease)["spec"]["holderIdentity"]
            .as_str()
            .map(str::to_owned)
    };
    let first = eventually("a replica leads", || holder().filter(|holder| !holder.is_empty()));
    let pods = release.pods();
    let (mut kubectl, seen) = follow("rollout", lease);
    eventually("the watch is open", || {
        (!seen.lock().unwrap().is_empty()).then_some(())
    });
    namespace.kubectl(&["rollout", "restart", "deployment/lw-leasewarden"]);
    namespace.kubectl(&["rollout", "status", "deployment/lw-leasewarden", "--timeout=180s"]);
    eventually("all Pods are others", || {
        let now = release.pods();
        (now.len() == pods.len() && now.iter().all(|pod| !pods.contains(pod))).then_some(())
    });
    let last = eventually("one of them leads, and the watch has told", || {
        let now = holder().filter(|holder| !holder.is_empty() && *holder != first)?;
        let told = seen
            .lock()
            .unwrap()
            .last()
            .is_some_and(|(_, holder)| *holder == now);
        told.then_some(now)
    });
    kubectl.kill().unwrap();
    kubectl.wait().unwrap();
    let seen = seen.lock().unwrap().clone();
    let gaps: Vec<Duration> = seen
        .windows(2)
        .filter(|pair| pair[0].1.is_empty() && !pair[1].1.is_empty())
        .map(|pair| pair[1].0 - pair[0].0)
        .collect();
    println!("from {first} to {last}; without a holder: {gaps:?}");
    assert!(!gaps.is_empty(), "nobody released it: {seen:?}");
    assert!(gaps.iter().all(|gap| *gap <= Duration::from_secs(1)), "{gaps:?}");
}
