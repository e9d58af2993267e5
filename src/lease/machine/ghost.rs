//! Held Leases that were deleted.
//!
//! A deletion is an override by hand, but the holder may not know of it and act until its term ends. A contender that had
//! seen the live term waits for that, as for any expiry; one that only meets a 404 cannot know.

use super::{Claim, DEFAULT_TTL, InstanceId, Machine, Moment, Now, Refusal, Rule, Seen};

/// Deleted Leases remembered at once. Beyond that they are counted together, which only delays a takeover.
const GHOSTS: usize = 16;

/// A held Lease that was deleted: its holder may not know, and act until its term ends.
#[derive(Debug, Clone)]
pub(super) struct Ghost {
    holder: String,
    term: Option<String>,
    until: Moment,
}

impl Ghost {
    pub(super) fn is_gone(&self, now: Moment) -> bool {
        now >= self.until
    }
}

impl Machine {
    /// A held Lease was deleted. Its holder may have renewed until this moment, unseen, so its term may last a TTL from now.
    pub(super) fn haunt(&mut self, now: Moment, gone: Option<Seen>) {
        let Some(gone) = gone.filter(|_| self.rules.keeps(Rule::DeletionWaits)) else {
            return;
        };
        let Some(holder) = gone.record.counted_holder() else {
            return;
        };
        // Without a duration nobody knows what its holder goes by; what most use is a better guess than none.
        let ttl = gone.sighting.ttl_or(DEFAULT_TTL);
        let term = gone.record.mark.as_ref().map(|mark| mark.id.clone());
        let holder = holder.to_owned();
        let mut until = now + ttl;
        // Another deletion hides no holder that may still act.
        self.ghosts
            .retain(|ghost| now < ghost.until && (&ghost.holder, &ghost.term) != (&holder, &term));
        if self.ghosts.len() >= GHOSTS
            && let Some(last) = self.ghosts.pop()
        {
            until = until.max(last.until);
        }
        self.ghosts.push(Ghost { holder, term, until });
    }

    /// The deleted Lease's holder whose term may last longest.
    pub(super) fn last_ghost(&self, now: Moment) -> Option<(&str, Moment)> {
        let last = self.ghosts.iter().max_by_key(|ghost| ghost.until)?;
        (now < last.until).then_some((last.holder.as_str(), last.until))
    }

    /// The refusal by a deleted Lease's holder, while its term may last, unless `instance` is that holder.
    pub(super) fn haunted(&mut self, now: Now, instance: &InstanceId, claim: &Claim) -> Option<Refusal> {
        self.ghosts.retain(|ghost| now.at < ghost.until);
        let ghost = self.ghosts.iter().find(|ghost| match claim {
            Claim::Instance => ghost.holder != instance.as_str(),
            Claim::Term(term) => ghost.term.as_deref() != Some(term.as_str()),
        })?;
        let expires_at = now.wall.checked_add(ghost.until.since(now.at));
        Some(Refusal::HeldBy {
            holder: ghost.holder.clone(),
            expires_at,
            token: None,
        })
    }
}
