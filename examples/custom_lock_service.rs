//! A lock service of one's own, held to the contract by the kit: `cargo run --example custom_lock_service --features
//! testkit`.
//!
//! The store is a map behind a mutex; what stands in its place for you (Redis, SQL, a file server) needs one thing, a
//! write that fails when the record has changed since it was read. `cargo test --examples --features testkit` runs the
//! same contract as a test, which is how you would keep it.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use leasewarden::{
    FencingToken, Grant, InstanceId, LockError, LockService, LockState, Outcome, Refusal, Released,
    StreamName, Term, Ttl,
    lock::{
        AcquireRequest, BoxFuture, Claim, Clock, ExtendRequest, IfExpired, Moment, ReleaseRequest,
        SystemClock,
    },
    testkit::{Contract, Report},
};

/// One stream's row in the store.
#[derive(Clone)]
struct Row {
    holder: InstanceId,
    term: Term,
    token: i64,
    since: SystemTime,
    until: SystemTime,
    /// For contenders: the whole TTL after the write.
    expires: Moment,
}

#[derive(Default)]
struct Rows {
    held: HashMap<StreamName, Row>,
    /// Never goes back, whatever happens to a row: tokens come from it.
    last_token: i64,
}

/// The lock: a shared store, and what this process was granted.
#[derive(Default)]
struct MapLocks {
    store: Arc<Mutex<Rows>>,
    /// Term and end of this process's grants. What is not here is not continued, only taken anew.
    mine: Mutex<HashMap<StreamName, (Term, Moment)>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MapLocks {
    fn on(store: &Arc<Mutex<Rows>>) -> Self {
        Self {
            store: Arc::clone(store),
            mine: Mutex::default(),
        }
    }

    fn is_of(row: &Row, asker: &InstanceId, claim: &Claim) -> Result<bool, LockError> {
        match claim {
            Claim::Instance => Ok(row.holder == *asker),
            Claim::Term(term) => Ok(row.holder == *asker && row.term == *term),
            _ => Err(LockError::Unsupported {
                what: "tell claims of that kind",
            }),
        }
    }

    /// Whether this process may go on under the row's term: it was granted it, and the grant is not over. A grant that
    /// was over once never comes back, though the row may live a little longer.
    fn goes_on(&self, stream: &StreamName, row: &Row) -> bool {
        let mine = locked(&self.mine);
        mine.get(stream)
            .is_some_and(|(term, end)| *term == row.term && SystemClock.now() < *end)
    }

    /// Writes the row, and notes the grant. `sent` was read before the store was asked: a reply that took four seconds
    /// must not make the holder's time four seconds longer than the contenders'.
    fn write(&self, rows: &mut Rows, stream: StreamName, mut row: Row, ttl: Ttl, sent: Moment) -> Outcome {
        row.until = SystemTime::now() + ttl.as_duration();
        row.expires = SystemClock.now() + ttl.as_duration();
        let end = sent + ttl.holder_share();
        locked(&self.mine).insert(stream.clone(), (row.term.clone(), end));
        let grant = Grant::new(stream.clone(), row.holder.clone(), row.term.clone(), end)
            .with_token(FencingToken::new(row.token))
            .with_times(row.since, row.until);
        rows.held.insert(stream, row);
        Outcome::Granted(grant)
    }

    /// A new term with a new token, for whoever may have the lock now.
    fn begin(&self, rows: &mut Rows, request: AcquireRequest, sent: Moment) -> Outcome {
        rows.last_token += 1;
        let now = SystemTime::now();
        let row = Row {
            term: match request.claim {
                Claim::Term(term) => term,
                _ => Term::random(),
            },
            token: rows.last_token,
            since: match rows.held.get(&request.stream) {
                Some(old) if old.holder == request.instance => old.since,
                _ => now,
            },
            holder: request.instance,
            until: now,
            expires: sent,
        };
        self.write(rows, request.stream, row, request.ttl, sent)
    }

    fn acquire_now(&self, request: AcquireRequest) -> Result<Outcome, LockError> {
        let sent = SystemClock.now();
        let rows = &mut *locked(&self.store);
        if let Some(row) = rows.held.get(&request.stream).cloned() {
            let mine = Self::is_of(&row, &request.instance, &request.claim)?;
            if mine && self.goes_on(&request.stream, &row) {
                return Ok(self.write(rows, request.stream, row, request.ttl, sent));
            }
            if !mine && SystemClock.now() < row.expires {
                return Ok(held(&row));
            }
        }
        Ok(self.begin(rows, request, sent))
    }

    fn extend_now(&self, request: ExtendRequest) -> Result<Outcome, LockError> {
        let sent = SystemClock.now();
        let rows = &mut *locked(&self.store);
        let Some(row) = rows.held.get(&request.stream).cloned() else {
            return Ok(Outcome::Refused(Refusal::NotHeld));
        };
        if !Self::is_of(&row, &request.instance, &request.claim)? {
            return Ok(held(&row));
        }
        if self.goes_on(&request.stream, &row) {
            return Ok(self.write(rows, request.stream, row, request.ttl, sent));
        }
        // The same id in another process, while the row lives: it is theirs by the contract, under a term of its own.
        let granted_here = locked(&self.mine)
            .get(&request.stream)
            .is_some_and(|(term, _)| *term == row.term);
        let twin = request.claim == Claim::Instance && !granted_here && SystemClock.now() < row.expires;
        if !twin && request.if_expired == IfExpired::Refuse {
            return Ok(Outcome::Refused(Refusal::Expired));
        }
        let anew = AcquireRequest::new(&request.stream, &request.instance, request.ttl);
        Ok(self.begin(rows, anew, sent))
    }

    fn release_now(&self, request: &ReleaseRequest) -> Result<Released, LockError> {
        let rows = &mut *locked(&self.store);
        match rows.held.get(&request.stream) {
            Some(row) if Self::is_of(row, &request.instance, &request.claim)? => {
                rows.held.remove(&request.stream);
                Ok(Released::Released)
            }
            _ => Ok(Released::NotHeld),
        }
    }
}

fn held(row: &Row) -> Outcome {
    Outcome::Refused(Refusal::HeldBy {
        holder: row.holder.to_string(),
        expires_at: Some(row.until),
        token: FencingToken::new(row.token),
    })
}

impl LockService for MapLocks {
    fn acquire(&self, request: AcquireRequest) -> BoxFuture<'_, Result<Outcome, LockError>> {
        Box::pin(async move { self.acquire_now(request) })
    }

