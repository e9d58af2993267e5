//! The product against a real API server: kube-apiserver on etcd, started by `leasewarden-controlplane`, one for the
//! whole run. Each test has a namespace of its own; one that needs a control plane of its own says so.

#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::pedantic,
    missing_docs
)]

mod support;

mod election;
mod interop;
mod lease_contract;
mod lease_expiry;
mod lease_faults;
mod lease_foreign;
mod lease_input;
mod lease_lock;
mod lease_permissions;
#[cfg(feature = "cli")]
mod operator;
mod scenarios;
