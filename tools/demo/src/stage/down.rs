//! `leasewarden-demo down`: ends what `KEEP=1` has left up: workers, operator and store, then the control plane.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::LOCK;

/// In the stage's folder: where the control plane's folder is.
pub(crate) const CONTROL_PLANE: &str = "control-plane";
/// The stage gives its children less.
const LIMIT: Duration = Duration::from_secs(60);

/// Why it could not be ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{} is not the folder of a demo that is up", .0.display())]
    NoFolder(PathBuf, #[source] io::Error),
    #[error("the workers in {} are still there after {} s", .0.display(), LIMIT.as_secs())]
    Late(PathBuf),
    #[error("cannot signal the demo")]
    Signal(#[from] io::Error),
    #[error(transparent)]
    ControlPlane(#[from] leasewarden_controlplane::DownError),
}

/// Ends it, and returns when nothing is left.
pub(crate) fn down(folder: &Path) -> Result<(), Error> {
    let missing = |error| Error::NoFolder(folder.to_owned(), error);
    let control_plane = std::fs::read_to_string(folder.join(CONTROL_PLANE)).map_err(missing)?;
    end_stage(folder)?;
    leasewarden_controlplane::down(Path::new(control_plane.trim()))?;
    Ok(())
}

fn end_stage(folder: &Path) -> Result<(), Error> {
    let file = folder.join(LOCK);
    let missing = |error| Error::NoFolder(folder.to_owned(), error);
    let pid = std::fs::read_to_string(&file).map_err(missing)?;
    let lock = File::open(&file).map_err(missing)?;
    // A process id alone may be another's by now; the lock is held only by the stage itself.
    let alive = || matches!(lock.try_lock(), Err(TryLockError::WouldBlock));
    if alive() {
        let pid = pid.trim().parse().ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| missing(io::ErrorKind::InvalidData.into()))?;
        kill_process(pid, Signal::TERM).map_err(io::Error::from)?;
    }
    let deadline = Instant::now() + LIMIT;
    while alive() {
        if Instant::now() >= deadline {
            return Err(Error::Late(folder.to_owned()));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    // Left only by a stage that was killed.
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}
