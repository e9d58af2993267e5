//! The driver's hold on the stage: starts it, asks it, and takes it down by letting go.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::protocol::{Ended, Part, Reply, Request, Signal};
use crate::clock::Millis;
use crate::store::{Entry, Total};

/// Dropped, everybody on the stage is killed and waited for.
#[derive(Debug)]
pub(crate) struct Crew {
    stage: Child,
    requests: Option<ChildStdin>,
    replies: BufReader<ChildStdout>,
    folder: PathBuf,
    store: SocketAddr,
}

/// What there is to see on the stage.
#[derive(Debug, Default)]
pub(crate) struct Sight {
    /// Everything that happened at the store.
    pub(crate) log: Vec<Entry>,
    pub(crate) totals: Vec<Total>,
    pub(crate) ended: Vec<Ended>,
}

impl Crew {
    /// Starts a stage with a store for these streams, in a folder of its own.
    pub(crate) fn start(streams: &[&str]) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("leasewarden-demo-").tempdir()?;
        let mut stage = Command::new(std::env::current_exe()?)
            .arg("stage")
            .arg(folder.path())
            .args(streams)
            // Closed on exec: no child can keep the stage waiting by inheriting the other end.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Not ours: whoever reads our output would wait for the stage's end.
            .stderr(Stdio::null())
            .spawn()?;
        let pipe = io::Error::other("the stage has no pipe");
        let (Some(requests), Some(replies)) = (stage.stdin.take(), stage.stdout.take()) else {
            return Err(pipe);
        };
        let mut crew = Self {
            stage,
            requests: Some(requests),
            replies: BufReader::new(replies),
            // From here on the stage sees to it.
            folder: folder.keep(),
            store: SocketAddr::from(([127, 0, 0, 1], 0)),
        };
        match crew.reply()? {
            Reply::Ready { store } => crew.store = store,
            other => return Err(unexpected(other)),
        }
        Ok(crew)
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where the store answers.
    pub(crate) fn store(&self) -> SocketAddr {
        self.store
    }

    /// Starts a program; returns its process id.
    pub(crate) fn start_part(&mut self, part: Part) -> io::Result<u32> {
        match self.ask(&Request::Start(part))? {
            Reply::Started { pid } => Ok(pid),
            other => Err(unexpected(other)),
        }
    }

    /// Returns when the signal was sent.
    pub(crate) fn signal(&mut self, name: &str, signal: Signal) -> io::Result<Millis> {
        let name = name.to_owned();
        match self.ask(&Request::Signal { name, signal })? {
            Reply::Signalled { at } => Ok(at),
            other => Err(unexpected(other)),
        }
    }

    /// Brings what is known up to date.
    pub(crate) fn look(&mut self, sight: &mut Sight) -> io::Result<()> {
        let from = sight.log.len();
        match self.ask(&Request::Look { from })? {
            Reply::Seen { log, totals, ended } => {
                sight.log.extend(log);
                (sight.totals, sight.ended) = (totals, ended);
                Ok(())
            }
            other => Err(unexpected(other)),
        }
    }

    /// Switches the events on and off.
    pub(crate) fn produce(&mut self, on: bool) -> io::Result<()> {
        self.order(&Request::Produce(on))
    }

    /// Leaves the logs where they are.
    pub(crate) fn keep_folder(&mut self) -> io::Result<()> {
        self.order(&Request::KeepFolder)
    }

    /// Leaves everything running without us.
    pub(crate) fn leave(mut self) -> io::Result<PathBuf> {
        self.order(&Request::Keep)?;
        self.requests = None;
        let folder = self.folder.clone();
        // Neither ended nor waited for: it is nobody's child once we end.
        std::mem::forget(self);
        Ok(folder)
    }

    fn order(&mut self, request: &Request) -> io::Result<()> {
        match self.ask(request)? {
            Reply::Done => Ok(()),
            other => Err(unexpected(other)),
        }
    }

    fn ask(&mut self, request: &Request) -> io::Result<Reply> {
        let requests = self.requests.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        writeln!(requests, "{}", serde_json::to_string(request)?)?;
        self.reply()
    }

    fn reply(&mut self) -> io::Result<Reply> {
        let mut line = String::new();
        if self.replies.read_line(&mut line)? == 0 {
            return Err(io::Error::other("the stage is gone: somebody killed it"));
        }
        Ok(serde_json::from_str(&line)?)
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.requests = None;
        let _ = self.stage.wait();
    }
}

fn unexpected(reply: Reply) -> io::Error {
    match reply {
        Reply::Failed(reason) => io::Error::other(reason),
        other => io::Error::other(format!("the stage answered {other:?}")),
    }
}
