//! The stage: a process of its own that holds the store and is the parent of operator and workers, so that none of them
//! outlives the demo by accident.
//!
//! The driver speaks to it over a pipe ([`protocol`]) and holds the other end in a [`Crew`](crew::Crew). When the pipe
//! closes, however the driver ended, the stage kills its children and goes. Told to keep, it stays until `down` ends it;
//! that is why the store lives here and not in the driver.

pub(crate) mod cast;
pub(crate) mod crew;
pub(crate) mod down;
pub(crate) mod protocol;

use std::fs::File;
use std::io::{self, BufRead as _, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use crate::clock;
use crate::serve::{self, Shared};
use crate::store::Store;
use cast::Cast;
use protocol::{Reply, Request, Signal};

/// In the stage's folder: holds its pid, and is locked for as long as it lives.
pub(crate) const LOCK: &str = "stage.lock";
/// In the stage's folder: the children's output.
pub(crate) const LOGS: &str = "logs";
/// A child that was asked to end gets so long.
const PATIENCE: Duration = Duration::from_secs(20);

/// The stage's whole life. Called by the hidden subcommand, by nobody else.
pub(crate) fn main(folder: &Path, streams: Vec<String>) -> ExitCode {
    // A Ctrl-C at the terminal ends the driver, and the driver's end ends us. Refused only to a group's leader.
    let _ = rustix::process::setsid();
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let result = runtime.block_on(play(folder, streams));
        // Not waiting for the thread that reads the input.
        runtime.shutdown_background();
        result
    };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&Reply::Failed(error.to_string()));
            ExitCode::FAILURE
        }
    }
}

async fn play(folder: &Path, streams: Vec<String>) -> io::Result<()> {
    let _lock = lock(folder)?;
    std::fs::create_dir_all(folder.join(LOGS))?;
    let store = Shared::new(Store::new(streams));
    let (producing, on) = watch::channel(true);
    tokio::spawn(serve::produce(store.clone(), on));
    let mut cast = Cast::new(folder.join(LOGS));
    let mut terminate = signal(SignalKind::terminate())?;
    let mut requests = requests()?;
    say(&Reply::Ready {
        store: serve::listen(store.clone()).await?,
    });

    let (mut keep, mut keep_folder) = (false, false);
    loop {
        let request = tokio::select! {
            request = requests.recv() => request,
            _ = terminate.recv() => {
                cast.end(PATIENCE).await;
                break;
            }
        };
        let reply = match request {
            Some(Request::Start(part)) => cast.start(part).map_or_else(failed, |pid| Reply::Started { pid }),
            Some(Request::Signal { name, signal }) => match cast.signal(&name, signal).await {
                Ok(()) => Reply::Signalled { at: clock::now() },
                Err(error) => failed(error),
            },
            Some(Request::Look { from }) => {
                let store = store.lock();
                Reply::Seen {
                    log: store.log(from).to_vec(),
                    totals: store.totals(),
                    ended: cast.ended(),
                }
            }
            Some(Request::Produce(on)) => {
                producing.send_replace(on);
                Reply::Done
            }
            Some(Request::KeepFolder) => {
                keep_folder = true;
                Reply::Done
            }
            Some(Request::Keep) => {
                keep = true;
                store.lock().stop_logging();
                Reply::Done
            }
            None if keep => {
                // The driver is gone, and was allowed to go.
                let _ = terminate.recv().await;
                cast.end(PATIENCE).await;
                break;
            }
            None => {
                cast.signal_all(Signal::Kill).await;
                break;
            }
        };
        say(&reply);
    }
    cast.wait().await;
    if !keep_folder {
        std::fs::remove_dir_all(folder)?;
    }
    Ok(())
}

#[allow(clippy::needless_pass_by_value)] // To be passed as a function.
fn failed(error: io::Error) -> Reply {
    Reply::Failed(error.to_string())
}

/// What the driver asks. A thread, since reading standard input blocks and cannot be cancelled.
fn requests() -> io::Result<mpsc::UnboundedReceiver<Request>> {
    let (request, requests) = mpsc::unbounded_channel();
    let read = move || {
        for line in io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            match serde_json::from_str(&line) {
                Ok(asked) => drop(request.send(asked)),
                Err(error) => say(&Reply::Failed(error.to_string())),
            }
        }
    };
    std::thread::Builder::new()
        .name("requests".to_owned())
        .spawn(read)?;
    Ok(requests)
}

fn say(reply: &Reply) {
    if let Ok(line) = serde_json::to_string(reply) {
        // A driver that is gone needs no reply.
        let _ = writeln!(io::stdout(), "{line}");
    }
}

fn lock(folder: &Path) -> io::Result<File> {
    let mut file = File::create(folder.join(LOCK))?;
    file.lock()?;
    write!(file, "{}", std::process::id())?;
    Ok(file)
}
