//! Where the side effects go: each stream's position, moved on by one a step, once with the token checked and once not.
//!
//! A step reads the position and, a little later, writes the next. In the store that checks tokens, every accepted write
//! must find the position where its reader left it. Reads show the token too, and raise the floor: a new leader that read
//! without would take up work while an old one's write, on its way, is still good. The other store accepts everything, and
//! is what shows that the faults are such as to do damage.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use leasewarden::{FencingToken, StreamName, election::TokenChecker};
use leasewarden_electors::now;
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream, tcp::OwnedWriteHalf},
    sync::oneshot,
};

use crate::Error;

/// A request of a process.
#[derive(Debug, Serialize, Deserialize)]
struct Ask {
    id: u64,
    stream: String,
    token: i64,
    /// Which process asks.
    by: String,
    /// The next positions, checked and unchecked; none to read.
    write: Option<Write>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Write {
    checked: u64,
    unchecked: u64,
    /// When the process had read what it moves on, by the boot clock.
    read_at: u64,
}

/// A write of a leader that was none any more, which did damage where nothing is checked. Times are nanoseconds of the
/// boot clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Late {
    pub(crate) by: String,
    pub(crate) read_at: u64,
    pub(crate) written_at: u64,
}

/// What the stores answer.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Answer {
    id: u64,
    checked: u64,
    unchecked: u64,
}

/// What became of the work.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Tally {
    /// Writes that the store which checks tokens accepted.
    pub(crate) accepted: u64,
    /// Writes that it refused for their token.
    pub(crate) refused: u64,
    /// Accepted writes that did not follow on the one before: work lost or done twice.
    pub(crate) wrong: u64,
    /// Those of the store that checks nothing.
    pub(crate) wrong_unchecked: u64,
    /// Requests that nobody could read. One that ends in the middle is of a process that was killed, and does not count.
    pub(crate) unreadable: u64,
}

#[derive(Debug, Default)]
struct Position {
    checked: u64,
    unchecked: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Store {
    /// The check and the write that it admits are one step under this lock.
    state: Mutex<State>,
    tokens: TokenChecker,
}

#[derive(Debug, Default)]
struct State {
    positions: HashMap<String, Position>,
    tally: Tally,
    late: Vec<Late>,
}

impl Store {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn tally(&self) -> Tally {
        self.state().tally.clone()
    }

    pub(crate) fn late(&self) -> Vec<Late> {
        self.state().late.clone()
    }

    /// Serves until dropped. Answers where.
    pub(crate) async fn serve(self: Arc<Self>) -> Result<(String, impl Future<Output = ()>), Error> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let serving = async move {
            while let Ok((connection, _)) = listener.accept().await {
                tokio::spawn(Arc::clone(&self).connection(connection));
            }
        };
        Ok((address, serving))
    }

    async fn connection(self: Arc<Self>, connection: TcpStream) {
        let _ = connection.set_nodelay(true);
        let (read, mut write) = connection.into_split();
        let mut read = BufReader::new(read);
        let mut line = Vec::new();
        while read.read_until(b'\n', &mut line).await.is_ok_and(|read| read > 0) {
            let ask = serde_json::from_slice::<Ask>(&line).ok();
            let Some(answer) = ask.and_then(|ask| self.answer(&ask)) else {
                self.state().tally.unreadable += u64::from(line.ends_with(b"\n"));
                return;
            };
            line.clear();
            let Ok(mut line) = serde_json::to_string(&answer) else {
                return;
            };
            line.push('\n');
            if write.write_all(line.as_bytes()).await.is_err() {
                return;
            }
        }
    }

    fn answer(&self, ask: &Ask) -> Option<Answer> {
        let (stream, token) = (StreamName::new(&ask.stream).ok()?, FencingToken::new(ask.token)?);
        let State {
            positions,
            tally,
            late,
        } = &mut *self.state();
        let position = positions.entry(ask.stream.clone()).or_default();
        let fresh = self.tokens.check(&stream, token).is_ok();
        if let Some(Write {
            checked,
            unchecked,
            read_at,
        }) = ask.write
        {
            if fresh {
                tally.accepted += 1;
                tally.wrong += u64::from(checked != position.checked + 1);
                position.checked = checked;
            } else {
                tally.refused += 1;
            }
            let wrong = unchecked != position.unchecked + 1;
            tally.wrong_unchecked += u64::from(wrong);
            if wrong && !fresh {
                late.push(Late {
                    by: ask.by.clone(),
                    read_at,
                    written_at: now(),
                });
            }
            position.unchecked = unchecked;
        }
        Some(Answer {
            id: ask.id,
            checked: position.checked,
            unchecked: position.unchecked,
        })
    }
}

