//! What came of it, and whether that is as it must be.

use std::{collections::BTreeMap, fmt, time::Duration};

use serde::Serialize;

use crate::{checker::Checker, store::Tally};

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
    pub(crate) hand_overs: u64,
    /// Those of them to another process.
    pub(crate) to_others: usize,
    /// After a leader that handed over.
    pub(crate) graceful: Takeovers,
    /// After one that was killed, stopped, cut off or wiped.
    pub(crate) after_a_loss: Takeovers,
    pub(crate) faults: BTreeMap<&'static str, u64>,
    pub(crate) store: Tally,
    /// What must not be; empty when all is well.
    pub(crate) failures: Vec<String>,
}

impl Report {
    pub(crate) fn new(
        seed: u64,
        took: Duration,
        checker: &Checker,
        faults: BTreeMap<&'static str, u64>,
        store: Tally,
        needed: Needed,
    ) -> Self {
        let mut failures = checker.faults();
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
            store.wrong_unchecked > 0,
            "the store that checks no tokens shows no damage, so the faults were too weak to prove anything"
                .to_owned(),
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
            hand_overs,
            to_others: checker.to_others(),
            graceful: those(true),
            after_a_loss: those(false),
            faults,
            store,
            failures,
        }
    }
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
            "seed {}, {:.0} s, {} hand-overs, {} of them to another process",
            self.seed, self.seconds, self.hand_overs, self.to_others
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
        if self.failures.is_empty() {
            write!(f, "\nnever two at once, tokens rose, nothing was lost or doubled")
        } else {
            write!(f, "\nthis does not hold:\n  {}", self.failures.join("\n  "))
        }
    }
}
