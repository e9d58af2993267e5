//! What followers are told: who holds the Lease by what was seen, and which terms of ours are over.
//!
//! A summary of the machine's knowledge for those who wait for a change. It grants nothing; who acts on it asks first.

use super::{DEFAULT_TTL, Holding, Lease, Machine, Moment, Now, OwnTerm, Record, Refusal, Rule, Term, read};
use crate::lock::Change;

impl Machine {
    /// Who holds it, by what was last seen; `None` before anything was.
    pub(crate) fn standing(&self, now: Now) -> Option<Change> {
        let ghost = self.last_ghost(now.at);
        let held = self.seen.as_ref().and_then(|seen| {
            let record = &seen.record;
            let holder = record.counted_holder()?;
            let free_from = seen.sighting.expires(DEFAULT_TTL);
            Some(Change::Held {
                holder: holder.to_owned(),
                token: record.shown_token(),
                expires_at: Some(read::expires_at(record, now.wall)),
                // A deleted Lease's holder may outlast the one of its successor.
                free_from: Some(ghost.map_or(free_from, |(_, until)| free_from.max(until))),
            })
        });
        let haunted = || {
            ghost.map(|(holder, until)| Change::Held {
                holder: holder.to_owned(),
                token: None,
                expires_at: now.wall.checked_add(until.since(now.at)),
                free_from: Some(until),
            })
        };
        let known = self.seen.is_some() || self.version > 0;
        held.or_else(haunted).or(known.then_some(Change::Free))
    }

    /// Whether this write puts another holder in place of the one that was seen: what others may want to do too.
    pub(crate) fn changes_holder(&self, write: &Lease) -> bool {
        let holder = |lease: &Lease| lease.spec.as_ref()?.holder_identity.clone();
        self.seen
            .as_ref()
            .is_none_or(|seen| holder(&seen.lease) != holder(write))
    }

    /// Whether what was last seen is what this write is conditioned on.
    pub(crate) fn would_apply(&self, write: &Lease) -> bool {
        match &self.seen {
            Some(seen) => seen.lease.metadata.resource_version == write.metadata.resource_version,
            None => write.metadata.resource_version.is_none(),
        }
    }

    /// The term of ours whose holder may act, and until when by what is known.
    pub(crate) fn own_deadline(&self) -> Option<(&Term, Moment)> {
        let own = self.own.as_ref()?;
        Some((&own.term, own.valid_until()?))
    }

    /// The terms of ours that were found to be over since this was last asked.
    pub(crate) fn take_ended(&mut self) -> Vec<(Term, Refusal)> {
        std::mem::take(&mut self.ended)
    }

    /// A release of our own term is about to be sent.
    pub(super) fn end_own(&mut self) {
        if let Some(own) = &mut self.own
            && self.rules.keeps(Rule::OverOnceReleased)
        {
            if own.proven().is_some() && !own.is_over() {
                self.ended.push((own.term.clone(), Refusal::Expired));
            }
            own.end();
        }
    }
}

/// Why `record` ended this term.
pub(super) fn why_over(own: &OwnTerm, record: &Record) -> Refusal {
    if record.uid != own.uid {
        return Refusal::Missing;
    }
    match record.holding() {
        Holding::Held(holder) | Holding::Wiped(holder) => Refusal::HeldBy {
            holder: holder.to_owned(),
            expires_at: None,
            token: record.shown_token(),
        },
        Holding::Free => Refusal::NotHeld,
    }
}
