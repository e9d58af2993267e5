//! One leader per change stream on Kubernetes: a lock on `coordination.k8s.io/Lease` objects, with fencing tokens.
//!
//! * [`lock`]: the [`LockService`] trait and what it speaks in; knows no Kubernetes.
//! * [`lease`]: the implementation on Kubernetes Leases.
//! * [`telemetry`]: the names of `tracing` targets and fields.
//! * [`election`]: one leader per stream on any lock service, and the work that runs only there.
//! * `testkit` (feature `testkit`): the lock contract as a test suite for any implementation.
//! * `crd` (feature `crd`) and `operator` (feature `operator`): `ChangeStreamLeader` and its controller.
//!
//! The protocol, with the reason for each rule, is in `docs/protocol.md`.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "cli")]
pub mod cli;
#[cfg(feature = "crd")]
pub mod crd;
pub mod election;
pub mod lease;
pub mod lock;
#[cfg(feature = "operator")]
pub mod operator;
mod rules;
pub mod telemetry;
#[cfg(feature = "testkit")]
pub mod testkit;

/// The version of kube whose `Config` a service is built from. Its major changes with a breaking release of ours.
pub use kube;

pub use lock::{
    AcquireRequest, Claim, ExtendRequest, FencingToken, Grant, InstanceId, LockError, LockService,
    LockServiceExt, LockState, Outcome, Refusal, ReleaseRequest, Released, StreamName, Term, Ttl,
};

/// The README's code compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// So does the code of the pages.
#[cfg(doctest)]
#[doc = include_str!("../docs/observability.md")]
struct Observability;
