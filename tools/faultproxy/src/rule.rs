//! Which request meets which fault. The requests are shown to the rules in the order in which these were added; the
//! first rule that fires ends that, except those about the `Date` header, which go with any other.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode, header};
use tokio::runtime::Handle;
use tokio::sync::watch;

/// What happens to a request.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Fault {
    /// It reaches the server this much later.
    Delay(Duration),
    /// It reaches the server when the rule is [released](Rule::release), also when the client has gone by then.
    Hold,
    /// The server does it; the connection is cut in place of a reply.
    DropReply,
    /// The server does it; its reply comes this much later.
    DelayReply(Duration),
    /// The server does it; its reply comes when the rule is [released](Rule::release).
    HoldReply,
    /// The server never sees it; the client gets this.
    Respond(Canned),
    /// The server never sees it; the connection is cut.
    Cut,
    /// The server does it; its reply comes byte by byte, so far apart.
    SlowReply(Duration),
    /// The server does it; the head of its reply comes at once, and the body byte by byte, so far apart.
    SlowBody(Duration),
    /// The server does it; in place of a reply the client is told that nothing more will come. The other direction of the
    /// connection stays open.
    HalfClose,
    /// It is answered. What the client sends after it on this connection, which stays open, is received by nobody: as when
    /// the other end is gone and did not say so.
    TurnDeaf,
    /// The server itself ends the watch after so many seconds, whatever the client asked for.
    ShortWatch(u32),
    /// The reply's `Date` header says this.
    Date(SystemTime),
    /// The reply's `Date` header is off by this many seconds, as that of a server whose clock is.
    ShiftDate(i64),
    /// The reply has no `Date` header.
    NoDate,
}

impl Fault {
    fn is_about_date(&self) -> bool {
        matches!(self, Self::Date(_) | Self::ShiftDate(_) | Self::NoDate)
    }
}

/// A reply that no server gave.
#[derive(Debug, Clone)]
pub struct Canned {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Canned {
    /// As a proxy or a load balancer on the way answers: plain text, no `Status` object.
    pub fn plain(status: StatusCode, text: &str) -> Self {
        let body = Bytes::copy_from_slice(text.as_bytes());
        let headers = HeaderMap::new();
        Self {
            status,
            headers,
            body,
        }
        .header(header::CONTENT_TYPE.as_str(), "text/plain; charset=utf-8")
    }

    /// As the API server answers: a `Status` object with this reason (such as `TooManyRequests`).
    pub fn status(status: StatusCode, reason: &str) -> Self {
        let object = serde_json::json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": format!("{reason} (forged by a test)"),
            "reason": reason,
            "code": status.as_u16(),
        });
        Self {
            body: object.to_string().into(),
            ..Self::plain(status, "")
        }
        .header(header::CONTENT_TYPE.as_str(), "application/json")
    }

    /// With this header, such as `Retry-After`.
    ///
    /// # Panics
    ///
    /// When that is no header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        match (name.parse::<header::HeaderName>(), value.parse()) {
            (Ok(name), Ok(value)) => self.headers.insert(name, value),
            _ => panic!("{name:?}: {value:?} is no header"),
        };
        self
    }
}

/// Which requests a rule is about: all of them, unless it says otherwise.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct Match {
    method: Option<Method>,
    path: Vec<String>,
    user_agent: Option<String>,
    body: Option<String>,
    skip: u64,
    times: Option<u64>,
}

impl Match {
    /// Every request.
    pub fn any() -> Self {
        Self::default()
    }

    /// Requests with this method.
    pub fn method(mut self, method: Method) -> Self {
        self.method = Some(method);
        self
    }

    /// Requests whose path or query has this in it. Said more than once, all of them.
    pub fn path(mut self, part: impl Into<String>) -> Self {
        self.path.push(part.into());
        self
    }

    /// `GET`s with this in their path: reads, lists and watches.
    pub fn get(path: impl Into<String>) -> Self {
        Self::any().method(Method::GET).path(path)
    }

    /// `PUT`s with this in their path: full updates.
    pub fn put(path: impl Into<String>) -> Self {
        Self::any().method(Method::PUT).path(path)
    }

    /// `POST`s with this in their path: creations.
    pub fn post(path: impl Into<String>) -> Self {
        Self::any().method(Method::POST).path(path)
    }

    /// Watches with this in their path.
    pub fn watch(path: impl Into<String>) -> Self {
        Self::get(path).path("watch=")
    }

    /// Requests of clients whose user agent has this in it.
    pub fn user_agent(mut self, part: impl Into<String>) -> Self {
        self.user_agent = Some(part.into());
        self
    }

    /// Requests whose body has this in it.
    pub fn body(mut self, part: impl Into<String>) -> Self {
        self.body = Some(part.into());
        self
    }

    /// Not the first `count` of those that match.
    pub fn skip(mut self, count: u64) -> Self {
        self.skip = count;
        self
    }

    /// At most `count` of them, after those that are skipped.
    pub fn times(mut self, count: u64) -> Self {
        self.times = Some(count);
        self
    }

    /// Only the `n`th, counted from 1.
    pub fn nth(self, n: u64) -> Self {
        self.skip(n.saturating_sub(1)).times(1)
    }

