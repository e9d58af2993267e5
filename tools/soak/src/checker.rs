//! Looks for two leaders at once, and for tokens that fall, in what the processes said.
//!
//! A leadership is the time from just before its guard was first found valid to just before it was last found so. A
//! process that is stopped says nothing meanwhile, so its time ends where it last acted; one that would act after it is
//! resumed would say so. Two leaderships of a stream must not share a moment.

use std::collections::BTreeMap;

use crate::node::Line;

/// One leadership, as far as is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Leadership {
    pub(crate) node: usize,
    pub(crate) token: i64,
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) handed_over: bool,
}

/// All leaderships, by stream and token.
#[derive(Debug, Clone, Default)]
pub(crate) struct Checker {
    streams: BTreeMap<String, BTreeMap<i64, Vec<Leadership>>>,
    hand_overs: u64,
}

/// Between two leaderships of a stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gap {
    pub(crate) nanos: u64,
    /// Whether the first ended by handing over.
    pub(crate) graceful: bool,
}

impl Checker {
    pub(crate) fn hear(&mut self, node: usize, line: &Line) {
        let tokens = self.streams.entry(line.stream.clone()).or_default();
        let first_ever = tokens.is_empty();
        let under = tokens.entry(line.token).or_default();
        // Two processes under one token are two leaderships, and are found below.
        if let Some(known) = under.iter_mut().find(|known| known.node == node) {
            known.last = known.last.max(line.last);
            known.handed_over |= line.handed_over;
        } else {
            under.push(Leadership {
                node,
                token: line.token,
                first: line.first,
                last: line.last,
                handed_over: line.handed_over,
            });
            self.hand_overs += u64::from(!first_ever);
        }
    }

    /// How many leaderships followed on another of their stream.
    pub(crate) fn hand_overs(&self) -> u64 {
        self.hand_overs
    }

    /// A stream's leaderships in the order of time.
    fn in_order(leaderships: &BTreeMap<i64, Vec<Leadership>>) -> Vec<&Leadership> {
        let mut all: Vec<&Leadership> = leaderships.values().flatten().collect();
        all.sort_by_key(|leadership| (leadership.first, leadership.last));
        all
    }

    /// What must not be: pairs that overlap, and pairs whose tokens do not rise.
    pub(crate) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for (stream, leaderships) in &self.streams {
            let all = Self::in_order(leaderships);
            // The one that lasted longest so far: not only neighbours may overlap.
            let mut longest: Option<&Leadership> = None;
            for next in all {
                if let Some(before) = longest {
                    if next.first < before.last {
                        faults.push(format!("{stream}: two at once: {before:?} and {next:?}"));
                    }
                    if next.token <= before.token {
                        faults.push(format!("{stream}: tokens do not rise: {before:?} and {next:?}"));
                    }
                }
                if longest.is_none_or(|before| next.last > before.last) {
                    longest = Some(next);
                }
            }
        }
        faults
    }

    /// How many of the hand-overs were to another process.
    pub(crate) fn to_others(&self) -> usize {
        let pairs = |leaderships: &BTreeMap<i64, Vec<Leadership>>| {
            let all = Self::in_order(leaderships);
            all.windows(2).filter(|pair| pair[0].node != pair[1].node).count()
        };
        self.streams.values().map(pairs).sum()
    }

    /// From the end of each leadership to the beginning of the next.
    pub(crate) fn gaps(&self) -> Vec<Gap> {
        let mut gaps = Vec::new();
        for leaderships in self.streams.values() {
            for pair in Self::in_order(leaderships).windows(2) {
                if let [before, next] = pair {
                    gaps.push(Gap {
                        nanos: next.first.saturating_sub(before.last),
                        graceful: before.handed_over,
                    });
                }
            }
        }
        gaps
    }

    /// Whether an overlap that is put into what was heard is found: another leader in the middle of the longest term.
    pub(crate) fn finds_a_planted_overlap(&self) -> bool {
        let all = self.streams.iter().flat_map(|(stream, leaderships)| {
            leaderships
                .values()
                .flatten()
                .map(move |leadership| (stream, leadership))
        });
        let Some((stream, longest)) = all.max_by_key(|(_, leadership)| leadership.last - leadership.first)
        else {
            return false;
        };
        let middle = longest.first + (longest.last - longest.first) / 2;
        let mut planted = self.clone();
        let line = Line {
            stream: stream.clone(),
            token: longest.token,
            first: middle,
            last: middle + 1,
            handed_over: false,
        };
        planted.hear(usize::MAX, &line);
        let before = self.faults();
        planted
            .faults()
            .iter()
            .any(|fault| fault.contains("two at once") && !before.contains(fault))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(token: i64, first: u64, last: u64) -> Line {
        Line {
            stream: "orders".to_owned(),
            token,
            first,
            last,
            handed_over: false,
        }
    }

    fn heard(lines: &[(usize, Line)]) -> Checker {
        let mut checker = Checker::default();
        for (node, line) in lines {
            checker.hear(*node, line);
        }
        checker
    }

    #[test]
    fn leaderships_one_after_another_are_fine_and_grow_as_they_are_told_of() {
        let checker = heard(&[(0, line(5, 10, 20)), (0, line(5, 10, 30)), (1, line(6, 30, 40))]);
        assert_eq!((checker.faults(), checker.hand_overs()), (Vec::new(), 1));
        assert!(checker.finds_a_planted_overlap());
    }

    #[test]
    fn overlaps_are_found_also_under_one_token_and_between_terms_that_are_no_neighbours() {
        for lines in [
            [(0, line(5, 10, 31)), (1, line(6, 30, 40)), (0, line(7, 50, 60))],
            [(0, line(5, 10, 55)), (1, line(6, 56, 57)), (1, line(5, 50, 51))],
            [(0, line(5, 10, 70)), (1, line(6, 80, 90)), (1, line(7, 60, 61))],
        ] {
            let faults = heard(&lines).faults();
            assert!(
                faults.iter().any(|fault| fault.contains("two at once")),
                "{faults:?}"
            );
        }
    }

    #[test]
    fn tokens_that_fall_are_found() {
        let faults = heard(&[(0, line(6, 10, 20)), (1, line(5, 30, 40))]).faults();
        assert!(faults[0].contains("do not rise"), "{faults:?}");
    }
}
