//! The lock in memory, for users' tests: the rules of the Lease service without a cluster.
//!
//! A service is one *process*: it may continue the terms it wrote, and no others. [`InMemoryLockService::peer`] makes
//! another process on the same store, a clone is the same process. Time comes from an injected [`Clock`], so a test
//! drives expiry with a [`ManualClock`](super::ManualClock) and never sleeps. What may be granted is decided in
//! `record`; here are only the store and the trait.

mod record;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{
    change::{Change, ChangeSender, Changes, NewsSource},
    clock::{Clock, Moment, SystemClock},
    error::LockError,
    outcome::{LockRecord, LockState, Outcome, Refusal, Released},
    service::{AcquireRequest, BoxFuture, ExtendRequest, LockService, ReleaseRequest},
    types::StreamName,
};
use record::{Record, Write};

/// A lock service that keeps its locks in memory. For tests: its locks end with the process.
///
/// ```
/// # use std::{sync::Arc, time::Duration};
/// # use leasewarden::{InstanceId, LockServiceExt, StreamName, Ttl, lock::{InMemoryLockService, ManualClock}};
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let clock = ManualClock::new();
/// let here = InMemoryLockService::with_clock(Arc::new(clock.clone()));
/// let elsewhere = here.peer();
/// let orders = StreamName::new("orders")?;
/// let (a, b, ttl) = (InstanceId::new("a")?, InstanceId::new("b")?, Ttl::from_secs(15)?);
///
/// assert!(here.try_acquire(&orders, &a, ttl).await);
/// assert!(!elsewhere.try_acquire(&orders, &b, ttl).await);
/// clock.advance(Duration::from_secs(15));
/// assert!(elsewhere.try_acquire(&orders, &b, ttl).await);
/// # Ok::<(), leasewarden::lock::InvalidInput>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct InMemoryLockService {
    store: Arc<Store>,
    /// Which process this is. Terms that another wrote are not continued.
    process: u64,
}

struct Store {
    clock: Arc<dyn Clock>,
    locks: Mutex<Locks>,
}

#[derive(Default)]
struct Locks {
    records: HashMap<StreamName, Record>,
    followers: HashMap<StreamName, Vec<ChangeSender>>,
    /// Counts every write of the store, as an API server's resourceVersion does. Tokens are taken from it, so they
    /// rise over the deletion of a record too.
    revision: i64,
    processes: u64,
}

impl InMemoryLockService {
    /// A service on a store of its own, on the machine's clock.
    pub fn new() -> Self {
        Self::with_clock(Arc::new(SystemClock))
    }

    /// A service on a store of its own, on this clock.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        let store = Arc::new(Store {
            clock,
            locks: Mutex::default(),
        });
        Self::on(store)
    }

    /// Another service on the same store, as another process would have it. (A clone is the same process: it may
    /// continue the terms of the one it was cloned from.)
    #[must_use]
    pub fn peer(&self) -> Self {
        Self::on(Arc::clone(&self.store))
    }

    fn on(store: Arc<Store>) -> Self {
        let process = {
            let mut locks = store.locks();
            locks.processes += 1;
            locks.processes
        };
        Self { store, process }
    }

    /// Deletes the record, as a hand with `kubectl delete` does, whoever holds it. True when there was one. Tokens
    /// still rise afterwards.
    pub fn delete(&self, stream: &StreamName) -> bool {
        let mut locks = self.store.locks();
        locks.revision += 1;
        let gone = locks.records.remove(stream);
        if let Some(term) = gone.as_ref().and_then(Record::term).cloned() {
            let why = Refusal::Missing;
            locks.tell(stream, &[Change::Over { term, why }, Change::Free]);
        }
        gone.is_some()
    }

    /// Runs a decision on the record of a stream, under the store's lock. `sent` is read before the lock is waited
    /// for: a holder's term counts from before its write, the record's expiry from the write itself.
    fn decide<T>(
        &self,
        stream: &StreamName,
        decision: impl FnOnce(Option<&mut Record>, Write) -> (T, Option<Record>),
    ) -> T {
        let sent = self.store.clock.now();
        let mut locks = self.store.locks();
        locks.revision += 1;
        let write = Write {
            process: self.process,
            sent,
            now: self.store.clock.now(),
            wall: self.store.clock.wall(),
            revision: locks.revision,
        };
        let before = locks.records.get(stream).and_then(Record::term).cloned();
        let (answer, inserted) = decision(locks.records.get_mut(stream), write);
        if let Some(record) = inserted {
            locks.records.insert(stream.clone(), record);
        }
        if let Some(record) = locks.records.get(stream) {
            let mut changes = Vec::new();
            if let Some(term) = before.filter(|term| record.term() != Some(term)) {
                let why = record.why_over();
                changes.push(Change::Over { term, why });
            }
            changes.push(record.standing());
            locks.tell(stream, &changes);
        }
        answer
    }

    fn read<T>(
        &self,
        stream: &StreamName,
        view: impl FnOnce(&Record, &StreamName, Moment) -> Option<T>,
    ) -> Option<T> {
        let locks = self.store.locks();
        view(locks.records.get(stream)?, stream, self.store.clock.now())
    }
}

