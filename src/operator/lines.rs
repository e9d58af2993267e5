//! The watches as lines that are up or down, and what a line that is down means: the operator is blind there.
//!
//! A watch that ends and begins again is not down, and one that is away for a moment blinds nobody: a restart of an API
//! server would else be two writes to every status. What counts as up is that the API server has accepted a watch; an
//! event may be long in coming.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use http::Request;
use http_body_util::BodyExt;
use kube::{Client, client::Body};
use tokio::{sync::Notify, time::Instant};

use super::{
    api::{ApiError, LEASES, OBJECTS},
    blindness::Blindness,
    observe::{Observer, Watched},
};

/// How long an answer to a list or to the start of a watch may take to begin.
pub(crate) const START: Duration = Duration::from_secs(10);
/// How long a page of a list may take in all.
const PAGE: Duration = Duration::from_secs(60);
/// How long a line is down before the operator is blind.
const GRACE: Duration = Duration::from_secs(3);
/// Between one start of a watch and the next. A proxy that ends every watch at once would be asked without end.
const BETWEEN_STARTS: Duration = Duration::from_millis(250);

/// All lines. Empty text is all namespaces.
#[derive(Clone)]
pub(crate) struct Lines {
    all: Arc<Mutex<BTreeMap<(Watched, String), State>>>,
    observer: Arc<dyn Observer>,
}

#[derive(Debug, Default)]
struct State {
    up: bool,
    down_since: Option<Instant>,
    blind: Option<Blindness>,
    begin_again: Arc<Notify>,
}

impl Lines {
    pub(crate) fn new(observer: Arc<dyn Observer>) -> Self {
        Self {
            all: Arc::default(),
            observer,
        }
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<(Watched, String), State>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A line that is not up yet.
    pub(crate) fn add(&self, resource: Watched, namespace: Option<&str>) -> Line {
        let scope = namespace.unwrap_or_default().to_owned();
        let state = State::default();
        let begin_again = Arc::clone(&state.begin_again);
        self.all().insert((resource, scope.clone()), state);
        // One that never comes up has to be told of too.
        self.observer.watch(resource, false);
        Line {
            lines: self.clone(),
            resource,
            scope,
            begin_again,
        }
    }

    /// Why nothing is seen of this resource in this namespace, if so.
    pub(crate) fn blind(&self, resource: Watched, namespace: &str) -> Option<Blindness> {
        let all = self.all();
        ["", namespace]
            .iter()
            .find_map(|scope| all.get(&(resource, (*scope).to_owned())))
            .and_then(|state| state.blind.clone())
    }

    /// Whether all lines of a resource are up.
    pub(crate) fn is_up(&self, resource: Watched) -> bool {
        let all = self.all();
        let mut such = all.iter().filter(|((r, _), _)| *r == resource).peekable();
        such.peek().is_some() && such.all(|(_, state)| state.up)
    }

    /// A read has shown what the watch should long have brought: it is begun again.
    pub(crate) fn begin_again(&self, resource: Watched, namespace: &str) {
        let all = self.all();
        let line = ["", namespace]
            .iter()
            .find_map(|scope| all.get(&(resource, (*scope).to_owned())));
        if let Some(state) = line {
            state.begin_again.notify_one();
        }
    }

    /// Changes one, tells the observer what came of it, and answers whether it is (not) blind any more or now.
    fn change(&self, line: &Line, change: impl FnOnce(&mut State)) -> bool {
        let before = self.is_up(line.resource);
        let mut all = self.all();
        let state = all.entry((line.resource, line.scope.clone())).or_default();
        let blind = state.blind.clone();
        change(state);
        let changed = state.blind != blind;
        drop(all);
        let after = self.is_up(line.resource);
        if before != after {
            tracing::debug!(resource = line.resource.label(), up = after, "watches changed");
            self.observer.watch(line.resource, after);
        }
        changed
    }
}

/// One of them.
#[derive(Clone)]
pub(crate) struct Line {
    lines: Lines,
    resource: Watched,
    /// The namespace; empty for all.
    pub(crate) scope: String,
    begin_again: Arc<Notify>,
}

impl Line {
    /// The resource as a Role names it.
    pub(crate) fn name(&self) -> &'static str {
        match self.resource {
            Watched::Leases => LEASES,
            Watched::Objects => OBJECTS,
        }
    }

    /// Waits until the watch is to be begun again.
    pub(crate) async fn stuck(&self) {
        self.begin_again.notified().await;
    }

    /// A watch was accepted. Answers whether the operator was blind here.
    pub(crate) fn up(&self) -> bool {
        self.lines.change(self, |state| {
            (state.up, state.down_since, state.blind) = (true, None, None);
        })
    }

    /// A list or watch has failed. Answers whether what is said of it is to be said otherwise now.
    pub(crate) fn down(&self, error: &ApiError, timed_out: bool) -> bool {
        let now = Instant::now();
        self.lines.change(self, |state| {
            let since = *state.down_since.get_or_insert(now);
            // One that is accepted and never answered has been down for as long as it was waited for.
            if timed_out || now - since >= GRACE {
                state.up = false;
                state.blind = Some(Blindness::of_watch(error));
            }
        })
    }
}

/// A request was accepted, and its answer did not come in time.
#[derive(Debug, thiserror::Error)]
#[error("no answer within {0:?}")]
pub(crate) struct NoAnswer(Duration);

/// A client for the list and the watch of one line: bounded in time, and it tells when the watch is accepted.
pub(crate) fn listening(
    client: &Client,
    line: &Line,
    accepted: impl Fn() + Clone + Send + 'static,
) -> Client {
    let inner = client.clone();
    let (resource, observer) = (line.name(), Arc::clone(&line.lines.observer));
    let last = Arc::new(Mutex::new(None::<Instant>));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (inner, accepted, last) = (inner.clone(), accepted.clone(), Arc::clone(&last));
        let observer = Arc::clone(&observer);
        async move {
            let watches = request
                .uri()
                .query()
                .is_some_and(|query| query.split('&').any(|part| part.starts_with("watch=")));
            if watches {
                let before = last
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .replace(Instant::now());
                if let Some(before) = before {
                    tokio::time::sleep_until(before + BETWEEN_STARTS).await;
                }
            }
            let reply = tokio::time::timeout(START, inner.send(request)).await;
            let code = reply
                .as_ref()
                .ok()
                .and_then(|r| Some(r.as_ref().ok()?.status().as_u16()));
            let verb = if watches { "watch" } else { "list" };
            observer.request(verb, resource, code);
            let reply = reply.map_err(|_| NoAnswer(START))??;
            if watches {
                if reply.status().is_success() {
                    accepted();
                }
                return Ok(reply);
            }
            let (head, body) = reply.into_parts();
            let body = tokio::time::timeout(PAGE, body.collect())
                .await
                .map_err(|_| NoAnswer(PAGE))??;
            Ok::<_, tower::BoxError>(http::Response::from_parts(head, Body::from(body.to_bytes())))
        }
    });
    Client::new(service, client.default_namespace())
}
