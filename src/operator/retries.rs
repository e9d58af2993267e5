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

/// How many retries a second there are at most when very many keys fail: a permission is missing, say.
const RETRIES_PER_SECOND: u32 = 100;

/// How often each key failed in a row, and what was said of it.
#[derive(Default)]
pub(crate) struct Retries {
    failed: HashMap<Key, Failed>,
    said: HashMap<String, Instant>,
}

struct Failed {
    times: u32,
    not_before: Instant,
}

impl Retries {
    /// Whether this key failed the last time.
    pub(crate) fn is_failing(&self, key: &Key) -> bool {
        self.failed.contains_key(key)
    }

    /// How long this key has to wait yet. A renewal of its Lease is no reason to try again at once what has just failed.
    pub(crate) fn must_wait(&self, key: &Key) -> Option<Duration> {
        let wait = self
            .failed
            .get(key)?
            .not_before
            .saturating_duration_since(Instant::now());
        (!wait.is_zero()).then_some(wait)
    }

    /// What failed may do otherwise now.
    pub(crate) fn need_not_wait(&mut self) {
        let now = Instant::now();
        self.failed
            .values_mut()
            .for_each(|failed| failed.not_before = now);
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
        let now = Instant::now();
        let many = u32::try_from(self.failed.len()).unwrap_or(u32::MAX);
        let failed = self.failed.entry(key.clone()).or_insert(Failed {
            times: 0,
            not_before: now,
        });
        failed.times = failed.times.saturating_add(1);
        let longest = LAST_RETRY.max(Duration::from_secs(1) * many / RETRIES_PER_SECOND);
        let pause = FIRST_RETRY.saturating_mul(2_u32.saturating_pow(failed.times - 1));
        let pause = pause.min(longest);
        failed.not_before = now + pause;
        Some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u32) -> Key {
        Key {
            namespace: "ns".into(),
            lease: format!("s-{n}"),
        }
    }

    fn fail(retries: &mut Retries, n: u32) -> Duration {
        retries.after(&key(n), Err(ApiError::Conflict)).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn it_waits_longer_each_time_and_no_event_is_a_reason_not_to() {
        let mut retries = Retries::default();
        let mut pauses = Vec::new();
        for _ in 0..40 {
            let pause = fail(&mut retries, 1);
            assert_eq!(retries.must_wait(&key(1)), Some(pause));
            tokio::time::advance(pause).await;
            assert_eq!(retries.must_wait(&key(1)), None);
            pauses.push(pause);
        }
        assert!(pauses.is_sorted() && pauses[0] == FIRST_RETRY, "{pauses:?}");
        assert_eq!(pauses.last(), Some(&LAST_RETRY));
        fail(&mut retries, 1);
        retries.need_not_wait();
        assert_eq!(retries.must_wait(&key(1)), None);
        assert_eq!(retries.after(&key(1), Ok(None)), None);
        assert!(!retries.is_failing(&key(1)));
        assert_eq!(fail(&mut retries, 1), FIRST_RETRY, "it begins anew");
    }

    #[tokio::test(start_paused = true)]
    async fn ten_thousand_that_fail_are_no_flood() {
        let mut retries = Retries::default();
        for _ in 0..20 {
            for n in 0..10_000 {
                fail(&mut retries, n);
            }
            tokio::time::advance(Duration::from_secs(200)).await;
        }
        assert!(fail(&mut retries, 0) >= Duration::from_secs(99));
    }
}
