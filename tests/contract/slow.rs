//! A correct lock on a slow and lossy way to its store, which must not make the kit fail; and one that never answers,
//! which must not make it wait for ever.

use std::{
    future::pending,
    sync::atomic::{AtomicU64, Ordering},
};

use leasewarden::{
    LockError, LockService, LockState, Outcome, Released, StreamName,
    lock::{AcquireRequest, BoxFuture, Clock, ExtendRequest, LockRecord, ReleaseRequest, Unknown},
};

use super::*;

/// Every call takes up to a third of a second, on both ways; every fifth reply is lost after the write was applied.
struct Slow {
    inner: InMemoryLockService,
    calls: AtomicU64,
}

impl Slow {
    fn new(inner: InMemoryLockService) -> Self {
        Self {
            inner,
            calls: AtomicU64::new(0),
        }
    }

    async fn through<T>(&self, call: BoxFuture<'_, T>) -> (T, bool) {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        // Spread without a random generator: a failure repeats.
        let delay = |salt: u64| Duration::from_millis((number + salt) * 7919 % 170);
        tokio::time::sleep(delay(0)).await;
        let answer = call.await;
        tokio::time::sleep(delay(3)).await;
        (answer, number % 5 == 4)
    }
}

fn lost() -> Unknown {
    Unknown::new("the reply was lost")
}

impl LockService for Slow {
    fn acquire(&self, request: AcquireRequest) -> BoxFuture<'_, Result<Outcome, LockError>> {
        Box::pin(async move {
            let (answer, is_lost) = self.through(self.inner.acquire(request)).await;
            if is_lost {
                Ok(Outcome::Unknown(lost()))
            } else {
                answer
            }
        })
    }

    fn extend(&self, request: ExtendRequest) -> BoxFuture<'_, Result<Outcome, LockError>> {
        Box::pin(async move {
            let (answer, is_lost) = self.through(self.inner.extend(request)).await;
            if is_lost {
                Ok(Outcome::Unknown(lost()))
            } else {
                answer
            }
        })
    }

    fn release(&self, request: ReleaseRequest) -> BoxFuture<'_, Result<Released, LockError>> {
        Box::pin(async move {
            let (answer, is_lost) = self.through(self.inner.release(request)).await;
            if is_lost {
                Ok(Released::Unknown(lost()))
            } else {
                answer
            }
        })
    }

    fn state(&self, stream: &StreamName) -> BoxFuture<'_, Result<Option<LockState>, LockError>> {
        let stream = stream.clone();
        Box::pin(async move { self.through(self.inner.state(&stream)).await.0 })
    }

    fn record(&self, stream: &StreamName) -> BoxFuture<'_, Result<Option<LockRecord>, LockError>> {
        let stream = stream.clone();
        Box::pin(async move { self.through(self.inner.record(&stream)).await.0 })
    }

    fn clock(&self) -> &dyn Clock {
        self.inner.clock()
    }
}

#[tokio::test]
async fn a_slow_and_lossy_store_does_not_make_a_correct_lock_fail() {
    let store = InMemoryLockService::new();
    let report = Contract::new(move || Arc::new(Slow::new(store.peer())))
        .run()
        .await;
    println!("{report}");
    report.assert_passed();
}

/// Its store has been lost on the way.
struct Silent(ManualClock);

impl LockService for Silent {
    fn acquire(&self, _: AcquireRequest) -> BoxFuture<'_, Result<Outcome, LockError>> {
        Box::pin(pending())
    }

    fn extend(&self, _: ExtendRequest) -> BoxFuture<'_, Result<Outcome, LockError>> {
        Box::pin(pending())
    }

    fn release(&self, _: ReleaseRequest) -> BoxFuture<'_, Result<Released, LockError>> {
        Box::pin(pending())
    }

    fn state(&self, _: &StreamName) -> BoxFuture<'_, Result<Option<LockState>, LockError>> {
        Box::pin(pending())
    }

    fn clock(&self) -> &dyn Clock {
        &self.0
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_never_answers_fails_and_holds_up_no_run() {
    let contract = Contract::new(|| Arc::new(Silent(ManualClock::new())))
        .delete(|_| pending::<Result<(), Infallible>>());
    let report = tokio::time::timeout(Duration::from_secs(24 * 3600), contract.run())
        .await
        .expect("the run waits for ever");
    assert!(
        report.to_string().contains("did not answer within 30s"),
        "{report}"
    );
    assert_eq!(
        report.failed().count() + report.skipped().count(),
        cases().count(),
        "{report}"
    );
}
