//! Where built programs are kept: one folder per machine and version, shared by every checkout. Two builders take
//! turns by a file lock, which the kernel gives back however its holder ends.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::versions::{Family, Kubernetes};

/// Moves the cache, by default `~/.cache/leasewarden`.
pub(crate) const VARIABLE: &str = "LEASEWARDEN_CACHE";

/// The folder of a family's programs for one Kubernetes version. `None` when neither `LEASEWARDEN_CACHE` nor a home folder says where.
pub(crate) fn folder(kubernetes: &Kubernetes, family: Family) -> Option<PathBuf> {
    let root = match std::env::var_os(VARIABLE) {
        Some(root) if !root.is_empty() => PathBuf::from(root),
        _ => std::env::home_dir()?.join(".cache/leasewarden"),
    };
    Some(root.join("controlplane").join(kubernetes.cache_key(family)))
}

/// Held while programs are built into a folder.
pub(crate) struct BuildLock {
    // Closing it gives the lock back.
    _file: File,
}

impl BuildLock {
    /// Waits for its turn, for as long as it takes; `waiting` is called once, with the holder's process id, when
    /// somebody else is building.
    pub(crate) fn take(folder: &Path, waiting: impl FnOnce(&str)) -> io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        // Never truncated on opening: it holds the pid of whoever has the lock.
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(folder.join("lock"))?;
        let mut waiting = Some(waiting);
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock) => {
                    let mut pid = String::new();
                    file.rewind()?;
                    file.read_to_string(&mut pid)?;
                    // Empty for an instant, while a new holder writes its pid.
                    if !pid.trim().is_empty()
                        && let Some(waiting) = waiting.take()
                    {
                        waiting(pid.trim());
                    }
                    std::thread::sleep(Duration::from_millis(100));
                }
            }
        }
        file.set_len(0)?;
        file.rewind()?;
        write!(file, "{}", std::process::id())?;
        Ok(Self { _file: file })
    }
}