/// A process's way to the store: one connection, any number of steps on it at once.
pub(crate) struct Client {
    by: String,
    write: tokio::sync::Mutex<OwnedWriteHalf>,
    waiting: Arc<Mutex<HashMap<u64, oneshot::Sender<Answer>>>>,
    ids: AtomicU64,
}

impl Client {
    pub(crate) async fn connect(address: &str, by: &str) -> Result<Self, Error> {
        let connection = TcpStream::connect(address).await?;
        connection.set_nodelay(true)?;
        let (read, write) = connection.into_split();
        let waiting = Arc::<Mutex<HashMap<u64, oneshot::Sender<Answer>>>>::default();
        let answered = Arc::clone(&waiting);
        tokio::spawn(async move {
            let mut lines = BufReader::new(read).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let Ok(answer) = serde_json::from_str::<Answer>(&line) else {
                    // Whose it was would wait for ever. The driver sees that the process ended.
                    eprintln!("soak: no answer of the store: {line}");
                    std::process::exit(4);
                };
                let waits = answered
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .remove(&answer.id);
                if let Some(waits) = waits {
                    let _ = waits.send(answer);
                }
            }
        });
        Ok(Self {
            by: by.to_owned(),
            write: tokio::sync::Mutex::new(write),
            waiting,
            ids: AtomicU64::new(0),
        })
    }

    /// A step: reads the position, and writes the next `pause` later.
    pub(crate) async fn effect(
        &self,
        stream: String,
        token: FencingToken,
        pause: Duration,
    ) -> Result<(), Error> {
        let read = self.ask(stream.clone(), token, None).await?;
        let read_at = now();
        tokio::time::sleep(pause).await;
        let next = Write {
            checked: read.checked + 1,
            unchecked: read.unchecked + 1,
            read_at,
        };
        self.ask(stream, token, Some(next)).await?;
        Ok(())
    }

    async fn ask(&self, stream: String, token: FencingToken, write: Option<Write>) -> Result<Answer, Error> {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        let (answered, answer) = oneshot::channel();
        self.waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(id, answered);
        let ask = Ask {
            id,
            stream,
            token: token.get(),
            by: self.by.clone(),
            write,
        };
        let mut line = serde_json::to_string(&ask)?;
        line.push('\n');
        self.write.lock().await.write_all(line.as_bytes()).await?;
        Ok(answer.await?)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn ask(token: i64, write: Option<u64>) -> Ask {
        Ask {
            id: 1,
            stream: "orders".to_owned(),
            token,
            by: format!("node-{token}"),
            write: write.map(|next| Write {
                checked: next,
                unchecked: next,
                read_at: 7,
            }),
        }
    }

    #[test]
    fn a_step_of_an_old_token_is_refused_where_tokens_are_checked_and_does_damage_where_not() {
        let store = Store::default();
        let read = store.answer(&ask(5, None)).unwrap();
        store.answer(&ask(7, Some(1))).unwrap();
        store.answer(&ask(7, Some(2))).unwrap();
        // The old leader goes on where it read.
        store.answer(&ask(5, Some(read.checked + 1))).unwrap();
        let tally = Tally {
            accepted: 2,
            refused: 1,
            wrong_unchecked: 1,
            ..Tally::default()
        };
        assert_eq!(store.tally(), tally);
        let [late] = &store.late()[..] else {
            panic!("{:?}", store.late());
        };
        assert_eq!((late.by.as_str(), late.read_at), ("node-5", 7));
    }

    #[test]
    fn a_read_under_a_new_token_closes_the_store_to_the_old_one() {
        let store = Store::default();
        store.answer(&ask(5, None)).unwrap();
        store.answer(&ask(7, None)).unwrap();
        store.answer(&ask(5, Some(1))).unwrap();
        store.answer(&ask(7, Some(1))).unwrap();
        let tally = store.tally();
        assert_eq!((tally.accepted, tally.refused, tally.wrong), (1, 1, 0));
    }

    #[test]
    fn work_that_is_lost_or_doubled_under_a_good_token_is_seen() {
        let store = Store::default();
        store.answer(&ask(5, Some(1))).unwrap();
        store.answer(&ask(5, Some(1))).unwrap();
        store.answer(&ask(5, Some(3))).unwrap();
        assert_eq!((store.tally().wrong, store.late().len()), (2, 0));
    }
}
