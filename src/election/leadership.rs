//! The guard: what the work holds, and asks before it acts.
//!
//! It compares the clock with its deadline itself, so it is right also when every task of this process is late. Once
//! false it stays false. Nobody decides here; the coordinator's thread moves the deadline and ends the guard.

#[cfg(test)]
mod tests;

use std::{
    fmt,
    future::{Future, poll_fn},
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    task::Poll,
    time::Duration,
};

use tokio::sync::watch;

use super::status::LossReason;
use crate::lock::{FencingToken, LockService, Moment, StreamName, Term};

/// Leave to act as a stream's leader, while [`is_valid`](Self::is_valid) says so.
///
/// Clones are the same guard, for tasks and blocking threads that belong to the work. **The lock is released only when
/// the work has ended and every clone is gone**, so drop clones when what they protect is done.
///
/// Between a check and a side effect time can pass, and a machine whose clocks stood still wakes up believing in its
/// guard. For what must never happen twice, send the [`token`](Self::token) along to a store that checks it.
///
/// In async work, await [`stop_requested`](Self::stop_requested) beside what is done; a blocking thread asks
/// [`check`](Self::check) before each side effect and [`is_stop_requested`](Self::is_stop_requested) between them:
///
/// ```
/// # use leasewarden::election::Leadership;
/// async fn work(leadership: Leadership) {
///     let guard = leadership.clone();
///     let thread = tokio::task::spawn_blocking(move || {
///         while !guard.is_stop_requested() {
///             // … prepare …
///             if guard.check().is_err() {
///                 return;
///             }
///             // … the side effect, with guard.token() …
///         }
///     });
///     let _ = thread.await;
/// }
/// ```
#[derive(Clone)]
pub struct Leadership {
    hold: Arc<Hold>,
}

/// What all clones share. Its drop tells the coordinator that nobody is left.
struct Hold {
    guard: Arc<Guard>,
    gone: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(gone) = self.gone.take() {
            gone();
        }
    }
}

struct Guard {
    stream: StreamName,
    term: Term,
    token: Option<FencingToken>,
    /// For its clock.
    service: Arc<dyn LockService>,
    time: Mutex<Time>,
    phase: watch::Receiver<Phase>,
}

struct Time {
    deadline: Moment,
    over: bool,
}

/// How far the end has come. Each includes those before it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    Leading,
    StopAsked(LossReason),
    Lost(LossReason),
}

/// This instance does not lead (any more), so the side effect was not begun, or was dropped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("this instance no longer leads stream {stream} (term {term}): {reason}")]
#[non_exhaustive]
pub struct NotLeading {
    /// The stream.
    pub stream: StreamName,
    /// The term that is over.
    pub term: Term,
    /// Why.
    pub reason: LossReason,
}

impl Guard {
    /// Whether it counts; one that is found to be past its deadline never counts again.
    fn is_valid(&self) -> bool {
        let mut time = self.time.lock().unwrap_or_else(PoisonError::into_inner);
        // Read under the lock: a deadline that moves after the reading cannot make an old reading look late.
        if !time.over && self.service.clock().now() >= time.deadline {
            time.over = true;
        }
        !time.over
    }
}

impl Leadership {
    /// Whether this instance may act now. Asks the clock, sends nothing, and never turns true again.
    pub fn is_valid(&self) -> bool {
        self.hold.guard.is_valid()
    }

    /// The stream that is led.
    pub fn stream(&self) -> &StreamName {
        &self.hold.guard.stream
    }

    /// The id of this leadership.
    pub fn term(&self) -> &Term {
        &self.hold.guard.term
    }

    /// What to send along with each side effect; `None` where the lock service has no tokens.
    pub fn token(&self) -> Option<FencingToken> {
        self.hold.guard.token
    }

    /// Until when it is proven, on the lock service's clock. Moves with each renewal;
    /// [`Moment::NEVER`] for a stream that runs on all instances.
    pub fn deadline(&self) -> Moment {
        let time = self.hold.guard.time.lock();
        time.unwrap_or_else(PoisonError::into_inner).deadline
    }

    /// How long it is proven from now on; zero when it is not valid.
    pub fn remaining(&self) -> Duration {
        if self.is_valid() {
            self.deadline().since(self.hold.guard.service.clock().now())
        } else {
            Duration::ZERO
        }
    }

    /// Fails when this instance may not act now.
    ///
    /// # Errors
    /// [`NotLeading`].
    pub fn check(&self) -> Result<(), NotLeading> {
        if self.is_valid() {
            Ok(())
        } else {
            Err(self.not_leading())
        }
    }

    /// Runs a side effect while the guard is valid: not begun when it is not, and dropped when it becomes so. What was
    /// sent before may still take effect; for that there is the [`token`](Self::token).
    ///
    /// # Errors
    /// [`NotLeading`].
    ///
    /// Cancellation: dropping it drops the side effect.
    pub async fn run<F: Future>(&self, side_effect: F) -> Result<F::Output, NotLeading> {
        let mut side_effect = pin!(side_effect);
        let mut lost = pin!(self.over());
        poll_fn(|context| {
            // Before each step, by the clock: the coordinator's word may be late.
            if !self.is_valid() || lost.as_mut().poll(context).is_ready() {
                return Poll::Ready(Err(self.not_leading()));
            }
            side_effect.as_mut().poll(context).map(Ok)
        })
        .await
    }

