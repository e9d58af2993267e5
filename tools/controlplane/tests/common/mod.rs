//! What these tests share: a place of their own for each, a look at what runs there, and waiting without sleeping in
//! hope.
#![allow(dead_code, clippy::unwrap_used, missing_docs, unreachable_pub)]

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Ample for a busy machine: waiting ends when the condition holds.
pub const LIMIT: Duration = Duration::from_secs(240);

pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < LIMIT, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

const INSIDE: &str = "LEASEWARDEN_TEST_INSIDE";

/// Whether this process is the one that the test of this name has started ([`Place::inside`]): it plays the part of a
/// test run that goes wrong.
pub fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// A folder for everything that a test's programs make; all that runs for the test has it in its environment.
pub struct Place {
    pub folder: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The `controlplane` program in this place.
    pub fn controlplane(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(env!("CARGO_BIN_EXE_controlplane"));
        command.args(arguments);
        command
    }

    /// The test of this name again, in a process of its own in this place: there [`is_inside`] is true.
    pub fn inside(&self, test: &str) -> Command {
        let mut command = self.command(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture"]).env(INSIDE, "1");
        command
    }

    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("TMPDIR", self.path()).stdin(Stdio::null());
        command
            .env_remove("USE_EXISTING_CLUSTER")
            .env_remove("LEASEWARDEN_TEST_KUBECONFIG");
        command
    }

    /// The command lines of what runs here.
    pub fn running(&self) -> Vec<String> {
        let variable = format!("TMPDIR={}", self.path().display());
        let read = |file| std::fs::read(file).map(|text| String::from_utf8_lossy(&text).into_owned());
        std::fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| Some(entry.ok()?.path()))
            // A process that ends meanwhile cannot be read, and does not run.
            .filter(|process| {
                read(process.join("environ")).is_ok_and(|all| all.split('\0').any(|one| one == variable))
            })
            .filter_map(|process| Some(read(process.join("cmdline")).ok()?.replace('\0', " ")))
            .collect()
    }

    /// The folders of control planes here.
    pub fn folders(&self) -> Vec<std::path::PathBuf> {
        let entries = std::fs::read_dir(self.path()).unwrap();
        entries
            .map(|entry| entry.unwrap().path())
            .filter(|path| {
                path.file_name()
                    .unwrap()
                    .to_string_lossy()
                    .starts_with("leasewarden-controlplane-")
            })
            .collect()
    }

    pub fn is_clean(&self) -> bool {
        self.running().is_empty() && self.folders().is_empty()
    }
}

/// A child that is killed and waited for when the test is done with it, also by a failed assertion.
pub struct Running {
    pub child: Child,
    lines: Option<std::io::Lines<BufReader<std::process::ChildStdout>>>,
}

impl Running {
    pub fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = child.stdout.take().map(|stdout| BufReader::new(stdout).lines());
        Self { child, lines }
    }

    /// Reads its output up to a line that starts with this, and returns the rest of that line.
    pub fn until(&mut self, start: &str) -> String {
        let mut seen = Vec::new();
        for line in self.lines.as_mut().unwrap() {
            let line = line.unwrap();
            if let Some(rest) = line.trim_start().strip_prefix(start) {
                return rest.to_owned();
            }
            seen.push(line);
        }
        panic!("it ended without saying {start:?}: {seen:?}")
    }

    pub fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
