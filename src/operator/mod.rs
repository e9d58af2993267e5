//! Keeps `ChangeStreamLeader`s true: who leads each stream, in `kubectl get csl`.
//!
//! ```text
//! watches ──► index ──► queue ──► reconcile ──► projection (pure) ──► status
//!                         ▲           │
//!                         └── timers ─┘
//! ```
//!
//! * `view`: a Lease as plain facts.
//! * `watch`, `index`: what was seen, with every change of leadership until it is written.
//! * `shared`, `controller`, `retries`, `reconcile`, `decide`: when to look, and the requests.
//! * `projection`, `history`, `conditions`: what a status says and when it is worth a write. Pure.
//! * `budget`: how many writes there may be between transitions, and when. Pure.
//! * `lines`, `blindness`: watches that are down, and what a status says then.
//! * `observe`: what metrics and events are made of; `metrics`, `events`: those.
//! * `replica`, `http`, `secure`: one of several operators, of which one works, what it serves, and to whom.
//! * `naming`: which Lease an object is about, and the objects that are created for discovered Leases.
//! * `clock`, `api`: the API server's time, and its errors in words.
//!
//! The operator only reads Leases, but for the one by which its replicas elect. It grants no lock: without it everything
//! goes on, unseen.

mod api;
mod blindness;
mod budget;
mod clock;
mod conditions;
mod controller;
mod decide;
mod events;
mod exposition;
mod hidden;
mod history;
mod http;
mod index;
mod lines;
mod metrics;
pub(crate) mod naming;
mod observe;
mod projection;
mod reconcile;
mod replica;
mod retries;
mod run;
#[cfg(feature = "cli")]
mod secure;
mod shared;
mod view;
mod watch;

#[cfg(feature = "cli")]
pub(crate) use hidden::create_hidden;
pub use replica::{Replica, ReplicaElection};
pub use run::{Operator, OperatorError};
#[cfg(feature = "cli")]
pub use secure::Secure;
