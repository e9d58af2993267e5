//! A reply's body that comes byte by byte, after a head that came at once.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::Sleep;

/// A body, slowed down.
pub(crate) struct Trickle<B> {
    inner: B,
    pace: Duration,
    /// What has come, and has not gone yet.
    waiting: Bytes,
    /// When the next byte may go.
    next: Option<Pin<Box<Sleep>>>,
}

impl<B> Trickle<B> {
    pub(crate) fn new(inner: B, pace: Duration) -> Self {
        Self {
            inner,
            pace,
            waiting: Bytes::new(),
            next: None,
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Trickle<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        while self.waiting.is_empty() {
            match ready!(Pin::new(&mut self.inner).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.waiting = data,
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                end => return Poll::Ready(end),
            }
        }
        if let Some(next) = &mut self.next {
            ready!(next.as_mut().poll(cx));
        }
        self.next = Some(Box::pin(tokio::time::sleep(self.pace)));
        Poll::Ready(Some(Ok(Frame::data(self.waiting.split_to(1)))))
    }

    fn is_end_stream(&self) -> bool {
        self.waiting.is_empty() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        // Of what has come only the inner body knew; it was asked before the first byte went.
        if self.waiting.is_empty() {
            self.inner.size_hint()
        } else {
            SizeHint::default()
        }
    }
}
