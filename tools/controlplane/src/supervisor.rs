//! The run's side of the supervisor: finds the program, starts it, talks to it. What it then does stands in
//! [`supervise`](crate::supervise).

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use crate::protocol::{FINGERPRINT, Reply, Request, Spec, Started};

/// Names the `controlplane` program where it is not found by itself.
pub(crate) const VARIABLE: &str = "LEASEWARDEN_CONTROLPLANE_BIN";
const PROGRAM: &str = "controlplane";
const PACKAGE: &str = "leasewarden-controlplane";

/// The supervisor could not be started, or did not do as it was told.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// `LEASEWARDEN_CONTROLPLANE_BIN` names something else, or an older build.
    #[error("{VARIABLE}={} is not the `{PROGRAM}` program of this very version", .0.display())]
    WrongProgram(PathBuf),
    /// There was none to be found, and cargo could not build it.
    #[error(
        "no `{PROGRAM}` program of this version beside the tests, and `cargo build -p {PACKAGE} --bin {PROGRAM}` \
         failed: {0}\nbuild it, or name it by {VARIABLE}=FILE"
    )]
    NotBuilt(String),
    /// The pipe to it broke: somebody killed it.
    #[error("the control plane's supervisor is gone")]
    Gone(#[source] io::Error),
    /// What was asked for did not succeed.
    #[error("{0}")]
    Failed(String),
}

/// A supervisor that runs. Dropped, it is told to stop everything, and waited for.
#[derive(Debug)]
pub(crate) struct Supervisor {
    child: Child,
    // One request and its reply at a time. `None` once it was told to stop.
    pipe: Mutex<Option<Pipe>>,
}

#[derive(Debug)]
struct Pipe {
    requests: ChildStdin,
    replies: BufReader<ChildStdout>,
}

impl Supervisor {
    /// Starts a supervisor and has it start a control plane. Blocks until that is ready.
    pub(crate) fn start(spec: Spec) -> Result<(Self, Started), Error> {
        let mut supervisor = Self::find()?;
        match supervisor.ask(&Request::Start(spec))? {
            Reply::Started(started) => Ok((supervisor, started)),
            other => {
                // It has stopped what it had started, and ends by itself: nothing more to ask of it.
                drop(supervisor.close());
                Err(unexpected(&other))
            }
        }
    }

    /// Has something done, and waits until it is.
    pub(crate) fn order(&self, request: &Request) -> Result<(), Error> {
        match self.ask(request)? {
            Reply::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Stops everything and waits until nothing is left. A second time it does nothing.
    pub(crate) fn stop(&mut self) -> Result<(), Error> {
        let result = match self.close() {
            Some(mut pipe) => pipe.ask(&Request::Stop).and_then(|reply| match reply {
                Reply::Done => Ok(()),
                other => Err(unexpected(&other)),
            }),
            None => Ok(()),
        };
        // The pipe is closed by now: it ends, whatever it has answered.
        let _ = self.child.wait();
        result
    }

    /// Leaves it running without us.
    pub(crate) fn leave(mut self) -> Result<(), Error> {
        self.order(&Request::Keep)?;
        // Neither stopped nor waited for: it is nobody's child once we end.
        drop(self.close());
        std::mem::forget(self);
        Ok(())
    }

    fn close(&mut self) -> Option<Pipe> {
        self.pipe.get_mut().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn ask(&self, request: &Request) -> Result<Reply, Error> {
        let mut pipe = self.pipe.lock().unwrap_or_else(PoisonError::into_inner);
        pipe.as_mut()
            .ok_or_else(|| Error::Gone(io::ErrorKind::BrokenPipe.into()))?
            .ask(request)
    }

    fn find() -> Result<Self, Error> {
        if let Some(file) = std::env::var_os(VARIABLE)
            .filter(|v| !v.is_empty())
            .map(PathBuf::from)
        {
            return Self::spawn(&file).ok_or(Error::WrongProgram(file));
        }
        let this = std::env::current_exe().ok();
        let itself = this
            .iter()
            .filter(|file| file.file_stem().is_some_and(|name| name == PROGRAM))
            .cloned();
        // Tests are in target/debug/deps, examples in target/debug/examples, programs in target/debug.
        let beside = this
            .iter()
            .flat_map(|file| file.ancestors().skip(1).take(2))
            .map(|folder| folder.join(PROGRAM));
        for file in itself.chain(beside).filter(|file| file.is_file()) {
            if let Some(supervisor) = Self::spawn(&file) {
                return Ok(supervisor);
            }
        }
        let file = cargo_build().map_err(Error::NotBuilt)?;
        Self::spawn(&file)
            .ok_or_else(|| Error::NotBuilt(format!("{} is not of this version", file.display())))
    }

    /// `None` when that is no supervisor, or not one of this version.
    fn spawn(file: &Path) -> Option<Self> {
        let mut child = Command::new(file)
            .arg("supervise")
            // The pipe's other end is closed on exec: no child of ours can keep the run alive by inheriting it.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Not ours: whoever reads our output would wait for the supervisor's end.
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let mut pipe = Pipe {
            requests: child.stdin.take()?,
            replies: BufReader::new(child.stdout.take()?),
        };
        if let Ok(Reply::Hello {
            fingerprint: FINGERPRINT,
        }) = pipe.reply()
        {
            return Some(Self {
                child,
                pipe: Mutex::new(Some(pipe)),
            });
        }
        drop(pipe);
        let _ = child.wait();
        None
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            crate::progress::say(&format!("control plane: {}", crate::report::chain(&error)));
        }
    }
}

impl Pipe {
    fn ask(&mut self, request: &Request) -> Result<Reply, Error> {
        let line = serde_json::to_string(request).map_err(|e| Error::Gone(e.into()))?;
        writeln!(self.requests, "{line}").map_err(Error::Gone)?;
        self.reply().map_err(Error::Gone)
    }

    fn reply(&mut self) -> io::Result<Reply> {
        let mut line = String::new();
        if self.replies.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(serde_json::from_str(&line)?)
    }
}

fn unexpected(reply: &Reply) -> Error {
    match reply {
        Reply::Failed { reason } => Error::Failed(reason.clone()),
        other => Error::Failed(format!("the supervisor answered {other:?}")),
    }
}

/// Tests of another package do not build this package's program. Returns where it is.
fn cargo_build() -> Result<PathBuf, String> {
    crate::progress::say(&format!("building the {PROGRAM} program"));
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    // `cargo run` tells about its own package. Build scripts that look at these (ring's does) would run again, and
    // everything above them be built again, each time.
    for (name, _) in std::env::vars_os() {
        let of_a_package = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
        if name.to_str().is_some_and(of_a_package) {
            command.env_remove(name);
        }
    }
    let output = command
        .args([
            "build",
            "--quiet",
            "--message-format=json-render-diagnostics",
            "-p",
            PACKAGE,
            "--bin",
            PROGRAM,
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == PROGRAM)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .ok_or_else(|| "cargo did not say where it put it".to_owned())
}
