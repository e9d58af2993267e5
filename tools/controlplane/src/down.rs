//! Stops a control plane that was left running, by its folder. Its supervisor holds a lock in there, so that a folder
//! whose supervisor is long gone never leads to a signal for whoever has its process id now.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::supervise::LOCK;

/// Stopping takes seconds; on a busy machine, or with requests in flight, a minute and more.
const LIMIT: Duration = Duration::from_secs(240);

/// Why it could not be stopped.
#[derive(Debug, thiserror::Error)]
pub enum DownError {
    /// The folder is not one of ours, or is gone.
    #[error("{} is not the folder of a control plane", .0.display())]
    NoFolder(PathBuf, #[source] io::Error),
    /// Its supervisor was killed; what is left may have to be ended by hand.
    #[error("the control plane in {} has no supervisor any more", .0.display())]
    NoSupervisor(PathBuf),
    /// The supervisor could not be told.
    #[error("cannot signal the supervisor")]
    Signal(#[from] io::Error),
    /// It was told, and is still there.
    #[error("the control plane in {} is still there after {} s", .0.display(), LIMIT.as_secs())]
    Late(PathBuf),
}

/// Stops the control plane in this folder and waits until it is gone, folder included. Blocks.
pub fn down(folder: &Path) -> Result<(), DownError> {
    let file = folder.join(LOCK);
    let missing = |error| DownError::NoFolder(folder.to_owned(), error);
    let pid = std::fs::read_to_string(&file).map_err(missing)?;
    let lock = File::open(&file).map_err(missing)?;
    let alive = || match lock.try_lock() {
        Ok(()) => lock.unlock().map(|()| false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    };
    let pid = pid.trim().parse().ok().and_then(Pid::from_raw);
    match (alive()?, pid) {
        (true, Some(pid)) => kill_process(pid, Signal::TERM).map_err(io::Error::from)?,
        _ => return Err(DownError::NoSupervisor(folder.to_owned())),
    }
    let deadline = Instant::now() + LIMIT;
    while alive()? {
        if Instant::now() >= deadline {
            return Err(DownError::Late(folder.to_owned()));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
