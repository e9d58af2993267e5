//! The safety rules that the proof takes away one at a time.
//!
//! In a build that ships, [`Rules`] has no size, every rule is kept, and the compiler drops what would happen otherwise.
//! Under test a machine can be built that breaks exactly one rule; the model must then find two leaders, or whatever else
//! the rule is there to prevent (`docs/proof.md`). What each rule is for is said in `docs/protocol.md`.

/// A rule that keeps leaders apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Rule {
    /// A deadline counts from the send, never from the reply.
    DeadlineFromSend,
    /// A read proves a write only by its term *and* its renewTime.
    ProvenByRenewTime,
    /// What is proven counts from its own send, not from a later attempt's.
    SendOfProvenAttempt,
    /// A shorter TTL binds from its send.
    ShorterBindsAtOnce,
    /// Every grant is a write.
    #[cfg(test)]
    GrantIsWrite,
    /// A term is over once its release is sent.
    OverOnceReleased,
    /// A guard that was once false stays false.
    NoRevival,
    /// The holder gives up what both clocks may drift.
    DriftAllowance,
    /// A write carries the uid.
    Uid,
    /// A write carries the resourceVersion.
    ResourceVersion,
    /// A contender goes by the recorded TTL, not by its own.
    RecordedTtl,
    /// Nodes' wall clocks grant nothing.
    NodeClocksGrantNothing,
    /// The API servers' clocks may differ by the allowance.
    ServerTimeAllowance,
    /// A holder that somebody else wiped counts.
    WipedIsHeld,
    /// Who saw the live term of a deleted Lease waits for its end.
    DeletionWaits,
    /// One's own id under another's term is another's.
    TermNotId,
    /// Nothing older than what was seen is news.
    OldNewsDropped,
    /// A missing Lease is created free.
    CreatedFree,
    /// A release follows the work.
    ReleaseAfterWork,
}

/// Which rules are kept: all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Rules {
    #[cfg(test)]
    off: Option<Rule>,
}

impl Rules {
    /// Always, but for the one rule that a test has taken away.
    #[cfg(not(test))]
    #[allow(clippy::unused_self)]
    pub(crate) const fn keeps(self, _: Rule) -> bool {
        true
    }

    #[cfg(test)]
    pub(crate) fn keeps(self, rule: Rule) -> bool {
        self.off != Some(rule)
    }

    #[cfg(test)]
    pub(crate) fn without(rule: Option<Rule>) -> Self {
        Self { off: rule }
    }
}
