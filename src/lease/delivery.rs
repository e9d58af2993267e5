//! An answer on its way to who asked, and what becomes of it when nobody takes it.
//!
//! Whoever drops the future of an acquisition does not want the lock, so a grant that is never taken is given back. But
//! the same term may meanwhile be in other hands: a retry of the same acquisition, or another call under the same
//! instance id, may have been granted it. Then it stays.

use std::{
    cell::RefCell,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::sync::{mpsc, oneshot};

use super::worker::Job;
use crate::lock::{Claim, LockError, Outcome, ReleaseRequest, Term};

/// A term that was granted to somebody who did not wait for it.
pub(crate) struct Forsaken {
    pub(crate) request: ReleaseRequest,
    /// Set once another call was granted the same term: then it is in use, and not given back.
    pub(crate) adopted: Arc<AtomicBool>,
}

/// An answer on its way to who asked. If it is never taken, and was a new grant, the grant is given back.
pub(crate) struct Delivery {
    answer: Option<Result<Outcome, LockError>>,
    give_back: Option<(mpsc::WeakUnboundedSender<Job>, Forsaken)>,
}

impl Delivery {
    /// Takes the answer; a grant in it is the taker's from here on.
    pub(crate) fn take(mut self) -> Result<Outcome, LockError> {
        self.give_back = None;
        self.answer.take().unwrap_or(Err(LockError::ShutDown))
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        if let Some((jobs, forsaken)) = self.give_back.take()
            && let Some(jobs) = jobs.upgrade()
        {
            // Fails only when the thread has ended, and then the Lease expires by itself.
            let _ = jobs.send(Job::GiveBack(forsaken));
        }
    }
}

/// A new term that an answer carries.
#[derive(Debug, Clone)]
pub(crate) struct Promise {
    term: Term,
    adopted: Arc<AtomicBool>,
}

impl Promise {
    /// What gives the term back by a job, unless the answer is taken. `release` says whose it is.
    pub(crate) fn kept_by(
        self,
        jobs: &mpsc::WeakUnboundedSender<Job>,
        release: ReleaseRequest,
    ) -> (mpsc::WeakUnboundedSender<Job>, Forsaken) {
        let request = release.claim(Claim::Term(self.term));
        let adopted = self.adopted;
        (jobs.clone(), Forsaken { request, adopted })
    }
}

/// The last new term of a stream that an answer carried.
#[derive(Debug, Default)]
pub(crate) struct Delivered(RefCell<Option<Promise>>);

impl Delivered {
    /// What is to be given back if nobody takes `answer`: a new term, granted or (`attempted`) perhaps yet to be applied.
    /// One that was valid `before` is in other hands too, and stays.
    ///
    /// A grant also takes its term out of the hands of earlier calls that it was promised to, whether they were granted
    /// it or left in the unknown: they would give back what is in use.
    pub(crate) fn promise(
        &self,
        answer: &Result<Outcome, LockError>,
        before: Option<&Term>,
        attempted: Option<&Term>,
    ) -> Option<Promise> {
        let (term, granted) = match answer {
            Ok(Outcome::Granted(grant)) => (&grant.term, true),
            Ok(Outcome::Unknown(_)) => (attempted?, false),
            _ => return None,
        };
        let in_use = before == Some(term);
        let earlier = self.0.borrow().clone().filter(|promise| promise.term == *term);
        match earlier {
            Some(promise) if in_use || granted => promise.adopted.store(true, Ordering::Relaxed),
            Some(promise) => return Some(promise),
            None => {}
        }
        if in_use {
            return None;
        }
        let (term, adopted) = (term.clone(), Arc::default());
        let promise = Promise { term, adopted };
        *self.0.borrow_mut() = Some(promise.clone());
        Some(promise)
    }
}

/// Sends an answer. If nobody waits, it comes back, and its drop gives the grant back.
pub(crate) fn deliver(
    reply: oneshot::Sender<Delivery>,
    answer: Result<Outcome, LockError>,
    give_back: Option<(mpsc::WeakUnboundedSender<Job>, Forsaken)>,
) {
    let answer = Some(answer);
    drop(reply.send(Delivery { answer, give_back }));
}
