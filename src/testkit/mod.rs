//! The lock contract as a test suite, for whoever writes a [`LockService`](crate::LockService).
//!
//! One call runs every rule that the two contracts and this library ask of a lock, as named cases, and reports what a
//! person needs to mend the service:
//!
//! ```
//! use std::time::Duration;
//! use leasewarden::{lock::InMemoryLockService, testkit::Contract};
//! # use std::sync::Arc;
//! # use leasewarden::lock::ManualClock;
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! # let clock = ManualClock::new();
//! # let store = InMemoryLockService::with_clock(Arc::new(clock.clone()));
//! // In a test of yours: `InMemoryLockService` stands for your service.
//! # let _ = stringify!(
//! let store = InMemoryLockService::new();
//! # );
//! Contract::new(move || Arc::new(store.peer()))
//!     .grant_within(Duration::from_millis(500))
//! #   .driven_by(move |by| clock.advance(by))
//!     .run()
//!     .await
//!     .assert_passed();
//! # });
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! * The factory makes services that share one store, as several processes would. Streams have a random prefix, so a
//!   store that others use will do.
//! * [`Contract::grant_within`] is the one parameter: how long after an expiry the service may need to grant.
//! * [`Contract::driven_by`] moves a clock instead of waiting; [`Contract::delete`] plays the hand that deletes a lock.
//! * What a service cannot do is *skipped*, with the reason in the report, and never counted as passed.
//!   [`Report::assert_nothing_skipped`] is for services that can do it all.
//! * [`cases`] lists the cases with their rules, [`Contract::run_case`] runs one.
//!
//! `docs/testkit.md` tells what a service needs to pass; `examples/custom_lock_service.rs` is a small one that does.

mod actor;
mod bench;
mod case;
mod contract;
mod report;
mod rules;

pub use case::{Case, Origin, cases};
pub use contract::{Contract, UnknownCase};
pub use report::{CaseResult, Report, Verdict};
