//! However a run ends, its control plane ends, in order, and its folder goes.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::process::Stdio;

use common::{Place, Running, is_inside, wait_until};
use leasewarden_controlplane::ControlPlane;
use rustix::process::{Signal, kill_process, kill_process_group};

#[test]
fn when_the_run_is_killed() {
    let place = Place::new();
    let mut up = Running::start(&mut place.controlplane(&["up"]));
    up.until("ready:");
    assert!(place.running().len() >= 4, "{:?}", place.running());
    up.child.kill().unwrap();
    up.child.wait().unwrap();
    wait_until("nothing is left", || place.is_clean());
}

#[test]
fn when_the_run_is_killed_while_it_starts() {
    let place = Place::new();
    let mut up = Running::start(&mut place.controlplane(&["up"]));
    wait_until("a program runs", || {
        place.running().iter().any(|line| line.contains("--data-dir"))
    });
    up.child.kill().unwrap();
    up.child.wait().unwrap();
    wait_until("nothing is left", || place.is_clean());
}

#[test]
fn when_somebody_presses_ctrl_c() {
    use std::os::unix::process::CommandExt as _;
    let place = Place::new();
    // As a terminal does: to the whole process group of the command, the supervisor not among it.
    let mut up = Running::start(place.controlplane(&["up"]).process_group(0));
    up.until("Ctrl-C stops it");
    kill_process_group(up.pid(), Signal::INT).unwrap();
    // Not an instant later: whoever gets the prompt back finds nothing left. And all of it ended as it should.
    assert!(up.child.wait().unwrap().success());
    assert!(place.is_clean(), "{:?} {:?}", place.running(), place.folders());
}

#[tokio::test]
async fn when_a_test_panics() {
    if is_inside() {
        let control_plane = ControlPlane::shared().await;
        let version = control_plane.client().unwrap().apiserver_version().await.unwrap();
        println!("\nVERSION {}", version.git_version);
        panic!("as tests do");
    }
    let place = Place::new();
    let mut run = Running::start(place.inside("when_a_test_panics").stderr(Stdio::null()));
    assert!(run.until("VERSION ").starts_with('v'));
    assert!(!run.child.wait().unwrap().success());
    wait_until("nothing is left", || place.is_clean());
}

#[test]
fn when_one_that_was_kept_is_taken_down() {
    let place = Place::new();
    let mut up = Running::start(&mut place.controlplane(&["up", "--keep"]));
    let folder = up.until("stop it with: controlplane down ");
    assert!(up.child.wait().unwrap().success());
    let down = || {
        place
            .controlplane(&["down", &folder])
            .stderr(Stdio::piped())
            .output()
            .unwrap()
    };
    // It runs without anybody holding a pipe to it.
    assert!(
        place.running().iter().any(|line| line.contains("--secure-port")),
        "{:?}",
        place.running()
    );
    assert!(down().status.success());
    wait_until("nothing is left", || place.is_clean());
    let again = down();
    assert!(!again.status.success());
    assert!(String::from_utf8_lossy(&again.stderr).contains("not the folder of a control plane"));
}

#[test]
fn when_a_program_was_paused() {
    let place = Place::new();
    let mut up = Running::start(&mut place.controlplane(&["up"]));
    up.until("ready:");
    let etcd = pid_of(&place, "--data-dir");
    kill_process(etcd, Signal::STOP).unwrap();
    up.child.kill().unwrap();
    up.child.wait().unwrap();
    wait_until("nothing is left", || place.is_clean());
}

fn pid_of(place: &Place, flag: &str) -> rustix::process::Pid {
    let folder = place.path().display().to_string();
    let processes = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| Some(entry.ok()?.path()));
    let mut pids = processes.filter_map(|process| {
        let line = std::fs::read_to_string(process.join("cmdline")).ok()?;
        let pid = process.file_name()?.to_str()?.parse().ok()?;
        (line.contains(flag) && line.contains(&folder))
            .then(|| rustix::process::Pid::from_raw(pid))
            .flatten()
    });
    pids.next().unwrap()
}

#[tokio::test]
async fn but_the_logs_of_a_start_that_failed() {
    let error = ControlPlane::builder()
        .apiserver_arg("--no-such-flag")
        .start()
        .await
        .map(drop)
        .unwrap_err();
    let text = format!("{error:?}");
    assert!(text.contains("unknown flag: --no-such-flag"), "{text}");
    let logs = std::path::Path::new(text.rsplit("all logs are in ").next().unwrap());
    assert!(
        logs.join("kube-apiserver.log").exists() && logs.join("etcd.log").exists(),
        "{text}"
    );
    std::fs::remove_dir_all(logs.parent().unwrap()).unwrap();
}
