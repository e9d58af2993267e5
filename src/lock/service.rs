//! The trait, its requests, and the boolean face of contract A on top of it.
//!
//! The trait is object safe (`Arc<dyn LockService>`) and typed. The boolean methods live in a *blanket* extension
//! trait, so that no implementation can override what a transient error means: `false`, and a line in the log.

use std::{
    future::Future,
    pin::Pin,
    sync::Mutex,
    time::{Duration, Instant},
};

use super::{
    change::Changes,
    clock::Clock,
    error::LockError,
    outcome::{Grant, LockRecord, LockState, Outcome, Released},
    types::{InstanceId, StreamName, Term, Ttl},
};

/// A boxed future, as object safety needs it.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Whose a record is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Claim {
    /// The contracts' rule: a record with the asker's instance id is the asker's. It gets its lock again at once, by a
    /// write, under a new term unless this very service wrote the old one and its grant is still valid.
    Instance,
    /// The coordinator's rule: only a record under this term is the asker's; one with the same instance id under
    /// another term is somebody else's (a twin, or its own life before a restart). An acquisition goes under this
    /// term, and keeps it over its attempts. Use a new [`Term::random`] for each acquisition.
    Term(Term),
}

/// What an extension does when the asker's lock has expired and nobody took it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum IfExpired {
    /// Contract A's `renew`: refuse.
    Refuse,
    /// Contract B's `extendLock`: take it again. The grant is a new one, with a new term and a higher token.
    TakeAgain,
}

/// Asks for a lock.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AcquireRequest {
    /// The stream to lock.
    pub stream: StreamName,
    /// Who asks.
    pub instance: InstanceId,
    /// How long the lock outlives its last extension.
    pub ttl: Ttl,
    /// Whose a record is.
    pub claim: Claim,
}

impl AcquireRequest {
    /// A request under [`Claim::Instance`].
    pub fn new(stream: &StreamName, instance: &InstanceId, ttl: Ttl) -> Self {
        Self {
            stream: stream.clone(),
            instance: instance.clone(),
            ttl,
            claim: Claim::Instance,
        }
    }

    /// Under another claim.
    #[must_use]
    pub fn claim(mut self, claim: Claim) -> Self {
        self.claim = claim;
        self
    }
}

/// Asks to keep a lock.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ExtendRequest {
    /// The stream.
    pub stream: StreamName,
    /// Who asks.
    pub instance: InstanceId,
    /// The TTL from now on.
    pub ttl: Ttl,
    /// Whose a record is.
    pub claim: Claim,
    /// What to do when it has expired.
    pub if_expired: IfExpired,
}

impl ExtendRequest {
    /// A request under [`Claim::Instance`] and [`IfExpired::Refuse`].
    pub fn new(stream: &StreamName, instance: &InstanceId, ttl: Ttl) -> Self {
        Self {
            stream: stream.clone(),
            instance: instance.clone(),
            ttl,
            claim: Claim::Instance,
            if_expired: IfExpired::Refuse,
        }
    }

    /// A request to keep just this grant: under its [`Claim::Term`], so that a twin's lock is never taken for it.
    pub fn of(grant: &Grant, ttl: Ttl) -> Self {
        Self::new(&grant.stream, &grant.instance, ttl).claim(Claim::Term(grant.term.clone()))
    }

    /// Under another claim.
    #[must_use]
    pub fn claim(mut self, claim: Claim) -> Self {
        self.claim = claim;
        self
    }

    /// With another answer to an expired lock.
    #[must_use]
    pub fn if_expired(mut self, if_expired: IfExpired) -> Self {
        self.if_expired = if_expired;
        self
    }
}

/// Gives a lock up.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ReleaseRequest {
    /// The stream.
    pub stream: StreamName,
    /// Who asks.
    pub instance: InstanceId,
    /// Whose a record is.
    pub claim: Claim,
}

impl ReleaseRequest {
    /// A request under [`Claim::Instance`].
    pub fn new(stream: &StreamName, instance: &InstanceId) -> Self {
        Self {
            stream: stream.clone(),
            instance: instance.clone(),
            claim: Claim::Instance,
        }
    }

    /// A request to give up just this grant: under its [`Claim::Term`].
    pub fn of(grant: &Grant) -> Self {
        Self::new(&grant.stream, &grant.instance).claim(Claim::Term(grant.term.clone()))
    }

    /// Under another claim.
    #[must_use]
    pub fn claim(mut self, claim: Claim) -> Self {
        self.claim = claim;
        self
    }
}

/// A lock per stream, held by at most one instance at a time.
///
/// What an implementation owes is executable: run the contract kit (feature `testkit`) against it.
///
/// **Cancellation**: dropping a returned future must not abort a write in flight; a grant that nobody waits for any more
/// is to be given back.
pub trait LockService: Send + Sync {
    /// Asks for the lock: granted when it is free, expired or the asker's own already.
    ///
    /// # Errors
    /// [`LockError`] when it definitely was not granted for a reason that is nobody's holding it.
    fn acquire(&self, request: AcquireRequest) -> BoxFuture<'_, Result<Outcome, LockError>>;

    /// Keeps a lock that the asker holds.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    fn extend(&self, request: ExtendRequest) -> BoxFuture<'_, Result<Outcome, LockError>>;

    /// Gives the lock up. For who does not hold it, nothing changes. The grant is over once the release is *sent*,
    /// whatever comes back.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    fn release(&self, request: ReleaseRequest) -> BoxFuture<'_, Result<Released, LockError>>;

