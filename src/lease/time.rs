//! Kubernetes' two kinds of time as `std::time`, and back.
//!
//! `MicroTime` (Lease spec) has exactly six decimals: the API server answers `.5Z` with 400. `Time` (managed fields)
//! has none. What does not parse, or lies outside what `SystemTime` can say, is `None`: another tool's data.

use std::time::SystemTime;

use jiff::Timestamp;

/// Reads either kind.
pub(crate) fn parse(text: &str) -> Option<SystemTime> {
    text.parse::<Timestamp>().ok().map(SystemTime::from)
}

/// A `MicroTime`, truncated to microseconds. `None` beyond the year 9999.
pub(crate) fn micro_time(at: SystemTime) -> Option<String> {
    Timestamp::try_from(at).ok().map(|t| format!("{t:.6}"))
}

/// As it will be read back: the wire has microseconds.
pub(crate) fn to_micros(at: SystemTime) -> SystemTime {
    micro_time(at).and_then(|text| parse(&text)).unwrap_or(at)
}

/// Seconds since the epoch, rounded down.
pub(crate) fn whole_seconds(at: SystemTime) -> i64 {
    Timestamp::try_from(at).map_or(i64::MAX, |t| t.as_second() - i64::from(t.subsec_nanosecond() < 0))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn a_micro_time_has_exactly_six_decimals() {
        for (nanos, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (500_000_000, "1970-01-01T00:00:00.500000Z"),
            (999_999_999, "1970-01-01T00:00:00.999999Z"),
        ] {
            assert_eq!(
                micro_time(UNIX_EPOCH + Duration::from_nanos(nanos)).unwrap(),
                text
            );
        }
    }

    #[test]
    fn what_is_no_time_is_none() {
        assert_eq!(parse("yesterday"), None);
        assert_eq!(parse(""), None);
        assert_eq!(
            micro_time(UNIX_EPOCH + Duration::from_secs(u64::from(u32::MAX) * 1000)),
            None
        );
    }

    #[test]
    fn seconds_round_down_before_the_epoch_too() {
        assert_eq!(whole_seconds(UNIX_EPOCH - Duration::from_millis(500)), -1);
        assert_eq!(whole_seconds(UNIX_EPOCH + Duration::from_millis(1500)), 1);
    }
}
