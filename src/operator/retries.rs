//! When a key is looked at again that failed: later and later, and what went wrong is said once in a while.

use std::{
    collections::{HashMap, hash_map::Entry},
    time::Duration,
};

use tokio::time::Instant;

use super::{api::ApiError, index::Key};

const FIRST_RETRY: Duration = Duration::from_millis(500);
const LAST_RETRY: Duration = Duration::from_secs(15);
/// How often the same is said.
pub(crate) const SAY_AGAIN: Duration = Duration::from_secs(30);

/// How often each key failed in a row, and what was said of it.
#[derive(Default)]
pub(crate) struct Retries {
    failed: HashMap<Key, u32>,
    said: HashMap<String, Instant>,
}

impl Retries {
    /// Whether this key failed the last time.
    pub(crate) fn is_failing(&self, key: &Key) -> bool {
        self.failed.contains_key(key)
    }

    /// When to look at a key again after this came of it.
    pub(crate) fn after(
        &mut self,
        key: &Key,
        result: Result<Option<Duration>, ApiError>,
    ) -> Option<Duration> {
        let error = match result {
            Ok(again) => {
                self.failed.remove(key);
                return again;
            }
            Err(error) => error,
        };
        let text = error.to_string();
        self.said.retain(|_, at| at.elapsed() < SAY_AGAIN);
        if let Entry::Vacant(unsaid) = self.said.entry(text) {
            tracing::warn!(namespace = key.namespace, lease = key.lease, "{}", unsaid.key());
            unsaid.insert(Instant::now());
        }
        let times = self.failed.entry(key.clone()).or_default();
        *times = times.saturating_add(1);
        Some((FIRST_RETRY * 2_u32.saturating_pow((*times - 1).min(10))).min(LAST_RETRY))
    }
}
