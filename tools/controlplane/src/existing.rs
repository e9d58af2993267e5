//! Clusters that somebody else has started: a `controlplane run` around us, or, with `USE_EXISTING_CLUSTER`, the
//! cluster of the current kubeconfig.

use std::path::PathBuf;

use kube::config::Kubeconfig;

use crate::kubeconfig::Error;

/// Set to `true`, tests run on the cluster of the current kubeconfig and start nothing.
pub const USE_EXISTING_CLUSTER: &str = "USE_EXISTING_CLUSTER";

/// The kubeconfig of a control plane that was started for the whole test run. `controlplane run` sets it.
pub const TEST_KUBECONFIG: &str = "LEASEWARDEN_TEST_KUBECONFIG";

/// Whether `USE_EXISTING_CLUSTER` says so. As with envtest, any capitals of `true` count, and so does `1`.
pub fn is_existing_cluster() -> bool {
    std::env::var(USE_EXISTING_CLUSTER).is_ok_and(|value| value == "1" || value.eq_ignore_ascii_case("true"))
}

/// The file that `controlplane run` has set.
pub(crate) fn lent() -> Option<PathBuf> {
    std::env::var_os(TEST_KUBECONFIG)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}

/// The kubeconfig file that kubectl would use.
pub(crate) fn current_kubeconfig() -> Result<PathBuf, Error> {
    let listed = std::env::var_os("KUBECONFIG").unwrap_or_default();
    let mut files = std::env::split_paths(&listed).filter(|file| !file.as_os_str().is_empty());
    match (files.next(), files.next()) {
        (Some(file), None) => Ok(file),
        // A test hands the path on to programs of ours and of others, which do not all merge.
        (Some(_), Some(_)) => Err(Error::Several),
        _ => std::env::home_dir()
            .map(|home| home.join(".kube/config"))
            .ok_or(Error::None),
    }
}

/// Reads it, with relative paths made absolute.
pub(crate) fn read(file: &PathBuf) -> Result<Kubeconfig, Error> {
    Ok(Kubeconfig::read_from(file)?)
}
