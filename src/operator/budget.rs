//! How many status writes there may be that no transition asks for, and when.
//!
//! A token bucket whose tokens are given out in advance: every `expirationTime` that is shown has a second booked, before
//! it lapses, in which it is written again or taken out. So many seconds, so many writes in each: where none is free in
//! time, the `expirationTime` is not shown to begin with, which costs nothing. Nothing that is shown can lapse for want
//! of a write, and a thousand Leases that were acquired in the same second are refreshed in many.
//!
//! Transitions ask nobody. Times are the API server's.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

use jiff::Timestamp;

use super::{
    observe::WriteReason,
    projection::{Projection, refresh_lead},
};
use crate::crd::ChangeStreamLeaderStatus;

/// How many seconds are looked at for one that is free.
const SEARCH: i64 = 600;
/// More than any API server takes.
const MOST: u32 = 100_000;
/// How often what is long past is swept out.
const SWEEP: i64 = 60;
/// What is new gets this share of each second, so that what is shown already can go on being shown: of the rest an
/// `expirationTime` that was put back would otherwise soon be taken out again.
const FOR_NEWCOMERS: (u32, u32) = (4, 5);

/// Bookings by the uid of the object.
#[derive(Debug)]
pub(crate) struct Budget {
    per_second: u32,
    /// How many writes each second has, booked or done.
    seconds: BTreeMap<i64, u32>,
    /// The next write of each `expirationTime` that is shown.
    shown: HashMap<String, Booking>,
    /// Writes about conditions, which wait for a second that is free.
    waiting: HashMap<String, Booking>,
    /// Those whose `expirationTime` is not shown, because no second was free in time.
    without: HashSet<String>,
    swept: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Booking {
    due: Timestamp,
    /// The second that it counts in, as long as it does.
    second: Option<i64>,
}

/// What became of a decision.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Afforded {
    pub(crate) decision: Projection,
    /// A write was wanted, and is put off or does without `expirationTime`.
    pub(crate) throttled: bool,
    /// Whether the object does without `expirationTime` from now on, or has one again; `None` when that is as before.
    pub(crate) without: Option<bool>,
}

impl Budget {
    /// At most so many writes a second. With none, no `expirationTime` is shown.
    pub(crate) fn new(per_second: u32) -> Self {
        Self {
            per_second: per_second.min(MOST),
            seconds: BTreeMap::new(),
            shown: HashMap::new(),
            waiting: HashMap::new(),
            without: HashSet::new(),
            swept: None,
        }
    }

    /// How many objects do without `expirationTime`.
    pub(crate) fn without(&self) -> usize {
        self.without.len()
    }

    /// Whether the second is here that was booked for this object's `expirationTime`.
    pub(crate) fn is_due(&self, id: &str, now: Timestamp) -> bool {
        self.shown.get(id).is_some_and(|booking| booking.due <= now)
    }

    /// This object is gone.
    pub(crate) fn forget(&mut self, id: &str) {
        self.release(id);
        self.stop_waiting(id);
        self.without.remove(id);
    }

    /// The write was not made after all: what it was about is as due as before.
    pub(crate) fn failed(&mut self, id: &str, previous: &ChangeStreamLeaderStatus, now: Timestamp) {
        self.release(id);
        if previous.expiration_time.is_some() {
            let due = Booking {
                due: now,
                second: None,
            };
            self.shown.insert(id.to_owned(), due);
        }
    }

    /// A write about a condition: now, or in how long.
    pub(crate) fn pace(&mut self, id: &str, now: Timestamp) -> Result<(), Duration> {
        self.sweep(now);
        // Even where refreshes are switched off, conditions are told.
        let most = self.per_second.max(1);
        let second = now.as_second();
        match self.waiting.get(id).copied() {
            Some(booking) if booking.due <= now => {
                self.waiting.remove(id);
                return Ok(());
            }
            Some(booking) => return Err(until(booking.due, now)),
            None if self.count(second) < most => {
                self.add(second);
                return Ok(());
            }
            None => {}
        }
        let mut free = second + 1;
        while self.count(free) >= most {
            free += 1;
        }
        let booking = self.book(free, most);
        self.waiting.insert(id.to_owned(), booking);
        Err(until(booking.due, now))
    }

