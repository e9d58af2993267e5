//! Somebody who asks for locks: an instance id on a service, with expectations that explain themselves.
//!
//! An unknown outcome is not a failure: the actor asks again with the same claim, as the contract tells every caller to.

use std::{future::Future, sync::Arc, time::Duration};

use crate::lock::{
    AcquireRequest, Claim, ExtendRequest, Grant, IfExpired, InstanceId, LockError, LockRecord, LockService,
    LockState, Moment, Outcome, Refusal, ReleaseRequest, Released, StreamName, Ttl,
};

use super::{
    bench::Bench,
    case::{Step, Stop, ensure},
};

/// No request of a lock may take longer.
pub(super) const CALL_LIMIT: Duration = Duration::from_secs(30);
/// How often an unknown outcome is asked again about.
const ASK_AGAIN: usize = 40;

/// An instance on a service.
#[derive(Clone)]
pub(super) struct Actor {
    name: String,
    instance: InstanceId,
    service: Arc<dyn LockService>,
}

impl Actor {
    pub(super) fn new(name: &str, instance: InstanceId, service: Arc<dyn LockService>) -> Self {
        Self {
            name: name.to_owned(),
            instance,
            service,
        }
    }

    pub(super) fn instance(&self) -> &InstanceId {
        &self.instance
    }

    pub(super) fn service(&self) -> &Arc<dyn LockService> {
        &self.service
    }

    pub(super) fn now(&self) -> Moment {
        self.service.clock().now()
    }

    pub(super) fn acquisition(&self, stream: &StreamName, ttl: Ttl) -> AcquireRequest {
        AcquireRequest::new(stream, &self.instance, ttl)
    }

    pub(super) fn extension(&self, stream: &StreamName, ttl: Ttl) -> ExtendRequest {
        ExtendRequest::new(stream, &self.instance, ttl)
    }

    pub(super) async fn ask(&self, request: AcquireRequest) -> Step<Outcome> {
        let what = format!("{}'s acquire", self.name);
        let optional = request.claim != Claim::Instance;
        self.until_known(&what, optional, || self.service.acquire(request.clone()))
            .await
    }

    pub(super) async fn extend(&self, request: ExtendRequest) -> Step<Outcome> {
        let what = format!("{}'s extend", self.name);
        let optional = request.claim != Claim::Instance || request.if_expired == IfExpired::TakeAgain;
        self.until_known(&what, optional, || self.service.extend(request.clone()))
            .await
    }

