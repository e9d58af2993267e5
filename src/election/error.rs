//! What can be wrong with what a coordinator is asked, and what may be left when it ends.

use std::fmt;

use super::status::StreamState;
use crate::lock::{InvalidInput, StreamName};

/// Why the coordinator did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CoordinatorError {
    /// A stream of this name is registered already.
    #[error("stream {0} is registered already; two pieces of work need two stream names")]
    DuplicateStream(StreamName),
    /// No stream of this name is registered.
    #[error("no stream {0} is registered")]
    UnknownStream(StreamName),
    /// It was shut down.
    #[error("the coordinator is shut down")]
    ShutDown,
    /// No runtime to run the work on.
    #[error("build the coordinator inside a Tokio runtime, or name one with `runtime`")]
    NoRuntime,
    /// The default instance id could not be made of the host's name.
    #[error(transparent)]
    InstanceId(#[from] InvalidInput),
    /// The operating system refused a thread.
    #[error("the coordinator's thread could not be started")]
    Thread(#[source] std::io::Error),
}

/// Streams that were not down when the time to shut down was over.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not all streams came to an end in time: {}", Listed(.streams))]
#[non_exhaustive]
pub struct Unfinished {
    /// Which, and what was still going on. The coordinator's thread goes on ending them.
    pub streams: Vec<(StreamName, StreamState)>,
}

struct Listed<'a>(&'a [(StreamName, StreamState)]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, (stream, state)) in self.0.iter().enumerate() {
            let comma = if nth == 0 { "" } else { ", " };
            write!(f, "{comma}{stream} ({state:?})")?;
        }
        Ok(())
    }
}
