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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::{InstanceId, LockServiceExt, Ttl};

    #[tokio::test]
    async fn it_grants_everything_to_everybody_at_once_and_reports_no_leader() {
        let service = noop();
        let stream = StreamName::new("orders").unwrap();
        let ttl = Ttl::from_secs(1).unwrap();
        for instance in ["a", "b"].map(|id| InstanceId::new(id).unwrap()) {
            assert!(service.renew(&stream, &instance, ttl).await, "of nothing");
            assert!(service.try_acquire(&stream, &instance, ttl).await);
            assert!(service.try_release(&stream, &instance).await);
            assert!(service.try_acquire(&stream, &instance, ttl).await);
        }
        assert_eq!(service.current_leader(&stream).await, None);
    }

    #[tokio::test]
    async fn its_grants_never_end_and_keep_the_term_they_were_claimed_under() {
        let stream = StreamName::new("orders").unwrap();
        let instance = InstanceId::new("a").unwrap();
        let term = Term::random();
        let request = AcquireRequest::new(&stream, &instance, Ttl::MAX).claim(Claim::Term(term.clone()));
        let grant = noop().acquire(request).await.unwrap().granted().unwrap();
        assert_eq!((grant.term, grant.valid_until), (term, Moment::NEVER));
        assert_eq!(grant.token, None);
    }
}
