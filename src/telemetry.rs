//! The names by which this library's `tracing` events are found: targets and fields. They are part of the interface: what is listed
//! here keeps its name and meaning within a major version, and `docs/observability.md` lists the same. Texts of events are
//! not, and may change.
//!
//! All targets begin with `leasewarden`, so the filter `leasewarden=debug` shows everything.
//!
//! ```
//! assert!(leasewarden::telemetry::FIELDS.contains(&"token"));
//! ```

/// Target of what the coordinator tells: leaderships that begin and end.
pub const ELECTION: &str = "leasewarden::election";
/// Target of what the shortcuts on a lock service swallow: errors that they report as `false`.
pub const LOCK: &str = "leasewarden::lock";
/// Target of what the service on Leases tells: watches, permissions.
pub const LEASE: &str = "leasewarden::lease";

/// All targets of the library; the operator's own are not among them.
pub const TARGETS: &[&str] = &[ELECTION, LOCK, LEASE];

/// All fields of the library's events.
///
/// | field | type | what it is |
/// |---|---|---|
/// | `stream` | text | the stream's name |
/// | `instance` | text | this instance's id |
/// | `term` | text | the id of one leadership |
/// | `token` | integer | its fencing token; absent where the lock service has none |
/// | `reason` | text | why: why leadership was lost, why a request was refused, why its outcome is unknown |
/// | `namespace` | text | the Leases' namespace |
/// | `lease` | text | a Lease's name |
/// | `error` | text | what failed |
/// | `source` | text | what caused the error |
/// | `message` | text | what happened, for people |
pub const FIELDS: &[&str] = &[
    "stream",
    "instance",
    "term",
    "token",
    "reason",
    "namespace",
    "lease",
    "error",
    "source",
    "message",
];
