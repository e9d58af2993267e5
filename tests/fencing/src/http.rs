//! HTTP: the token goes along as a header, and the service refuses an older one with 412.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
};

use http_body_util::{BodyExt, Full};
use hyper::{
    HeaderMap, Request, Response, StatusCode,
    body::{Bytes, Incoming},
};
use leasewarden::{FencingToken, StreamName, election::TokenChecker};

// [http]
/// The fencing token of a request's sender.
pub const FENCING_TOKEN: &str = "leasewarden-fencing-token";

/// What the service writes to. The checker stands behind the same lock as what it protects.
#[derive(Default)]
pub struct Ledger {
    tokens: TokenChecker,
    /// What was written.
    pub entries: Vec<String>,
}

impl Ledger {
    /// Checks and writes in one step: the caller holds the lock over both.
    pub fn append(&mut self, stream: &StreamName, headers: &HeaderMap, entry: String) -> StatusCode {
        let token = headers
            .get(FENCING_TOKEN)
            .and_then(|value| value.to_str().ok()?.parse().ok());
        let Some(token) = token.and_then(FencingToken::new) else {
            // Nobody writes without a token, or the fence has a hole.
            return StatusCode::PRECONDITION_REQUIRED;
        };
        match self.tokens.check(stream, token) {
            Ok(()) => {
                self.entries.push(entry);
                StatusCode::NO_CONTENT
            }
            Err(_stale) => StatusCode::PRECONDITION_FAILED,
        }
    }
}

/// `POST /STREAM`, with an entry as the body.
pub async fn serve(
    ledger: Arc<Mutex<Ledger>>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let status = match (
        StreamName::new(head.uri.path().trim_start_matches('/')),
        body.collect().await,
    ) {
        (Ok(stream), Ok(body)) => {
            let entry = String::from_utf8_lossy(&body.to_bytes()).into_owned();
            // The body is here before the lock is taken: a slow sender holds nobody up.
            let mut ledger = ledger.lock().unwrap_or_else(PoisonError::into_inner);
            ledger.append(&stream, &head.headers, entry)
        }
        _ => StatusCode::BAD_REQUEST,
    };
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    Ok(response)
}
// [http]