    fn extend(&self, request: ExtendRequest) -> BoxFuture<'_, Result<Outcome, LockError>> {
        Box::pin(async move { self.extend_now(request) })
    }

    fn release(&self, request: ReleaseRequest) -> BoxFuture<'_, Result<Released, LockError>> {
        Box::pin(async move { self.release_now(&request) })
    }

    fn state(&self, stream: &StreamName) -> BoxFuture<'_, Result<Option<LockState>, LockError>> {
        let stream = stream.clone();
        Box::pin(async move {
            let row = locked(&self.store).held.get(&stream).cloned();
            let live = row.filter(|row| SystemClock.now() < row.expires);
            Ok(live.map(|row| {
                LockState::new(stream, row.holder.as_str(), row.since, row.until)
                    .with_token(FencingToken::new(row.token))
            }))
        })
    }

    fn clock(&self) -> &dyn Clock {
        &SystemClock
    }
}

async fn run_the_contract() -> Report {
    let store = Arc::default();
    Contract::new(move || Arc::new(MapLocks::on(&store)))
        .grant_within(Duration::from_millis(500))
        .run()
        .await
}

#[tokio::main]
async fn main() {
    let report = run_the_contract().await;
    println!("{report}");
    report.assert_passed();
}

#[tokio::test]
async fn the_map_honours_the_lock_contract() {
    run_the_contract().await.assert_passed();
}
