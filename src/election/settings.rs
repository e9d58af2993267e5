//! Settings: one knob, the TTL, from which the rest follows; and which combinations cannot be safe.
//!
//! Every figure is a formula over the TTL. A program that overrides one gets the others' formulas unchanged, and an
//! error that prints the inequality when the result leaves no room for what the protocol needs.

use std::time::Duration;

use crate::lock::Ttl;

/// The shortest stop margin that follows from a TTL: below it, scheduling noise alone eats the margin.
const STOP_MARGIN_MIN: Duration = Duration::from_millis(100);

/// How an election keeps time. `L` is the TTL, `D = L·19/21` the holder's part of it
/// ([`Ttl::holder_share`]).
///
/// | setting | default | at 15 s | what it is |
/// |---|---|---|---|
/// | [`ttl`](Self::ttl) | | 15 s | how long a lock outlives its last renewal |
/// | [`renew_period`](Self::renew_period) | `L·7/20` | 5.25 s | from one renewal's sending to the next one's, less the jitter: `L/3` on average |
/// | [`renew_jitter`](Self::renew_jitter) | `L/30` | 0.5 s | a renewal is sent up to so much earlier, so that many streams spread |
/// | [`attempt_timeout`](Self::attempt_timeout) | `L/6` | 2.5 s | a renewal not answered by then gets company |
/// | [`stop_margin`](Self::stop_margin) | `max(L/10, 100 ms)` | 1.5 s | so long before `D` the work learns that it is lost |
/// | [`drain_timeout`](Self::drain_timeout) | `L` | 15 s | how long work that was asked to stop may take |
/// | [`poll_period`](Self::poll_period) | `max(L/10, 50 ms)` | 1.5 s | how often a standby asks; half to the whole of it, at random |
/// | [`acquire_timeout`](Self::acquire_timeout) | `L + 2 s` | 17 s | when an acquisition that is not answered counts as unknown |
/// | [`release_timeout`](Self::release_timeout) | `L` | 15 s | how long a release is tried before the lock is left to expire |
/// | [`work_pause`](Self::work_pause) | `L/15` | 1 s | before contending again when the work ended by itself; doubles |
/// | [`work_pause_max`](Self::work_pause_max) | `4·L` | 60 s | its upper bound |
///
/// ```
/// # use std::time::Duration;
/// # use leasewarden::{Ttl, election::ElectionSettings};
/// let settings = ElectionSettings::with_ttl(Ttl::from_secs(30)?)?;
/// assert_eq!(settings.renew_period(), Duration::from_millis(10_500));
///
/// let error = ElectionSettings::builder(Ttl::from_secs(15)?)
///     .renew_period(Duration::from_secs(10))
///     .build()
///     .unwrap_err();
/// assert!(error.to_string().contains("renew_period + 2·attempt_timeout < TTL·19/21 − stop_margin"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ElectionSettings {
    ttl: Ttl,
    renew_period: Duration,
    renew_jitter: Duration,
    attempt_timeout: Duration,
    stop_margin: Duration,
    drain_timeout: Duration,
    poll_period: Duration,
    acquire_timeout: Duration,
    release_timeout: Duration,
    work_pause: Duration,
    work_pause_max: Duration,
}

/// Settings that cannot be safe, or cannot work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnsafeSettings {
    /// Two renewals in a row that are accepted and never answered must leave room for a third before the work is told
    /// that it is lost.
    #[error(
        "renew_period + 2·attempt_timeout < TTL·19/21 − stop_margin must hold, but {renew_period:?} + 2·{attempt_timeout:?} is not less than {share:?} − {stop_margin:?}; use a longer TTL or shorter periods"
    )]
    NoRoomForRetries {
        /// Time between renewals.
        renew_period: Duration,
        /// Time for one attempt.
        attempt_timeout: Duration,
        /// The holder's part of the TTL.
        share: Duration,
        /// What is kept for stopping.
        stop_margin: Duration,
    },
    /// A period is zero, so it would be a busy loop or a time-out that nothing can meet.
    #[error("{what} > 0 must hold, but it is zero")]
    Zero {
        /// Which setting.
        what: &'static str,
    },
    /// One setting must not exceed another.
    #[error("{small} ≤ {large} must hold, but {small_is:?} is more than {large_is:?}")]
    Exceeds {
        /// The one that is too large.
        small: &'static str,
        /// Its value.
        small_is: Duration,
        /// The other.
        large: &'static str,
        /// Its value.
        large_is: Duration,
    },
}

impl Default for ElectionSettings {
    /// For a TTL of 15 s.
    fn default() -> Self {
        // 15 s is a valid TTL; the alternative is never taken.
        derive(Ttl::from_secs(15).unwrap_or(Ttl::MAX))
    }
}

fn derive(ttl: Ttl) -> ElectionSettings {
    let l = ttl.as_duration();
    ElectionSettings {
        ttl,
        renew_period: l * 7 / 20,
        renew_jitter: l / 30,
        attempt_timeout: l / 6,
        stop_margin: (l / 10).max(STOP_MARGIN_MIN),
        drain_timeout: l,
        poll_period: (l / 10).max(Duration::from_millis(50)),
        acquire_timeout: l + Duration::from_secs(2),
        release_timeout: l,
        work_pause: l / 15,
        work_pause_max: l * 4,
    }
}

macro_rules! knobs {
    ($($name:ident: $what:literal;)*) => {
        impl ElectionSettings {
            $(
                #[doc = $what]
                pub fn $name(&self) -> Duration {
                    self.$name
                }
            )*
        }

        impl ElectionSettingsBuilder {
            $(
                #[doc = concat!("Overrides: ", $what)]
                pub fn $name(mut self, value: Duration) -> Self {
                    self.0.$name = value;
                    self
                }
            )*
        }
    };
}

