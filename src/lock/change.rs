//! What a lock service tells by itself: so that a standby need not ask, and a holder hears at once of a loss.
//!
//! A channel that keeps what is pending by kind, newest first of its kind: a slow reader blocks nobody, costs no memory
//! without end, and finds the present when it comes.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use tokio::sync::Notify;

use super::{
    clock::Moment,
    outcome::Refusal,
    types::{FencingToken, Term},
};

/// Something that a lock service learnt about a stream's lock. It grants nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// How this stream's changes are learnt of from now on.
    Source(NewsSource),
    /// Nobody holds it.
    Free,
    /// Somebody holds it; perhaps who listens.
    Held {
        /// Who, as found in the store.
        holder: String,
        /// The holder's fencing token, where known.
        token: Option<FencingToken>,
        /// Until when by the store's record, where known. A hint.
        expires_at: Option<SystemTime>,
        /// From when on this process may find it expired unless it is renewed, on the service's clock: a contender that
        /// asks then asks neither too early nor too late.
        free_from: Option<Moment>,
    },
    /// A term that this service granted is over, proven by the store: its holder must not act any more. Newer than any
    /// grant of that term.
    Over {
        /// Which.
        term: Term,
        /// What an extension of it would be refused with.
        why: Refusal,
    },
    /// A term that this service granted ends earlier than its grant said: somebody shortened it in the store.
    Shortened {
        /// Which.
        term: Term,
        /// When its holder must stop, on the service's clock.
        valid_until: Moment,
    },
    /// A request about this lock failed, and is tried again. Who waits for its answer hears the reason before.
    Failing {
        /// What happened.
        error: String,
    },
}

/// How a service learns of a stream's changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum NewsSource {
    /// It does not: who wants to know must ask.
    #[default]
    Polling,
    /// One watch tells of all streams (for Leases: by label).
    SharedWatch,
    /// A watch tells of this stream alone (for Leases: by name).
    OwnWatch,
}

impl fmt::Display for NewsSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Polling => "polling",
            Self::SharedWatch => "one watch for all streams",
            Self::OwnWatch => "a watch of its own",
        })
    }
}

/// The changes of one stream, from [`LockService::changes`](super::LockService::changes).
#[derive(Debug)]
pub struct Changes(Arc<Shared>);

/// The other end of [`Changes`], for implementations of [`LockService`](super::LockService).
#[derive(Debug)]
pub struct ChangeSender(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    pending: Mutex<Pending>,
    news: Notify,
}

#[derive(Debug, Default)]
struct Pending {
    source: Option<Change>,
    /// What is told of terms, each at most once, oldest first.
    terms: Vec<Change>,
    standing: Option<Change>,
    failing: Option<Change>,
    closed: bool,
}

impl Shared {
    fn pending(&self) -> MutexGuard<'_, Pending> {
        // Nothing panics half-way through a change here.
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Changes {
    /// A channel of changes.
    pub fn channel() -> (ChangeSender, Self) {
        let shared = Arc::new(Shared::default());
        (ChangeSender(Arc::clone(&shared)), Self(shared))
    }

    /// The next change; `None` once there will be no more. What the reader did not fetch in time and newer news of its kind
    /// has overtaken is left out; that a term is over never is.
    ///
    /// Cancellation safe.
    pub async fn next(&mut self) -> Option<Change> {
        loop {
            {
                let mut pending = self.0.pending();
                let next = pending.source.take();
                let next = next.or_else(|| (!pending.terms.is_empty()).then(|| pending.terms.remove(0)));
                let next = next.or_else(|| pending.standing.take());
                let next = next.or_else(|| pending.failing.take());
                if next.is_some() || pending.closed {
                    return next;
                }
            }
            self.0.news.notified().await;
        }
    }
}

impl ChangeSender {
    /// Tells a change. Never blocks.
    pub fn send(&self, change: Change) {
        let mut pending = self.0.pending();
        match &change {
            Change::Source(_) => pending.source = Some(change),
            Change::Free | Change::Held { .. } => pending.standing = Some(change),
            Change::Failing { .. } => pending.failing = Some(change),
            Change::Over { term, .. } | Change::Shortened { term, .. } => {
                let over = |told: &Change| matches!(told, Change::Over { term: of, .. } if of == term);
                if !pending.terms.iter().any(over) {
                    let shortened =
                        |told: &Change| matches!(told, Change::Shortened { term: of, .. } if of == term);
                    pending.terms.retain(|told| !shortened(told));
                    pending.terms.push(change);
                }
            }
        }
        drop(pending);
        self.0.news.notify_one();
    }

    /// Whether nobody listens any more.
    pub fn is_closed(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

impl Drop for ChangeSender {
    fn drop(&mut self) {
        self.0.pending().closed = true;
        self.0.news.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(holder: &str) -> Change {
        Change::Held {
            holder: holder.into(),
            token: None,
            expires_at: None,
            free_from: None,
        }
    }

    async fn all(mut changes: Changes) -> Vec<Change> {
        let mut all = Vec::new();
        while let Some(change) = changes.next().await {
            all.push(change);
        }
        all
    }

    #[tokio::test]
    async fn a_slow_reader_finds_the_present_and_every_term_that_is_over() {
        let (sender, changes) = Changes::channel();
        let (first, second) = (Term::random(), Term::random());
        let over = |term: &Term, why| Change::Over {
            term: term.clone(),
            why,
        };
        let shortened = |term: &Term, secs| Change::Shortened {
            term: term.clone(),
            valid_until: Moment::from_origin(std::time::Duration::from_secs(secs)),
        };
        for n in 0..1000 {
            sender.send(held(&n.to_string()));
            sender.send(shortened(&first, 2000 - n));
        }
        sender.send(over(&first, Refusal::Missing));
        sender.send(shortened(&first, 1));
        sender.send(over(&first, Refusal::NotHeld));
        sender.send(shortened(&second, 7));
        sender.send(Change::Source(NewsSource::Polling));
        sender.send(Change::Source(NewsSource::OwnWatch));
        let failing = |error: &str| Change::Failing { error: error.into() };
        sender.send(failing("no reply"));
        sender.send(failing("connection refused"));
        sender.send(Change::Free);
        drop(sender);
        assert_eq!(
            all(changes).await,
            [
                Change::Source(NewsSource::OwnWatch),
                over(&first, Refusal::Missing),
                shortened(&second, 7),
                Change::Free,
                failing("connection refused"),
            ]
        );
    }

    #[tokio::test]
    async fn a_sender_knows_that_nobody_listens() {
        let (sender, changes) = Changes::channel();
        assert!(!sender.is_closed());
        drop(changes);
        assert!(sender.is_closed());
    }
}
