//! What a person sees while programs are built: which one, how many there are, how long so far. On a terminal one
//! line that is redrawn, elsewhere (CI logs) a line now and then. Written straight to standard error, since
//! `eprintln!` is captured inside tests and a build that takes minutes must not look like a hang.

use std::io::{IsTerminal as _, Write as _, stderr};
use std::time::{Duration, Instant};

const PLAIN_EVERY: Duration = Duration::from_secs(30);

/// The line of one program's build.
pub(crate) struct Progress {
    text: String,
    started: Instant,
    terminal: bool,
    next: Duration,
}

impl Progress {
    pub(crate) fn new(text: String) -> Self {
        let progress = Self {
            text,
            started: Instant::now(),
            terminal: stderr().is_terminal(),
            next: PLAIN_EVERY,
        };
        if !progress.terminal {
            say(&progress.text);
        }
        progress
    }

    /// To be called about once a second.
    pub(crate) fn tick(&mut self) {
        let elapsed = self.started.elapsed();
        if self.terminal {
            let _ = write!(stderr(), "\r\x1b[2K{}, {} so far", self.text, clock(elapsed));
        } else if elapsed >= self.next {
            say(&format!("{}, {} so far", self.text, clock(elapsed)));
            self.next += PLAIN_EVERY;
        }
    }

    pub(crate) fn end(self, result: &str) {
        if self.terminal {
            let _ = write!(stderr(), "\r\x1b[2K");
        }
        say(&format!(
            "{}: {result} after {}",
            self.text,
            clock(self.started.elapsed())
        ));
    }
}

/// A line of its own.
pub(crate) fn say(line: &str) {
    // Nobody to tell it to is no reason to fail.
    let _ = writeln!(stderr(), "{line}");
}

fn clock(elapsed: Duration) -> String {
    match elapsed.as_secs() {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds => format!("{} min {:02} s", seconds / 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minutes_are_told_from_seconds() {
        assert_eq!(clock(Duration::from_millis(59_900)), "59 s");
        assert_eq!(clock(Duration::from_secs(61)), "1 min 01 s");
    }
}
