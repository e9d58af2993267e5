//! One leader per stream: a program names its streams and gives the work; the work runs on one instance at a time.
//!
//! * [`LeaderElectionCoordinator`]: contends for each stream's lock, starts the work when it is granted, keeps the lock
//!   while the work runs, and ends the work before anybody else may start.
//! * [`Leadership`]: what the work gets. It says whether this instance may act *now*, and asks the clock itself.
//! * [`ElectionSettings`]: one knob, the TTL; the rest follows by stated formulas.
//! * [`ElectionEvent`]: what a metrics hook hears ([`CoordinatorBuilder::metrics`]).
//! * [`TokenChecker`]: for the store, which refuses what a deposed leader still sends.
//!
//! Everything here stands on the [`LockService`](crate::LockService) trait and knows no Kubernetes. What is decided is
//! decided in [`machine`], a pure state machine per stream: it has no clock, sends nothing and draws no lots, so that
//! the same code runs in the product and in a model checker. `driver` gives it time, replies and hands.
//!
//! # How work ends
//!
//! 1. **Stop asked** ([`stop`](LeaderElectionCoordinator::stop), shutdown): [`Leadership::stop_requested`] completes.
//!    The lock is renewed while the work drains, up to the drain time-out; then the work is dropped. Then the lock is
//!    released.
//! 2. **Unreachable**: nothing has proven the lock for so long that its term nears its end. [`Leadership::lost`]
//!    completes a stop margin before the deadline, irrevocably, and at the deadline the work is dropped.
//! 3. **Proven loss**: another holder was seen. The guard is false at once, and the work is dropped at once.
//!
//! What cannot be dropped, a thread that holds a clone of the guard or a future that never yields, is never released:
//! its lock expires, and this instance does not contend again before it has ended. Or the process is aborted, if
//! that is asked for ([`IfStuck`]).

mod answer;
mod builder;
mod calls;
mod coordinator;
mod driver;
mod error;
mod fencing;
mod leadership;
#[doc(hidden)]
pub mod machine;
mod metrics;
mod settings;
mod spec;
mod status;
#[cfg(test)]
mod tests;

pub use builder::CoordinatorBuilder;
pub use coordinator::{LeaderElectionCoordinator, Stopping};
pub use error::{CoordinatorError, Unfinished};
pub use fencing::{StaleToken, TokenChecker};
pub use leadership::{Leadership, NotLeading};
pub use metrics::{Attempt, AttemptOutcome, ElectionEvent, ElectionEventKind};
pub use settings::{ElectionSettings, ElectionSettingsBuilder, UnsafeSettings};
pub use spec::StreamSpec;
pub use status::{
    AfterWork, DeploymentMode, HolderSeen, IfStuck, Loss, LossReason, Role, StreamState, StreamStatus,
};
