//! The requests of one stream's loop to its lock service, and what the metrics hook hears of each: once, how it ended.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use tokio::task::AbortHandle;

use super::{
    answer::{freeing, granting, guarded},
    driver::{Driver, Message},
    machine::{CallId, Input, TermNo},
    metrics::{Attempt, AttemptOutcome, ElectionEventKind},
};
use crate::lock::{AcquireRequest, Claim, ExtendRequest, ReleaseRequest};

/// A request under way.
pub(super) struct Call {
    attempt: Attempt,
    sent: Instant,
    task: AbortHandle,
    /// Whether the metrics hook has been told how it ended.
    told: Arc<AtomicBool>,
}

fn attempted(attempt: Attempt, outcome: AttemptOutcome, sent: Instant) -> ElectionEventKind {
    ElectionEventKind::Attempt {
        attempt,
        outcome,
        duration: sent.elapsed(),
    }
}

impl Call {
    pub(super) fn is_renewal(&self) -> bool {
        self.attempt == Attempt::Extend
    }

    pub(super) fn abort(&self) {
        self.task.abort();
    }
}

impl Driver {
    pub(super) fn acquire(&mut self, id: CallId, term: TermNo) {
        let term = self.term(term);
        let request =
            AcquireRequest::new(&self.stream, &self.instance, self.ttl).claim(Claim::Term(term.clone()));
        let service = Arc::clone(&self.service);
        self.call(id, Attempt::Acquire, async move {
            let answer = guarded(service.acquire(request)).await;
            let answer = granting(answer, &term, &*service);
            (AttemptOutcome::of_answer(&answer), Input::Acquired(id, answer))
        });
    }

    pub(super) fn extend(&mut self, id: CallId, term: TermNo) {
        let term = self.term(term);
        let request =
            ExtendRequest::new(&self.stream, &self.instance, self.ttl).claim(Claim::Term(term.clone()));
        let service = Arc::clone(&self.service);
        self.call(id, Attempt::Extend, async move {
            let answer = guarded(service.extend(request)).await;
            let answer = granting(answer, &term, &*service);
            (AttemptOutcome::of_answer(&answer), Input::Extended(id, answer))
        });
    }

    pub(super) fn release(&mut self, id: CallId, term: TermNo) {
        let term = self.term(term);
        let request = ReleaseRequest::new(&self.stream, &self.instance).claim(Claim::Term(term));
        let service = Arc::clone(&self.service);
        self.call(id, Attempt::Release, async move {
            let freed = freeing(guarded(service.release(request)).await);
            (AttemptOutcome::of_release(&freed), Input::Released(id, freed))
        });
    }

    /// Sends a request as a task of its own: no request waits for another, and none holds the loop up.
    fn call(
        &mut self,
        id: CallId,
        attempt: Attempt,
        call: impl Future<Output = (AttemptOutcome, Input)> + 'static,
    ) {
        let outbox = self.outbox.clone();
        let (metrics, stream, sent) = (self.metrics.clone(), self.stream.clone(), Instant::now());
        let told = Arc::<AtomicBool>::default();
        let answered = Arc::clone(&told);
        let task = tokio::task::spawn_local(async move {
            let (outcome, input) = call.await;
            let _ = outbox.send(Message::Input(input));
            if !answered.swap(true, Ordering::Relaxed) {
                metrics.tell(&stream, attempted(attempt, outcome, sent));
            }
        });
        let task = task.abort_handle();
        self.hands.calls.retain(|_, call| !call.task.is_finished());
        let call = Call {
            attempt,
            sent,
            task,
            told,
        };
        self.hands.calls.insert(id, call);
    }

    /// Nobody waits for this answer any more. Should it come yet, it is not told a second time.
    pub(super) fn timed_out(&self, call: &Call) {
        if !call.told.swap(true, Ordering::Relaxed) {
            self.tell(attempted(call.attempt, AttemptOutcome::TimedOut, call.sent));
        }
    }
}
