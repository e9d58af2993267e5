//! The store that the workers work on: a ledger per stream, guarded by fencing tokens. Pure; its lines are in `serve`.
//!
//! A ledger is a row of numbered amounts, how far it was processed, and the balance up to there. A worker reads the next
//! amount and the balance, adds the two, and writes the sum: with two leaders at once the balance would be wrong. That is
//! the side effect which the lock protects, and the fence is what protects it where a lock cannot: the store refuses
//! every request under an older token than it has seen for that stream.
//!
//! Whatever happens is logged. The demo's claims are computed from that log, in [`summary`](crate::summary).

use serde::{Deserialize, Serialize};

use crate::clock::Millis;

/// Who asks, for which stream, under which token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Asker {
    pub(crate) stream: String,
    pub(crate) worker: String,
    pub(crate) token: i64,
}

/// What a worker did, or tried to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) at: Millis,
    pub(crate) by: Asker,
    pub(crate) what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum What {
    /// It was handed this event.
    Read { position: u64 },
    /// It has processed this event, and the store took the result.
    Written { position: u64 },
    /// Refused: `fence` is the highest token seen.
    Stale { fence: i64 },
    /// Refused: not the event whose turn it was.
    Misplaced { position: u64, expected: u64 },
}

/// Where a ledger stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Total {
    pub(crate) stream: String,
    /// How many events there are, numbered from 1.
    pub(crate) produced: u64,
    /// The last that was processed.
    pub(crate) processed: u64,
    /// The sum of all amounts that were produced.
    pub(crate) sum: i64,
    /// The balance as the workers have written it.
    pub(crate) balance: i64,
}

/// The answer to a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Event {
        position: u64,
        amount: i64,
        balance: i64,
    },
    None,
    Ok,
    Stale {
        fence: i64,
    },
    Misplaced {
        expected: u64,
    },
    NoSuchStream,
}

#[derive(Debug, Default)]
struct Ledger {
    amounts: Vec<i64>,
    processed: usize,
    balance: i64,
    fence: i64,
}

#[derive(Debug)]
pub(crate) struct Store {
    /// In the order in which they were named.
    ledgers: Vec<(String, Ledger)>,
    log: Vec<Entry>,
    logging: bool,
}

impl Store {
    pub(crate) fn new(streams: impl IntoIterator<Item = String>) -> Self {
        Self {
            ledgers: streams.into_iter().map(|s| (s, Ledger::default())).collect(),
            log: Vec::new(),
            logging: true,
        }
    }

    /// Appends an event to every stream.
    pub(crate) fn produce(&mut self) {
        for (nth, (_, ledger)) in (1_i64..).zip(&mut self.ledgers) {
            // Any amounts do, as long as a lost or repeated one shows in the sum.
            let n = i64::try_from(ledger.amounts.len()).unwrap_or(0);
            ledger.amounts.push(nth * 1000 + n * 7919 % 997);
        }
    }

    /// The next event that nobody has processed. The token counts as seen: a new leader's first question shuts the door
    /// on the one before, even if there is nothing to do.
    pub(crate) fn next(&mut self, at: Millis, by: Asker) -> Answer {
        let Some(ledger) = self.ledger(&by.stream) else {
            return Answer::NoSuchStream;
        };
        if let Err(fence) = ledger.pass(by.token) {
            return self.note(at, by, What::Stale { fence }, Answer::Stale { fence });
        }
        let position = ledger.turn();
        let Some(&amount) = ledger.amounts.get(ledger.processed) else {
            return Answer::None;
        };
        let event = Answer::Event {
            position,
            amount,
            balance: ledger.balance,
        };
        self.note(at, by, What::Read { position }, event)
    }

    /// Takes the result of an event.
    pub(crate) fn done(&mut self, at: Millis, by: Asker, position: u64, balance: i64) -> Answer {
        let Some(ledger) = self.ledger(&by.stream) else {
            return Answer::NoSuchStream;
        };
        if let Err(fence) = ledger.pass(by.token) {
            return self.note(at, by, What::Stale { fence }, Answer::Stale { fence });
        }
        let expected = ledger.turn();
        if position != expected || ledger.processed == ledger.amounts.len() {
            let what = What::Misplaced { position, expected };
            return self.note(at, by, what, Answer::Misplaced { expected });
        }
        ledger.processed += 1;
        ledger.balance = balance;
        self.note(at, by, What::Written { position }, Answer::Ok)
    }

    fn ledger(&mut self, stream: &str) -> Option<&mut Ledger> {
        let found = self.ledgers.iter_mut().find(|(name, _)| name == stream);
        found.map(|(_, ledger)| ledger)
    }

