//! The supervisor: a process of its own that starts the control plane, and stops it in order when the run that asked
//! for it is over. It learns that from its standard input, a pipe whose other end the run holds: the kernel closes
//! it however the run ends, by return, panic or SIGKILL.
//!
//! It leaves the run's session first, so that a Ctrl-C at the terminal ends the run and not the supervisor. A
//! parent-death signal would be no substitute for the pipe: it fires when the *thread* that started the child ends,
//! which test threads do.

use std::fs::File;
use std::io::{BufRead as _, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use crate::cluster::Cluster;
use crate::protocol::{FINGERPRINT, Reply, Request};
use crate::report::chain;

/// Below the control plane's folder: holds the supervisor's pid, and is locked as long as the supervisor lives.
pub(crate) const LOCK: &str = "supervisor.lock";

/// The supervisor's whole life. Called by the `controlplane` program's hidden subcommand, by nobody else.
#[doc(hidden)]
pub fn main() -> ExitCode {
    // Refused only to the leader of a process group, which a shell may have made of us: then nothing is ours to leave.
    let _ = rustix::process::setsid();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failure(&error),
    };
    let result = runtime.block_on(supervise());
    // Not waiting for the thread that reads the input.
    runtime.shutdown_background();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure(&error),
    }
}

fn failure(error: &dyn std::error::Error) -> ExitCode {
    say(&Reply::Failed { reason: chain(error) });
    ExitCode::FAILURE
}

async fn supervise() -> std::io::Result<()> {
    say(&Reply::Hello {
        fingerprint: FINGERPRINT,
    });
    let mut run = Run::listen()?;
    let Some(Request::Start(spec)) = run.next().await else {
        return Ok(());
    };

    let folder = tempfile::Builder::new()
        .prefix("leasewarden-controlplane-")
        .tempdir()?
        .keep();
    let _lock = lock(&folder)?;
    let mut cluster = Cluster::new(spec, folder.clone());
    let mut over = run.over.clone();
    let started = tokio::select! {
        started = cluster.start() => Some(started),
        _ = over.wait_for(|over| *over) => None,
    };
    let mut reply = None;
    let mut keep_folder = false;
    match started {
        None => {
            cluster.stop().await;
        }
        Some(Err(error)) => {
            cluster.stop().await;
            keep_folder = true;
            let logs = cluster.logs();
            reply = Some(Reply::Failed {
                reason: format!("{}\nall logs are in {}", chain(&error), logs.display()),
            });
        }
        Some(Ok(started)) => {
            say(&Reply::Started(started));
            let stop_asked = serve(&mut run, &mut cluster).await;
            let ended = cluster.stop().await;
            keep_folder = !ended.is_empty();
            if keep_folder {
                let (names, logs) = (ended.join(", "), cluster.logs());
                let reason = format!(
                    "{names} ended when nobody had asked it to; all logs are in {}",
                    logs.display()
                );
                reply = Some(Reply::Failed { reason });
            } else if stop_asked {
                reply = Some(Reply::Done);
            }
        }
    }
    if !keep_folder {
        std::fs::remove_dir_all(&folder)?;
    }
    // Last, so that whoever asked finds nothing left.
    if let Some(reply) = reply {
        say(&reply);
    }
    Ok(())
}

/// Does what the run asks for until it is over. Returns whether the run asked for the end, and so waits for it.
async fn serve(run: &mut Run, cluster: &mut Cluster) -> bool {
    while let Some(request) = run.next().await {
        if matches!(request, Request::Stop) {
            return true;
        }
        let mut over = run.over.clone();
        let work = async {
            match request {
                // Started once already; Stop was seen to above.
                Request::Start(_) | Request::Stop => Ok(()),
                Request::StopApiserver => cluster.end_apiserver(false).await,
                Request::KillApiserver => cluster.end_apiserver(true).await,
                Request::StartApiserver => cluster.start_apiserver().await,
                Request::Pause(target) => cluster.signal(target, Signal::STOP),
                Request::Resume(target) => cluster.signal(target, Signal::CONT),
                Request::Keep => {
                    run.keep.store(true, Ordering::SeqCst);
                    Ok(())
                }
            }
        };
        let result = tokio::select! {
            result = work => result,
            _ = over.wait_for(|over| *over) => return false,
        };
        say(&match result {
            Ok(()) => Reply::Done,
            Err(error) => Reply::Failed {
                reason: chain(&error),
            },
        });
    }
    false
}

/// The run's end of the pipe, as seen from here.
struct Run {
    requests: mpsc::UnboundedReceiver<Request>,
    /// True once everything has to end.
    over: watch::Receiver<bool>,
    /// The end of the input ends nothing any more.
    keep: Arc<AtomicBool>,
}

impl Run {
    fn listen() -> std::io::Result<Self> {
        let (request, requests) = mpsc::unbounded_channel();
        let (end, over) = watch::channel(false);
        let keep = Arc::new(AtomicBool::new(false));
        // Somebody who ends the supervisor itself means the control plane.
        for kind in [
            SignalKind::terminate(),
            SignalKind::interrupt(),
            SignalKind::hangup(),
        ] {
            let (mut signal, end) = (signal(kind)?, end.clone());
            tokio::spawn(async move {
                while signal.recv().await.is_some() {
                    end.send_replace(true);
                }
            });
        }
        let keep_going = Arc::clone(&keep);
        // A thread, since reading standard input blocks and cannot be cancelled.
        std::thread::Builder::new()
            .name("requests".to_owned())
            .spawn(move || {
                for line in std::io::stdin().lock().lines() {
                    let Ok(line) = line else { break };
                    match serde_json::from_str(&line) {
                        Ok(asked) => drop(request.send(asked)),
                        Err(error) => say(&Reply::Failed {
                            reason: chain(&error),
                        }),
                    }
                }
                if !keep_going.load(Ordering::SeqCst) {
                    end.send_replace(true);
                }
            })?;
        Ok(Self { requests, over, keep })
    }

    /// The next request; `None` when the run is over.
    async fn next(&mut self) -> Option<Request> {
        let over = self.over.wait_for(|over| *over);
        tokio::pin!(over);
        let request = tokio::select! {
            biased;
            _ = &mut over => None,
            request = self.requests.recv() => Some(request),
        };
        match request {
            Some(Some(request)) => Some(request),
            // Kept, and the input has ended: no requests any more, only signals.
            Some(None) => {
                let _ = over.await;
                None
            }
            None => None,
        }
    }
}

fn say(reply: &Reply) {
    if let Ok(line) = serde_json::to_string(reply) {
        // A run that is gone needs no reply.
        let _ = writeln!(std::io::stdout(), "{line}");
    }
}

fn lock(folder: &Path) -> std::io::Result<File> {
    let mut file = File::create(folder.join(LOCK))?;
    file.lock()?;
    write!(file, "{}", std::process::id())?;
    Ok(file)
}
