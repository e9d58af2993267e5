//! Pods that embed the lock with the chart's Role alone, and what `kubectl get csl` says of them.

use std::process::Command;

use leasewarden_e2e::eventually;

use crate::support::{Namespace, Recording, Release, node, pod_of, workers};

#[test]
fn workers_lead_with_the_charts_role_and_another_takes_over_from_each_that_goes() {
    let namespace = Namespace::new("leading");
    let release = Release::install(
        "lw",
        &namespace,
        &[r#"worker.serviceAccounts=[{"name":"worker"}]"#],
    );
    println!(
        "{}",
        node()
            .helm(&["test", "lw", "-n", "leading", "--timeout=120s"])
            .unwrap()
    );
    let watched = Recording::start("csl", &["get", "csl", "-n", "leading", "--watch"]);
    workers(&namespace, "worker", 3);
    let first = namespace.leader_but("orders", &[]);

    // Deleted: it has time to release.
    namespace.kubectl(&["delete", "pod", &pod_of(&first), "--wait=false"]);
    let second = namespace.leader_but("orders", &[&first]);
    let ended = eventually("the first is in the history", || {
        let status = namespace.status("orders");
        let past = &status["history"][0];
        (past["holderIdentity"] == first.as_str()).then(|| past["ended"].clone())
    });
    assert_eq!(ended, "Released");

    // Killed: its container starts again, but as what it was before it has lost.
    let token = namespace.status("orders")["fencingToken"].as_i64().unwrap();
    let process = node().process_of("leading", &pod_of(&second)).unwrap();
    assert!(
        Command::new("kill")
            .args(["-KILL", &process.to_string()])
            .status()
            .unwrap()
            .success()
    );
    let after = eventually("a later term", || {
        let status = namespace.status("orders");
        (status["fencingToken"].as_i64()? > token).then_some(status)
    });
    assert_eq!(
        after["history"][0]["holderIdentity"],
        second.as_str(),
        "{after:#}"
    );
    assert_eq!(after["conditions"][1]["status"], "True", "{after:#}");

    // The node's containerd restarts: nobody notices.
    let before = namespace.status("payments");
    node().restart_containerd().unwrap();
    eventually("the node's Pods are all running", || {
        let pods = namespace.json(&["get", "pods"]);
        let running = |pod: &serde_json::Value| {
            pod["status"]["phase"] != "Pending" && pod["status"]["phase"] != "Failed"
        };
        pods["items"].as_array()?.iter().all(running).then_some(())
    });
    let now = namespace.status("payments");
    assert!(
        before["fencingToken"].as_i64() <= now["fencingToken"].as_i64(),
        "{now:#}"
    );

    let rows = watched.text();
    println!("{rows}");
    for holder in [&first, &second] {
        assert!(
            rows.contains(holder.as_str()),
            "{holder} was never shown:\n{rows}"
        );
    }
    println!("{}", namespace.kubectl(&["get", "csl", "-o", "wide"]));
    println!("{}", namespace.kubectl(&["describe", "csl", "orders"]));
    drop(watched);
    drop(release);
}

#[test]
fn without_the_role_a_worker_says_what_it_may_not_do() {
    let namespace = Namespace::new("no-role");
    workers(&namespace, "stranger", 1);
    let says = eventually("the worker says so", || {
        let logs = node()
            .kubectl(&["logs", "-n", "no-role", "deployment/worker"])
            .ok()?;
        logs.contains("not permitted to").then_some(logs)
    });
    assert!(says.contains("leases"), "{says}");
    assert!(namespace.lease("orders").is_null());
}
