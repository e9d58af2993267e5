//! What must hold in every state, and what some state must show.

use stateright::Property;

use super::{
    bounds::{Bounds, Reach},
    process::Feat,
    rollout,
    state::State,
};

/// (a) and (b). With third parties, two guards may be true at once only where
///
/// * a third party named another holder or moved the transitions while the term held the Lease (what a foreign elector
///   does that follows other rules), or
/// * a third party deleted the Lease while the term held it, and the other process had not seen that term.
///
/// Edits of labels and of the TTL, and a holder that is wiped, excuse nothing.
pub(super) const ONE_GUARD: &str = "at most one valid guard";
/// (c). Of the writes that acquire, in the order in which the server applied them.
pub(super) const TOKENS: &str = "tokens rise";
pub(super) const NO_REVIVAL: &str = "a guard that was once false stays false";
/// Without third parties: what ends a guard before its deadline is a release, or another's term on the server.
pub(super) const PROOF: &str = "a leadership ends early only by proof";
/// (d)
pub(super) const LEADS_ON: &str = "one fault before the deadline ends no leadership";
/// (e) and (f)
pub(super) const FREE_AGAIN: &str = "who waits leads a TTL and a tick after everybody else fell silent";

pub(super) fn of(bounds: &Bounds) -> Vec<Property<Bounds>> {
    let mut all = vec![
        Property::always(ONE_GUARD, |bounds: &Bounds, state: &State| !state.clash(bounds)),
        Property::always(TOKENS, |_, state: &State| !state.server.token_fell),
        Property::always(NO_REVIVAL, |_, state: &State| {
            state.processes.iter().all(|p| !p.revived)
        }),
    ];
    if bounds.meddlings == 0 {
        all.push(Property::always(PROOF, |_, state: &State| {
            state.processes.iter().all(|p| !p.ended_unproven)
        }));
    }
    if bounds.rollout {
        all.push(Property::always(LEADS_ON, rollout::leads_on));
        all.push(Property::always(FREE_AGAIN, rollout::is_free_again));
    }
    // Under a broken rule only what must hold is asked.
    let reaches = bounds.reaches.iter().filter(|_| bounds.off.is_none());
    all.extend(reaches.map(|reach| match reach {
        Reach::TwoHolders => {
            Property::sometimes("one led after another", |_, state: &State| holders(state) > 1)
        }
        Reach::Observed => Property::sometimes("a takeover by observation", |_, s: &State| {
            feat(s, Feat::TookObserved)
        }),
        Reach::ServerTime => Property::sometimes("a takeover by the server's time", |_, s: &State| {
            feat(s, Feat::TookByServerTime)
        }),
        Reach::Release => Property::sometimes("a release", |_, state: &State| feat(state, Feat::Released)),
        Reach::GrantedByRead => Property::sometimes("a lost reply settled by a read", |_, s: &State| {
            feat(s, Feat::GrantedByRead)
        }),
        Reach::LateWrite => Property::sometimes("a write applied late", |_, state: &State| state.late_write),
    }));
    all
}

fn feat(state: &State, feat: Feat) -> bool {
    state.processes.iter().any(|process| process.feat == feat)
}

fn holders(state: &State) -> usize {
    let mut holders: Vec<_> = state
        .server
        .history
        .iter()
        .filter_map(|version| version.term())
        .collect();
    holders.sort_unstable();
    holders.dedup_by_key(|term| term.chars().next());
    holders.len()
}
