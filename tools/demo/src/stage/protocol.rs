//! What driver and stage say to each other: a line of JSON each way, over the stage's standard input and output. The
//! end of the input means that the demo is over, however it ended.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::clock::Millis;
use crate::store::{Entry, Total};

/// A program to start.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Part {
    /// As the demo calls it: `w1`.
    pub(crate) name: String,
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<String>,
    pub(crate) kubeconfig: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Signal {
    /// SIGKILL: as a crash.
    Kill,
    /// SIGTERM: as Kubernetes stops a Pod.
    Terminate,
}

/// From the driver to the stage.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    Start(Part),
    Signal {
        name: String,
        signal: Signal,
    },
    /// The log from this entry on, and everything else there is to see.
    Look {
        from: usize,
    },
    /// Whether events are produced. They are, at first.
    Produce(bool),
    /// Something failed, and the logs will be read.
    KeepFolder,
    /// Stay when the input ends.
    Keep,
}

/// From the stage to the driver: `Ready` first, then one per request.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    Ready {
        store: SocketAddr,
    },
    Started {
        pid: u32,
    },
    /// When the signal was sent.
    Signalled {
        at: Millis,
    },
    Seen {
        log: Vec<Entry>,
        totals: Vec<Total>,
        ended: Vec<Ended>,
    },
    Done,
    Failed(String),
}

/// A child that has ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Ended {
    pub(crate) name: String,
    pub(crate) at: Millis,
    /// Whether it exited with 0.
    pub(crate) well: bool,
    /// How it ended, for a person.
    pub(crate) status: String,
}
