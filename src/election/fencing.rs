//! Fencing: the store's side of the token. A guard can be wrong for a moment (a paused machine wakes up and believes
//! in its term); a store that refuses older tokens than it has seen is not.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use crate::lock::{FencingToken, StreamName};

/// Remembers the highest token of each stream and refuses lower ones.
///
/// For a store that lives in one process. The check and the write that it admits must be one step: hold the store's own
/// lock over both, or the token is checked and outdated before the write.
///
/// ```
/// # use leasewarden::{FencingToken, StreamName, election::TokenChecker};
/// let checker = TokenChecker::new();
/// let orders = StreamName::new("orders")?;
/// let (old, new) = (FencingToken::new(7).unwrap(), FencingToken::new(9).unwrap());
/// checker.check(&orders, old)?;
/// checker.check(&orders, new)?;
/// checker.check(&orders, new)?;
/// assert!(checker.check(&orders, old).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct TokenChecker {
    highest: Mutex<HashMap<StreamName, FencingToken>>,
}

/// A token that is older than one the store has seen: its sender leads no more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "token {offered} of stream {stream} is stale: {highest} was seen; whoever sent it is no longer the leader"
)]
#[non_exhaustive]
pub struct StaleToken {
    /// The stream.
    pub stream: StreamName,
    /// What was offered.
    pub offered: FencingToken,
    /// The highest that was seen.
    pub highest: FencingToken,
}

impl TokenChecker {
    /// A checker that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Admits `token` if no higher one was seen for this stream, and remembers it.
    ///
    /// # Errors
    /// [`StaleToken`].
    pub fn check(&self, stream: &StreamName, token: FencingToken) -> Result<(), StaleToken> {
        // Nothing panics half-way through a change here, so a poisoned map is whole.
        let mut seen = self.highest.lock().unwrap_or_else(PoisonError::into_inner);
        match seen.get_mut(stream) {
            Some(highest) if token < *highest => Err(StaleToken {
                stream: stream.clone(),
                offered: token,
                highest: *highest,
            }),
            Some(highest) => {
                *highest = token;
                Ok(())
            }
            None => {
                seen.insert(stream.clone(), token);
                Ok(())
            }
        }
    }

    /// The highest token seen for a stream.
    pub fn highest(&self, stream: &StreamName) -> Option<FencingToken> {
        self.highest
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(stream)
            .copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_token_is_refused_and_changes_nothing() {
        let checker = TokenChecker::new();
        let stream = StreamName::new("orders").unwrap();
        let token = |n| FencingToken::new(n).unwrap();
        checker.check(&stream, token(5)).unwrap();
        let error = checker.check(&stream, token(4)).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("token 4 of stream orders is stale: 5 was seen")
        );
        assert_eq!(checker.highest(&stream), Some(token(5)));
        checker.check(&stream, token(5)).unwrap();
    }

    #[test]
    fn streams_have_tokens_of_their_own() {
        let checker = TokenChecker::new();
        let token = |n| FencingToken::new(n).unwrap();
        checker.check(&StreamName::new("a").unwrap(), token(9)).unwrap();
        checker.check(&StreamName::new("b").unwrap(), token(1)).unwrap();
    }
}
