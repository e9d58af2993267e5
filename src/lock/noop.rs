//! The lock that always says yes, for programs that run as a single instance and want no store.

use super::{
    clock::{Clock, Moment, SystemClock},
    error::LockError,
    outcome::{Grant, LockState, Outcome, Released},
    service::{AcquireRequest, BoxFuture, Claim, ExtendRequest, LockService, ReleaseRequest},
    types::{StreamName, Term},
};

/// Grants everything, to everybody at once, and reports no leader. Sends nothing. See [`noop`].
#[derive(Debug, Clone, Default)]
pub struct NoopLockService;

/// The lock that always grants and reports no leader (contract A's `noOp()`). It protects nothing: for a program that
/// runs as a single instance, and for tests that are not about locks. Its grants have no token and never end.
pub fn noop() -> NoopLockService {
    NoopLockService
}

impl LockService for NoopLockService {
    fn acquire(&self, request: AcquireRequest) -> BoxFuture<'_, Result<Outcome, LockError>> {
        Box::pin(async move {
            Ok(Outcome::Granted(grant(
                request.stream,
                request.instance,
                request.claim,
            )))
        })
    }

    fn extend(&self, request: ExtendRequest) -> BoxFuture<'_, Result<Outcome, LockError>> {
        Box::pin(async move {
            Ok(Outcome::Granted(grant(
                request.stream,
                request.instance,
                request.claim,
            )))
        })
    }

    fn release(&self, _: ReleaseRequest) -> BoxFuture<'_, Result<Released, LockError>> {
        Box::pin(async { Ok(Released::Released) })
    }

    fn state(&self, _: &StreamName) -> BoxFuture<'_, Result<Option<LockState>, LockError>> {
        Box::pin(async { Ok(None) })
    }

    fn clock(&self) -> &dyn Clock {
        &SystemClock
    }
}

fn grant(stream: StreamName, instance: super::types::InstanceId, claim: Claim) -> Grant {
    let term = match claim {
        Claim::Term(term) => term,
        Claim::Instance => Term::random(),
    };
    let now = SystemClock.wall();
    Grant::new(stream, instance, term, Moment::NEVER)
        .with_times(now, now + super::types::Ttl::MAX.as_duration())
}
