//! Time as the store, the stage and the driver share it: two processes, one machine, one clock.

use rustix::time::{ClockId, clock_gettime};

/// Milliseconds of the machine's monotonic clock.
pub(crate) type Millis = u64;

/// Now.
pub(crate) fn now() -> Millis {
    let now = clock_gettime(ClockId::Monotonic);
    // Since boot: neither is ever negative.
    u64::try_from(now.tv_sec * 1000 + now.tv_nsec / 1_000_000).unwrap_or(0)
}

/// The time from one moment to another, in seconds, for a person.
#[allow(clippy::cast_precision_loss)]
pub(crate) fn seconds(from: Millis, to: Millis) -> String {
    format!("{:.1} s", to.saturating_sub(from) as f64 / 1000.0)
}
