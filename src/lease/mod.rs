//! The lock on Kubernetes Leases: one `coordination.k8s.io/v1` Lease per stream.
//!
//! From the outside in: [`LeaseLockService`] hands requests to a thread of its own (`worker`), which drives a pure state
//! machine per stream (`machine`), one operation at a time (`slot`), with the replies of the API server (`client`, `api`) and the
//! news of a watch (`watch`, `following`). The machine reads a Lease (`wire`, `record`), weighs what proves an expiry (`evidence`),
//! keeps account of its own writes (`term`) and makes the next (`write`, `name`, `time`). Nothing that decides does I/O.
//! Who asks may take its id from its Pod (`identity`). A grant that nobody waits for is given back (`delivery`).
//!
//! The wire layout and the rules, with their reasons, are in `docs/protocol.md`.

mod api;
mod client;
mod delivery;
mod evidence;
mod following;
mod identity;
mod machine;
mod name;
pub(crate) mod record;
mod service;
mod slot;
mod term;
pub(crate) mod time;
mod watch;
pub(crate) mod wire;
mod worker;
mod write;

pub use identity::DownwardApiError;
pub use name::{InvalidPrefix, lease_name};
pub use service::{BuildError, LeaseLockService, LeaseLockServiceBuilder};
pub use wire::{
    LABEL_SELECTOR, LABELS, STREAM_ANNOTATION, TERM_ANNOTATION, TOKEN_ANNOTATION, TTL_ANNOTATION,
};