    /// Completes once the work is to end, for whatever reason; after [`lost`](Self::lost) too. Finish what is at hand,
    /// and return. The lock is kept meanwhile, where it can be.
    ///
    /// Cancellation safe.
    pub async fn stop_requested(&self) -> LossReason {
        self.phase(|phase| match phase {
            Phase::Leading => None,
            Phase::StopAsked(reason) | Phase::Lost(reason) => Some(reason.clone()),
        })
        .await
    }

    /// Completes once the leadership cannot be kept: a stop margin before an unrenewed [`deadline`](Self::deadline), and
    /// at once when the loss is proven. Irrevocable. The work is dropped at the deadline.
    ///
    /// Cancellation safe.
    pub async fn lost(&self) -> LossReason {
        self.phase(|phase| match phase {
            Phase::Leading | Phase::StopAsked(_) => None,
            Phase::Lost(reason) => Some(reason.clone()),
        })
        .await
    }

    /// Whether the work is to end: the question of [`stop_requested`](Self::stop_requested), for threads.
    pub fn is_stop_requested(&self) -> bool {
        !self.is_valid() || *self.hold.guard.phase.borrow() != Phase::Leading
    }

    async fn phase(&self, reason: impl Fn(&Phase) -> Option<LossReason>) -> LossReason {
        let mut phase = self.hold.guard.phase.clone();
        match phase.wait_for(|phase| reason(phase).is_some()).await {
            Ok(phase) => reason(&phase),
            // The coordinator's thread is gone, so nobody renews.
            Err(_) => None,
        }
        .unwrap_or(LossReason::ExpiredUnreachable { last_error: None })
    }

    /// Completes when the guard was ended before its deadline.
    async fn over(&self) {
        let mut phase = self.hold.guard.phase.clone();
        while self.is_valid() && phase.changed().await.is_ok() {}
        if self.is_valid() {
            // Nobody can end it any more but its deadline, which `run` looks at itself.
            std::future::pending::<()>().await;
        }
    }

    fn not_leading(&self) -> NotLeading {
        let guard = &self.hold.guard;
        let reason = match &*guard.phase.borrow() {
            Phase::Lost(reason) | Phase::StopAsked(reason) => reason.clone(),
            Phase::Leading => LossReason::ExpiredUnreachable { last_error: None },
        };
        NotLeading {
            stream: guard.stream.clone(),
            term: guard.term.clone(),
            reason,
        }
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leadership")
            .field("stream", self.stream())
            .field("term", self.term())
            .field("token", &self.token())
            .field("deadline", &self.deadline())
            .field("valid", &self.is_valid())
            .finish()
    }
}

/// The coordinator's hand on a guard. Its drop ends the guard.
pub(super) struct Reins {
    guard: Arc<Guard>,
    phase: watch::Sender<Phase>,
}

impl Reins {
    /// A guard, and the hand on it. `gone` is called once when the last clone is dropped.
    pub(super) fn new(
        stream: StreamName,
        term: Term,
        token: Option<FencingToken>,
        deadline: Moment,
        service: Arc<dyn LockService>,
        gone: impl FnOnce() + Send + Sync + 'static,
    ) -> (Self, Leadership) {
        let (sender, phase) = watch::channel(Phase::Leading);
        let guard = Arc::new(Guard {
            stream,
            term,
            token,
            service,
            time: Mutex::new(Time {
                deadline,
                over: false,
            }),
            phase,
        });
        let hold = Arc::new(Hold {
            guard: Arc::clone(&guard),
            gone: Some(Box::new(gone)),
        });
        let reins = Self { guard, phase: sender };
        (reins, Leadership { hold })
    }

    /// Moves the deadline. False when the guard is over already: then it stays so.
    pub(super) fn deadline(&self, deadline: Moment) -> bool {
        let valid = self.guard.is_valid();
        let mut time = self.guard.time.lock().unwrap_or_else(PoisonError::into_inner);
        if !valid || time.over {
            return false;
        }
        time.deadline = deadline;
        true
    }

    pub(super) fn ask_stop(&self, reason: LossReason) {
        self.phase.send_if_modified(|phase| {
            let first = *phase == Phase::Leading;
            if first {
                *phase = Phase::StopAsked(reason);
            }
            first
        });
    }

    pub(super) fn tell_lost(&self, reason: LossReason) {
        self.phase.send_if_modified(|phase| {
            let first = !matches!(phase, Phase::Lost(_));
            if first {
                *phase = Phase::Lost(reason);
            }
            first
        });
    }

    /// The guard is false from here on.
    pub(super) fn end(&self, reason: LossReason) {
        self.guard
            .time
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .over = true;
        // Told again also when it was told before: `run` waits for this.
        self.phase.send_modify(|phase| *phase = Phase::Lost(reason));
    }
}

impl Drop for Reins {
    fn drop(&mut self) {
        let mut time = self.guard.time.lock().unwrap_or_else(PoisonError::into_inner);
        time.over = true;
    }
}
