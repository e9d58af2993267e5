//! The deciding code of one stream: a pure state machine.
//!
//! In go the time and what happened ([`Input`]); out come requests, starts and stops ([`Output`]). It reads no clock,
//! sends nothing, and its lots come from a seed, so the same inputs give the same outputs. Terms are numbers here;
//! whoever drives it gives each number a random [`Term`](crate::Term) of its own.
//!
//! The rules (`docs/protocol.md`):
//!
//! * What has lapsed counts first: a reply that arrives together with the deadline finds the term over.
//! * A term that has ended never revives. What follows is another [`TermNo`], and never before the old work is gone.
//! * A release is sent once the work has ended and every clone of its guard is gone. Never before.
//! * A request belongs to a [`CallId`]; an answer to another one than those awaited is nobody's, and changes nothing.
//!
//! Not for use outside this crate and its tests.

mod contending;
mod ending;
mod leading;
#[cfg(test)]
mod model;
mod step;
#[cfg(test)]
mod tests;

use std::time::Duration;

use super::status::LossReason;
use crate::lock::{FencingToken, Moment, NewsSource};

pub use step::{Held, Machine};

/// A request. Rises over the machine's whole life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(pub u64);

/// An acquisition. Rises over the machine's whole life; a number that was used never returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TermNo(pub u64);

/// What a person or the program wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wish {
    /// Contend and work.
    Start,
    /// End the work, give the lock up.
    Stop,
    /// The same, for good: no later wish counts. What takes time is cut short so that all is done by then.
    ShutDown(Moment),
}

/// The answer to an acquisition or an extension.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Answer {
    /// Granted, under the term that was asked for.
    Granted {
        /// The holder's deadline.
        valid_until: Moment,
        /// The fencing token, where there is one.
        token: Option<FencingToken>,
    },
    /// Refused: somebody else holds it.
    HeldBy {
        /// Who.
        holder: String,
        /// How long it may still last, where known. Only a hint for when to ask again.
        expires_in: Option<Duration>,
        /// Under which token, where known.
        token: Option<FencingToken>,
    },
    /// Refused: nobody holds it.
    NotHeld,
    /// Refused: there is no record of it.
    Missing,
    /// Refused: this term is over.
    Over,
    /// It may have been applied.
    Unknown(String),
    /// It definitely was not applied, for a reason that is nobody's holding it.
    Failed(String),
}

/// The answer to a release.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Freed {
    /// The lock is not this term's any more.
    Done,
    /// It may still be.
    Unknown(String),
}

/// How work ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum End {
    /// It returned, or was dropped.
    Returned,
    /// It panicked.
    Panicked(String),
}

/// What a lock service tells by itself. The service puts its facts in order: what it tells of a term is newer than the
/// term's grant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum News {
    /// Where news come from now. Without a source, there is nothing but to ask.
    Source(NewsSource),
    /// The lock became free.
    Free,
    /// Somebody holds it.
    Held {
        /// Who.
        holder: String,
        /// From when on it may be found expired, unless news say otherwise.
        free_from: Option<Moment>,
    },
    /// It is proven that this term is over.
    Lost(TermNo, LossReason),
    /// This term ends earlier than was granted.
    Shortened(TermNo, Moment),
    /// A request that is under way has failed once more, and goes on.
    Failing(String),
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Input {
    /// Nothing but time.
    Tick,
    /// Somebody wants something.
    Wish(Wish),
    /// An acquisition was answered.
    Acquired(CallId, Answer),
    /// An extension was answered.
    Extended(CallId, Answer),
    /// A release was answered.
    Released(CallId, Freed),
    /// The service told something.
    News(News),
    /// The work of this term ended.
    WorkEnded(TermNo, End),
    /// Every clone of this term's guard is gone.
    GuardsGone(TermNo),
    /// This term's guard found its deadline passed before it could be moved.
    GuardLapsed(TermNo),
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Output {
    /// Send an acquisition.
    Acquire(CallId, TermNo),
    /// Send an extension.
    Extend(CallId, TermNo),
    /// Send a release.
    Release(CallId, TermNo),
    /// Wait for this request's answer no longer.
    Forget(CallId),
    /// Start the work, with a guard.
    StartWork {
        /// Its term.
        term: TermNo,
        /// Its deadline.
        valid_until: Moment,
        /// Its token.
        token: Option<FencingToken>,
    },
    /// Move the guard's deadline.
    Deadline(Moment),
    /// Ask the work to stop.
    AskStop(LossReason),
    /// Tell the work that the leadership cannot be kept beyond its present deadline.
    TellLost(LossReason),
    /// The guard is false from now on; drop the work if it still runs.
    CutOff(LossReason),
    /// What was to be dropped lives on.
    Stuck,
}
