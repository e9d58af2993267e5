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

/// The new terms of a stream that answers carry which may yet be given back.
#[derive(Debug, Default)]
pub(crate) struct Delivered(RefCell<Vec<Promise>>);

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
        let mut promises = self.0.borrow_mut();
        // Of a promise that nobody else has, the answer was taken or its grant given back.
        promises.retain(|promise| Arc::strong_count(&promise.adopted) > 1);
        let earlier = promises.iter().position(|promise| promise.term == *term);
        if in_use || granted {
            if let Some(at) = earlier {
                promises.swap_remove(at).adopted.store(true, Ordering::Relaxed);
            }
        } else if let Some(at) = earlier {
            return Some(promises[at].clone());
        }
        if in_use {
            return None;
        }
        let (term, adopted) = (term.clone(), Arc::default());
        let promise = Promise { term, adopted };
        promises.push(promise.clone());
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::{Grant, InstanceId, Moment, StreamName, Unknown};

    fn granted(term: &Term) -> Outcome {
        let (stream, a) = (StreamName::new("s").unwrap(), InstanceId::new("a").unwrap());
        Outcome::Granted(Grant::new(stream, a, term.clone(), Moment::NEVER))
    }

    fn unknown() -> Outcome {
        Outcome::Unknown(Unknown::new("no reply"))
    }

    fn adopted(promise: &Promise) -> bool {
        promise.adopted.load(Ordering::Relaxed)
    }

    #[test]
    fn a_new_grant_is_promised_and_one_that_was_valid_before_is_in_use() {
        let (delivered, term) = (Delivered::default(), Term::random());
        let first = delivered.promise(&Ok(granted(&term)), None, None).unwrap();
        assert!(!adopted(&first));
        assert!(
            delivered
                .promise(&Ok(granted(&term)), Some(&term), None)
                .is_none()
        );
        assert!(adopted(&first), "another call has it now");
    }

    #[test]
    fn a_grant_takes_its_term_from_an_unknown_call_whatever_other_terms_were_tried_since() {
        let (delivered, term, other) = (Delivered::default(), Term::random(), Term::random());
        let lost = delivered.promise(&Ok(unknown()), None, Some(&term)).unwrap();
        let between = delivered.promise(&Ok(unknown()), None, Some(&other)).unwrap();
        let retried = delivered.promise(&Ok(granted(&term)), None, Some(&term)).unwrap();
        assert!(adopted(&lost));
        assert!(!adopted(&between) && !adopted(&retried));
    }

    #[test]
    fn promises_that_are_kept_are_forgotten() {
        let delivered = Delivered::default();
        for _ in 0..100 {
            drop(delivered.promise(&Ok(unknown()), None, Some(&Term::random())));
        }
        assert_eq!(delivered.0.borrow().len(), 1);
    }
}
