//! What a lock service answered, in the machine's words.

use std::{any::Any, panic::AssertUnwindSafe};

use futures_util::FutureExt;

use super::{
    machine::{Answer, Freed, News, TermNo},
    status::LossReason,
};
use crate::lock::{BoxFuture, Change, LockError, LockService, Outcome, Refusal, Released, Term};

/// A panic of the lock service is an unknown outcome of this request, and nobody else's trouble.
pub(super) async fn guarded<T>(call: BoxFuture<'_, T>) -> Result<T, String> {
    AssertUnwindSafe(call)
        .catch_unwind()
        .await
        .map_err(|panic| format!("the lock service panicked: {}", panic_message(&*panic)))
}

pub(super) fn granting(
    answer: Result<Result<Outcome, LockError>, String>,
    term: &Term,
    service: &dyn LockService,
) -> Answer {
    match answer {
        Ok(Ok(Outcome::Granted(grant))) if grant.term == *term => Answer::Granted {
            valid_until: grant.valid_until,
            token: grant.token,
        },
        Ok(Ok(Outcome::Granted(grant))) => Answer::Unknown(format!(
            "the lock service granted term {} where {term} was asked for; it does not honour Claim::Term",
            grant.term
        )),
        Ok(Ok(Outcome::Refused(Refusal::HeldBy {
            holder,
            expires_at,
            token,
        }))) => Answer::HeldBy {
            holder,
            token,
            expires_in: expires_at.and_then(|at| at.duration_since(service.clock().wall()).ok()),
        },
        Ok(Ok(Outcome::Refused(Refusal::NotHeld))) => Answer::NotHeld,
        Ok(Ok(Outcome::Refused(Refusal::Missing))) => Answer::Missing,
        Ok(Ok(Outcome::Refused(Refusal::Expired))) => Answer::Over,
        Ok(Ok(Outcome::Unknown(unknown))) => Answer::Unknown(unknown.to_string()),
        Ok(Err(error)) => Answer::Failed(told(&error)),
        Err(panic) => Answer::Unknown(panic),
    }
}

/// What a change says to the machine. `number` tells which of its terms a term is.
pub(super) fn news(change: Change, number: impl Fn(&Term) -> Option<TermNo>) -> Option<News> {
    Some(match change {
        Change::Source(source) => News::Source(source),
        Change::Free => News::Free,
        Change::Held {
            holder, free_from, ..
        } => News::Held { holder, free_from },
        Change::Over { term, why } => News::Lost(number(&term)?, reason(why)),
        Change::Shortened { term, valid_until } => News::Shortened(number(&term)?, valid_until),
        Change::Failing { error } => News::Failing(error),
    })
}

/// Why a leadership is over whose lock would be refused so.
fn reason(why: Refusal) -> LossReason {
    match why {
        Refusal::HeldBy { holder, token, .. } => LossReason::TakenOver { by: holder, token },
        Refusal::Missing => LossReason::Deleted,
        Refusal::NotHeld | Refusal::Expired => LossReason::Released,
    }
}

/// An error with its causes.
fn told(error: &LockError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

pub(super) fn panic_message(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".into())
}

pub(super) fn freeing(answer: Result<Result<Released, LockError>, String>) -> Freed {
    match answer {
        Ok(Ok(Released::Released | Released::NotHeld)) => Freed::Done,
        Ok(Ok(Released::Unknown(unknown))) => Freed::Unknown(unknown.to_string()),
        Ok(Err(error)) => Freed::Unknown(told(&error)),
        Err(panic) => Freed::Unknown(panic),
    }
}
