//! The API server's clock, as well as it can be known from here: never ahead of it.
//!
//! Every server time that is received (a reply's `Date`, a managed-fields time of an event) was true when it was sent
//! and was rounded down, so the server's clock is at least that far now. The best of the last minutes is kept; older
//! ones are forgotten, so that a server clock that was set back is believed again. The machine's own wall clock counts
//! only until the first reply.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};

use crate::lock::{Clock, Moment};

/// How long a received time is kept: between one and two of these.
const WINDOW: Duration = Duration::from_secs(120);

/// How far a time in a Lease may be ahead of what replies have told: a second of rounding, and some drift.
const AHEAD: SignedDuration = SignedDuration::from_secs(5);

#[derive(Debug, Clone)]
pub(crate) struct ServerClock {
    local: Arc<dyn Clock>,
    seen: Arc<Mutex<Seen>>,
}

/// Offsets of the server's clock from the local one.
#[derive(Debug)]
struct Seen {
    window: Moment,
    /// What replies told.
    replies: Best,
    /// What writes told, as far as it is believed.
    writes: Best,
}

/// The highest of this window, and of the one before.
#[derive(Debug, Default)]
struct Best {
    now: Option<SignedDuration>,
    before: Option<SignedDuration>,
}

impl Best {
    fn get(&self) -> Option<SignedDuration> {
        self.now.max(self.before)
    }

    fn take(&mut self, offset: SignedDuration) {
        self.now = self.now.max(Some(offset));
    }

    fn next_window(&mut self) {
        self.before = self.now.take();
    }
}

impl ServerClock {
    pub(crate) fn new(local: Arc<dyn Clock>) -> Self {
        let window = local.now();
        Self {
            local,
            seen: Arc::new(Mutex::new(Seen {
                window,
                replies: Best::default(),
                writes: Best::default(),
            })),
        }
    }

    /// Takes in a time that the server told just now, in a reply.
    pub(crate) fn told(&self, server: Timestamp) {
        let now = self.local.now();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if now.since(seen.window) > WINDOW {
            seen.replies.next_window();
            seen.writes.next_window();
            seen.window = now;
        }
        seen.replies.take(server.duration_since(origin(now)));
    }

    /// Takes in the time of a write that the watch has just brought. Whoever may write a Lease can write any time into its
    /// managedFields too, and one from the future would make every other Lease look expired: so it may be ahead of what
    /// replies have told by a little only.
    pub(crate) fn written(&self, at: Timestamp) {
        let now = self.local.now();
        let offset = at.duration_since(origin(now));
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.replies.get().is_some_and(|told| offset <= told + AHEAD) {
            // Replies alone open a window, so that there is always one of theirs to compare with.
            seen.writes.take(offset);
        }
    }

    /// The time on the API server.
    pub(crate) fn now(&self) -> Timestamp {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        match seen.replies.get().max(seen.writes.get()) {
            Some(offset) => origin(self.local.now())
                .checked_add(offset)
                .unwrap_or(Timestamp::MAX),
            None => Timestamp::try_from(self.local.wall()).unwrap_or(Timestamp::UNIX_EPOCH),
        }
    }
}

/// A moment of the local clock as if that had started in 1970, so that offsets are plain differences.
fn origin(now: Moment) -> Timestamp {
    Timestamp::UNIX_EPOCH
        .checked_add(now.since_origin())
        .unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::ManualClock;

    fn second(s: i64) -> Timestamp {
        Timestamp::from_second(s).unwrap()
    }

    #[test]
    fn it_follows_the_server_whatever_the_own_wall_clock_says() {
        let local = ManualClock::new();
        local.set_wall(std::time::UNIX_EPOCH);
        let clock = ServerClock::new(Arc::new(local.clone()));
        clock.told(second(1_800_000_000));
        local.advance(Duration::from_secs(5));
        assert_eq!(clock.now(), second(1_800_000_005));
        // An older news moves nothing.
        clock.told(second(1_800_000_001));
        assert_eq!(clock.now(), second(1_800_000_005));
    }

    #[test]
    fn a_time_in_a_lease_that_lies_in_the_future_moves_nothing() {
        let local = ManualClock::new();
        let clock = ServerClock::new(Arc::new(local.clone()));
        clock.told(second(1_800_000_000));
        clock.written(second(4_000_000_000));
        assert_eq!(clock.now(), second(1_800_000_000));
        clock.written(second(1_800_000_001));
        assert_eq!(clock.now(), second(1_800_000_001));
        // Nor little by little.
        for ahead in 2..100 {
            clock.written(second(1_800_000_000 + ahead));
        }
        assert_eq!(clock.now(), second(1_800_000_005));
        // A reply is believed: the server's own clock was set forward.
        clock.told(second(1_800_000_060));
        assert_eq!(clock.now(), second(1_800_000_060));
    }

    #[test]
    fn a_server_clock_that_was_set_back_is_believed_after_a_while() {
        let local = ManualClock::new();
        let clock = ServerClock::new(Arc::new(local.clone()));
        clock.told(second(1_800_003_600));
        for minute in 0..6 {
            local.advance(Duration::from_secs(60));
            clock.told(second(1_800_000_060 + minute * 60));
        }
        assert_eq!(clock.now(), second(1_800_000_360));
    }
}
