//! Contract B: Flamingock's `CommunityLockService`, as a thin face on any [`LockService`].
//!
//! Where contract A answers with booleans, this one answers with errors that name the holder and its expiry. It decides
//! nothing itself: what may be granted is the service's to say. [`lock_info`](Flamingock::lock_info) needs a service
//! that can tell expired records ([`LockService::record`]); the rest works on every one.

use std::{fmt, sync::Arc, time::SystemTime};

use super::{
    error::LockError,
    outcome::{Grant, LockRecord, Outcome, Refusal, Released, Unknown},
    service::{AcquireRequest, ExtendRequest, IfExpired, LockService, ReleaseRequest},
    types::{InstanceId, StreamName, Ttl},
};

/// A lock service seen as Flamingock sees one: keys, owners and leases, which here are streams, instances and TTLs.
///
/// ```
/// # use std::sync::Arc;
/// # use leasewarden::{InstanceId, StreamName, Ttl, lock::{InMemoryLockService, flamingock::Flamingock}};
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let locks = Flamingock::new(Arc::new(InMemoryLockService::new()));
/// let (key, lease) = (StreamName::new("migrations")?, Ttl::from_secs(60)?);
/// let (ours, theirs) = (InstanceId::new("ours")?, InstanceId::new("theirs")?);
///
/// locks.upsert(&key, &ours, lease).await?;
/// let error = locks.upsert(&key, &theirs, lease).await.unwrap_err();
/// assert!(error.to_string().starts_with("migrations is held by ours until "));
/// locks.release_lock(&key, &ours).await;
/// locks.upsert(&key, &theirs, lease).await?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Flamingock {
    service: Arc<dyn LockService>,
}

/// Why a lock could not be had or kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FlamingockError {
    /// Another owner holds it.
    #[error("{key} is held by {holder}{}", Until(*.expires_at))]
    HeldBy {
        /// The key.
        key: StreamName,
        /// Who holds it, as found in the store.
        holder: String,
        /// Until when, by the store's record, where that could be read.
        expires_at: Option<SystemTime>,
    },
    /// Nobody holds it, so there is nothing to extend.
    #[error("{key} is not held by {owner}, nor by anybody else; acquire it first")]
    NotHeld {
        /// The key.
        key: StreamName,
        /// Who asked.
        owner: InstanceId,
    },
    /// The owner's own grant is over, and the service does not take it again.
    #[error("the lock of {owner} on {key} is over; acquire it again")]
    Over {
        /// The key.
        key: StreamName,
        /// Who asked.
        owner: InstanceId,
    },
    /// The write may or may not have been applied. Do not act; ask again.
    #[error("it is not known whether {owner} holds {key}; ask again before acting ({outcome})")]
    Unknown {
        /// The key.
        key: StreamName,
        /// Who asked.
        owner: InstanceId,
        /// What happened.
        outcome: Unknown,
    },
    /// The service answered with an error.
    #[error(transparent)]
    Service(#[from] LockError),
}

struct Until(Option<SystemTime>);

impl fmt::Display for Until {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(at) => write!(f, " until {}", super::outcome::shown(at)),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Flamingock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flamingock").finish_non_exhaustive()
    }
}

impl Flamingock {
    /// On this service.
    pub fn new(service: Arc<dyn LockService>) -> Self {
        Self { service }
    }

    /// The service below.
    pub fn service(&self) -> &Arc<dyn LockService> {
        &self.service
    }

    /// Gets the lock: (a) the owner's own is refreshed, even when it has expired, (b) another's expired one is taken
    /// over, (c) another's live one is an error, (d) a missing one is inserted.
    ///
    /// # Errors
    /// [`FlamingockError::HeldBy`] in case (c); otherwise what the service says. After
    /// [`FlamingockError::Unknown`] the lock may or may not be the owner's: ask again.
    pub async fn upsert(
        &self,
        key: &StreamName,
        owner: &InstanceId,
        lease: Ttl,
    ) -> Result<Grant, FlamingockError> {
        let outcome = self
            .service
            .acquire(AcquireRequest::new(key, owner, lease))
            .await?;
        self.settled(key, owner, outcome).await
    }

    /// Keeps the lock of the recorded owner, also when it has expired but nobody took it. In that case the grant is a
    /// new one, with a new term and a higher token.
    ///
    /// # Errors
    /// As [`upsert`](Self::upsert), and [`FlamingockError::NotHeld`] when nobody holds it.
    pub async fn extend_lock(
        &self,
        key: &StreamName,
        owner: &InstanceId,
        lease: Ttl,
    ) -> Result<Grant, FlamingockError> {
        let request = ExtendRequest::new(key, owner, lease).if_expired(IfExpired::TakeAgain);
        let outcome = self.service.extend(request).await?;
        self.settled(key, owner, outcome).await
    }

    /// The record, also when it is expired; `None` when there is none.
    ///
    /// # Errors
    /// [`LockError::Unsupported`] from a service that cannot tell; otherwise as [`LockService::record`].
    pub async fn lock_info(&self, key: &StreamName) -> Result<Option<LockRecord>, FlamingockError> {
        Ok(self.service.record(key).await?)
    }

