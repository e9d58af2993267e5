//! Errors as people read them: the whole chain of causes, which `Display` alone does not show.

use std::error::Error;
use std::fmt::Write as _;

/// The error and what caused it, joined by colons; causes that the text already tells are not repeated.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.contains(&said) {
            // Writing to a String cannot fail.
            let _ = write!(text, ": {said}");
        }
        cause = error.source();
    }
    text
}
