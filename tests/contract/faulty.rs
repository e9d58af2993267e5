//! A lock service that breaks one rule at a time, to show that each case of the kit can fail.
//!
//! It is written against the public interface alone, as a user's would be. Without a fault it honours the contract.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use leasewarden::{
    FencingToken, Grant, InstanceId, LockError, LockService, LockState, Outcome, Refusal, Released,
    StreamName, Term, Ttl,
    lock::{
        AcquireRequest, BoxFuture, Claim, Clock, ExtendRequest, IfExpired, LockRecord, ManualClock, Moment,
        ReleaseRequest,
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

    fn ttl(&self, ttl: Ttl) -> Duration {
        match self.fault {
            Fault::TtlRoundsDown => Duration::from_secs(ttl.as_millis() / 1000),
            Fault::TtlWraps => Duration::from_millis(ttl.as_millis() % (1 << 32)),
            _ => ttl.as_duration(),
        }
    }

    fn is_of(&self, record: &Record, asker: &InstanceId, claim: &Claim) -> bool {
        let same = if self.has(Fault::IdsFoldCase) {
            record.holder.to_lowercase() == asker.as_str().to_lowercase()
        } else {
            record.holder == asker.as_str()
        };
        let claimed = match claim {
            Claim::Term(term) if !self.has(Fault::ClaimsByIdOnly) && !self.has(Fault::IgnoresTerms) => {
                record.term == *term
            }
            _ => true,
        };
        same && claimed
    }

    fn expired(&self, record: &Record) -> bool {
        let ttl = match self.fault {
            Fault::NeverExpires => Duration::MAX,
            Fault::ExpiresEarly => record.ttl / 2,
            _ => record.ttl,
        };
        self.clock.now() >= record.renewed + ttl
    }

    /// Whether the holder's own grant, as this service wrote it, goes on.
    fn goes_on(&self, record: &Record, claim: &Claim) -> bool {
        let wrote_it = record.writer == self.me
            || matches!(claim, Claim::Term(_))
            || self.has(Fault::ServicesShareTerms);
        wrote_it && self.clock.now() < record.valid_until
    }

    fn keep(&self, record: &mut Record, ttl: Ttl) {
        let mut ttl = self.ttl(ttl);
        let now = self.clock.now();
        if self.has(Fault::TtlNeverShrinks) {
            ttl = ttl.max(record.ttl);
        }
        if !self.has(Fault::RenewalWritesNothing) {
            record.ttl = ttl;
            record.renewed = now;
            record.expires_at = self.clock.wall() + ttl;
        }
        record.valid_until = now + share(ttl) * if self.has(Fault::HolderCountsTwice) { 2 } else { 1 };
    }

    /// A new term.
    fn begin(
        &self,
        old: Option<&Record>,
        revision: i64,
        asker: &InstanceId,
        ttl: Ttl,
        claim: &Claim,
    ) -> Record {
        let stays = old.filter(|old| !old.released && old.holder == asker.as_str());
        let term = match claim {
            Claim::Term(term) if !self.has(Fault::IgnoresTerms) => term.clone(),
            _ => Term::random(),
        };
        let transitions = old.map_or(0, |old| old.transitions);
        let change = stays.is_none() && !self.has(Fault::TransitionsStandStill);
        let mut record = Record {
            holder: asker.to_string(),
            released: false,
            term,
            writer: self.me,
            token: if self.has(Fault::TokensRepeat) {
                1
            } else {
                revision
            },
            acquired_at: stays.map_or(self.clock.wall(), |old| old.acquired_at),
            renewed: self.clock.now(),
            ttl: self.ttl(ttl),
            expires_at: self.clock.wall() + self.ttl(ttl),
            valid_until: Moment::ORIGIN,
            transitions: transitions + u64::from(change),
        };
        self.keep(&mut record, ttl);
        record
    }

    fn grant(stream: &StreamName, asker: &InstanceId, record: &Record) -> Outcome {
        let grant = Grant::new(
            stream.clone(),
            asker.clone(),
            record.term.clone(),
            record.valid_until,
        );
        let grant = grant.with_token(FencingToken::new(record.token));
        Outcome::Granted(grant.with_times(record.acquired_at, record.expires_at))
    }

    fn held(&self, record: &Record) -> Outcome {
        let named = !self.has(Fault::NamesNoHolder);
        Outcome::Refused(Refusal::HeldBy {
            holder: if named {
                record.holder.clone()
            } else {
                String::new()
            },
            expires_at: named.then_some(record.expires_at),
        })
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

    fn decide_acquire(&self, found: &mut Option<Record>, revision: i64, request: &AcquireRequest) -> Outcome {
        let (stream, asker) = (&request.stream, &request.instance);
        if self.has(Fault::NeverGrants) {
            return Outcome::Refused(Refusal::NotHeld);
        }
        if let Some(record) = found.as_mut().filter(|r| !r.released) {
            let mine = self.is_of(record, asker, &request.claim);
            let expired = self.expired(record);
            if mine && self.has(Fault::RefusesOwnAcquire) && !expired {
                return self.held(record);
            }
            if mine && self.has(Fault::RefusesOwnExpired) && expired {
                return Outcome::Refused(Refusal::Expired);
            }
            let goes_on = self.goes_on(record, &request.claim) || self.has(Fault::ExpiredTermGoesOn);
            if mine && goes_on && !self.has(Fault::OwnAcquireStartsAnew) {
                self.keep(record, request.ttl);
                return Self::grant(stream, asker, record);
            }
            if !mine && !expired && !self.has(Fault::GrantsToAll) {
                if self.has(Fault::StrangersExtend) {
                    record.expires_at = self.clock.wall() + self.ttl(request.ttl);
                }
                return self.held(record);
            }
        }
        let record = self.begin(found.as_ref(), revision, asker, request.ttl, &request.claim);
        let answer = Self::grant(stream, asker, &record);
        *found = Some(record);
        answer
    }

    fn decide_extend(&self, found: &mut Option<Record>, revision: i64, request: &ExtendRequest) -> Outcome {
        let (stream, asker) = (&request.stream, &request.instance);
        let released = found.as_ref().is_none_or(|r| r.released);
        if released
            && (self.has(Fault::RenewsNothing) || self.has(Fault::ReleasedCanBeExtended) && found.is_some())
        {
            let record = self.begin(found.as_ref(), revision, asker, request.ttl, &request.claim);
            let answer = Self::grant(stream, asker, &record);
            *found = Some(record);
            return answer;
        }
        let Some(record) = found.as_mut().filter(|r| !r.released) else {
            return Outcome::Refused(Refusal::NotHeld);
        };
        if self.has(Fault::RefusesRenewals) {
            return Outcome::Refused(Refusal::Expired);
        }
        if !self.is_of(record, asker, &request.claim) && !self.has(Fault::AnybodyRenews) {
            return self.held(record);
        }
        let revives = self.has(Fault::RenewalRevives) || self.has(Fault::AnybodyRenews);
        let again = request.if_expired == IfExpired::TakeAgain;
        if self.goes_on(record, &request.claim) || revives || again && self.has(Fault::TakeAgainKeepsTerm) {
            self.keep(record, request.ttl);
            if self.has(Fault::RenewalMovesAcquiredAt) {
                record.acquired_at = self.clock.wall();
            }
            return Self::grant(stream, asker, record);
        }
        let twin = record.writer != self.me && request.claim == Claim::Instance && !self.expired(record);
        let takes_again = again && !self.has(Fault::TakeAgainIsRefused);
        if !twin && !takes_again {
            return Outcome::Refused(Refusal::Expired);
        }
        let record = self.begin(found.as_ref(), revision, asker, request.ttl, &Claim::Instance);
        let answer = Self::grant(stream, asker, &record);
        *found = Some(record);
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

/// As [`Ttl::holder_share`], for what is no [`Ttl`] any more once a fault has bent it.
fn share(ttl: Duration) -> Duration {
    ttl / 21 * 19
}
