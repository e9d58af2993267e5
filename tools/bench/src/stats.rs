//! A set of samples in a few numbers.

use serde::Serialize;

/// In seconds.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Summary {
    pub(crate) n: usize,
    pub(crate) mean: f64,
    pub(crate) median: f64,
    /// The smallest sample that at least 99 % of them do not exceed: for fewer than 100 samples, the worst.
    pub(crate) p99: f64,
    pub(crate) worst: f64,
}

impl Summary {
    /// `None` of no samples.
    pub(crate) fn of(mut seconds: Vec<f64>) -> Option<Self> {
        seconds.sort_by(f64::total_cmp);
        let n = seconds.len();
        let worst = *seconds.last()?;
        #[allow(clippy::cast_precision_loss)]
        let mean = seconds.iter().sum::<f64>() / n as f64;
        Some(Self {
            n,
            mean,
            median: f64::midpoint(seconds[(n - 1) / 2], seconds[n / 2]),
            p99: seconds[(n * 99).div_ceil(100) - 1],
            worst,
        })
    }
}

/// Nanoseconds from one reading of the clock to another, in seconds. Negative when it is the other way round.
#[allow(clippy::cast_precision_loss)]
pub(crate) fn seconds(from: u64, to: u64) -> f64 {
    (to.cast_signed() - from.cast_signed()) as f64 / 1e9
}

#[cfg(test)]
#[allow(clippy::float_cmp, clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_counts_ranks() {
        let one_to = |n: u32| Summary::of((1..=n).rev().map(f64::from).collect()).unwrap();
        let s = one_to(200);
        assert_eq!(
            (s.n, s.mean, s.median, s.p99, s.worst),
            (200, 100.5, 100.5, 198.0, 200.0)
        );
        assert_eq!((one_to(3).median, one_to(3).p99), (2.0, 3.0));
        assert!(Summary::of(Vec::new()).is_none());
    }

    #[test]
    fn time_that_goes_back_is_seen() {
        assert_eq!(seconds(2_000_000_000, 500_000_000), -1.5);
    }
}
