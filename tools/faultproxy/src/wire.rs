//! The client's connection, on which more can go wrong than a cut: bytes that trickle, one direction that is closed while
//! the other is not. What goes wrong is decided in `serve`; here it is done to the bytes.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::Sleep;

use crate::rule::State;

/// A connection's bytes, as hyper reads and writes them.
pub(crate) struct Wire {
    receiving: OwnedReadHalf,
    line: Line,
    /// When the next byte of a slow reply may go.
    next: Option<Pin<Box<Sleep>>>,
}

/// The same connection, as who serves it holds it.
#[derive(Debug, Clone)]
pub(crate) struct Line(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    sending: Mutex<OwnedWriteHalf>,
    trouble: Mutex<Trouble>,
}

#[derive(Debug, Default)]
struct Trouble {
    /// From one byte of a reply to the next.
    pace: Option<Duration>,
    /// Nothing that comes is read any more.
    deaf: bool,
    /// Told when the first of what is not read has come.
    unheard: Option<Arc<State>>,
}

impl Wire {
    pub(crate) fn new(stream: TcpStream) -> (Self, Line) {
        let (receiving, sending) = stream.into_split();
        let line = Line(Arc::new(Shared {
            sending: Mutex::new(sending),
            trouble: Mutex::default(),
        }));
        let wire = Self {
            receiving,
            line: line.clone(),
            next: None,
        };
        (wire, line)
    }
}

impl Line {
    /// From here on, the bytes of replies go one by one, so far apart; at once again with `None`.
    pub(crate) fn pace(&self, pace: Option<Duration>) {
        self.trouble().pace = pace;
    }

    /// From here on, nothing that the client sends is read. The rule has fired when it has sent something.
    pub(crate) fn turn_deaf(&self, rule: Arc<State>) {
        let mut trouble = self.trouble();
        trouble.deaf = true;
        trouble.unheard = Some(rule);
    }

    /// Tells the client that nothing more will come, and goes on receiving.
    pub(crate) async fn end_sending(&self) {
        // An error is of a connection that has ended altogether.
        let _ = poll_fn(|cx| Pin::new(&mut *self.sending()).poll_shutdown(cx)).await;
    }

    fn sending(&self) -> MutexGuard<'_, OwnedWriteHalf> {
        self.0.sending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn trouble(&self) -> MutexGuard<'_, Trouble> {
        self.0.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.line.trouble().deaf {
            let mut unread = [0; 1024];
            let mut unread = ReadBuf::new(&mut unread);
            ready!(Pin::new(&mut self.receiving).poll_read(cx, &mut unread))?;
            if unread.filled().is_empty() {
                // The client has given the connection up, which is what ends it.
                return Poll::Ready(Ok(()));
            }
            if let Some(rule) = self.line.trouble().unheard.take() {
                rule.fire();
            }
        }
        Pin::new(&mut self.receiving).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let pace = self.line.trouble().pace;
        let Some(pace) = pace else {
            return Pin::new(&mut *self.line.sending()).poll_write(cx, bytes);
        };
        if let Some(next) = &mut self.next {
            ready!(next.as_mut().poll(cx));
        }
        let one = &bytes[..bytes.len().min(1)];
        let written = ready!(Pin::new(&mut *self.line.sending()).poll_write(cx, one))?;
        self.next = Some(Box::pin(tokio::time::sleep(pace)));
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.line.sending()).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.line.sending()).poll_shutdown(cx)
    }
}
