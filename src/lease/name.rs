//! From a stream's name to the name of its Lease.
//!
//! A person should find `orders` under `orders`. What is no DNS label, or could be taken for the encoding of another
//! name, gets a readable slug and a hash of the exact bytes: `Orders` and `orders`, `a/b` and `a:b` are different locks.
//! The raw name is kept in an annotation and checked on every read, so even a hash collision is an error, never a
//! shared lock.

use data_encoding::Encoding;
use sha2::{Digest, Sha256};

use crate::lock::StreamName;

/// Longest name without encoding: what is left of a DNS label (63) when a controller appends its own suffix.
const PLAIN_MAX: usize = 52;
const HASH_LEN: usize = 10;
const MARK: &str = "-x";
const SLUG_MAX: usize = PLAIN_MAX - MARK.len() - HASH_LEN;

/// A prefix for Lease names, so that several applications can share a namespace: a DNS label of at most 63 characters.
/// It is joined with a dot, which no name after it can hold, so two prefixes never meet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Prefix(String);

/// A Lease name prefix that is no DNS label.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the name prefix {given:?} is not a DNS label: use 1 to 63 of the characters a-z, 0-9 and -, with a letter or digit at both ends"
)]
pub struct InvalidPrefix {
    given: String,
}

impl Prefix {
    pub(crate) fn new(prefix: &str) -> Result<Self, InvalidPrefix> {
        if is_dns_label(prefix, 63) {
            Ok(Self(prefix.to_owned()))
        } else {
            Err(InvalidPrefix {
                given: prefix.to_owned(),
            })
        }
    }
}

/// The name of the Lease that locks `stream`.
///
/// ```
/// # use leasewarden::{StreamName, lease::lease_name};
/// assert_eq!(lease_name(&StreamName::new("orders")?), "orders");
/// assert_eq!(lease_name(&StreamName::new("Orders")?), "orders-xw7ukzxksfz");
/// # Ok::<(), leasewarden::lock::InvalidInput>(())
/// ```
pub fn lease_name(stream: &StreamName) -> String {
    let raw = stream.as_str();
    if is_dns_label(raw, PLAIN_MAX) && !looks_encoded(raw) {
        raw.to_owned()
    } else {
        encode(raw)
    }
}

pub(crate) fn prefixed_lease_name(prefix: Option<&Prefix>, stream: &StreamName) -> String {
    match prefix {
        Some(Prefix(prefix)) => format!("{prefix}.{}", lease_name(stream)),
        None => lease_name(stream),
    }
}

fn is_dns_label(text: &str, max: usize) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = text.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(&first), Some(&last)) => {
            bytes.len() <= max && inner(first) && inner(last) && bytes.iter().all(|&b| inner(b) || b == b'-')
        }
        _ => false,
    }
}

fn looks_encoded(text: &str) -> bool {
    text.len()
        .checked_sub(HASH_LEN)
        .and_then(|at| text.split_at_checked(at))
        .is_some_and(|(slug, hash)| {
            slug.ends_with(MARK)
                && hash
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || (b'2'..=b'7').contains(&b))
        })
}

fn encode(raw: &str) -> String {
    let mut slug = String::with_capacity(SLUG_MAX);
    for c in raw.chars().map(|c| c.to_ascii_lowercase()) {
        if slug.len() == SLUG_MAX {
            break;
        }
        if c.is_ascii_lowercase() || c.is_ascii_digit() {
            slug.push(c);
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    let slug = slug.trim_end_matches('-');
    let slug = if slug.is_empty() { "stream" } else { slug };
    let hash = base32().encode(&Sha256::digest(raw.as_bytes()));
    format!("{slug}{MARK}{}", &hash[..HASH_LEN])
}

/// RFC 4648 base32 in lower case, without padding.
fn base32() -> &'static Encoding {
    static BASE32: std::sync::OnceLock<Encoding> = std::sync::OnceLock::new();
    BASE32.get_or_init(|| {
        let mut spec = data_encoding::Specification::new();
        spec.symbols.push_str("abcdefghijklmnopqrstuvwxyz234567");
        // 32 distinct ASCII symbols are always a valid encoding; the fallback is another of the same strength.
        spec.encoding().unwrap_or(data_encoding::BASE32_DNSSEC)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn name(stream: &str) -> String {
        lease_name(&StreamName::new(stream).unwrap())
    }

    #[test]
    fn plain_names_stay_readable() {
        for plain in ["orders", "a", "0", "orders-2", &"x".repeat(52), "a-xb"] {
            assert_eq!(name(plain), plain);
        }
    }

    #[test]
    fn odd_names_get_distinct_valid_names() {
        let odd = [
            "Orders",
            "orders",
            "ORDERS",
            "a/b",
            "a:b",
            "a.b",
            "a b",
            "🦀",
            "🦀🦀",
            "-",
            "--",
            " ",
            "a-",
            "-a",
            "é",
            "e",
            &"x".repeat(53),
            &"x".repeat(300),
            &"X".repeat(300),
            "stream",
            "Stream",
        ];
        let names: BTreeSet<String> = odd.iter().map(|s| name(s)).collect();
        assert_eq!(names.len(), odd.len(), "{names:?}");
        for n in names {
            assert!(is_dns_label(&n, PLAIN_MAX), "{n}");
        }
    }

    #[test]
    fn a_name_that_looks_like_an_encoding_is_encoded_itself() {
        let encoded = name("Orders");
        assert_ne!(name(&encoded), encoded);
    }

    #[test]
    fn prefixes_never_meet() {
        let of = |p: &str, s: &str| {
            prefixed_lease_name(Some(&Prefix::new(p).unwrap()), &StreamName::new(s).unwrap())
        };
        assert_eq!(of("shop", "orders"), "shop.orders");
        assert_ne!(of("a", "b-c"), of("a-b", "c"));
        for bad in ["", "A", "a.b", "-a", &"a".repeat(64)] {
            assert!(
                Prefix::new(bad)
                    .unwrap_err()
                    .to_string()
                    .contains("not a DNS label")
            );
        }
    }
}
