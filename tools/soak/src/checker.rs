//! Looks for two leaders at once, and for tokens that fall, in what the processes said.
//!
//! A leadership is the time from just before its guard was first found valid to just before it was last found so. A
//! process that is stopped says nothing meanwhile, so its time ends where it last acted; one that would act after it is
//! resumed would say so. Two leaderships of a stream must not share a moment.

use std::{collections::BTreeMap, fmt};

use serde::Serialize;

use crate::node::Line;

/// One leadership, as far as is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
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
    leaderships: u64,
    hand_overs: u64,
}

/// Two leaderships that cannot both have been.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Clash {
    pub(crate) stream: String,
    pub(crate) what: &'static str,
    pub(crate) before: Leadership,
    pub(crate) next: Leadership,
}

impl fmt::Display for Clash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            stream,
            what,
            before,
            next,
        } = self;
        write!(f, "{stream}: {what}: {before:?} and {next:?}")
    }
}

const OVERLAP: &str = "two at once";
const FALLEN: &str = "tokens do not rise";

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
        let last = tokens.last_key_value().and_then(|(_, under)| under.last());
        let from_another = last.is_some_and(|last| last.node != node);
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
            self.leaderships += 1;
            self.hand_overs += u64::from(from_another);
        }
    }

    /// How many leaderships there were.
    pub(crate) fn leaderships(&self) -> u64 {
        self.leaderships
    }

    /// How many of them followed on one of another process.
    pub(crate) fn hand_overs(&self) -> u64 {
        self.hand_overs
    }

    /// The latest leadership of a stream.
    pub(crate) fn latest(&self, stream: &str) -> Option<&Leadership> {
        self.streams.get(stream)?.last_key_value()?.1.last()
    }

    /// The streams whose latest leader is this process.
    pub(crate) fn led_by(&self, node: usize) -> Vec<String> {
        let led = self.streams.keys().filter(|stream| {
            self.latest(stream)
                .is_some_and(|latest| latest.node == node && !latest.handed_over)
        });
        led.cloned().collect()
    }

    /// The leaderships of a stream that touch a time, in their order.
    pub(crate) fn around(&self, stream: &str, from: u64, to: u64) -> Vec<&Leadership> {
        let Some(leaderships) = self.streams.get(stream) else {
            return Vec::new();
        };
        let mut all = Self::in_order(leaderships);
        all.retain(|leadership| leadership.first <= to && leadership.last >= from);
        all
    }

    /// A stream's leaderships in the order of time.
    fn in_order(leaderships: &BTreeMap<i64, Vec<Leadership>>) -> Vec<&Leadership> {
        let mut all: Vec<&Leadership> = leaderships.values().flatten().collect();
        all.sort_by_key(|leadership| (leadership.first, leadership.last));
        all
    }

    /// What must not be: pairs that overlap, and pairs whose tokens do not rise.
    pub(crate) fn clashes(&self) -> Vec<Clash> {
        let mut clashes = Vec::new();
        for (stream, leaderships) in &self.streams {
            // The one that lasted longest so far: not only neighbours may overlap.
            let mut longest: Option<&Leadership> = None;
            for next in Self::in_order(leaderships) {
                if let Some(before) = longest {
                    let mut clash = |what| {
                        clashes.push(Clash {
                            stream: stream.clone(),
                            what,
                            before: before.clone(),
                            next: next.clone(),
                        });
                    };
                    if next.first < before.last {
                        clash(OVERLAP);
                    }
                    if next.token <= before.token {
                        clash(FALLEN);
                    }
                }
                if longest.is_none_or(|before| next.last > before.last) {
                    longest = Some(next);
                }
            }
        }
        clashes
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
        let before = self.clashes();
        let found = planted.clashes();
        found
            .iter()
            .any(|clash| clash.what == OVERLAP && !before.contains(clash))
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
        assert_eq!((checker.clashes(), checker.hand_overs()), (Vec::new(), 1));
        assert!(checker.finds_a_planted_overlap());
    }

    #[test]
    fn a_process_that_takes_over_from_itself_has_handed_nothing_over() {
        let checker = heard(&[
            (0, line(5, 10, 20)),
            (0, line(6, 30, 40)),
            (1, line(7, 50, 60)),
            (0, line(8, 70, 80)),
        ]);
        assert_eq!((checker.leaderships(), checker.hand_overs()), (4, 2));
    }

    #[test]
    fn overlaps_are_found_also_under_one_token_and_between_terms_that_are_no_neighbours() {
        for lines in [
            [(0, line(5, 10, 31)), (1, line(6, 30, 40)), (0, line(7, 50, 60))],
            [(0, line(5, 10, 55)), (1, line(6, 56, 57)), (1, line(5, 50, 51))],
            [(0, line(5, 10, 70)), (1, line(6, 80, 90)), (1, line(7, 60, 61))],
        ] {
            let clashes = heard(&lines).clashes();
            assert!(clashes.iter().any(|clash| clash.what == OVERLAP), "{clashes:?}");
        }
    }

    #[test]
    fn tokens_that_fall_are_found() {
        let clashes = heard(&[(0, line(6, 10, 20)), (1, line(5, 30, 40))]).clashes();
        assert_eq!(clashes[0].what, FALLEN, "{clashes:?}");
    }
}
