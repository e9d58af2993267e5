//! What the run has shown, computed from the store's log: nothing here knows what should have happened, only what must
//! hold of any run. The store refuses most of what would be wrong; this does not rely on it, and judges the log alone.

use std::collections::{BTreeMap, BTreeSet};

use crate::store::{Entry, Total, What};

/// What happened to one stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StreamSummary {
    pub(crate) stream: String,
    /// Who led, in order, under which token.
    pub(crate) leaders: Vec<(String, i64)>,
    /// Events that were produced.
    pub(crate) produced: u64,
    /// Results that were taken a second time, and tries to process an event a second time under one token.
    pub(crate) duplicates: usize,
    /// Events that were produced and never processed.
    pub(crate) lost: u64,
    /// Events that a leader had in hand when it was lost, and that its successor was given again.
    pub(crate) handed_again: usize,
    /// Requests under an old token, all refused.
    pub(crate) stale: usize,
    /// Whether the balance that the workers wrote is the sum of all amounts.
    pub(crate) balanced: bool,
    /// What does not hold. Empty when all is well.
    pub(crate) problems: Vec<String>,
}

/// Judges all streams, in the order of `totals`.
pub(crate) fn summarize(log: &[Entry], totals: &[Total]) -> Vec<StreamSummary> {
    let one = |total| summarize_one(log, total);
    totals.iter().map(one).collect()
}

fn summarize_one(log: &[Entry], total: &Total) -> StreamSummary {
    let mut problems = Vec::new();
    let mut leaders: Vec<(String, i64)> = Vec::new();
    // Position -> the tokens under which it was written or handed out.
    let mut written: BTreeMap<u64, BTreeSet<i64>> = BTreeMap::new();
    let mut handed: BTreeMap<u64, BTreeSet<i64>> = BTreeMap::new();
    let (mut duplicates, mut stale, mut latest) = (0, 0, 0);

    for entry in log.iter().filter(|entry| entry.by.stream == total.stream) {
        let (worker, token) = (&entry.by.worker, entry.by.token);
        if let What::Stale { .. } = entry.what {
            stale += 1;
            continue;
        }
        if leaders.last().is_none_or(|(w, t)| (w, *t) != (worker, token)) {
            match leaders.iter().max_by_key(|(_, t)| *t) {
                Some((w, t)) if *t >= token => {
                    problems.push(format!("{worker} acted under token {token} after {w} under {t}"));
                }
                _ => {}
            }
            leaders.push((worker.clone(), token));
        }
        match entry.what {
            What::Read { position } => {
                handed.entry(position).or_default().insert(token);
            }
            What::Written { position } => {
                if position != latest + 1 {
                    problems.push(format!("{worker} wrote event {position} after event {latest}"));
                }
                latest = position;
                let tokens = written.entry(position).or_default();
                duplicates += usize::from(!tokens.is_empty());
                tokens.insert(token);
            }
            What::Misplaced { position, expected } => {
                let again = written.get(&position).is_some_and(|t| t.contains(&token));
                duplicates += usize::from(again);
                problems.push(format!(
                    "{worker} tried event {position} when it was {expected}'s turn"
                ));
            }
            What::Stale { .. } => {}
        }
    }
    let lost = (1..=total.produced).filter(|p| !written.contains_key(p)).count() as u64;
    if leaders.is_empty() {
        problems.push("nobody led".to_owned());
    }
    if duplicates > 0 {
        problems.push(format!("{duplicates} processed twice"));
    }
    if lost > 0 {
        problems.push(format!("{lost} of {} lost", total.produced));
    }
    let balanced = total.balance == total.sum;
    if !balanced {
        problems.push(format!(
            "the balance is {}, the events add up to {}",
            total.balance, total.sum
        ));
    }
    StreamSummary {
        stream: total.stream.clone(),
        leaders,
        produced: total.produced,
        duplicates,
        lost,
        handed_again: handed.values().filter(|tokens| tokens.len() > 1).count(),
        stale,
        balanced,
        problems,
    }
}

