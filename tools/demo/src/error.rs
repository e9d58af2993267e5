//! Why the demo ends with something else than 0.

use std::path::PathBuf;

/// What a person has to know.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A program of ours is missing.
    #[error("{0}")]
    Programs(String),
    #[error(transparent)]
    ControlPlane(#[from] leasewarden_controlplane::Error),
    #[error("the API server did not do it")]
    Api(#[from] kube::Error),
    #[error("{0}")]
    Os(#[from] std::io::Error),
    #[error("`{command}` failed: {reason}")]
    Command { command: String, reason: String },
    /// It did not happen in ample time.
    #[error("after {seconds} s still waiting until {what}")]
    Late { what: String, seconds: u64 },
    /// A process ended that nobody had ended, or not as it should.
    #[error("{name} ended ({status})")]
    Ended { name: String, status: String },
    /// It ran, and something that must hold did not.
    #[error("this does not hold:\n{}", .0.join("\n"))]
    DoesNotHold(Vec<String>),
    /// Any of the above, and where to look.
    #[error("{}\n\n{tails}\nall logs are in {}", chain(error), logs.display())]
    Failed {
        error: Box<Error>,
        tails: String,
        logs: PathBuf,
    },
}

/// An error and its causes, in a line unless they are longer.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    text
}
