//! One program of the control plane as a child process: started with its output in a log file, signalled, waited
//! for. In which order programs start and stop is decided in [`cluster`](crate::cluster).

use std::fs::OpenOptions;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// A child that is running, or was when last looked at.
pub(crate) struct Process {
    pub(crate) name: &'static str,
    pub(crate) log: PathBuf,
    child: Child,
}

impl Process {
    pub(crate) fn start(
        name: &'static str,
        program: &Path,
        arguments: &[String],
        logs: &Path,
    ) -> io::Result<Self> {
        let log = logs.join(format!("{name}.log"));
        let output = OpenOptions::new().create(true).append(true).open(&log)?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            // etcd takes every flag from ETCD_* too, and Go clients a proxy from HTTPS_PROXY: nothing of the
            // caller's environment may change what is tested.
            .env_clear()
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        for name in ["PATH", "HOME", "TMPDIR", "TZ"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        Ok(Self {
            name,
            log,
            child: command.spawn()?,
        })
    }

    /// How it ended, when it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// No-op when it has ended: its process id is not reused before it was waited for, and then it is `None`.
    pub(crate) fn signal(&self, signal: Signal) -> io::Result<()> {
        match self.child.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
            Some(pid) => Ok(kill_process(pid, signal)?),
            None => Ok(()),
        }
    }

    /// Asks it to end, makes it end after `patience`. Returns false when something else had ended it meanwhile.
    pub(crate) async fn stop(mut self, patience: Duration) -> bool {
        if self.ended().is_some() {
            return false;
        }
        let _ = self.signal(Signal::TERM);
        // A paused process does not see SIGTERM before it goes on.
        let _ = self.signal(Signal::CONT);
        let Ok(status) = timeout(patience, self.child.wait()).await else {
            self.kill().await;
            return true;
        };
        // etcd lets SIGTERM end it once it has cleaned up. A kill or a crash a moment ago is neither that nor ours.
        let signal = status.ok().and_then(|status| status.signal());
        signal.is_none_or(|signal| signal == Signal::TERM.as_raw())
    }

    /// Ends it at once, as a crash would.
    pub(crate) async fn kill(mut self) {
        let _ = self.signal(Signal::KILL);
        let _ = self.child.wait().await;
    }

    pub(crate) fn tail(&self) -> String {
        tail(&self.log, 15)
    }
}

/// The last lines of a log; says so when there are none.
pub(crate) fn tail(log: &Path, lines: usize) -> String {
    let text = std::fs::read(log)
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_default();
    let all: Vec<_> = text.lines().collect();
    match &all[all.len().saturating_sub(lines)..] {
        [] => format!("({} is empty)", log.display()),
        last => last.join("\n"),
    }
}
