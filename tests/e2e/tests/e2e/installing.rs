//! The release itself: its Pods, its metrics, and what stays of it.

use std::{io::Write as _, process::Stdio};

use leasewarden_controlplane::locate;
use leasewarden_e2e::eventually;
use serde_json::json;

use crate::support::{Namespace, Release, chart, forget_crd, node};

#[test]
fn metrics_are_as_prometheus_would_have_them() {
    let namespace = Namespace::new("metrics");
    let release = Release::install("lw", &namespace, &[]);
    let lock = json!({
        "apiVersion": "leasewarden.dev/v1beta1", "kind": "ChangeStreamLeader",
        "metadata": {"name": "orders", "namespace": "metrics"}, "spec": {"streamName": "orders"},
    });
    eventually("an object is shown", || {
        node().apply(&lock).ok()?;
        let reason = namespace.status("orders")["conditions"][0]["reason"].clone();
        (!reason.is_null()).then_some(())
    });
    for pod in release.pods() {
        let page = node()
            .kubectl(&[
                "get",
                "--raw",
                &format!("/api/v1/namespaces/metrics/pods/{pod}:8080/proxy/metrics"),
            ])
            .unwrap();
        assert!(page.contains("leasewarden_build_info"), "{page}");
        let mut promtool = std::process::Command::new(locate("promtool").unwrap())
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // kubectl's output comes without its last line's end.
        promtool
            .stdin
            .take()
            .unwrap()
            .write_all(format!("{page}\n").as_bytes())
            .unwrap();
        let said = promtool.wait_with_output().unwrap();
        let text =
            String::from_utf8_lossy(&said.stdout).into_owned() + &String::from_utf8_lossy(&said.stderr);
        assert!(said.status.success(), "{text}\n{page}");
    }
}

#[test]
fn an_upgrade_brings_the_new_schema_a_rollback_works_and_objects_survive_all_of_it() {
    let namespace = Namespace::new("upgrade");
    forget_crd();
    // The chart as it would have been with an older CRD: without a column and a field of the status.
    let older = node().folder().join("older");
    let copied = std::process::Command::new("cp")
        .args(["-r", &chart()])
        .arg(&older)
        .status()
        .unwrap();
    assert!(copied.success());
    let file = older.join("files/crd.yaml");
    let crd = std::fs::read_to_string(&file).unwrap();
    assert!(crd.contains("fencingToken:"));
    let renamed = crd.replace("fencingToken:", "olderToken:");
    std::fs::write(&file, renamed).unwrap();
    let older = older.display().to_string();
    node()
        .helm(&[
            "install",
            "lw",
            &older,
            "-n",
            "upgrade",
            "--wait",
            "--timeout=180s",
        ])
        .unwrap();
    let release = Release {
        name: "lw",
        namespace: &namespace,
    };
    let schema = || {
        let crd = node()
            .json(&["get", "crd", "changestreamleaders.leasewarden.dev"])
            .unwrap();
        let status =
            &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"];
        !status["fencingToken"].is_null()
    };
    assert!(!schema());
    let object = json!({
        "apiVersion": "leasewarden.dev/v1beta1", "kind": "ChangeStreamLeader",
        "metadata": {"name": "orders", "namespace": "upgrade"}, "spec": {"streamName": "orders"},
    });
    node().apply(&object).unwrap();
    let uid = || namespace.json(&["get", "csl", "orders"])["metadata"]["uid"].clone();
    let before = uid();

    let chart = chart();
    node()
        .helm(&[
            "upgrade",
            "lw",
            &chart,
            "-n",
            "upgrade",
            "--wait",
            "--timeout=180s",
        ])
        .unwrap();
    assert!(schema(), "the new schema is there");
    assert_eq!(uid(), before);
    node()
        .helm(&["rollback", "lw", "1", "-n", "upgrade", "--wait", "--timeout=180s"])
        .unwrap();
    assert_eq!(uid(), before);
    drop(release);
    assert_eq!(uid(), before, "the CRD is kept, and with it the objects");
    // For the other tests, whose releases have another name or namespace: a kept CRD is another's until it is adopted.
    node()
        .kubectl(&["delete", "crd", "changestreamleaders.leasewarden.dev"])
        .unwrap();
}
