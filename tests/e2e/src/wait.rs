//! Waiting for what should come to be.

use std::{
    fmt::Display,
    thread::sleep,
    time::{Duration, Instant},
};

/// Generous: a loaded machine is slow, and a limit that is never reached costs nothing.
pub const LIMIT: Duration = Duration::from_secs(180);

/// Looks again and again until there is something, and answers it.
///
/// # Panics
/// When there is nothing within [`LIMIT`].
pub fn eventually<T>(what: impl Display, look: impl Fn() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(
            begun.elapsed() < LIMIT,
            "{what} did not come to be within {LIMIT:?}"
        );
        sleep(Duration::from_millis(100));
    }
}