    fn note(&mut self, at: Millis, by: Asker, what: What, answer: Answer) -> Answer {
        if self.logging {
            self.log.push(Entry { at, by, what });
        }
        answer
    }

    /// The log from its `from`-th entry on.
    pub(crate) fn log(&self, from: usize) -> &[Entry] {
        self.log.get(from..).unwrap_or_default()
    }

    /// Nobody will read the log any more, and the store may run for days.
    pub(crate) fn stop_logging(&mut self) {
        self.logging = false;
        self.log = Vec::new();
    }

    pub(crate) fn totals(&self) -> Vec<Total> {
        let total = |(stream, ledger): &(String, Ledger)| Total {
            stream: stream.clone(),
            produced: ledger.amounts.len() as u64,
            processed: ledger.processed as u64,
            sum: ledger.amounts.iter().sum(),
            balance: ledger.balance,
        };
        self.ledgers.iter().map(total).collect()
    }
}

impl Ledger {
    /// The fence: lets a token pass that is not older than the highest seen.
    fn pass(&mut self, token: i64) -> Result<(), i64> {
        if token < self.fence {
            return Err(self.fence);
        }
        self.fence = token;
        Ok(())
    }

    /// The position of the event whose turn it is.
    fn turn(&self) -> u64 {
        self.processed as u64 + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> Store {
        let mut store = Store::new(["orders".to_owned(), "payments".to_owned()]);
        for _ in 0..3 {
            store.produce();
        }
        store
    }

    fn by(worker: &str, token: i64) -> Asker {
        Asker {
            stream: "orders".to_owned(),
            worker: worker.to_owned(),
            token,
        }
    }

    fn processed(store: &Store) -> u64 {
        store.totals()[0].processed
    }

    #[test]
    fn an_older_token_is_refused_once_a_newer_one_was_seen() {
        let mut store = store();
        assert!(matches!(
            store.next(0, by("w1", 5)),
            Answer::Event { position: 1, .. }
        ));
        // The successor has only asked, not written; w1 wakes up with its result.
        assert!(matches!(
            store.next(1, by("w2", 9)),
            Answer::Event { position: 1, .. }
        ));
        assert_eq!(store.done(2, by("w1", 5), 1, 1), Answer::Stale { fence: 9 });
        assert_eq!(store.next(3, by("w1", 5)), Answer::Stale { fence: 9 });
        assert_eq!(processed(&store), 0);
        assert_eq!(store.done(4, by("w2", 9), 1, 1), Answer::Ok);
        assert_eq!(processed(&store), 1);
        let refused = store
            .log(0)
            .iter()
            .filter(|e| matches!(e.what, What::Stale { fence: 9 }));
        assert_eq!(refused.count(), 2);
    }

    #[test]
    fn a_question_about_nothing_raises_the_fence_too() {
        let mut store = Store::new(["orders".to_owned()]);
        assert_eq!(store.next(0, by("w2", 9)), Answer::None);
        store.produce();
        assert_eq!(store.done(1, by("w1", 5), 1, 0), Answer::Stale { fence: 9 });
    }

    #[test]
    fn the_fence_of_one_stream_is_not_that_of_another() {
        let mut store = store();
        store.next(0, by("w2", 9));
        let mut other = by("w1", 5);
        other.stream = "payments".to_owned();
        assert!(matches!(store.next(1, other), Answer::Event { position: 1, .. }));
        let mut unknown = by("w1", 5);
        unknown.stream = "Orders".to_owned();
        assert_eq!(store.next(2, unknown), Answer::NoSuchStream);
    }

    #[test]
    fn events_are_taken_in_order_and_once() {
        let mut store = store();
        assert_eq!(
            store.done(0, by("w1", 5), 2, 0),
            Answer::Misplaced { expected: 1 }
        );
        assert_eq!(store.done(1, by("w1", 5), 1, 0), Answer::Ok);
        assert_eq!(
            store.done(2, by("w1", 5), 1, 0),
            Answer::Misplaced { expected: 2 }
        );
        assert_eq!(store.done(3, by("w1", 5), 2, 0), Answer::Ok);
        assert_eq!(store.done(4, by("w1", 5), 3, 0), Answer::Ok);
        assert_eq!(
            store.done(5, by("w1", 5), 4, 0),
            Answer::Misplaced { expected: 4 },
            "not produced yet"
        );
        assert_eq!(processed(&store), 3);
    }

    #[test]
    fn the_balance_is_what_the_worker_wrote() {
        let mut store = store();
        let Answer::Event { amount, balance, .. } = store.next(0, by("w1", 5)) else {
            panic!("there are events");
        };
        store.done(1, by("w1", 5), 1, balance + amount + 1);
        assert_eq!(store.totals()[0].balance, amount + 1, "a wrong sum must show");
    }
}
