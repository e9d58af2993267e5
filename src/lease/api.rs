//! Requests to the API server and what their replies prove.
//!
//! One request is one attempt: nothing is retried here, and each has its own time-out. A reply is sorted into "this was
//! done", "this was definitely not done" and "nobody knows"; only what the API server itself says, as a `Status`, counts
//! as a refusal. A proxy's plain 404 is no deletion.

use std::time::{Duration, SystemTime};

use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use kube::{client::Body, core::Status};
use serde::Deserialize;

use super::{machine::Input, wire::Lease};
use crate::lock::{LockError, StreamName, Unknown};

/// etcd stores no object beyond 1.5 MiB; what is longer is no reply of an API server.
const BODY_MAX: usize = 16 << 20;

/// Fields of our writes are owned under this name in `managedFields`.
const FIELD_MANAGER: &str = "leasewarden";

#[derive(Clone)]
pub(crate) struct Api {
    client: kube::Client,
    namespace: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Get,
    Create,
    Update,
}

/// A failure that leaves open whether a write was applied.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("no reply from the API server within {0:?}")]
    TimedOut(Duration),
    #[error("the request failed: {0}")]
    Transport(String),
    #[error("the API server answered {status}: {text}")]
    Answered { status: StatusCode, text: String },
}

impl Api {
    pub(crate) fn new(client: kube::Client, namespace: String) -> Self {
        Self { client, namespace }
    }

    pub(crate) async fn get(&self, stream: &StreamName, name: &str, timeout: Duration) -> Input {
        self.send(Verb::Get, stream, name, None, timeout).await
    }

    pub(crate) async fn create(&self, stream: &StreamName, lease: &Lease, timeout: Duration) -> Input {
        self.send(Verb::Create, stream, &lease.metadata.name, Some(lease), timeout)
            .await
    }

    pub(crate) async fn update(&self, stream: &StreamName, lease: &Lease, timeout: Duration) -> Input {
        self.send(Verb::Update, stream, &lease.metadata.name, Some(lease), timeout)
            .await
    }

    async fn send(
        &self,
        verb: Verb,
        stream: &StreamName,
        name: &str,
        body: Option<&Lease>,
        timeout: Duration,
    ) -> Input {
        let request = match self.request(verb, name, body) {
            Ok(request) => request,
            Err(message) => {
                return Input::Refused(LockError::Rejected {
                    stream: stream.clone(),
                    message,
                });
            }
        };
        let reply = tokio::time::timeout(timeout, async {
            let reply = self
                .client
                .send(request)
                .await
                .map_err(|e| Failure::Transport(chain(&e)))?;
            let (head, body) = reply.into_parts();
            let body = Limited::new(body, BODY_MAX)
                .collect()
                .await
                .map_err(|e| Failure::Transport(e.to_string()))?;
            Ok::<_, Failure>((head, body.to_bytes()))
        });
        let (head, body) = match reply.await {
            Err(_) => return Input::Unknown(Unknown::new(Failure::TimedOut(timeout))),
            Ok(Err(failure)) => return Input::Unknown(Unknown::new(failure)),
            Ok(Ok(reply)) => reply,
        };
        let date = head
            .headers
            .get(header::DATE)
            .and_then(|d| d.to_str().ok())
            .and_then(|d| httpdate::parse_http_date(d).ok());
        self.sort(verb, stream, name, head.status, date, &body)
    }

    fn request(&self, verb: Verb, name: &str, body: Option<&Lease>) -> Result<Request<Body>, String> {
        let collection = format!(
            "/apis/coordination.k8s.io/v1/namespaces/{}/leases",
            self.namespace
        );
        let (method, uri) = match verb {
            Verb::Get => (Method::GET, format!("{collection}/{name}")),
            Verb::Create => (Method::POST, format!("{collection}?fieldManager={FIELD_MANAGER}")),
            Verb::Update => (
                Method::PUT,
                format!("{collection}/{name}?fieldManager={FIELD_MANAGER}"),
            ),
        };
        let body = body
            .map(serde_json::to_vec)
            .transpose()
            .map_err(|e| e.to_string())?
            .unwrap_or_default();
        Request::builder()
            .method(method)
            .uri(uri)
            .header(header::ACCEPT, "application/json")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(body))
            .map_err(|e| e.to_string())
    }

    fn sort(
        &self,
        verb: Verb,
        stream: &StreamName,
        name: &str,
        code: StatusCode,
        date: Option<SystemTime>,
        body: &[u8],
    ) -> Input {
        if code.is_success() {
            return match serde_json::from_slice::<Lease>(body) {
                Ok(lease) if lease.metadata.name == name => Input::Lease(Box::new(lease), date),
                _ => answered(code, body),
            };
        }
        let Ok(Reply {
            kind: Some(kind),
            status,
        }) = serde_json::from_slice::<Reply>(body)
        else {
            return answered(code, body);
        };
        if kind != "Status" {
            return answered(code, body);
        }
        let message = status.message.clone();
        match code {
            StatusCode::NOT_FOUND if names(&status, name) => match verb {
                Verb::Get => Input::Missing,
                // Gone between our read and our write, so the write was not applied; a read will tell.
                Verb::Create | Verb::Update => Input::Conflict,
            },
            StatusCode::CONFLICT => Input::Conflict,
            StatusCode::FORBIDDEN if is_terminating(&status) => Input::Refused(LockError::Rejected {
                stream: stream.clone(),
                message,
            }),
            StatusCode::FORBIDDEN => Input::Refused(LockError::Forbidden {
                stream: stream.clone(),
                action: self.action(verb),
                message,
            }),
            StatusCode::UNAUTHORIZED => Input::Refused(LockError::Rejected {
                stream: stream.clone(),
                message: format!("the API server does not accept this identity's credentials: {message}"),
            }),
            StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => answered(code, message.as_bytes()),
            code if code.is_client_error() => Input::Refused(LockError::Rejected {
                stream: stream.clone(),
                message,
            }),
            _ => answered(code, message.as_bytes()),
        }
    }

    /// The permission that a verb needs, in the words of RBAC.
    fn action(&self, verb: Verb) -> String {
        let verb = match verb {
            Verb::Get => "get",
            Verb::Create => "create",
            Verb::Update => "update",
        };
        format!(
            "{verb} leases.coordination.k8s.io in namespace {}",
            self.namespace
        )
    }
}

#[derive(Deserialize)]
struct Reply {
    kind: Option<String>,
    #[serde(flatten)]
    status: Status,
}

fn names(status: &Status, name: &str) -> bool {
    status.reason == "NotFound"
        && status
            .details
            .as_ref()
            .is_some_and(|d| d.name == name && d.kind == "leases")
}

fn is_terminating(status: &Status) -> bool {
    status
        .details
        .as_ref()
        .is_some_and(|d| d.causes.iter().any(|c| c.reason == "NamespaceTerminating"))
}

fn answered(status: StatusCode, body: &[u8]) -> Input {
    let text = String::from_utf8_lossy(body).chars().take(200).collect();
    Input::Unknown(Unknown::new(Failure::Answered { status, text }))
}

/// An error and its causes: "connection refused" is three sources deep.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        source = error.source();
    }
    text
}