    fn matches(&self, request: &Parts, body: &[u8]) -> bool {
        let path = request.uri.to_string();
        let agent = request
            .headers
            .get(header::USER_AGENT)
            .and_then(|v| v.to_str().ok())
            .unwrap_or_default();
        self.method
            .as_ref()
            .is_none_or(|method| *method == request.method)
            && self.path.iter().all(|part| path.contains(part))
            && self.user_agent.as_ref().is_none_or(|part| agent.contains(part))
            && self
                .body
                .as_ref()
                .is_none_or(|part| String::from_utf8_lossy(body).contains(part))
    }

    /// Whether the one that comes after `matched` others is among those meant.
    fn is_meant(&self, matched: u64) -> bool {
        matched >= self.skip && self.times.is_none_or(|times| matched - self.skip < times)
    }
}

/// A rule that was added to a proxy. Dropping this changes nothing.
#[derive(Debug, Clone)]
pub struct Rule {
    state: Arc<State>,
    runtime: Handle,
}

/// The fault did not happen, or not as often as a test counts on.
#[derive(Debug, thiserror::Error)]
#[error("the rule fired {fired} times within {within:?}, not {wanted} times: {rule}")]
pub struct NotFired {
    fired: u64,
    wanted: u64,
    within: Duration,
    rule: String,
}

#[derive(Debug)]
pub(crate) struct State {
    matching: Match,
    pub(crate) fault: Fault,
    matched: Mutex<u64>,
    fired: watch::Sender<u64>,
    /// Ended: it does not fire any more.
    over: watch::Sender<Over>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Over {
    No,
    /// What it holds it keeps.
    Removed,
    Released,
}

impl Rule {
    pub(crate) fn new(matching: Match, fault: Fault, runtime: Handle) -> Self {
        let state = State {
            matching,
            fault,
            matched: Mutex::new(0),
            fired: watch::Sender::new(0),
            over: watch::Sender::new(Over::No),
        };
        Self {
            state: Arc::new(state),
            runtime,
        }
    }

    pub(crate) fn state(&self) -> Arc<State> {
        Arc::clone(&self.state)
    }

    /// How often its fault has happened. With [`Fault::DropReply`], [`Fault::DelayReply`], [`Fault::HoldReply`],
    /// [`Fault::SlowReply`], [`Fault::SlowBody`] and [`Fault::HalfClose`] that is counted once the server has answered, with
    /// [`Fault::TurnDeaf`] once something was sent that nobody received, with the others as soon as the request is here.
    pub fn fired(&self) -> u64 {
        *self.state.fired.borrow()
    }

    /// Waits until it has happened `n` times in all; `timeout` is real time, whatever the caller's runtime thinks.
    pub async fn wait_fired(&self, n: u64, timeout: Duration) -> Result<(), NotFired> {
        let mut fired = self.state.fired.subscribe();
        let wait = async move {
            let enough = fired.wait_for(|fired| *fired >= n);
            matches!(tokio::time::timeout(timeout, enough).await, Ok(Ok(_)))
        };
        // On the proxy's runtime, whose clock nobody pauses.
        if self.runtime.spawn(wait).await.unwrap_or(false) {
            return Ok(());
        }
        let rule = format!("{:?} on {:?}", self.state.fault, self.state.matching);
        Err(NotFired {
            fired: self.fired(),
            wanted: n,
            within: timeout,
            rule,
        })
    }

    /// Ends the rule, and lets go what it holds.
    pub fn release(&self) {
        self.state.over.send_replace(Over::Released);
    }

    /// Ends the rule. What it holds it keeps, until [`release`](Self::release).
    pub fn remove(&self) {
        self.state.over.send_if_modified(|over| {
            let modified = *over == Over::No;
            if modified {
                *over = Over::Removed;
            }
            modified
        });
    }
}

impl State {
    /// Whether it is for this request, which counts as matched then.
    fn takes(&self, request: &Parts, body: &[u8]) -> bool {
        if *self.over.borrow() != Over::No || !self.matching.matches(request, body) {
            return false;
        }
        let mut matched = self.matched.lock().unwrap_or_else(PoisonError::into_inner);
        let meant = self.matching.is_meant(*matched);
        *matched += 1;
        meant
    }

    /// The fault has happened.
    pub(crate) fn fire(&self) {
        self.fired.send_modify(|fired| *fired += 1);
    }

    pub(crate) async fn released(&self) {
        // The sender is ours: it does not go away while we wait.
        let _ = self
            .over
            .subscribe()
            .wait_for(|over| *over == Over::Released)
            .await;
    }
}

/// All rules of a proxy.
#[derive(Debug, Default)]
pub(crate) struct Rules(Mutex<Vec<Arc<State>>>);

/// What is to happen to one request.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) main: Option<Arc<State>>,
    pub(crate) dates: Vec<Arc<State>>,
}

impl Rules {
    pub(crate) fn add(&self, rule: &Rule) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(rule.state());
    }

    pub(crate) fn clear(&self) {
        for state in self.0.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            state.over.send_replace(Over::Released);
        }
    }

    pub(crate) fn plan(&self, request: &Parts, body: &[u8]) -> Plan {
        let mut plan = Plan::default();
        for state in self.0.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            if !state.takes(request, body) {
                continue;
            }
            if state.fault.is_about_date() {
                plan.dates.push(Arc::clone(state));
            } else {
                plan.main = Some(Arc::clone(state));
                break;
            }
        }
        plan
    }
}