/// The table that ends the demo.
pub(crate) fn table(summaries: &[StreamSummary]) -> String {
    let header = [
        "STREAM",
        "EVENTS",
        "LOST",
        "TWICE",
        "HANDED AGAIN",
        "STALE REFUSED",
        "BALANCE",
        "LED BY (TOKEN)",
    ]
    .map(str::to_owned);
    let row = |s: &StreamSummary| {
        let led = |(worker, token): &(String, i64)| format!("{worker} ({token})");
        let leaders: Vec<_> = s.leaders.iter().map(led).collect();
        let balance = if s.balanced { "right" } else { "wrong" };
        [
            s.stream.clone(),
            s.produced.to_string(),
            s.lost.to_string(),
            s.duplicates.to_string(),
            s.handed_again.to_string(),
            s.stale.to_string(),
            balance.to_owned(),
            leaders.join(", "),
        ]
    };
    let rows: Vec<_> = std::iter::once(header).chain(summaries.iter().map(row)).collect();
    let widths: Vec<_> = (0..rows[0].len())
        .map(|column| {
            rows.iter()
                .map(|row| row[column].chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for row in &rows {
        let cells: Vec<_> = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        text.push_str(cells.join("   ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Asker;

    fn entry(worker: &str, token: i64, what: What) -> Entry {
        let by = Asker {
            stream: "orders".to_owned(),
            worker: worker.to_owned(),
            token,
        };
        Entry { at: 0, by, what }
    }

    fn wrote(worker: &str, token: i64, position: u64) -> [Entry; 2] {
        [
            entry(worker, token, What::Read { position }),
            entry(worker, token, What::Written { position }),
        ]
    }

    fn judge(log: impl IntoIterator<Item = Entry>, produced: u64) -> StreamSummary {
        let total = Total {
            stream: "orders".to_owned(),
            produced,
            processed: produced,
            sum: 7,
            balance: 7,
        };
        summarize(&log.into_iter().collect::<Vec<_>>(), &[total]).remove(0)
    }

    #[test]
    fn a_takeover_in_mid_event_is_well() {
        let log = [
            wrote("w1", 5, 1).to_vec(),
            vec![entry("w1", 5, What::Read { position: 2 })],
            wrote("w2", 9, 2).to_vec(),
            vec![entry("w1", 5, What::Stale { fence: 9 })],
            wrote("w2", 9, 3).to_vec(),
        ];
        let summary = judge(log.concat(), 3);
        assert_eq!(summary.problems, Vec::<String>::new());
        assert_eq!(summary.leaders, [("w1".to_owned(), 5), ("w2".to_owned(), 9)]);
        assert_eq!(
            (
                summary.duplicates,
                summary.lost,
                summary.handed_again,
                summary.stale
            ),
            (0, 0, 1, 1)
        );
    }

    #[test]
    fn an_event_that_was_processed_twice_is_found() {
        let under_one_token = [wrote("w1", 5, 1), wrote("w1", 5, 1), wrote("w1", 5, 2)].concat();
        let under_two = [wrote("w1", 5, 1), wrote("w2", 9, 1), wrote("w2", 9, 2)].concat();
        for log in [under_one_token, under_two] {
            let summary = judge(log, 2);
            assert_eq!((summary.duplicates, summary.lost), (1, 0));
            assert!(
                summary.problems.contains(&"1 processed twice".to_owned()),
                "{summary:?}"
            );
        }
    }

    #[test]
    fn a_second_try_under_one_token_is_found_even_when_the_store_refused_it() {
        let again = entry(
            "w1",
            5,
            What::Misplaced {
                position: 1,
                expected: 2,
            },
        );
        let summary = judge(
            [
                wrote("w1", 5, 1).to_vec(),
                vec![again],
                wrote("w1", 5, 2).to_vec(),
            ]
            .concat(),
            2,
        );
        assert_eq!(summary.duplicates, 1);
        assert!(!summary.problems.is_empty());
    }

    #[test]
    fn a_lost_event_is_found() {
        for log in [
            [wrote("w1", 5, 1), wrote("w1", 5, 3)],
            [wrote("w1", 5, 1), wrote("w1", 5, 2)],
        ] {
            let summary = judge(log.concat(), 3);
            assert_eq!(summary.lost, 1);
            assert!(
                summary.problems.contains(&"1 of 3 lost".to_owned()),
                "{summary:?}"
            );
        }
    }

    #[test]
    fn two_leaders_at_once_are_found() {
        let back = [wrote("w1", 5, 1), wrote("w2", 9, 2), wrote("w1", 5, 3)].concat();
        let shared = [wrote("w1", 5, 1), wrote("w2", 5, 2), wrote("w2", 5, 3)].concat();
        for log in [back, shared] {
            let summary = judge(log, 3);
            assert!(
                summary
                    .problems
                    .iter()
                    .any(|p| p.contains("acted under token 5 after")),
                "{summary:?}"
            );
        }
    }

    #[test]
    fn a_wrong_balance_and_a_stream_that_nobody_led_are_found() {
        let total = Total {
            stream: "orders".to_owned(),
            produced: 0,
            processed: 0,
            sum: 7,
            balance: 6,
        };
        let summary = summarize(&[], &[total]).remove(0);
        assert_eq!(summary.problems.len(), 2, "{summary:?}");
        assert!(table(&[summary]).contains("wrong"));
    }
}
