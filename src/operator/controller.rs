//! The loop: what the watches report is queued, and looked at one key at a time, many keys side by side.
//!
//! A key is queued at most once and never worked on twice at the same time. It comes back when something happens to it,
//! when an expiry or a refresh is due, or, after an error, later and later.

use std::{
    collections::HashSet,
    future::{Future, poll_fn},
    panic::AssertUnwindSafe,
    pin::pin,
    time::Duration,
};

use futures_util::{
    FutureExt, StreamExt,
    stream::{self, FuturesUnordered},
};
use kube::runtime::scheduler::{ScheduleRequest, scheduler};
use tokio::{sync::mpsc, time::Instant};

use super::{api::ApiError, index::Key, reconcile::reconcile, retries::Retries, shared::Shared};

/// How many keys are worked on side by side: enough that a slow request holds up nobody, few enough for one API server.
const SIDE_BY_SIDE: usize = 16;
/// How many of them may be keys that failed the last time: objects that cannot be written, and take a time-out each to
/// find that out again, would else hold up all the others.
const FAILING: usize = 4;
/// How long a stop waits for what is being written: a Pod is killed after 30 s.
const LAST_WRITES: Duration = Duration::from_secs(10);

/// Works until `stop`, and then finishes what it is writing.
pub(crate) async fn work(
    shared: Shared,
    mut requests: mpsc::UnboundedReceiver<ScheduleRequest<Key>>,
    stop: impl Future<Output = ()>,
) {
    let requests = stream::poll_fn(move |cx| requests.poll_recv(cx));
    let mut queue = pin!(scheduler(requests));
    let mut stop = pin!(stop);
    let mut running = FuturesUnordered::new();
    let mut busy: HashSet<Key> = HashSet::new();
    let mut retries = Retries::default();
    loop {
        let room = running.len() < SIDE_BY_SIDE;
        let failing = busy.iter().filter(|key| retries.is_failing(key)).count();
        let next = poll_fn(|cx| {
            if room {
                queue
                    .as_mut()
                    .hold_unless(|key| !busy.contains(key) && (failing < FAILING || !retries.is_failing(key)))
                    .poll_next_unpin(cx)
            } else {
                std::task::Poll::Pending
            }
        });
        tokio::select! {
            biased;
            () = &mut stop => break,
            Some((key, result)) = running.next(), if !running.is_empty() => {
                busy.remove(&key);
                if let Some(pause) = retries.after(&key, result) {
                    shared.after(key, pause);
                }
            }
            Some(key) = next => {
                shared.taken(&key);
                if shared.all_again() {
                    retries.need_not_wait();
                }
                if let Some(wait) = retries.must_wait(&key) {
                    shared.after(key, wait);
                    continue;
                }
                busy.insert(key.clone());
                let shared = shared.clone();
                running.push(async move {
                    // One object that brings this program to a fault is one object, too.
                    let begun = Instant::now();
                    let result = AssertUnwindSafe(reconcile(&shared, &key)).catch_unwind().await;
                    let result = result.unwrap_or_else(|_| Err(ApiError::Fault(key.lease.clone())));
                    shared.observer.reconciled(begun.elapsed(), result.as_ref().err());
                    (key, result)
                });
            }
        }
    }
    // What is cut off after that the next operator does again.
    let finished = async { while running.next().await.is_some() {} };
    if tokio::time::timeout(LAST_WRITES, finished).await.is_err() {
        tracing::warn!("stopping without an answer to the last writes");
    }
}
