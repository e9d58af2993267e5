//! The words of the lock: stream, instance, time to live, token, term.
//!
//! Each is a type that cannot hold what the lock cannot honour, so a check is made once, where input enters. What other
//! tools wrote into a Lease is data and never passes through these types.

use std::{fmt, str::FromStr, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use super::error::InvalidInput;

/// Longest stream name in bytes of UTF-8. The raw name is kept in an annotation beside the Lease.
const STREAM_NAME_MAX: usize = 1024;
/// Longest instance id in bytes of UTF-8.
const INSTANCE_ID_MAX: usize = 1024;

fn checked(what: &'static str, value: &str, max: usize) -> Result<(), InvalidInput> {
    if value.is_empty() {
        return Err(InvalidInput::Empty { what });
    }
    if value.len() > max {
        return Err(InvalidInput::TooLong {
            what,
            len: value.len(),
            max,
        });
    }
    match value.char_indices().find(|(_, c)| c.is_control()) {
        Some((at, c)) => Err(InvalidInput::ControlCharacter {
            what,
            code: u32::from(c),
            at,
        }),
        None => Ok(()),
    }
}

macro_rules! text {
    ($name:ident, $what:literal, $max:expr) => {
        impl $name {
            #[doc = concat!("Checks and takes a ", $what, ".")]
            ///
            /// # Errors
            /// [`InvalidInput`] when it is empty, longer than 1024 bytes, or holds a control character.
            pub fn new(value: impl AsRef<str>) -> Result<Self, InvalidInput> {
                let value = value.as_ref();
                checked($what, value, $max)?;
                Ok(Self(value.into()))
            }

            /// The text as given.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }

        impl FromStr for $name {
            type Err = InvalidInput;
            fn from_str(s: &str) -> Result<Self, Self::Err> {
                Self::new(s)
            }
        }

        impl TryFrom<&str> for $name {
            type Error = InvalidInput;
            fn try_from(s: &str) -> Result<Self, Self::Error> {
                Self::new(s)
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidInput;
            fn try_from(s: String) -> Result<Self, Self::Error> {
                Self::new(s)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
    };
}

/// The name of a change stream: what is locked. Case matters, any characters but control characters may occur.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamName(Arc<str>);
text!(StreamName, "stream name", STREAM_NAME_MAX);

/// Who asks for a lock: unique per process unless its owner decides otherwise (FlowWarden's is `host:app:port`).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InstanceId(Arc<str>);
text!(InstanceId, "instance id", INSTANCE_ID_MAX);

impl InstanceId {
    /// An id that no other process has: `prefix` (a Pod's or host's name, say) and a random part.
    ///
    /// # Errors
    /// [`InvalidInput`] as [`InstanceId::new`].
    ///
    /// ```
    /// # use leasewarden::InstanceId;
    /// let id = InstanceId::unique("orders-7d4f")?;
    /// assert!(id.as_str().starts_with("orders-7d4f_"));
    /// # Ok::<(), leasewarden::lock::InvalidInput>(())
    /// ```
    pub fn unique(prefix: &str) -> Result<Self, InvalidInput> {
        Self::new(format!("{prefix}_{}", uuid::Uuid::new_v4().simple()))
    }
}

/// How long a lock outlives its last renewal: from one millisecond to `i32::MAX` seconds, which is what a Lease's
/// `leaseDurationSeconds` can say. Whole milliseconds; a finer part is rounded up.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ttl(u64);

impl Ttl {
    /// The longest, about 68 years.
    pub const MAX: Ttl = Ttl(i32::MAX as u64 * 1000);

    /// Checks and takes a time to live.
    ///
    /// # Errors
    /// [`InvalidInput::Ttl`] for zero, and for more than [`Ttl::MAX`].
    pub fn new(ttl: Duration) -> Result<Self, InvalidInput> {
        let millis = ttl.as_nanos().div_ceil(1_000_000);
        match u64::try_from(millis) {
            Ok(m) if (1..=Self::MAX.0).contains(&m) => Ok(Self(m)),
            _ => Err(InvalidInput::Ttl {
                given: ttl,
                max: Self::MAX.as_duration(),
            }),
        }
    }

    /// From whole seconds.
    ///
    /// # Errors
    /// As [`Ttl::new`].
    pub fn from_secs(secs: u64) -> Result<Self, InvalidInput> {
        Self::new(Duration::from_secs(secs))
    }

    /// As a duration.
    pub fn as_duration(self) -> Duration {
        Duration::from_millis(self.0)
    }

    /// In milliseconds.
    pub fn as_millis(self) -> u64 {
        self.0
    }

    /// Whole seconds as a Lease stores them: rounded **up**, at least 1, so that a tool that reads only seconds never
    /// sees an earlier expiry than the holder's.
    pub fn lease_duration_seconds(self) -> i32 {
        i32::try_from(self.0.div_ceil(1000)).unwrap_or(i32::MAX)
    }

    /// How long after a proven write was *sent* its holder may act: `TTL · (1−ρ)/(1+ρ)` with ρ = 5 %, rounded down.
    ///
    /// ρ is how far the rate of each clock may be off (NTP slews); the holder gives up the whole difference, since
    /// contenders, foreign ones too, wait just the TTL.
    pub fn holder_share(self) -> Duration {
        // 0.95 / 1.05 = 19 / 21; in microseconds, so that rounding costs nothing that matters.
        Duration::from_micros(self.0 * 1000 / 21 * 19)
    }
}

impl fmt::Debug for Ttl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_duration())
    }
}

impl fmt::Display for Ttl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_duration())
    }
}

