//! What a test run and its supervisor say to each other: a line of JSON each way, over the supervisor's standard
//! input and output. The end of the input means that the run is over, however it ended.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Which control plane to start.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Spec {
    pub(crate) etcd: PathBuf,
    pub(crate) apiserver: PathBuf,
    pub(crate) controller_manager: Option<PathBuf>,
    pub(crate) etcd_arguments: Vec<String>,
    pub(crate) apiserver_arguments: Vec<String>,
    pub(crate) controller_manager_arguments: Vec<String>,
}

/// A program that can be paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Target {
    Etcd,
    Apiserver,
}

/// From the run to the supervisor.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// The first, once.
    Start(Spec),
    StopApiserver,
    KillApiserver,
    StartApiserver,
    Pause(Target),
    Resume(Target),
    /// Stay when the input ends; from now on only a signal (or `Stop`) ends it.
    Keep,
    /// Stop everything; the reply is the last thing the supervisor says.
    Stop,
}

/// From the supervisor to the run: one per request, and `Hello` before the first.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    Hello { fingerprint: u64 },
    Started(Started),
    Done,
    Failed { reason: String },
}

/// A control plane that is ready.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Started {
    pub(crate) folder: PathBuf,
    pub(crate) url: String,
    pub(crate) etcd_url: String,
}

/// Tells whether run and supervisor were built from the same sources: a test binary may find an older supervisor
/// program beside it, which nobody has rebuilt.
pub(crate) const FINGERPRINT: u64 = {
    let mut hash = 0xcbf2_9ce4_8422_2325;
    hash = fnv(hash, include_bytes!("protocol.rs"));
    hash = fnv(hash, include_bytes!("supervise.rs"));
    hash = fnv(hash, include_bytes!("cluster.rs"));
    hash = fnv(hash, include_bytes!("process.rs"));
    hash = fnv(hash, include_bytes!("pki.rs"));
    hash = fnv(hash, include_bytes!("kubeconfig.rs"));
    hash = fnv(hash, include_bytes!("ports.rs"));
    hash
};

const fn fnv(mut hash: u64, bytes: &[u8]) -> u64 {
    let mut index = 0;
    while index < bytes.len() {
        hash = (hash ^ bytes[index] as u64).wrapping_mul(0x0100_0000_01b3);
        index += 1;
    }
    hash
}
