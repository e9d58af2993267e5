//! A real Kubernetes control plane for tests: etcd, kube-apiserver and kube-controller-manager, built once per
//! machine from Go modules, started in seconds, never left behind.
//!
//! ```no_run
//! # async fn a_test() -> Result<(), leasewarden_controlplane::Error> {
//! use leasewarden_controlplane::ControlPlane;
//!
//! let control_plane = ControlPlane::shared().await;
//! let namespace = control_plane.namespace("my-test").await?;
//! let client = control_plane.client()?;
//! # let _ = (client, namespace.name());
//! # Ok(())
//! # }
//! ```
//!
//! | variable | meaning |
//! |---|---|
//! | `USE_EXISTING_CLUSTER=true` | test on the cluster of the current kubeconfig, in namespaces of our own; start nothing |
//! | `KUBEBUILDER_ASSETS=DIR` | take etcd, kube-apiserver, kubectl (and kube-controller-manager) from there |
//! | `TEST_ASSET_KUBE_APISERVER=FILE`, `TEST_ASSET_ETCD`, `TEST_ASSET_KUBECTL` | one program each |
//! | `LEASEWARDEN_KUBERNETES=1.36` | another Kubernetes version than the default |
//! | `LEASEWARDEN_CACHE=DIR` | where built programs are kept; by default `~/.cache/leasewarden` |
//! | `LEASEWARDEN_TEST_KUBECONFIG=FILE` | a control plane that runs already; set by `controlplane run` |
//! | `LEASEWARDEN_CONTROLPLANE_BIN=FILE` | the `controlplane` program, where it is not found by itself |
//!
//! Nothing is ever skipped. What is missing fails the test, with the ways out in the message.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod assets;
mod blocking;
mod build;
mod cache;
mod cluster;
mod control_plane;
mod down;
mod error;
mod existing;
mod kubeconfig;
mod namespace;
mod pki;
mod ports;
mod process;
mod progress;
mod protocol;
mod report;
#[doc(hidden)]
pub mod supervise;
mod supervisor;
mod user;
mod versions;

pub use assets::{Error as ProgramError, build_programs, locate};
pub use build::Error as BuildError;
pub use control_plane::{Builder, ControlPlane};
pub use down::{DownError, down};
pub use error::Error;
pub use existing::{TEST_KUBECONFIG, USE_EXISTING_CLUSTER, is_existing_cluster};
pub use kubeconfig::Error as KubeconfigError;
pub use namespace::TestNamespace;
pub use pki::Error as CertificateError;
pub use supervisor::Error as SupervisorError;
pub use versions::UnknownVersion;