    /// Makes of what is worth a write what can be afforded. `previous` is the status as it is stored.
    pub(crate) fn afford(
        &mut self,
        id: &str,
        previous: &ChangeStreamLeaderStatus,
        decision: Projection,
        now: Timestamp,
    ) -> Afforded {
        let before = self.without.contains(id);
        let mut afforded = self.arbitrate(id, previous, decision, now);
        let after = self.without.contains(id);
        afforded.without = (before != after).then_some(after);
        afforded
    }

    fn arbitrate(
        &mut self,
        id: &str,
        previous: &ChangeStreamLeaderStatus,
        mut decision: Projection,
        now: Timestamp,
    ) -> Afforded {
        self.sweep(now);
        let ttl = decision.ttl.unwrap_or_default();
        if let Some(old) = &previous.expiration_time
            && !self.shown.contains_key(id)
        {
            // Shown by another operator, or by this one in its life before.
            let _ = self.show(id, old.0, ttl, now, Duration::ZERO, self.per_second);
            self.shown.entry(id.to_owned()).or_insert(Booking {
                due: now,
                second: None,
            });
        }
        match (
            decision.write,
            &decision.status.expiration_time,
            &previous.expiration_time,
        ) {
            (None, _, None) => {
                self.release(id);
                self.stop_waiting(id);
                return plain(decision);
            }
            (None, _, Some(_)) => {
                self.stop_waiting(id);
                // One whose second has passed without news has nothing to wait for but news, and its expiry.
                let due = self.shown.get(id).map(|b| b.due).filter(|due| *due > now);
                return plain(decision.look_again(due.map(|due| until(due, now))));
            }
            (Some(WriteReason::Refresh), Some(_), Some(_)) => {
                if let Some(wait) = self.take(id, now) {
                    return put_off(decision, previous, Some(wait));
                }
            }
            (Some(WriteReason::Refresh), Some(new), None) => {
                let most = self.for_newcomers();
                let second = now.as_second();
                if !self.show(id, new.0, ttl, now, ttl / 3, most) {
                    self.without.insert(id.to_owned());
                    // The next renewal asks again.
                    return put_off(decision, previous, None);
                }
                if self.count(second) >= most {
                    self.release(id);
                    self.without.insert(id.to_owned());
                    return put_off(decision, previous, Some(some_time(id, ttl / 3)));
                }
                self.add(second);
                self.without.remove(id);
                return plain(decision);
            }
            (Some(WriteReason::Condition), _, _) => {
                if let Err(wait) = self.pace(id, now) {
                    return put_off(decision, previous, Some(wait));
                }
            }
            // The policy was changed, say. There is no hurry.
            (Some(WriteReason::Refresh), None, _) => {
                decision.write = Some(WriteReason::ExpirationRemoved);
                if let Err(wait) = self.pace(id, now) {
                    return put_off(decision, previous, Some(wait));
                }
            }
            _ => {}
        }
        // It is written. With expirationTime, if that can be kept from lapsing.
        self.stop_waiting(id);
        self.release(id);
        let Some(new) = decision.status.expiration_time.clone() else {
            self.without.remove(id);
            return plain(decision);
        };
        let most = if previous.expiration_time.is_some() {
            self.per_second
        } else {
            self.for_newcomers()
        };
        if self.show(id, new.0, ttl, now, ttl / 3, most) {
            self.without.remove(id);
            let due = self.shown.get(id).map(|booking| until(booking.due, now));
            return plain(decision.look_again(due));
        }
        self.without.insert(id.to_owned());
        decision.status.expiration_time = None;
        if decision.write == Some(WriteReason::Refresh) {
            decision.write = Some(WriteReason::ExpirationRemoved);
        }
        Afforded {
            decision,
            throttled: true,
            without: None,
        }
    }