    /// Who holds the lock; `None` when it is missing, free or expired. For reading: it grants nothing.
    ///
    /// # Errors
    /// [`LockError::Unavailable`] when it could not be read.
    fn state(&self, stream: &StreamName) -> BoxFuture<'_, Result<Option<LockState>, LockError>>;

    /// The record, also when it is expired; `None` when there is none or it is free.
    ///
    /// # Errors
    /// [`LockError::Unsupported`] unless the implementation can tell; otherwise as [`state`](Self::state).
    fn record(&self, stream: &StreamName) -> BoxFuture<'_, Result<Option<LockRecord>, LockError>> {
        let _ = stream;
        Box::pin(async {
            Err(LockError::Unsupported {
                what: "tell expired records",
            })
        })
    }

    /// What becomes of the lock from now on, as this service learns of it; `None` where it cannot tell by itself, and then
    /// who wants to know asks. A service that tells begins with a [`Change::Source`](super::Change::Source).
    fn changes(&self, stream: &StreamName) -> Option<Changes> {
        let _ = stream;
        None
    }

    /// The clock that [`Grant::valid_until`](super::Grant::valid_until) is a reading of.
    fn clock(&self) -> &dyn Clock;
}

/// Contract A's boolean face, on every [`LockService`].
///
/// An error or an unknown outcome is `false` (or `None`), as the contract wants: never an exception. What is swallowed
/// is logged; each missing permission at most every ten seconds.
pub trait LockServiceExt: LockService {
    /// True when the lock is the asker's now: it was free, expired, or the asker's already.
    ///
    /// Cancellation: a grant that nobody waits for is given back by the service.
    fn try_acquire<'a>(
        &'a self,
        stream: &'a StreamName,
        instance: &'a InstanceId,
        ttl: Ttl,
    ) -> impl Future<Output = bool> + Send + 'a {
        async move {
            match self.acquire(AcquireRequest::new(stream, instance, ttl)).await {
                Ok(outcome) => settled("try_acquire", stream, &outcome),
                Err(error) => swallowed("try_acquire", stream, &error),
            }
        }
    }

    /// Whether the holder of `grant` may still act: its deadline has not passed on this service's clock. It says nothing of
    /// a loss that was learned in another way, and time passes between this and a side effect: send the token along.
    fn is_valid(&self, grant: &Grant) -> bool {
        self.clock().now() < grant.valid_until
    }

    /// True when the asker held the lock, it had not expired, and now has `ttl` from now.
    fn renew<'a>(
        &'a self,
        stream: &'a StreamName,
        instance: &'a InstanceId,
        ttl: Ttl,
    ) -> impl Future<Output = bool> + Send + 'a {
        async move {
            match self.extend(ExtendRequest::new(stream, instance, ttl)).await {
                Ok(outcome) => settled("renew", stream, &outcome),
                Err(error) => swallowed("renew", stream, &error),
            }
        }
    }

    /// Gives the lock up if it is the asker's. True when it was, and is free now.
    fn try_release<'a>(
        &'a self,
        stream: &'a StreamName,
        instance: &'a InstanceId,
    ) -> impl Future<Output = bool> + Send + 'a {
        async move {
            match self.release(ReleaseRequest::new(stream, instance)).await {
                Ok(Released::Released) => true,
                Ok(Released::NotHeld) => false,
                Ok(Released::Unknown(unknown)) => {
                    tracing::warn!(target: crate::telemetry::LOCK, stream = %stream, reason = %unknown, "release: outcome unknown");
                    false
                }
                Err(error) => swallowed("release", stream, &error),
            }
        }
    }

    /// Who holds the lock now; `None` when nobody does, or when it could not be read.
    fn current_leader<'a>(
        &'a self,
        stream: &'a StreamName,
    ) -> impl Future<Output = Option<String>> + Send + 'a {
        async move {
            match self.state(stream).await {
                Ok(state) => state.map(|s| s.instance),
                Err(error) => {
                    swallowed("current_leader", stream, &error);
                    None
                }
            }
        }
    }
}

impl<S: LockService + ?Sized> LockServiceExt for S {}

fn settled(call: &str, stream: &StreamName, outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Granted(_) => true,
        Outcome::Refused(refusal) => {
            tracing::debug!(target: crate::telemetry::LOCK, stream = %stream, reason = %refusal, "{call}: refused");
            false
        }
        Outcome::Unknown(unknown) => {
            tracing::warn!(target: crate::telemetry::LOCK, stream = %stream, reason = %unknown, "{call}: outcome unknown, reported as false");
            false
        }
    }
}

fn swallowed(call: &str, stream: &StreamName, error: &LockError) -> bool {
    // A missing permission answers every call of a polling loop the same; one line in ten seconds says it as well.
    static SAID: Mutex<Vec<(String, Instant)>> = Mutex::new(Vec::new());
    if let LockError::Forbidden { action, .. } = error {
        let mut said = SAID.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        said.retain(|(_, at)| at.elapsed() < Duration::from_secs(10));
        if said.iter().any(|(a, _)| a == action) {
            return false;
        }
        said.push((action.clone(), Instant::now()));
    }
    let source = std::error::Error::source(error).map(ToString::to_string);
    tracing::warn!(target: crate::telemetry::LOCK, stream = %stream, %error, source, "{call}: failed, reported as false");
    false
}
