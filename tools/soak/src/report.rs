//! What came of it, and whether that is as it must be.

use std::{fmt, time::Duration};

use serde::Serialize;

use crate::{
    checker::Checker,
    driver::Happened,
    faults::Paused,
    store::{Late, Tally},
};

/// What makes it a soak.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Needed {
    pub(crate) hand_overs: u64,
    pub(crate) faults: u64,
}

/// How long a stream had no leader.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Takeovers {
    pub(crate) count: usize,
    pub(crate) median_ms: f64,
    pub(crate) worst_ms: f64,
}

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) seed: u64,
    pub(crate) seconds: f64,
    pub(crate) leaderships: u64,
    /// Those of them that followed on one of another process.
    pub(crate) hand_overs: u64,
    /// After a leader that handed over.
    pub(crate) graceful: Takeovers,
    /// After one that was killed, stopped, cut off or wiped.
    pub(crate) after_a_loss: Takeovers,
    pub(crate) faults: Happened,
    pub(crate) store: Tally,
    /// Those of its writes that did damage, unchecked, because their process had stood still for longer than a TTL.
    pub(crate) damage_after_pauses: usize,
    /// What must not be; empty when all is well.
    pub(crate) failures: Vec<String>,
}

impl Report {
    pub(crate) fn new(
        (seed, took): (u64, Duration),
        checker: &Checker,
        unreadable: Vec<String>,
        faults: Happened,
        (store, damage_after_pauses): (Tally, usize),
        needed: Needed,
    ) -> Self {
        let mut failures: Vec<String> = checker.clashes().iter().map(ToString::to_string).collect();
        failures.extend(unreadable);
        let mut must = |holds: bool, otherwise: String| {
            if !holds {
                failures.push(otherwise);
            }
        };
        must(
            store.wrong == 0,
            format!(
                "{} writes lost or doubled work although tokens were checked",
                store.wrong
            ),
        );
        must(
            store.unreadable == 0,
            format!("{} requests that the store cannot read", store.unreadable),
        );
        must(
            damage_after_pauses > 0,
            "processes that stood still did no damage where no token is checked, so the faults prove nothing"
                .to_owned(),
        );
        must(
            store.accepted >= needed.hand_overs,
            format!(
                "only {} writes were accepted, fewer than hand-overs were asked for",
                store.accepted
            ),
        );
        must(
            checker.finds_a_planted_overlap(),
            "the checker missed an overlap that was planted".to_owned(),
        );
        let hand_overs = checker.hand_overs();
        must(
            hand_overs >= needed.hand_overs,
            format!("only {hand_overs} hand-overs, not {}", needed.hand_overs),
        );
        for (kind, times) in &faults {
            must(
                *times >= needed.faults,
                format!("{kind}: only {times} times, not {}", needed.faults),
            );
        }
        let gaps = checker.gaps();
        let those = |graceful| {
            takeovers(
                gaps.iter()
                    .filter(|gap| gap.graceful == graceful)
                    .map(|gap| gap.nanos),
            )
        };
        Self {
            seed,
            seconds: took.as_secs_f64(),
            leaderships: checker.leaderships(),
            hand_overs,
            graceful: those(true),
            after_a_loss: those(false),
            faults,
            store,
            damage_after_pauses,
            failures,
        }
    }
}

/// How many writes did damage that were on their way when their process was stopped, and arrived when it went on.
pub(crate) fn damage_after(pauses: &[Paused], late: &[Late]) -> usize {
    let spans = |late: &&Late| {
        pauses
            .iter()
            .any(|paused| paused.id == late.by && late.read_at <= paused.from && late.written_at >= paused.to)
    };
    late.iter().filter(spans).count()
}

#[allow(clippy::cast_precision_loss)]
fn takeovers(nanos: impl Iterator<Item = u64>) -> Takeovers {
    let mut nanos: Vec<u64> = nanos.collect();
    nanos.sort_unstable();
    let millis = |at: usize| nanos.get(at).map_or(0.0, |&nanos| nanos as f64 / 1e6);
    Takeovers {
        count: nanos.len(),
        median_ms: millis(nanos.len() / 2),
        worst_ms: millis(nanos.len().saturating_sub(1)),
    }
}

impl fmt::Display for Takeovers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:>7}   median {:>8.1} ms   worst {:>8.1} ms",
            self.count, self.median_ms, self.worst_ms
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "seed {}, {:.0} s, {} leaderships, {} of them after one of another process: hand-overs",
            self.seed, self.seconds, self.leaderships, self.hand_overs
        )?;
        writeln!(
            f,
            "\nwithout a leader, from the last moment of the one to the first of the next"
        )?;
        writeln!(f, "  handed over   {}", self.graceful)?;
        writeln!(f, "  after a loss  {}", self.after_a_loss)?;
        writeln!(f, "\nfaults")?;
        for (kind, times) in &self.faults {
            writeln!(f, "  {times:>7}   {kind}")?;
        }
        writeln!(f, "\nside effects")?;
        writeln!(
            f,
            "  {:>7}   accepted by the store that checks tokens",
            self.store.accepted
        )?;
        writeln!(f, "  {:>7}   refused by it", self.store.refused)?;
        writeln!(f, "  {:>7}   lost or doubled in it", self.store.wrong)?;
        writeln!(
            f,
            "  {:>7}   lost or doubled in the store that checks nothing",
            self.store.wrong_unchecked
        )?;
        writeln!(
            f,
            "  {:>7}   of them because a process had stood still for longer than a TTL",
            self.damage_after_pauses
        )?;
        if self.failures.is_empty() {
            write!(f, "\nnever two at once, tokens rose, nothing was lost or doubled")
        } else {
            write!(f, "\nthis does not hold:\n  {}", self.failures.join("\n  "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_a_pauses_when_the_write_was_on_its_way_through_all_of_it() {
        let paused = Paused {
            id: "a".to_owned(),
            from: 10,
            to: 20,
        };
        let late = |by: &str, read_at, written_at| Late {
            by: by.to_owned(),
            read_at,
            written_at,
        };
        let all = [
            late("a", 9, 21),
            late("b", 9, 21),
            late("a", 11, 21),
            late("a", 5, 9),
        ];
        assert_eq!(damage_after(&[paused], &all), 1);
    }
}
