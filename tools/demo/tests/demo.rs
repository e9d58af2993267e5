//! The demo, run once as a person runs it: what it claims at the end, and that it leaves nothing behind. What its claims
//! are worth (that a duplicate or lost event would be found) is tested beside `summary`.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// One demo at a time: each has a control plane of its own, and its waits have limits.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A folder for everything the demo makes, so that what it leaves is seen, whatever else runs on the machine.
fn demo(temporary: &Path) -> Command {
    let mut demo = Command::new(env!("CARGO_BIN_EXE_leasewarden-demo"));
    demo.env("TMPDIR", temporary)
        .env_remove("KEEP")
        // It has a control plane of its own, also when the tests run on somebody's cluster.
        .env_remove("USE_EXISTING_CLUSTER");
    demo
}

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// The rows of the summary: stream, and the columns that are numbers, and who led.
fn summary(text: &str) -> Vec<Vec<String>> {
    let rows = text
        .lines()
        .skip_while(|line| !line.starts_with("STREAM "))
        .skip(1);
    rows.take_while(|line| !line.is_empty())
        .map(|line| {
            line.split("   ")
                .map(str::trim)
                .filter(|cell| !cell.is_empty())
                .map(str::to_owned)
                .collect()
        })
        .collect()
}

/// Processes that have something to do with this folder.
#[cfg(target_os = "linux")]
fn processes(folder: &Path) -> Vec<String> {
    let folder = folder.to_str().unwrap();
    let of = |entry: std::fs::DirEntry| -> Option<String> {
        let read = |file| {
            Some(String::from_utf8_lossy(&std::fs::read(entry.path().join(file)).ok()?).replace('\0', " "))
        };
        let command = read("cmdline")?;
        let ours = command.contains(folder) || read("environ")?.contains(folder);
        (ours && !command.is_empty()).then_some(command)
    };
    std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(of)
        .collect()
}

#[cfg(not(target_os = "linux"))]
fn processes(_: &Path) -> Vec<String> {
    Vec::new()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder)
        .unwrap()
        .flatten()
        .map(|entry| entry.path())
        .collect()
}

fn nothing_is_left(temporary: &Path) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !(processes(temporary).is_empty() && files(temporary).is_empty()) {
        assert!(
            Instant::now() < deadline,
            "left: {:?} {:?}",
            processes(temporary),
            files(temporary)
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn the_demo_shows_what_it_claims_and_leaves_nothing() {
    let _alone = alone();
    let temporary = tempfile::tempdir().unwrap();
    let output = demo(temporary.path()).output().unwrap();
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    // All of it is gone when the demo returns, not some time later.
    assert_eq!(processes(temporary.path()), Vec::<String>::new());
    assert_eq!(files(temporary.path()), Vec::<PathBuf>::new());

    for claim in [
        "$ kubectl get csl\n",
        "$ kubectl get csl -o wide\n",
        "(SIGKILL)",
        "(SIGTERM)",
        "All of it held",
    ] {
        assert!(text.contains(claim), "{claim} is missing in\n{text}");
    }
    let rows = summary(&text);
    assert_eq!(rows.len(), 4, "{text}");
    for row in &rows {
        let [stream, events, lost, twice, _, stale, balance, leaders] = row.as_slice() else {
            panic!("{row:?} in\n{text}");
        };
        assert!(events.parse::<u64>().unwrap() >= 50, "{row:?}");
        assert_eq!(
            (lost.as_str(), twice.as_str(), balance.as_str()),
            ("0", "0", "right"),
            "{row:?}"
        );
        let tokens: Vec<i64> = leaders
            .split(", ")
            .map(|leader| {
                leader
                    .rsplit_once('(')
                    .unwrap()
                    .1
                    .trim_end_matches(')')
                    .parse()
                    .unwrap()
            })
            .collect();
        assert!(tokens.is_sorted_by(|a, b| a < b), "{row:?}");
        if stream == "orders" {
            // A crash and a stop: three leaders, more where the machine stood still for a TTL; and the late write of the first.
            assert!(tokens.len() >= 3 && stale.parse::<u64>().unwrap() >= 1, "{row:?}");
        }
    }
}

#[test]
fn a_demo_that_is_killed_leaves_nothing() {
    let _alone = alone();
    let temporary = tempfile::tempdir().unwrap();
    let log = temporary.path().with_extension("out");
    let out = std::fs::File::create(&log).unwrap();
    let mut demo = demo(temporary.path()).stdout(out).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(900);
    while !std::fs::read_to_string(&log)
        .unwrap()
        .contains("started the operator")
    {
        assert!(
            demo.try_wait().unwrap().is_none(),
            "{}",
            std::fs::read_to_string(&log).unwrap()
        );
        assert!(
            Instant::now() < deadline,
            "{}",
            std::fs::read_to_string(&log).unwrap()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    #[cfg(target_os = "linux")]
    assert!(
        !processes(temporary.path()).is_empty(),
        "or nothing is found at all"
    );
    demo.kill().unwrap();
    demo.wait().unwrap();
    nothing_is_left(temporary.path());
    std::fs::remove_file(log).unwrap();
}

#[test]
fn a_worker_that_fails_fails_the_demo_and_its_log_is_shown() {
    let _alone = alone();
    let temporary = tempfile::tempdir().unwrap();
    let worker = temporary.path().join("worker");
    std::fs::write(&worker, "#!/bin/sh\necho no work today >&2\nexit 3\n").unwrap();
    std::fs::set_permissions(&worker, std::fs::Permissions::from_mode(0o755)).unwrap();
    let output = demo(temporary.path())
        .env("LEASEWARDEN_WORKER_BIN", &worker)
        .output()
        .unwrap();
    let text = text(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("ended (exit status: 3)") && text.contains("no work today"),
        "{text}"
    );
    assert_eq!(processes(temporary.path()), Vec::<String>::new());
    // The logs are left, for the reader.
    assert!(
        files(temporary.path())
            .iter()
            .any(|file| file.join("logs/w1.log").is_file()),
        "{text}"
    );
}

#[test]
fn what_is_kept_goes_when_it_is_told_to() {
    let _alone = alone();
    let temporary = tempfile::tempdir().unwrap();
    let output = demo(temporary.path()).env("KEEP", "1").output().unwrap();
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    let after = |what: &str| {
        text.split(what)
            .nth(1)
            .and_then(|t| t.lines().next())
            .unwrap()
            .trim()
            .to_owned()
    };
    assert!(Path::new(&after("export KUBECONFIG=")).is_file(), "{text}");
    #[cfg(target_os = "linux")]
    {
        let kill = after("  kill -9 ");
        let (pid, leads) = kill.split_once("   # ").unwrap();
        let (worker, _) = leads.split_once(", which leads ").unwrap();
        let command = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
        assert!(command.contains(&format!("--id\0{worker}\0")), "{text}");
    }
    #[cfg(target_os = "linux")]
    assert!(
        processes(temporary.path())
            .iter()
            .filter(|p| p.contains("--id w"))
            .count()
            == 3,
        "{text}"
    );

    let folder = after("leasewarden-demo down ");
    let down = |folder: &str| demo(temporary.path()).args(["down", folder]).output().unwrap();
    let ended = down(&folder);
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(processes(temporary.path()), Vec::<String>::new());
    assert_eq!(files(temporary.path()), Vec::<PathBuf>::new());
    assert_eq!(down(&folder).status.code(), Some(1), "it is down already");
}
