//! The store's lines, over TCP on 127.0.0.1. A connection is one asker's; requests are answered in turn.
//!
//! | request | answer |
//! |---|---|
//! | `NEXT token worker stream` | `EVENT position amount balance`, or `NONE` |
//! | `DONE position token balance worker stream` | `OK`, or `MISPLACED expected` |
//! | either, under an old token | `STALE highest` |
//! | anything else | `ERROR what` |
//!
//! The stream comes last, since its name may hold spaces.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use crate::clock;
use crate::store::{Answer, Asker, Store};

/// Every stream gets an event this often.
const PRODUCE_EVERY: Duration = Duration::from_millis(50);

/// A store that is shared by everybody in this process.
#[derive(Debug, Clone)]
pub(crate) struct Shared(Arc<Mutex<Store>>);

impl Shared {
    pub(crate) fn new(store: Store) -> Self {
        Self(Arc::new(Mutex::new(store)))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Store> {
        // Every change of the store is whole before it can panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts to answer; returns where.
pub(crate) async fn listen(store: Shared) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        loop {
            match listener.accept().await {
                // A connection that breaks ends; its worker makes another.
                Ok((connection, _)) => drop(tokio::spawn(answer(connection, store.clone()))),
                // Too many open files, say: it may pass.
                Err(_) => tokio::time::sleep(PRODUCE_EVERY).await,
            }
        }
    });
    Ok(address)
}

/// Produces events for as long as `on` says so.
pub(crate) async fn produce(store: Shared, mut on: watch::Receiver<bool>) {
    let mut ticks = tokio::time::interval(PRODUCE_EVERY);
    // Ticks that passed while it was switched off are not made up for in one burst.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while on.wait_for(|on| *on).await.is_ok() {
        ticks.tick().await;
        // May have been switched off while this waited.
        if *on.borrow() {
            store.lock().produce();
        }
    }
}

async fn answer(connection: TcpStream, store: Shared) -> io::Result<()> {
    connection.set_nodelay(true)?;
    let mut connection = BufReader::new(connection);
    let mut line = String::new();
    while connection.read_line(&mut line).await? > 0 {
        let answer = match Request::parse(line.trim_end()) {
            Some(request) => text(request.put(&mut store.lock())),
            None => "ERROR no such request".to_owned(),
        };
        connection
            .get_mut()
            .write_all(format!("{answer}\n").as_bytes())
            .await?;
        line.clear();
    }
    Ok(())
}

/// A line of a worker.
#[derive(Debug, PartialEq, Eq)]
enum Request {
    Next(Asker),
    Done { by: Asker, position: u64, balance: i64 },
}

impl Request {
    fn parse(line: &str) -> Option<Self> {
        let (verb, rest) = line.split_once(' ')?;
        match verb {
            "NEXT" => {
                let [token, worker, stream] = words(rest)?;
                Some(Self::Next(asker(token, worker, stream)?))
            }
            "DONE" => {
                let [position, token, balance, worker, stream] = words(rest)?;
                Some(Self::Done {
                    by: asker(token, worker, stream)?,
                    position: position.parse().ok()?,
                    balance: balance.parse().ok()?,
                })
            }
            _ => None,
        }
    }

    fn put(self, store: &mut Store) -> Answer {
        let at = clock::now();
        match self {
            Self::Next(by) => store.next(at, by),
            Self::Done {
                by,
                position,
                balance,
            } => store.done(at, by, position, balance),
        }
    }
}

/// N words, the last of which is the rest of the line.
fn words<const N: usize>(line: &str) -> Option<[&str; N]> {
    line.splitn(N, ' ').collect::<Vec<_>>().try_into().ok()
}

fn asker(token: &str, worker: &str, stream: &str) -> Option<Asker> {
    Some(Asker {
        stream: stream.to_owned(),
        worker: worker.to_owned(),
        token: token.parse().ok()?,
    })
}

fn text(answer: Answer) -> String {
    match answer {
        Answer::Event {
            position,
            amount,
            balance,
        } => format!("EVENT {position} {amount} {balance}"),
        Answer::None => "NONE".to_owned(),
        Answer::Ok => "OK".to_owned(),
        Answer::Stale { fence } => format!("STALE {fence}"),
        Answer::Misplaced { expected } => format!("MISPLACED {expected}"),
        Answer::NoSuchStream => "ERROR no such stream".to_owned(),
    }
}

/// Asks once, as a worker would.
pub(crate) async fn ask(store: SocketAddr, request: &str) -> io::Result<String> {
    let mut connection = BufReader::new(TcpStream::connect(store).await?);
    connection
        .get_mut()
        .write_all(format!("{request}\n").as_bytes())
        .await?;
    let mut line = String::new();
    connection.read_line(&mut line).await?;
    Ok(line.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_name_may_hold_spaces() {
        let by = asker("7", "w1", "eu west/orders").unwrap();
        assert_eq!(
            Request::parse("NEXT 7 w1 eu west/orders"),
            Some(Request::Next(by.clone()))
        );
        let done = Request::Done {
            by,
            position: 3,
            balance: -4,
        };
        assert_eq!(Request::parse("DONE 3 7 -4 w1 eu west/orders"), Some(done));
    }

    #[test]
    fn what_is_no_request_is_told_so() {
        for line in [
            "",
            "NEXT",
            "NEXT seven w1 orders",
            "DONE 1 2 3 w1",
            "STEAL 7 w1 orders",
        ] {
            assert_eq!(Request::parse(line), None, "{line}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn events_that_were_not_wanted_do_not_come_later() {
        let store = Shared::new(Store::new(["orders".to_owned()]));
        let (on, wanted) = watch::channel(false);
        tokio::spawn(produce(store.clone(), wanted));
        tokio::time::sleep(PRODUCE_EVERY * 1000).await;
        on.send_replace(true);
        tokio::time::sleep(PRODUCE_EVERY * 10).await;
        let produced = store.lock().totals()[0].produced;
        assert!((9..=11).contains(&produced), "{produced} in the time of 10");
    }

    #[tokio::test]
    async fn the_fence_holds_over_the_wire() {
        let mut store = Store::new(["orders".to_owned()]);
        store.produce();
        let store = listen(Shared::new(store)).await.unwrap();
        assert_eq!(ask(store, "NEXT 5 w1 orders").await.unwrap(), "EVENT 1 1000 0");
        assert_eq!(ask(store, "NEXT 9 w2 orders").await.unwrap(), "EVENT 1 1000 0");
        assert_eq!(ask(store, "DONE 1 5 1000 w1 orders").await.unwrap(), "STALE 9");
        assert_eq!(ask(store, "DONE 1 9 1000 w2 orders").await.unwrap(), "OK");
    }
}
