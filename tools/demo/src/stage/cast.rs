//! The stage's children: started with their output in a file each, signalled, waited for.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, kill_process};
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::protocol::{Ended, Part, Signal};
use crate::clock;

/// All children, by name.
pub(crate) struct Cast {
    logs: PathBuf,
    running: BTreeMap<String, Running>,
    ended: Arc<Mutex<Vec<Ended>>>,
}

struct Running {
    signals: mpsc::UnboundedSender<(Signal, oneshot::Sender<io::Result<()>>)>,
    task: JoinHandle<()>,
}

impl Cast {
    pub(crate) fn new(logs: PathBuf) -> Self {
        Self {
            logs,
            running: BTreeMap::new(),
            ended: Arc::default(),
        }
    }

    /// Starts it; returns its process id. A name may be used again when its first bearer has ended.
    pub(crate) fn start(&mut self, part: Part) -> io::Result<u32> {
        let log = self.logs.join(format!("{}.log", part.name));
        let output = OpenOptions::new().create(true).append(true).open(log)?;
        let mut child = Command::new(&part.program)
            .args(&part.arguments)
            .env("KUBECONFIG", &part.kubeconfig)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()?;
        let pid = child.id().unwrap_or_default();
        let (signals, mut asked) = mpsc::unbounded_channel();
        let (ended, name) = (Arc::clone(&self.ended), part.name.clone());
        let task = tokio::spawn(async move {
            let status = loop {
                tokio::select! {
                    status = child.wait() => break status,
                    Some((signal, reply)) = asked.recv() => {
                        let _: Result<(), _> = oneshot::Sender::send(reply, send(&child, signal));
                    }
                }
            };
            let ended_so = Ended {
                name,
                at: clock::now(),
                well: status.as_ref().is_ok_and(std::process::ExitStatus::success),
                status: status.map_or_else(|e| e.to_string(), |s| s.to_string()),
            };
            ended
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(ended_so);
        });
        self.ended
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|ended| ended.name != part.name);
        self.running.insert(part.name, Running { signals, task });
        Ok(pid)
    }

    /// Signals it; returns when that is done. An error when it has ended.
    pub(crate) async fn signal(&self, name: &str, signal: Signal) -> io::Result<()> {
        let gone = || io::Error::other(format!("{name} is not running"));
        let running = self.running.get(name).ok_or_else(gone)?;
        let (reply, done) = oneshot::channel();
        running.signals.send((signal, reply)).map_err(|_| gone())?;
        done.await.map_err(|_| gone())?
    }

    /// Signals all that run.
    pub(crate) async fn signal_all(&self, signal: Signal) {
        for name in self.running.keys() {
            // One that has ended needs no signal.
            let _ = self.signal(name, signal).await;
        }
    }

    /// Asks all to end, and makes those end that have not after `patience`.
    pub(crate) async fn end(&mut self, patience: Duration) {
        self.signal_all(Signal::Terminate).await;
        if timeout(patience, self.wait()).await.is_err() {
            self.signal_all(Signal::Kill).await;
        }
    }

    /// Waits until all have ended.
    pub(crate) async fn wait(&mut self) {
        for running in self.running.values_mut() {
            if !running.task.is_finished() {
                let _ = (&mut running.task).await;
            }
        }
    }

    /// Those that have ended.
    pub(crate) fn ended(&self) -> Vec<Ended> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Its process id is its own for as long as it was not waited for.
fn send(child: &Child, signal: Signal) -> io::Result<()> {
    let signal = match signal {
        Signal::Kill => rustix::process::Signal::KILL,
        Signal::Terminate => rustix::process::Signal::TERM,
    };
    match child.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
        Some(pid) => Ok(kill_process(pid, signal)?),
        None => Err(io::Error::other("it has ended")),
    }
}