impl TryFrom<Duration> for Ttl {
    type Error = InvalidInput;
    fn try_from(ttl: Duration) -> Result<Self, Self::Error> {
        Self::new(ttl)
    }
}

/// A number that rises with every grant of a stream, over release, expiry and deletion. A store that refuses a lower
/// one than it has seen is safe from a leader that was paused or cut off. It fits SQL's `BIGINT`: 1 to `i64::MAX`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FencingToken(i64);

impl FencingToken {
    /// From a number; `None` below 1.
    pub fn new(token: i64) -> Option<Self> {
        (token >= 1).then_some(Self(token))
    }

    /// As a number, for the store.
    pub fn get(self) -> i64 {
        self.0
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The id of one acquisition. A grant belongs to its term: the same instance that acquires again after a loss gets
/// another. It is what tells two processes apart that were given the same instance id.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Term(Arc<str>);

impl Term {
    /// A new random term.
    pub fn random() -> Self {
        Self(uuid::Uuid::new_v4().simple().to_string().into())
    }

    /// A term that a model can tell again.
    #[cfg(test)]
    pub(crate) fn named(text: &str) -> Self {
        Self(text.into())
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_names_and_ids_are_refused_with_the_reason() {
        for (text, says) in [
            ("", "is empty"),
            ("a\nb", "control character U+000A at byte 1"),
            ("\u{7f}", "control character U+007F at byte 0"),
            (&"x".repeat(2048), "2048 bytes long; at most 1024"),
        ] {
            let stream = StreamName::new(text).unwrap_err().to_string();
            let instance = InstanceId::new(text).unwrap_err().to_string();
            assert!(
                stream.contains(says) && stream.contains("stream name"),
                "{stream}"
            );
            assert!(
                instance.contains(says) && instance.contains("instance id"),
                "{instance}"
            );
        }
    }

    #[test]
    fn odd_names_are_taken_as_they_are() {
        for text in ["Orders", "a/b", "a:b", "🦀", " ", &"x".repeat(300)] {
            assert_eq!(StreamName::new(text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn a_ttl_is_never_zero_and_never_overflows() {
        assert!(
            Ttl::new(Duration::ZERO)
                .unwrap_err()
                .to_string()
                .contains("must be more than zero")
        );
        assert!(Ttl::new(Duration::MAX).is_err());
        assert_eq!(Ttl::new(Duration::from_nanos(1)).unwrap().as_millis(), 1);
        let table = [(900, 1), (1000, 1), (1500, 2), (i32::MAX as u64 * 1000, i32::MAX)];
        for (millis, seconds) in table {
            assert_eq!(
                Ttl::new(Duration::from_millis(millis))
                    .unwrap()
                    .lease_duration_seconds(),
                seconds
            );
        }
        let ten_years = Ttl::from_secs(10 * 365 * 24 * 3600).unwrap();
        assert_eq!(ten_years.lease_duration_seconds(), 315_360_000);
        assert!(Ttl::MAX.holder_share() < Ttl::MAX.as_duration());
    }

    #[test]
    fn the_holder_gives_up_both_clocks_drift() {
        let share = Ttl::from_secs(15).unwrap().holder_share();
        assert!(share <= Duration::from_secs_f64(15.0 * 0.95 / 1.05), "{share:?}");
        assert!(share > Duration::from_secs_f64(13.57), "{share:?}");
    }
}
