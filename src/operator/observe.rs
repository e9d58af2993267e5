//! What the operator tells of its own doings, for whoever counts them: metrics, events. Nothing here decides anything.

use std::{sync::Arc, time::Duration};

use super::api::ApiError;
use crate::crd::{ChangeStreamLeader, ChangeStreamLeaderStatus};

/// Why a status is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum WriteReason {
    /// The leadership changed, or what is known of it.
    Transition,
    /// The stored `expirationTime` was about to lapse, or is put back.
    Refresh,
    /// `expirationTime` is taken out, because the budget would not have kept it from lapsing.
    ExpirationRemoved,
    /// The object's spec changed.
    Spec,
    /// Who leads is unchanged, and a condition tells something else about it: that nothing is seen, say.
    Condition,
}

impl WriteReason {
    /// All of them.
    pub(crate) const ALL: [Self; 5] = [
        Self::Transition,
        Self::Refresh,
        Self::ExpirationRemoved,
        Self::Spec,
        Self::Condition,
    ];

    /// As the label of a metric.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Transition => "transition",
            Self::Refresh => "refresh",
            Self::ExpirationRemoved => "expiration_removed",
            Self::Spec => "spec",
            Self::Condition => "condition",
        }
    }
}

/// Why a look at an object led to no write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Suppressed {
    /// The budget does not allow it now.
    Throttled,
    /// The status says all that is worth a write.
    Unchanged,
}

impl Suppressed {
    /// As the label of a metric.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Throttled => "throttled",
            Self::Unchanged => "unchanged",
        }
    }
}

/// What is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Watched {
    Leases,
    Objects,
}

impl Watched {
    /// As the label of a metric.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Leases => "leases",
            Self::Objects => "changestreamleaders",
        }
    }
}

/// Told of everything, on the task that does it: an implementation returns at once.
pub(crate) trait Observer: Send + Sync + 'static {
    /// A change of leadership is in the status of this object, `after` following `before`.
    fn transition(
        &self,
        object: &ChangeStreamLeader,
        before: &ChangeStreamLeaderStatus,
        after: &ChangeStreamLeaderStatus,
    ) {
        let _ = (object, before, after);
    }

    /// A status was written; this is the object with it.
    fn written(&self, object: &ChangeStreamLeader, reason: WriteReason) {
        let _ = (object, reason);
    }

    /// A status was not written.
    fn suppressed(&self, reason: Suppressed) {
        let _ = reason;
    }

    /// `expirationTime` of this object is left out for want of budget (`true`), or shown again.
    fn throttled(&self, object: &ChangeStreamLeader, throttled: bool) {
        let _ = (object, throttled);
    }

    /// The API server was asked, and answered with this code; with none when it did not answer.
    fn request(&self, verb: &str, resource: &str, code: Option<u16>) {
        let _ = (verb, resource, code);
    }

    /// A Lease and what shows it were looked at; so long that took, and this came of it.
    fn reconciled(&self, took: Duration, error: Option<&ApiError>) {
        let _ = (took, error);
    }

    /// So many keys wait to be looked at.
    fn queued(&self, keys: usize) {
        let _ = keys;
    }

    /// All watches of this resource are up, or one of them is not and the operator is blind.
    fn watch(&self, resource: Watched, up: bool) {
        let _ = (resource, up);
    }
}

/// Several are told.
impl Observer for Vec<Arc<dyn Observer>> {
    fn transition(
        &self,
        object: &ChangeStreamLeader,
        before: &ChangeStreamLeaderStatus,
        after: &ChangeStreamLeaderStatus,
    ) {
        for o in self {
            o.transition(object, before, after);
        }
    }

    fn written(&self, object: &ChangeStreamLeader, reason: WriteReason) {
        for o in self {
            o.written(object, reason);
        }
    }

    fn suppressed(&self, reason: Suppressed) {
        for o in self {
            o.suppressed(reason);
        }
    }

    fn throttled(&self, object: &ChangeStreamLeader, throttled: bool) {
        for o in self {
            o.throttled(object, throttled);
        }
    }

    fn watch(&self, resource: Watched, up: bool) {
        for o in self {
            o.watch(resource, up);
        }
    }

    fn request(&self, verb: &str, resource: &str, code: Option<u16>) {
        for o in self {
            o.request(verb, resource, code);
        }
    }

    fn reconciled(&self, took: Duration, error: Option<&ApiError>) {
        for o in self {
            o.reconciled(took, error);
        }
    }

    fn queued(&self, keys: usize) {
        for o in self {
            o.queued(keys);
        }
    }
}

/// Nobody counts.
pub(crate) struct Nobody;

impl Observer for Nobody {}
