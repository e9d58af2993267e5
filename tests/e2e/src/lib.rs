//! A cluster of one node: a real control plane with scheduler, kubelet, containerd and runc, in namespaces that
//! `hack/e2e.sh` has made.
//!
//! Nothing here stops anything: all of it lives in a process namespace of its own, and ends with it, whatever happens to
//! the tests. So do its mounts, its network and its files, which are on a file system in memory.

mod node;
mod wait;

pub use node::{Error, Node};
pub use wait::{LIMIT, eventually};
