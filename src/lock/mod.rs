//! The lock's contract: what a lock service is asked, and what it may answer.
//!
//! Nothing here knows Kubernetes. [`LockService`] is the one trait that the Lease implementation, the in-memory one
//! and a user's own implement; everything that stands above (facade, contract kit, coordinator) knows only the trait.
//!
//! It descends from two contracts, and honours both: *contract A*, FlowWarden's `LockService`
//! (`tryAcquire`/`renew`/`release`/`getLockState`, booleans, [`LockServiceExt`] here), and *contract B*, Flamingock's
//! `CommunityLockService` (`upsert`/`extendLock`/`releaseLock`/`getLockInfo`, errors, [`flamingock`] here).

mod change;
mod clock;
mod error;
pub mod flamingock;
mod memory;
mod noop;
mod outcome;
mod service;
mod types;

pub use change::{Change, ChangeSender, Changes, NewsSource};
pub use clock::{Clock, ManualClock, Moment, SystemClock};
pub use error::{InvalidInput, LockError};
pub use memory::InMemoryLockService;
pub use noop::{NoopLockService, noop};
pub use outcome::{Grant, LockRecord, LockState, Outcome, Refusal, Released, Unknown};
pub use service::{
    AcquireRequest, BoxFuture, Claim, ExtendRequest, IfExpired, LockService, LockServiceExt, ReleaseRequest,
};
pub use types::{FencingToken, InstanceId, StreamName, Term, Ttl};
