//! What can be wrong: with the input, and with a request.
//!
//! An error is definite: nothing was granted and nothing was written. What may or may not have been written is no error
//! but an outcome ([`Outcome::Unknown`](super::Outcome::Unknown)).

use std::{error::Error as StdError, time::Duration};

use super::types::StreamName;

/// Input that the lock cannot honour.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidInput {
    /// Nothing was given.
    #[error("the {what} is empty; give it at least one character")]
    Empty {
        /// Which input.
        what: &'static str,
    },
    /// Longer than the store can keep.
    #[error("the {what} is {len} bytes long; at most {max} are allowed")]
    TooLong {
        /// Which input.
        what: &'static str,
        /// Its length in bytes.
        len: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// A character that no log or `kubectl` output can show.
    #[error("the {what} has a control character U+{code:04X} at byte {at}; remove it")]
    ControlCharacter {
        /// Which input.
        what: &'static str,
        /// The character's code point.
        code: u32,
        /// Its offset in bytes.
        at: usize,
    },
    /// A time to live of zero or beyond what a Lease can say.
    #[error("a TTL of {given:?} cannot be honoured: it must be more than zero and at most {max:?}")]
    Ttl {
        /// What was given.
        given: Duration,
        /// The longest.
        max: Duration,
    },
}

/// Why a lock service definitely did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// The input was refused.
    #[error(transparent)]
    Invalid(#[from] InvalidInput),

    /// The place where this stream's lock would live belongs to another stream. Never a shared lock.
    #[error(
        "{location} already belongs to stream {found:?}, so it cannot lock stream {stream}; rename one of them or use a name prefix"
    )]
    StreamConflict {
        /// Which stream was asked about.
        stream: StreamName,
        /// Whose it is, as found.
        found: String,
        /// Where, for example `Lease default/orders`.
        location: String,
    },

    /// The store holds something that cannot be used safely, and says nothing can be granted until a person mended it.
    #[error("{location} cannot be used for stream {stream}: {problem}")]
    UnusableRecord {
        /// Which stream was asked about.
        stream: StreamName,
        /// Where.
        location: String,
        /// What is wrong and how to mend it.
        problem: String,
    },

    /// The caller lacks a permission.
    #[error(
        "403 Forbidden: not permitted to {action} for stream {stream}; grant that permission to this identity ({message})"
    )]
    Forbidden {
        /// Which stream was asked about.
        stream: StreamName,
        /// The missing verb and resource, for example `update leases.coordination.k8s.io in namespace default`.
        action: String,
        /// What the server said.
        message: String,
    },

    /// The server refused the request as such; trying the same again gives the same answer.
    #[error("the request for stream {stream} was rejected: {message}")]
    Rejected {
        /// Which stream was asked about.
        stream: StreamName,
        /// What the server said.
        message: String,
    },

    /// The store could not be read, so nothing is known. Only reads answer with it; a write that may have been applied
    /// is [`Outcome::Unknown`](super::Outcome::Unknown).
    #[error("the lock store could not be reached for stream {stream}")]
    Unavailable {
        /// Which stream was asked about.
        stream: StreamName,
        /// What happened.
        #[source]
        source: Box<dyn StdError + Send + Sync>,
    },

    /// This service cannot do that at all.
    #[error("this lock service cannot {what}")]
    Unsupported {
        /// What it was asked.
        what: &'static str,
    },

    /// The service was shut down.
    #[error("the lock service is shut down")]
    ShutDown,
}