knobs! {
    renew_period: "From one renewal's sending to the next one's.";
    renew_jitter: "A renewal is sent up to so much earlier.";
    attempt_timeout: "A renewal that is not answered by then gets a second one beside it.";
    stop_margin: "So long before the deadline the work learns that it is lost.";
    drain_timeout: "How long work that was asked to stop may take before it is dropped.";
    poll_period: "How often a standby asks, where the service does not tell of changes.";
    acquire_timeout: "When an acquisition that is not answered counts as unknown.";
    release_timeout: "How long a release is tried before the lock is left to expire.";
    work_pause: "The first pause before contending again when the work ended by itself.";
    work_pause_max: "The longest such pause.";
}

impl ElectionSettings {
    /// All from the TTL.
    ///
    /// # Errors
    /// [`UnsafeSettings`] for a TTL below about half a second.
    pub fn with_ttl(ttl: Ttl) -> Result<Self, UnsafeSettings> {
        Self::builder(ttl).build()
    }

    /// All from the TTL, to be overridden.
    pub fn builder(ttl: Ttl) -> ElectionSettingsBuilder {
        ElectionSettingsBuilder(derive(ttl))
    }

    /// How long a lock outlives its last renewal.
    pub fn ttl(&self) -> Ttl {
        self.ttl
    }

    fn check(&self) -> Result<(), UnsafeSettings> {
        for (what, value) in [
            ("renew_period", self.renew_period),
            ("attempt_timeout", self.attempt_timeout),
            ("stop_margin", self.stop_margin),
            ("poll_period", self.poll_period),
            ("acquire_timeout", self.acquire_timeout),
            ("release_timeout", self.release_timeout),
            ("work_pause", self.work_pause),
        ] {
            if value.is_zero() {
                return Err(UnsafeSettings::Zero { what });
            }
        }
        let share = self.ttl.holder_share();
        let needed = self
            .renew_period
            .saturating_add(self.attempt_timeout.saturating_mul(2))
            .saturating_add(self.stop_margin);
        if needed >= share {
            return Err(UnsafeSettings::NoRoomForRetries {
                renew_period: self.renew_period,
                attempt_timeout: self.attempt_timeout,
                share,
                stop_margin: self.stop_margin,
            });
        }
        let pairs = [
            (
                "renew_jitter",
                self.renew_jitter,
                "renew_period",
                self.renew_period,
            ),
            (
                "work_pause",
                self.work_pause,
                "work_pause_max",
                self.work_pause_max,
            ),
        ];
        for (small, small_is, large, large_is) in pairs {
            if small_is > large_is {
                return Err(UnsafeSettings::Exceeds {
                    small,
                    small_is,
                    large,
                    large_is,
                });
            }
        }
        Ok(())
    }
}

/// Overrides single settings. What is not overridden keeps its formula.
#[derive(Debug, Clone, Copy)]
#[must_use]
pub struct ElectionSettingsBuilder(ElectionSettings);

impl ElectionSettingsBuilder {
    /// Checks and takes the settings.
    ///
    /// # Errors
    /// [`UnsafeSettings`], with the inequality that fails.
    pub fn build(self) -> Result<ElectionSettings, UnsafeSettings> {
        self.0.check()?;
        Ok(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_passes_its_own_check() {
        let settings = ElectionSettings::default();
        assert_eq!(settings.ttl().as_duration(), Duration::from_secs(15));
        assert_eq!(settings.check(), Ok(()));
    }

    #[test]
    fn every_ttl_from_half_a_second_up_is_safe_by_its_formulas() {
        for millis in [500, 900, 1000, 1500, 15_000, 3_600_000, Ttl::MAX.as_millis()] {
            let ttl = Ttl::new(Duration::from_millis(millis)).unwrap();
            assert!(ElectionSettings::with_ttl(ttl).is_ok(), "{ttl}");
        }
    }

    #[test]
    fn what_cannot_be_safe_is_refused_with_the_inequality_that_fails() {
        let ttl = |millis| Ttl::new(Duration::from_millis(millis)).unwrap();
        let secs = Duration::from_secs;
        let from = ElectionSettings::builder;
        let table = [
            (from(ttl(300)), "105ms + 2·50ms is not less than 271.4"),
            (
                from(ttl(15_000)).renew_period(secs(8)),
                "8s + 2·2.5s is not less than 13.57",
            ),
            (from(ttl(15_000)).stop_margin(secs(5)), "− 5s; use a longer TTL"),
            (
                from(ttl(15_000)).attempt_timeout(secs(4)),
                "5.25s + 2·4s is not less than",
            ),
            (
                from(ttl(15_000)).stop_margin(Duration::MAX),
                "stop_margin must hold",
            ),
            (
                from(ttl(15_000)).stop_margin(secs(0)),
                "stop_margin > 0 must hold",
            ),
            (
                from(ttl(15_000)).poll_period(secs(0)),
                "poll_period > 0 must hold",
            ),
            (
                from(ttl(15_000)).renew_jitter(secs(6)),
                "renew_jitter ≤ renew_period must hold, but 6s is more than 5.25s",
            ),
            (
                from(ttl(15_000)).work_pause(secs(61)),
                "work_pause ≤ work_pause_max must hold, but 61s is more than 60s",
            ),
        ];
        for (builder, says) in table {
            let error = builder.build().unwrap_err().to_string();
            assert!(error.contains(says), "{error}\nshould say {says}");
        }
    }
}
