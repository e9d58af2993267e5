//! A short soak, and one that is killed. `make soak` runs longer ones.

#![allow(clippy::unwrap_used)]

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use leasewarden_electors::is_stopped;
use rustix::process::{Pid, Signal, kill_process};

const LIMIT: Duration = Duration::from_secs(120);

fn soak() -> Command {
    Command::new(env!("CARGO_BIN_EXE_leasewarden-soak"))
}

#[test]
fn leaders_under_random_faults_are_never_two_and_lose_or_double_no_work() {
    let kept = tempfile::tempdir().unwrap();
    let mut soak = soak();
    let soak = soak.args(["--for", "100s", "--keep"]).arg(kept.path());
    let soak = soak.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&soak.stdout), text(&soak.stderr));
    println!("{err}\n{out}");
    for file in fs::read_dir(kept.path()).unwrap() {
        println!("{}", fs::read_to_string(file.unwrap().path()).unwrap());
    }
    assert!(soak.status.success(), "{err}\n{out}");
}

/// Killed when the test fails.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The processes that a process has started from its main thread and that contend.
fn nodes_of(driver: &Child) -> Vec<Pid> {
    let id = driver.id();
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
    let pids = children.split_whitespace().filter(|pid| {
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split('\0').nth(1) == Some("node")
    });
    pids.filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}

/// Whether it is gone, but for its exit code that its new parent has not asked for yet.
fn is_gone(pid: Pid) -> bool {
    let proc = format!("/proc/{}", pid.as_raw_nonzero());
    !Path::new(&proc).exists()
        || fs::read_to_string(format!("{proc}/stat")).is_ok_and(|stat| stat.contains(") Z "))
}

fn eventually(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < LIMIT, "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_soak_that_is_killed_takes_its_processes_with_it_also_those_that_stand_still() {
    let mut driver = Killed(
        soak()
            .args(["--for", "10m", "--nodes", "3", "--quiet", "10m"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap(),
    );
    eventually("three processes contend", || nodes_of(&driver.0).len() == 3);
    let nodes = nodes_of(&driver.0);
    for &node in &nodes[1..] {
        kill_process(node, Signal::STOP).unwrap();
        eventually("it stands still", || is_stopped(node));
    }
    driver.0.kill().unwrap();
    driver.0.wait().unwrap();
    eventually("all are gone", || nodes.iter().all(|&node| is_gone(node)));
}
