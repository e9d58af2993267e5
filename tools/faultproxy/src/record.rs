//! What the proxy has seen: one entry per request, in the order in which they arrived.

use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use http::request::Parts;
use http::{Method, StatusCode, header};

/// A request that has arrived.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Seen {
    /// When it had arrived, body included.
    pub at: Instant,
    /// Its method.
    pub method: Method,
    /// Its path, with the query.
    pub path: String,
    /// Who says to have sent it; empty when nobody does.
    pub user_agent: String,
    status: Arc<AtomicU16>,
}

impl Seen {
    /// What the server answered, or a rule in its stead, whether or not the client got it; `None` as long as it has not
    /// been answered.
    pub fn status(&self) -> Option<StatusCode> {
        StatusCode::from_u16(self.status.load(Ordering::SeqCst)).ok()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Record(Mutex<Vec<Seen>>);

/// Where the status of one request goes.
pub(crate) struct Entry(Arc<AtomicU16>);

impl Entry {
    pub(crate) fn answered(&self, status: StatusCode) {
        self.0.store(status.as_u16(), Ordering::SeqCst);
    }
}

impl Record {
    pub(crate) fn add(&self, request: &Parts) -> Entry {
        let status = Arc::new(AtomicU16::new(0));
        let user_agent = request
            .headers
            .get(header::USER_AGENT)
            .and_then(|value| value.to_str().ok());
        self.with(|all| {
            all.push(Seen {
                at: Instant::now(),
                method: request.method.clone(),
                path: request.uri.to_string(),
                user_agent: user_agent.unwrap_or_default().to_owned(),
                status: Arc::clone(&status),
            });
        });
        Entry(status)
    }

    pub(crate) fn with<T>(&self, look: impl FnOnce(&mut Vec<Seen>) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
