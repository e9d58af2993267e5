//! What can go wrong with a control plane, as a test sees it.

use crate::report::chain;
use crate::{assets, build, kubeconfig, pki, supervisor};

/// Why a control plane is not there, or did not do what a test wanted.
///
/// Its `Debug` is what a person can read, since that is what `unwrap` shows of a failed test.
#[derive(thiserror::Error)]
pub enum Error {
    /// A program is missing and could not be built.
    #[error(transparent)]
    Programs(#[from] assets::Error),
    /// There is no Go to build a program with; a cluster that is up already would do as well.
    #[error(
        "{0}\n  - {existing}=true, to test on the cluster of the current kubeconfig; nothing is started then",
        existing = crate::USE_EXISTING_CLUSTER
    )]
    NoGoHere(#[source] build::Error),
    /// It did not start, or did not do as it was told.
    #[error(transparent)]
    Supervisor(#[from] supervisor::Error),
    /// A kubeconfig could not be read or written.
    #[error(transparent)]
    Kubeconfig(#[from] kubeconfig::Error),
    /// A user's certificate could not be made.
    #[error(transparent)]
    Certificate(#[from] pki::Error),
    /// The API server refused, or could not be reached.
    #[error("the API server did not do it")]
    Api(#[from] kube::Error),
    /// kubectl failed.
    #[error("kubectl failed: {0}")]
    Kubectl(String),
    /// A thread or a runtime could not be started.
    #[error("the operating system refused")]
    Os(#[from] std::io::Error),
    /// Only a control plane that this process has started can be stopped, paused or built to order.
    #[error("this needs a control plane of its own, which nobody else uses: see ControlPlane::builder()")]
    NotOurs,
    /// `USE_EXISTING_CLUSTER` is set, and so nothing is started.
    #[error(
        "this needs a control plane of its own, but {} is set: nothing is started then",
        crate::USE_EXISTING_CLUSTER
    )]
    StartsNothing,
}

impl Error {
    /// The same, with one way out more, where an existing cluster is as good as a control plane of one's own.
    #[must_use]
    pub fn or_an_existing_cluster(self) -> Self {
        match self {
            Self::Programs(assets::Error::Build(error @ build::Error::NoGo { .. })) => Self::NoGoHere(error),
            other => other,
        }
    }
}

impl std::fmt::Debug for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&chain(self))
    }
}