    /// Gives the lock up if it is the owner's; another owner's is left alone. Best effort and never an error: what
    /// goes wrong is logged, and the lock then expires.
    pub async fn release_lock(&self, key: &StreamName, owner: &InstanceId) {
        match self.service.release(ReleaseRequest::new(key, owner)).await {
            Ok(Released::Released | Released::NotHeld) => {}
            Ok(Released::Unknown(unknown)) => {
                tracing::warn!(target: crate::telemetry::LOCK, stream = %key, instance = %owner, reason = %unknown, "release_lock: outcome unknown; the lock will expire");
            }
            Err(error) => {
                tracing::warn!(target: crate::telemetry::LOCK, stream = %key, instance = %owner, %error, "release_lock: failed; the lock will expire");
            }
        }
    }

    async fn settled(
        &self,
        key: &StreamName,
        owner: &InstanceId,
        outcome: Outcome,
    ) -> Result<Grant, FlamingockError> {
        let (key, owner) = (key.clone(), owner.clone());
        Err(match outcome {
            Outcome::Granted(grant) => return Ok(grant),
            Outcome::Unknown(outcome) => FlamingockError::Unknown { key, owner, outcome },
            Outcome::Refused(Refusal::NotHeld | Refusal::Missing) => FlamingockError::NotHeld { key, owner },
            Outcome::Refused(Refusal::Expired) => FlamingockError::Over { key, owner },
            Outcome::Refused(Refusal::HeldBy {
                holder, expires_at, ..
            }) => {
                let expires_at = match expires_at {
                    Some(at) => Some(at),
                    None => self.expiry_of(&key, &holder).await,
                };
                FlamingockError::HeldBy {
                    key,
                    holder,
                    expires_at,
                }
            }
        })
    }

    /// A refusal need not say until when; the record does. That it cannot be read must not hide the refusal.
    async fn expiry_of(&self, key: &StreamName, holder: &str) -> Option<SystemTime> {
        let state = self.service.state(key).await.ok()??;
        (state.instance == holder).then_some(state.expires_at)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::lock::{InMemoryLockService, ManualClock};

    struct Bench {
        clock: ManualClock,
        locks: Flamingock,
        key: StreamName,
        ours: InstanceId,
        theirs: InstanceId,
        lease: Ttl,
    }

    fn bench() -> Bench {
        let clock = ManualClock::new();
        let service = InMemoryLockService::with_clock(Arc::new(clock.clone()));
        Bench {
            clock,
            locks: Flamingock::new(Arc::new(service)),
            key: StreamName::new("migrations").unwrap(),
            ours: InstanceId::new("ours").unwrap(),
            theirs: InstanceId::new("theirs").unwrap(),
            lease: Ttl::from_secs(60).unwrap(),
        }
    }

    #[tokio::test]
    async fn upsert_inserts_refreshes_takes_over_and_refuses() {
        let b = bench();
        let inserted = b.locks.upsert(&b.key, &b.ours, b.lease).await.unwrap();
        let refreshed = b.locks.upsert(&b.key, &b.ours, b.lease).await.unwrap();
        assert_eq!(refreshed.token, inserted.token);
        let refused = b.locks.upsert(&b.key, &b.theirs, b.lease).await.unwrap_err();
        assert!(
            refused
                .to_string()
                .starts_with("migrations is held by ours until "),
            "{refused}"
        );
        b.clock.advance(Duration::from_secs(60));
        let again = b.locks.upsert(&b.key, &b.ours, b.lease).await.unwrap();
        assert!(again.token > refreshed.token);
        b.clock.advance(Duration::from_secs(60));
        b.locks.upsert(&b.key, &b.theirs, b.lease).await.unwrap();
    }

    #[tokio::test]
    async fn extend_lock_revives_an_expired_lock_that_nobody_took_and_no_other() {
        let b = bench();
        let nothing = b.locks.extend_lock(&b.key, &b.ours, b.lease).await.unwrap_err();
        assert!(matches!(nothing, FlamingockError::NotHeld { .. }), "{nothing}");
        b.locks.upsert(&b.key, &b.ours, b.lease).await.unwrap();
        b.clock.advance(Duration::from_secs(60));
        assert!(b.locks.lock_info(&b.key).await.unwrap().unwrap().expired);
        b.locks.extend_lock(&b.key, &b.ours, b.lease).await.unwrap();
        b.clock.advance(Duration::from_secs(60));
        b.locks.upsert(&b.key, &b.theirs, b.lease).await.unwrap();
        let taken = b.locks.extend_lock(&b.key, &b.ours, b.lease).await.unwrap_err();
        assert!(
            matches!(&taken, FlamingockError::HeldBy { holder, expires_at: Some(_), .. } if holder == "theirs")
        );
    }

    #[tokio::test]
    async fn release_lock_touches_no_other_owner_and_never_complains() {
        let b = bench();
        b.locks.release_lock(&b.key, &b.ours).await;
        b.locks.upsert(&b.key, &b.theirs, b.lease).await.unwrap();
        let before = b.locks.lock_info(&b.key).await.unwrap();
        b.locks.release_lock(&b.key, &b.ours).await;
        assert_eq!(b.locks.lock_info(&b.key).await.unwrap(), before);
        b.locks.release_lock(&b.key, &b.theirs).await;
        assert_eq!(b.locks.lock_info(&b.key).await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_lock_beyond_what_a_date_can_show_is_named_without_a_panic() {
        let b = bench();
        b.clock
            .set_wall(SystemTime::UNIX_EPOCH + Duration::from_secs(253_402_300_000));
        let request = AcquireRequest::new(&b.key, &b.theirs, Ttl::MAX);
        b.locks.service().acquire(request).await.unwrap();
        let refused = b.locks.upsert(&b.key, &b.ours, b.lease).await.unwrap_err();
        assert!(refused.to_string().contains("held by theirs"), "{refused}");
    }
}
