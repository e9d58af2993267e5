//! What a person sees: steps with the time before them, and what kubectl prints, as it prints it.

use std::io::Write as _;
use std::time::Instant;

/// Tells the story, from now on.
#[derive(Debug)]
pub(crate) struct Narrator {
    start: Instant,
}

impl Narrator {
    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
        }
    }

    /// A line with the time since the start.
    pub(crate) fn step(&self, text: &str) {
        self.print(&format!(
            "[{:5.1} s] {text}\n",
            self.start.elapsed().as_secs_f64()
        ));
    }

    /// A command and its output, as in a terminal.
    pub(crate) fn show(&self, command: &str, output: &str) {
        self.print(&format!("\n$ {command}\n{output}\n"));
    }

    /// As it is.
    #[allow(clippy::unused_self)] // One voice.
    pub(crate) fn print(&self, text: &str) {
        // Nobody to tell it to is no reason to fail: what counts is the exit code.
        let _ = std::io::stdout().write_all(text.as_bytes());
    }
}

/// To standard error.
pub(crate) fn warn(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// `a`, `a and b`, `a, b and c`.
pub(crate) fn list(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_read_like_sentences() {
        let words: Vec<_> = ["a", "b", "c"].map(str::to_owned).into();
        assert_eq!(list(&words[..1]), "a");
        assert_eq!(list(&words[..2]), "a and b");
        assert_eq!(list(&words), "a, b and c");
    }
}
