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
//! * `controller`, `reconcile`: when to look, and the requests.
//! * `projection`, `history`, `conditions`: what a status says and when it is worth a write. Pure.
//! * `naming`: which Lease an object is about, and the objects that are created for discovered Leases.
//! * `clock`, `api`: the API server's time, and its errors in words.
//!
//! The operator only reads Leases. It holds no lock and grants none: without it everything goes on, unseen.

mod api;
mod clock;
mod conditions;
mod controller;
mod history;
mod index;
mod naming;
mod projection;
mod reconcile;
mod run;
mod view;
mod watch;

pub use run::{Operator, OperatorError};
