//! Time: one clock that counts while the machine sleeps, and one that is only printed.
//!
//! Deadlines are [`Moment`]s of a clock that goes on while the machine is suspended (`CLOCK_BOOTTIME` on Linux): with
//! `std::time::Instant` a laptop that slept for an hour believes that its lock is a second old. The wall clock grants
//! nothing; it is written for people and may veto.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

/// A reading of a [`Clock`]: the time since that clock's origin (on Linux, since boot). Readings of two clocks, or of
/// two machines, cannot be compared.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(Duration);

impl Moment {
    /// The clock's origin.
    pub const ORIGIN: Moment = Moment(Duration::ZERO);
    /// Never.
    pub const NEVER: Moment = Moment(Duration::MAX);

    /// From the time since the origin.
    pub const fn from_origin(since: Duration) -> Self {
        Self(since)
    }

    /// The time since the origin.
    pub const fn since_origin(self) -> Duration {
        self.0
    }

    /// How long after `earlier`; zero when it is not after.
    #[must_use]
    pub fn since(self, earlier: Moment) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl std::ops::Add<Duration> for Moment {
    type Output = Moment;
    /// Saturates at [`Moment::NEVER`].
    fn add(self, by: Duration) -> Moment {
        Moment(self.0.saturating_add(by))
    }
}

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Moment::NEVER {
            f.write_str("never")
        } else {
            write!(f, "+{:?}", self.0)
        }
    }
}

/// Where time comes from. Injected, so that tests can drive it.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Now, on a clock that never goes back and goes on while the machine is suspended.
    fn now(&self) -> Moment;

    /// Now on the wall clock: to be written and printed. It may jump.
    fn wall(&self) -> SystemTime;
}

/// The machine's clocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn now(&self) -> Moment {
        from_timespec(rustix::time::clock_gettime(rustix::time::ClockId::Boottime))
    }

    // On Apple systems CLOCK_MONOTONIC goes on during sleep; on other Unix systems it is the best there is.
    #[cfg(all(unix, not(any(target_os = "linux", target_os = "android"))))]
    fn now(&self) -> Moment {
        from_timespec(rustix::time::clock_gettime(rustix::time::ClockId::Monotonic))
    }

    // Windows: `Instant` is QueryPerformanceCounter, which goes on during sleep.
    #[cfg(not(unix))]
    fn now(&self) -> Moment {
        static ORIGIN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        Moment(ORIGIN.get_or_init(std::time::Instant::now).elapsed())
    }

    fn wall(&self) -> SystemTime {
        SystemTime::now()
    }
}

#[cfg(unix)]
fn from_timespec(t: rustix::time::Timespec) -> Moment {
    // Time since boot is never negative, and nanoseconds are below 10^9.
    Moment(Duration::new(
        u64::try_from(t.tv_sec).unwrap_or(0),
        u32::try_from(t.tv_nsec).unwrap_or(0),
    ))
}

/// A clock that stands still until it is told otherwise, for tests. Clones share their time.
///
/// ```
/// # use leasewarden::lock::{Clock, ManualClock};
/// # use std::time::Duration;
/// let clock = ManualClock::new();
/// let before = clock.now();
/// clock.advance(Duration::from_secs(15));
/// assert_eq!(clock.now().since(before), Duration::from_secs(15));
/// ```
#[derive(Debug, Clone)]
pub struct ManualClock(Arc<Mutex<(Moment, SystemTime)>>);

impl ManualClock {
    /// A clock at one hour after its origin; the wall clock starts at the machine's.
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new((
            Moment::from_origin(Duration::from_secs(3600)),
            SystemTime::now(),
        ))))
    }

    /// Moves both clocks forward.
    pub fn advance(&self, by: Duration) {
        let mut t = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        t.0 = t.0 + by;
        t.1 += by;
    }

    /// Lets the wall clock jump, as an administrator or NTP does.
    pub fn set_wall(&self, wall: SystemTime) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).1 = wall;
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Moment {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    fn wall(&self) -> SystemTime {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_clock_goes_forward() {
        let clock = SystemClock;
        let (a, b) = (clock.now(), clock.now());
        assert!(b >= a && a > Moment::ORIGIN);
    }

    #[test]
    fn moments_saturate_instead_of_overflowing() {
        assert_eq!(Moment::NEVER + Duration::from_secs(1), Moment::NEVER);
        assert_eq!(Moment::ORIGIN.since(Moment::NEVER), Duration::ZERO);
    }
}
