//! How far a run of the model goes: who takes part, how long, and how much may go wrong.

use crate::rules::Rule;

/// One instance that wants to lead.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    pub(super) name: char,
    /// Its instance id; two with the same one are twins.
    pub(super) id: &'static str,
    /// In ticks, which are seconds.
    pub(super) ttl: u64,
    /// A TTL that an extension may ask for instead.
    pub(super) shorter: Option<u64>,
    /// Thousandths of true time that its clock counts.
    pub(super) rate: u64,
    /// By how many ticks its wall clock is ahead.
    pub(super) wall: i64,
    /// How many operations it may begin.
    pub(super) operations: u8,
    pub(super) extends: bool,
    /// Whether it asks for the lock also while it leads.
    pub(super) asks_again: bool,
    pub(super) releases: bool,
}

impl Candidate {
    pub(super) fn new(name: char, operations: u8) -> Self {
        Self {
            name,
            id: match name {
                'A' => "host-a",
                'B' => "host-b",
                _ => "host-c",
            },
            ttl: 3,
            shorter: None,
            rate: 1000,
            wall: 0,
            operations,
            extends: true,
            asks_again: false,
            releases: true,
        }
    }

    pub(super) fn rate(self, rate: u64) -> Self {
        Self { rate, ..self }
    }

    pub(super) fn ttl(self, ttl: u64) -> Self {
        Self { ttl, ..self }
    }

    pub(super) fn only_acquires(self) -> Self {
        Self {
            extends: false,
            releases: false,
            ..self
        }
    }

    pub(super) fn never_releases(self) -> Self {
        Self {
            releases: false,
            ..self
        }
    }
}

/// What a third party does to the Lease, at any moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meddling {
    /// Removes its labels.
    Labels,
    /// Sets `leaseDurationSeconds` to 1.
    ShorterTtl,
    /// Sets it to two more.
    LongerTtl,
    /// Empties the holder the way a deposed client-go elector does: duration 1, renewTime now.
    Wipe,
    /// Deletes it.
    Delete,
    /// Names itself the holder, as an elector does that follows other rules.
    TakeOver,
    /// Sets the transitions back to 0.
    Transitions,
}

impl Meddling {
    pub(super) const ALL: &[Self] = &[
        Self::Labels,
        Self::ShorterTtl,
        Self::LongerTtl,
        Self::Wipe,
        Self::Delete,
        Self::TakeOver,
        Self::Transitions,
    ];
}

/// How a run begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    /// There is no Lease.
    Nothing,
    /// The first candidate leads since this moment, and the others have just seen it.
    Led,
    /// The same, and the others know nothing.
    LedUnseen,
}

/// What some schedule must reach, so that a model in which nothing happens fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    TwoHolders,
    Observed,
    ServerTime,
    Release,
    GrantedByRead,
    LateWrite,
}

#[derive(Debug, Clone)]
pub(super) struct Bounds {
    pub(super) name: &'static str,
    pub(super) candidates: Vec<Candidate>,
    pub(super) start: Start,
    /// Ticks.
    pub(super) horizon: u64,
    /// Writes that their senders give up: never delivered, delivered late, or the reply lost.
    pub(super) faults: u8,
    /// Whether a fault may also be that a write arrives twice, and is answered with the second reply.
    pub(super) twice: bool,
    /// Versions that a watch delivers, new or old.
    pub(super) news: u8,
    pub(super) meddlings: u8,
    pub(super) meddler: &'static [Meddling],
    /// The allowance for the API servers' clocks, in ticks; without one, server time proves nothing.
    pub(super) allowance: Option<u64>,
    /// By how much the clock of a second API server is ahead, within the allowance.
    pub(super) skew: u64,
    /// Whether steps are left out that change nothing: a read is handled when it is sent and never lost, and a write that
    /// lost hears it at once. `reductions` shows that nothing is overlooked so.
    pub(super) reduced: bool,
    /// Whether what follows without faults is looked at from every state.
    pub(super) rollout: bool,
    pub(super) reaches: &'static [Reach],
    /// States deeper than this many actions are not looked at.
    pub(super) depth: Option<usize>,
    /// The rule that is broken.
    pub(super) off: Option<Rule>,
}

impl Bounds {
    pub(super) fn new(name: &'static str, candidates: Vec<Candidate>, horizon: u64) -> Self {
        Self {
            name,
            candidates,
            start: Start::Nothing,
            horizon,
            faults: 0,
            twice: false,
            news: 0,
            meddlings: 0,
            meddler: &[],
            allowance: None,
            skew: 0,
            reduced: true,
            rollout: false,
            reaches: &[],
            depth: None,
            off: None,
        }
    }

    /// The same with every step.
    pub(super) fn unreduced(self) -> Self {
        Self {
            reduced: false,
            ..self
        }
    }

    pub(super) fn without(&self, rule: Rule) -> Self {
        Self {
            off: Some(rule),
            ..self.clone()
        }
    }
}
