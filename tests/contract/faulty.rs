//! A lock service that breaks one rule at a time, to show that each case of the kit can fail.
//!
//! It is written against the public interface alone, as a user's would be. Without a fault it honours the contract.
//! Here are its faults, its store and the trait; what it grants is decided in `decide`.

mod decide;

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use leasewarden::{
    FencingToken, LockError, LockService, LockState, Outcome, Refusal, Released, StreamName, Term,
    lock::{
        AcquireRequest, BoxFuture, Clock, ExtendRequest, LockRecord, ManualClock, Moment, ReleaseRequest,
    },
};

/// What is wrong with the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Nothing,
    NeverGrants,
    GrantsToAll,
    NamesNoHolder,
    RefusesOwnAcquire,
    RefusesOwnExpired,
    RefusesRenewals,
    AnybodyRenews,
    RenewsNothing,
    ForgetsReleases,
    AnybodyReleases,
    ReleasesAlwaysSucceed,
    ReleasedCanBeExtended,
    StateIsEmpty,
    StateIsInvented,
    StateShowsReleased,
    StateShowsExpired,
    StateShowsOtherToken,
    RecordHidesExpired,
    RecordShowsReleased,
    OneLockForAll,
    NeverExpires,
    ExpiresEarly,
    HolderCountsTwice,
    RenewalRevives,
    TakeAgainKeepsTerm,
    TakeAgainIsRefused,
    ExpiredTermGoesOn,
    RenewalWritesNothing,
    TtlNeverShrinks,
    ReadsThenWrites,
    DroppedCallBlocks,
    OwnAcquireStartsAnew,
    RenewalMovesAcquiredAt,
    TokensRepeat,
    TokensRestartAfterDeletion,
    TransitionsStandStill,
    StrangersExtend,
    IgnoresTerms,
    ClaimsByIdOnly,
    ServicesShareTerms,
    IdsFoldCase,
    NamesFoldCase,
    NamesAreTruncated,
    TtlRoundsDown,
    TtlWraps,
    Panics,
}

#[derive(Debug, Clone)]
struct Record {
    holder: String,
    released: bool,
    term: Term,
    writer: usize,
    token: i64,
    acquired_at: SystemTime,
    renewed: Moment,
    ttl: Duration,
    expires_at: SystemTime,
    valid_until: Moment,
    transitions: u64,
}

#[derive(Default)]
struct Store {
    records: HashMap<String, Record>,
    busy: HashSet<String>,
    revision: i64,
    writers: usize,
}

pub(crate) struct Faulty {
    fault: Fault,
    clock: ManualClock,
    store: Arc<Mutex<Store>>,
    me: usize,
}

impl Faulty {
    pub(crate) fn new(fault: Fault, clock: ManualClock) -> Self {
        Self {
            fault,
            clock,
            store: Arc::default(),
            me: 0,
        }
    }

    pub(crate) fn peer(&self) -> Self {
        let me = {
            let mut store = self.store();
            store.writers += 1;
            store.writers
        };
        Self {
            fault: self.fault,
            clock: self.clock.clone(),
            store: Arc::clone(&self.store),
            me,
        }
    }