    /// Uses the booked second, or this one if it has room. Answers how long to wait where neither can be.
    fn take(&mut self, id: &str, now: Timestamp) -> Option<Duration> {
        let booking = self.shown.get(id).copied()?;
        if booking.due <= now {
            // It stays counted where it was booked; if that is past, because there was no news then, it counts twice.
            self.shown.remove(id);
            if booking.second.is_some_and(|second| second < now.as_second()) {
                self.add(now.as_second());
            }
            return None;
        }
        if self.count(now.as_second()) < self.per_second {
            self.add(now.as_second());
            self.release(id);
            return None;
        }
        Some(until(booking.due, now))
    }

    /// Books the last free second before this lapses, if there is one that is not too soon.
    fn show(
        &mut self,
        id: &str,
        expires: Timestamp,
        ttl: Duration,
        now: Timestamp,
        not_within: Duration,
        most: u32,
    ) -> bool {
        let (Ok(last), Ok(first)) = (
            expires.checked_sub(refresh_lead(ttl)),
            now.checked_add(not_within),
        ) else {
            return false;
        };
        let (last_second, first) = (last.as_second(), first.as_second());
        let from = first.max(last_second - SEARCH);
        let Some(second) = (from..=last_second)
            .rev()
            .find(|second| self.count(*second) < most)
        else {
            return false;
        };
        let mut booking = self.book(second, most);
        booking.due = booking.due.min(last);
        if let Some(before) = self.shown.insert(id.to_owned(), booking) {
            self.uncount(before);
        }
        true
    }

    /// Counts one more write in this second, and gives it a moment in it: spread, the first to come as late as may be,
    /// for the later it is the newer is the renewal that it shows.
    fn book(&mut self, second: i64, most: u32) -> Booking {
        let before = self.count(second);
        self.add(second);
        let part = Duration::from_secs(1) * (most - before.min(most - 1)) / (most + 1);
        let start = Timestamp::from_second(second).unwrap_or(Timestamp::MAX);
        Booking {
            due: start.checked_add(part).unwrap_or(start),
            second: Some(second),
        }
    }

    fn for_newcomers(&self) -> u32 {
        let share = u64::from(self.per_second) * u64::from(FOR_NEWCOMERS.0) / u64::from(FOR_NEWCOMERS.1);
        u32::try_from(share)
            .unwrap_or(u32::MAX)
            .max(self.per_second.min(1))
    }

    fn count(&self, second: i64) -> u32 {
        self.seconds.get(&second).copied().unwrap_or_default()
    }

    fn add(&mut self, second: i64) {
        *self.seconds.entry(second).or_default() += 1;
    }

    fn uncount(&mut self, booking: Booking) {
        if let Some(count) = booking.second.and_then(|second| self.seconds.get_mut(&second)) {
            *count = count.saturating_sub(1);
        }
    }

    fn release(&mut self, id: &str) {
        if let Some(booking) = self.shown.remove(id) {
            self.uncount(booking);
        }
    }

    fn stop_waiting(&mut self, id: &str) {
        if let Some(booking) = self.waiting.remove(id) {
            self.uncount(booking);
        }
    }

    fn sweep(&mut self, now: Timestamp) {
        let second = now.as_second();
        // Also when the server's clock was set back.
        if self
            .swept
            .is_some_and(|swept| (swept..swept + SWEEP).contains(&second))
        {
            return;
        }
        self.swept = Some(second);
        self.seconds = self.seconds.split_off(&second);
    }
}

fn plain(decision: Projection) -> Afforded {
    Afforded {
        decision,
        throttled: false,
        without: None,
    }
}

fn put_off(
    mut decision: Projection,
    previous: &ChangeStreamLeaderStatus,
    wait: Option<Duration>,
) -> Afforded {
    decision.status = previous.clone();
    decision.write = None;
    Afforded {
        decision: decision.look_again(wait),
        throttled: true,
        without: None,
    }
}

/// A moment within so long, another one for each object: Leases that are renewed in the same second would else all ask
/// in that one, and in no other.
fn some_time(id: &str, within: Duration) -> Duration {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    let millis = u64::try_from(within.as_millis()).unwrap_or(u64::MAX).max(1);
    Duration::from_millis(hasher.finish() % millis)
}

fn until(due: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(due.duration_since(now)).unwrap_or_default()
}

#[cfg(test)]
mod tests;