    async fn until_known<F>(&self, what: &str, optional: bool, call: impl Fn() -> F) -> Step<Outcome>
    where
        F: Future<Output = Result<Outcome, LockError>>,
    {
        let mut last = String::new();
        for _ in 0..ASK_AGAIN {
            match answer(what, optional, call()).await? {
                Outcome::Unknown(unknown) => last = unknown.to_string(),
                known => return Ok(known),
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
        fail(format!(
            "{what} was asked {ASK_AGAIN} times and never knew: {last}"
        ))
    }

    /// Acquires, which the contract must grant, because of `why`.
    pub(super) async fn must_acquire(&self, stream: &StreamName, ttl: Ttl, why: &str) -> Step<Grant> {
        self.must_get(self.acquisition(stream, ttl), why).await
    }

    /// As [`must_acquire`](Self::must_acquire), with a claim.
    pub(super) async fn must_get(&self, request: AcquireRequest, why: &str) -> Step<Grant> {
        let outcome = self.ask(request).await?;
        granted(&format!("{} acquired {why}", self.name), outcome)
    }

    /// Extends, which the contract must grant, because of `why`.
    pub(super) async fn must_extend(&self, request: ExtendRequest, why: &str) -> Step<Grant> {
        let outcome = self.extend(request).await?;
        granted(&format!("{} extended {why}", self.name), outcome)
    }

    /// Acquires, which the contract must refuse, because of `why`.
    pub(super) async fn must_not_acquire(&self, stream: &StreamName, ttl: Ttl, why: &str) -> Step<Refusal> {
        self.must_not_get(self.acquisition(stream, ttl), why).await
    }

    /// As [`must_not_acquire`](Self::must_not_acquire), with a claim.
    pub(super) async fn must_not_get(&self, request: AcquireRequest, why: &str) -> Step<Refusal> {
        let outcome = self.ask(request).await?;
        refused(&format!("{} acquired {why}", self.name), outcome)
    }

    /// Extends, which the contract must refuse, because of `why`.
    pub(super) async fn must_not_extend(&self, request: ExtendRequest, why: &str) -> Step<Refusal> {
        let outcome = self.extend(request).await?;
        refused(&format!("{} extended {why}", self.name), outcome)
    }

    /// Releases under this claim. `None` when a reply was lost and it is not held now: this release or nobody's.
    async fn release(&self, stream: &StreamName, claim: Claim) -> Step<Option<bool>> {
        let what = format!("{}'s release", self.name);
        let optional = claim != Claim::Instance;
        let request = ReleaseRequest::new(stream, &self.instance).claim(claim);
        let mut lost = false;
        for _ in 0..ASK_AGAIN {
            match answer(&what, optional, self.service.release(request.clone())).await? {
                Released::Released => return Ok(Some(true)),
                Released::NotHeld => return Ok((!lost).then_some(false)),
                Released::Unknown(_) => lost = true,
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
        fail(format!(
            "{what} was asked {ASK_AGAIN} times and its outcome was never known"
        ))
    }

    /// Releases whatever may be the actor's.
    pub(super) async fn give_up(&self, stream: &StreamName) -> Step {
        self.release(stream, Claim::Instance).await.map(drop)
    }

    /// Releases what the contract says is the actor's by this claim.
    pub(super) async fn must_release(&self, stream: &StreamName, claim: Claim) -> Step {
        let released = self.release(stream, claim).await?;
        ensure(released != Some(false), || {
            format!(
                "{} released its own lock, and was told that it is not held",
                self.name
            )
        })
    }

    /// Releases what the contract says is not the actor's by this claim, because of `why`.
    pub(super) async fn must_not_release(&self, stream: &StreamName, claim: Claim, why: &str) -> Step {
        let released = self.release(stream, claim).await?;
        ensure(released != Some(true), || {
            format!("{} released {why}, and was told that it did", self.name)
        })
    }

    pub(super) async fn state(&self, stream: &StreamName) -> Step<Option<LockState>> {
        let what = format!("{}'s state", self.name);
        answer(&what, false, self.service.state(stream)).await
    }

    /// The state of a lock that somebody holds.
    pub(super) async fn must_see(&self, stream: &StreamName) -> Step<LockState> {
        match self.state(stream).await? {
            Some(state) => Ok(state),
            None => fail(format!(
                "{} read the state of a lock that is held, and it was empty",
                self.name
            )),
        }
    }

    /// The record, also when expired. Ends the case as skipped where the service cannot tell.
    pub(super) async fn record(&self, stream: &StreamName) -> Step<Option<LockRecord>> {
        let what = format!("{}'s record", self.name);
        answer(&what, true, self.service.record(stream)).await
    }

    /// Asks until it is granted what expires after `expiring`, then holds it for `ttl`.
    pub(super) async fn wait_for(
        &self,
        bench: &Bench,
        request: AcquireRequest,
        expiring: Ttl,
        why: &str,
    ) -> Step<Grant> {
        let mark = bench.mark();
        loop {
            let outcome = self.ask(request.clone()).await?;
            let refusal = match outcome {
                Outcome::Granted(grant) => return Ok(grant),
                other => shown(&other),
            };
            let waited = bench.since(mark);
            if waited > bench.patience(expiring) {
                return fail(format!(
                    "{} waited {waited:.1?} for a lock {why}, and was still answered: {refusal}",
                    self.name
                ));
            }
            bench.wait(bench.step(expiring)).await;
        }
    }
}

/// Waits for an answer, but not for ever. What a service says it does not support ends the case as skipped where the
/// contract lets it be `optional`.
async fn answer<T>(what: &str, optional: bool, call: impl Future<Output = Result<T, LockError>>) -> Step<T> {
    match tokio::time::timeout(CALL_LIMIT, call).await {
        Err(_) => fail(format!("{what} did not answer within {CALL_LIMIT:?}")),
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(LockError::Unsupported { what })) if optional => {
            Err(Stop::Skipped(format!("the service says that it cannot {what}")))
        }
        Ok(Err(error)) => fail(format!("{what} answered with an error: {error}")),
    }
}

pub(super) fn fail<T>(why: String) -> Step<T> {
    Err(Stop::Failed(why))
}

fn granted(what: &str, outcome: Outcome) -> Step<Grant> {
    match outcome {
        Outcome::Granted(grant) => Ok(grant),
        other => fail(format!(
            "{what}, which must be granted; the answer was: {}",
            shown(&other)
        )),
    }
}

fn refused(what: &str, outcome: Outcome) -> Step<Refusal> {
    match outcome {
        Outcome::Refused(refusal) => Ok(refusal),
        other => fail(format!(
            "{what}, which must be refused; the answer was: {}",
            shown(&other)
        )),
    }
}

/// An outcome as a person reads it.
pub(super) fn shown(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Granted(grant) => match grant.token {
            Some(token) => format!("granted to {} with token {token}", grant.instance),
            None => format!("granted to {}", grant.instance),
        },
        Outcome::Refused(refusal) => format!("refused, {refusal}"),
        Outcome::Unknown(unknown) => unknown.to_string(),
    }
}