    pub(crate) fn delete(&self, stream: &StreamName) {
        let mut store = self.store();
        store.records.remove(&self.key(stream));
        if self.has(Fault::TokensRestartAfterDeletion) {
            store.revision = 0;
        }
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    fn key(&self, stream: &StreamName) -> String {
        match self.fault {
            Fault::OneLockForAll => String::new(),
            Fault::NamesFoldCase => stream.as_str().to_lowercase(),
            Fault::NamesAreTruncated => stream.as_str().chars().take(63).collect(),
            _ => stream.as_str().to_owned(),
        }
    }

    /// Reads the record, decides, and writes it back.
    async fn change<T>(&self, stream: &StreamName, decide: impl FnOnce(&mut Option<Record>, i64) -> T) -> T {
        let key = self.key(stream);
        let (mut record, revision) = {
            let mut store = self.store();
            store.revision += 1;
            (store.records.get(&key).cloned(), store.revision)
        };
        let answer = decide(&mut record, revision);
        if self.has(Fault::ReadsThenWrites) {
            // Others read the same before this writes.
            for _ in 0..4 {
                tokio::task::yield_now().await;
            }
        }
        if let Some(record) = record {
            self.store().records.insert(key, record);
        }
        answer
    }

    fn shown(&self, stream: &StreamName, record: &Record) -> LockRecord {
        let token = record.token + i64::from(self.has(Fault::StateShowsOtherToken));
        let state = LockState::new(
            stream.clone(),
            &*record.holder,
            record.acquired_at,
            record.expires_at,
        )
        .with_token(FencingToken::new(token))
        .with_transitions(Some(record.transitions));
        LockRecord::new(state, self.expired(record))
    }
}

impl LockService for Faulty {
    fn acquire(&self, request: AcquireRequest) -> BoxFuture<'_, Result<Outcome, LockError>> {
        Box::pin(async move {
            assert!(!self.has(Fault::Panics), "the store is on fire");
            let key = self.key(&request.stream);
            if self.has(Fault::DroppedCallBlocks) {
                if !self.store().busy.insert(key.clone()) {
                    return Ok(Outcome::Refused(Refusal::NotHeld));
                }
                tokio::task::yield_now().await;
            }
            let outcome = self
                .change(&request.stream, |found, revision| {
                    self.decide_acquire(found, revision, &request)
                })
                .await;
            self.store().busy.remove(&key);
            Ok(outcome)
        })
    }

    fn extend(&self, request: ExtendRequest) -> BoxFuture<'_, Result<Outcome, LockError>> {
        Box::pin(async move {
            Ok(self
                .change(&request.stream, |found, revision| {
                    self.decide_extend(found, revision, &request)
                })
                .await)
        })
    }

    fn release(&self, request: ReleaseRequest) -> BoxFuture<'_, Result<Released, LockError>> {
        Box::pin(async move {
            let decide = |found: &mut Option<Record>, _| match found {
                Some(record)
                    if !record.released
                        && (self.is_of(record, &request.instance, &request.claim)
                            || self.has(Fault::AnybodyReleases)) =>
                {
                    record.released = !self.has(Fault::ForgetsReleases);
                    Released::Released
                }
                _ if self.has(Fault::ReleasesAlwaysSucceed) => Released::Released,
                _ => Released::NotHeld,
            };
            Ok(self.change(&request.stream, decide).await)
        })
    }

    fn state(&self, stream: &StreamName) -> BoxFuture<'_, Result<Option<LockState>, LockError>> {
        let stream = stream.clone();
        Box::pin(async move {
            let found = self.store().records.get(&self.key(&stream)).cloned();
            let now = self.clock.wall();
            Ok(match found {
                _ if self.has(Fault::StateIsEmpty) => None,
                None if self.has(Fault::StateIsInvented) => {
                    Some(LockState::new(stream, "somebody", now, now))
                }
                Some(r) if r.released && !self.has(Fault::StateShowsReleased) => None,
                Some(r) if self.expired(&r) && !self.has(Fault::StateShowsExpired) => None,
                found => found.map(|r| self.shown(&stream, &r).state),
            })
        })
    }

    fn record(&self, stream: &StreamName) -> BoxFuture<'_, Result<Option<LockRecord>, LockError>> {
        let stream = stream.clone();
        Box::pin(async move {
            let found = self.store().records.get(&self.key(&stream)).cloned();
            Ok(found
                .filter(|r| !r.released || self.has(Fault::RecordShowsReleased))
                .filter(|r| !self.expired(r) || !self.has(Fault::RecordHidesExpired))
                .map(|r| self.shown(&stream, &r)))
        })
    }

    fn clock(&self) -> &dyn Clock {
        &self.clock
    }
}