impl Store {
    fn locks(&self) -> MutexGuard<'_, Locks> {
        // No decision panics half-way through a change, so a poisoned store is whole.
        self.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Locks {
    fn tell(&mut self, stream: &StreamName, changes: &[Change]) {
        let Some(followers) = self.followers.get_mut(stream) else {
            return;
        };
        followers.retain(|follower| !follower.is_closed());
        for follower in followers {
            for change in changes {
                follower.send(change.clone());
            }
        }
    }
}

impl Default for InMemoryLockService {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for InMemoryLockService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InMemoryLockService")
            .field("process", &self.process)
            .field("clock", &self.store.clock)
            .field("streams", &self.store.locks().records.len())
            .finish()
    }
}

impl LockService for InMemoryLockService {
    fn acquire(&self, request: AcquireRequest) -> BoxFuture<'_, Result<Outcome, LockError>> {
        Box::pin(async move {
            Ok(self.decide(&request.stream, |record, write| {
                if let Some(record) = record {
                    return (record.acquire(&request, &write), None);
                }
                let mut record = Record::free();
                (record.acquire(&request, &write), Some(record))
            }))
        })
    }

    fn extend(&self, request: ExtendRequest) -> BoxFuture<'_, Result<Outcome, LockError>> {
        Box::pin(async move {
            Ok(self.decide(&request.stream, |record, write| {
                (record::extend(record, &request, &write), None)
            }))
        })
    }

    fn release(&self, request: ReleaseRequest) -> BoxFuture<'_, Result<Released, LockError>> {
        Box::pin(async move {
            Ok(self.decide(&request.stream, |record, _| {
                let released = record.is_some_and(|record| record.release(&request));
                let answer = if released {
                    Released::Released
                } else {
                    Released::NotHeld
                };
                (answer, None)
            }))
        })
    }

    fn state(&self, stream: &StreamName) -> BoxFuture<'_, Result<Option<LockState>, LockError>> {
        let stream = stream.clone();
        Box::pin(async move { Ok(self.read(&stream, Record::state)) })
    }

    fn record(&self, stream: &StreamName) -> BoxFuture<'_, Result<Option<LockRecord>, LockError>> {
        let stream = stream.clone();
        Box::pin(async move { Ok(self.read(&stream, Record::whole)) })
    }

    fn changes(&self, stream: &StreamName) -> Option<Changes> {
        let (sender, changes) = Changes::channel();
        let mut locks = self.store.locks();
        sender.send(Change::Source(NewsSource::SharedWatch));
        if let Some(record) = locks.records.get(stream) {
            sender.send(record.standing());
        }
        locks.followers.entry(stream.clone()).or_default().push(sender);
        Some(changes)
    }

    fn clock(&self) -> &dyn Clock {
        &*self.store.clock
    }
}
