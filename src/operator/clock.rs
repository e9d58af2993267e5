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

#[derive(Debug, Clone)]
pub(crate) struct ServerClock {
    local: Arc<dyn Clock>,
    seen: Arc<Mutex<Seen>>,
}

/// Offsets of the server's clock from the local one: the highest of this window, and of the one before.
#[derive(Debug)]
struct Seen {
    window: Moment,
    best: Option<SignedDuration>,
    before: Option<SignedDuration>,
}

impl ServerClock {
    pub(crate) fn new(local: Arc<dyn Clock>) -> Self {
        let window = local.now();
        Self {
            local,
            seen: Arc::new(Mutex::new(Seen {
                window,
                best: None,
                before: None,
            })),
        }
    }

    /// Takes in a time that the server told just now.
    pub(crate) fn told(&self, server: Timestamp) {
        let now = self.local.now();
        let offset = server.duration_since(origin(now));
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if now.since(seen.window) > WINDOW {
            seen.before = seen.best.take();
            seen.window = now;
        }
        seen.best = seen.best.max(Some(offset));
    }

    /// The time on the API server.
    pub(crate) fn now(&self) -> Timestamp {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        match seen.best.max(seen.before) {
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
