//! The requests that the operator makes, each with a time-out, and what their errors mean to the person who reads the log.
//!
//! They go through `Client::send` because the `Date` header of every reply feeds the [`ServerClock`].

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use http::{Request, Response, header};
use http_body_util::BodyExt;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Client, Resource,
    api::{DeleteParams, GetParams, PostParams, Preconditions},
    client::Body,
    core::{Status, request},
};
use serde::de::DeserializeOwned;

use super::{clock::ServerClock, index::Key, observe::Observer, view::LeaseView};
use crate::crd::ChangeStreamLeader;

/// Longer than any healthy API server takes for one object.
const TIMEOUT: Duration = Duration::from_secs(10);
const MANAGER: &str = "leasewarden-operator";

/// What the CRD's absence means, and what to do.
pub(crate) const INSTALL_CRD: &str = "the CustomResourceDefinition changestreamleaders.leasewarden.dev is not installed; install it with \
     `leasewarden crd | kubectl apply --server-side -f -` (or `kubectl apply --server-side -f \
     crds/changestreamleaders.leasewarden.dev.yaml`); trying again until it is there";

/// A verb on a resource, as a Role names them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Action {
    pub(crate) verb: &'static str,
    pub(crate) resource: &'static str,
}

pub(crate) const LEASES: &str = "leases.coordination.k8s.io";
pub(crate) const OBJECTS: &str = "changestreamleaders.leasewarden.dev";
const STATUS: &str = "changestreamleaders/status.leasewarden.dev";

/// Why a request had no success.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    #[error("not permitted to {verb} {resource} {place}; grant it to the operator's identity ({message})")]
    Forbidden {
        verb: &'static str,
        resource: &'static str,
        place: String,
        message: String,
    },
    #[error("{INSTALL_CRD}")]
    CrdMissing,
    #[error("{0} does not exist")]
    NotFound(String),
    #[error("somebody else changed it first")]
    Conflict,
    #[error("the namespace is being deleted")]
    NamespaceEnds,
    #[error(
        "a fault of this program: Lease {0} or what shows it could not be dealt with; the others can; please report what \
         stands above"
    )]
    Fault(String),
    #[error(
        "the stream of Lease {lease} is not shown: ChangeStreamLeader {name} is about something else; delete it, or write \
         one of another name for this stream"
    )]
    NameTaken { name: String, lease: String },
    #[error("the API server refused to {verb} {resource}: {message}")]
    Refused {
        verb: &'static str,
        resource: &'static str,
        message: String,
    },
    #[error("the API server could not be reached to {verb} {resource}: {message}; trying again")]
    Unreachable {
        verb: &'static str,
        resource: &'static str,
        message: String,
    },
}

impl ApiError {
    /// As the label of a metric.
    pub(crate) const fn label(&self) -> &'static str {
        match self {
            Self::Forbidden { .. } => "forbidden",
            Self::CrdMissing => "crd_missing",
            Self::NotFound(_) => "not_found",
            Self::Conflict => "conflict",
            Self::NamespaceEnds => "namespace_terminating",
            Self::NameTaken { .. } => "name_taken",
            Self::Refused { .. } => "refused",
            Self::Unreachable { .. } => "unreachable",
            Self::Fault(_) => "fault",
        }
    }

    /// From a reply that says no. `namespace` is empty for all namespaces.
    pub(crate) fn status(action: Action, namespace: &str, status: &Status) -> Self {
        let Action { verb, resource } = action;
        let message = status.message.clone();
        let details = status.details.as_ref();
        let named = details.is_some_and(|d| !d.name.is_empty());
        let ends = details.is_some_and(|d| d.causes.iter().any(|c| c.reason == "NamespaceTerminating"));
        match status.code {
            // No permission would help.
            403 if ends => Self::NamespaceEnds,
            403 => Self::Forbidden {
                verb,
                resource,
                place: if namespace.is_empty() {
                    "in all namespaces".to_owned()
                } else {
                    format!("in namespace {namespace}")
                },
                message,
            },
            // Only a Status that names the object is about the object; the others are about the path.
            404 if named => Self::NotFound(message),
            404 if resource != LEASES => Self::CrdMissing,
            409 => Self::Conflict,
            429 | 500.. => Self::Unreachable {
                verb,
                resource,
                message,
            },
            _ => Self::Refused {
                verb,
                resource,
                message,
            },
        }
    }

    /// From kube's error.
    pub(crate) fn kube(action: Action, namespace: &str, error: &kube::Error) -> Self {
        let Action { verb, resource } = action;
        match error {
            kube::Error::Api(status) => Self::status(action, namespace, status),
            other => Self::Unreachable {
                verb,
                resource,
                message: chain(other),
            },
        }
    }
}

/// An error and its sources in one line: "error sending request" alone helps nobody.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        source = inner.source();
    }
    text
}

/// The API server, as the operator uses it.
#[derive(Clone)]
pub(crate) struct Server {
    client: Client,
    pub(crate) clock: ServerClock,
    observer: Arc<dyn Observer>,
}

impl Server {
    pub(crate) fn new(client: Client, clock: ServerClock, observer: Arc<dyn Observer>) -> Self {
        Self {
            client,
            clock,
            observer,
        }
    }

    /// Learns the server's time. Any reply of its own will do.
    pub(crate) async fn ask_the_time(&self) -> Result<(), ApiError> {
        let action = Action {
            verb: "get",
            resource: "/version",
        };
        match self.send(action, Request::get("/version").body(Vec::new())).await {
            // A load balancer whose API server is gone.
            Ok((code, _)) if code.is_server_error() => Err(ApiError::Unreachable {
                verb: action.verb,
                resource: action.resource,
                message: code.to_string(),
            }),
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Reads a Lease; `None` only when the server says that there is none of this name.
    pub(crate) async fn lease(&self, key: &Key) -> Result<Option<LeaseView>, ApiError> {
        let action = Action {
            verb: "get",
            resource: LEASES,
        };
        let url = Lease::url_path(&(), Some(&key.namespace));
        let request = request::Request::new(url).get(&key.lease, &GetParams::default());
        match self
            .call::<Lease>(action, &key.namespace, built(action, request)?)
            .await
        {
            Ok(lease) => LeaseView::new(&lease, self.clock.now())
                .map(Some)
                .map_err(|message| ApiError::Refused {
                    verb: action.verb,
                    resource: action.resource,
                    message,
                }),
            Err(ApiError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads an object.
    pub(crate) async fn object(&self, namespace: &str, name: &str) -> Result<ChangeStreamLeader, ApiError> {
        let action = Action {
            verb: "get",
            resource: OBJECTS,
        };
        let request = objects(namespace).get(name, &GetParams::default());
        self.call(action, namespace, built(action, request)?).await
    }

    /// Creates an object.
    pub(crate) async fn create(
        &self,
        namespace: &str,
        object: &ChangeStreamLeader,
    ) -> Result<ChangeStreamLeader, ApiError> {
        let action = Action {
            verb: "create",
            resource: OBJECTS,
        };
        let request = objects(namespace).create(&params(), bytes(action, object)?);
        self.call(action, namespace, built(action, request)?).await
    }

    /// Deletes exactly this object, in this version.
    pub(crate) async fn delete(&self, namespace: &str, object: &ChangeStreamLeader) -> Result<(), ApiError> {
        let action = Action {
            verb: "delete",
            resource: OBJECTS,
        };
        let only_this = DeleteParams {
            preconditions: Some(Preconditions {
                resource_version: object.meta().resource_version.clone(),
                uid: object.meta().uid.clone(),
            }),
            ..DeleteParams::default()
        };
        let name = object.meta().name.as_deref().unwrap_or_default();
        let request = objects(namespace).delete(name, &only_this);
        self.call::<serde_json::Value>(action, namespace, built(action, request)?)
            .await
            .map(|_| ())
    }

    /// Writes the status of an object. It carries the object's resourceVersion, so that whoever knows less loses.
    pub(crate) async fn write_status(
        &self,
        namespace: &str,
        object: &ChangeStreamLeader,
    ) -> Result<ChangeStreamLeader, ApiError> {
        let action = Action {
            verb: "update",
            resource: STATUS,
        };
        let name = object.meta().name.as_deref().unwrap_or_default();
        let request =
            objects(namespace).replace_subresource("status", name, &params(), bytes(action, object)?);
        self.call(action, namespace, built(action, request)?).await
    }

    async fn call<T: DeserializeOwned>(
        &self,
        action: Action,
        namespace: &str,
        request: Request<Vec<u8>>,
    ) -> Result<T, ApiError> {
        let (code, body) = self.send(action, Ok(request)).await?;
        let Action { verb, resource } = action;
        let refused = |message: String| ApiError::Refused {
            verb,
            resource,
            message,
        };
        if code.is_success() {
            return serde_json::from_slice(&body)
                .map_err(|e| refused(format!("its reply is not understood: {e}")));
        }
        let mut status: Status = serde_json::from_slice(&body).unwrap_or_else(|_| Status {
            message: String::from_utf8_lossy(&body).chars().take(200).collect(),
            ..Status::default()
        });
        status.code = code.as_u16();
        Err(ApiError::status(action, namespace, &status))
    }

    async fn send(
        &self,
        action: Action,
        request: http::Result<Request<Vec<u8>>>,
    ) -> Result<(http::StatusCode, Vec<u8>), ApiError> {
        let Action { verb, resource } = action;
        let unreachable = |message: String| ApiError::Unreachable {
            verb,
            resource,
            message,
        };
        let request = request.map_err(|e| unreachable(e.to_string()))?;
        let reply = async {
            let reply = self
                .client
                .send(request.map(Body::from))
                .await
                .map_err(|e| unreachable(chain(&e)))?;
            if let Some(date) = date(&reply) {
                self.clock.told(date);
            }
            let code = reply.status();
            let body = reply
                .into_body()
                .collect()
                .await
                .map_err(|e| unreachable(chain(&e)))?;
            Ok((code, body.to_bytes().to_vec()))
        };
        let reply = tokio::time::timeout(TIMEOUT, reply)
            .await
            .unwrap_or_else(|_| Err(unreachable(format!("no answer within {TIMEOUT:?}"))));
        let code = reply.as_ref().ok().map(|(code, _)| code.as_u16());
        self.observer.request(verb, resource, code);
        reply
    }
}

fn objects(namespace: &str) -> request::Request {
    request::Request::new(ChangeStreamLeader::url_path(&(), Some(namespace)))
}

fn params() -> PostParams {
    PostParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PostParams::default()
    }
}

fn built(
    action: Action,
    request: Result<Request<Vec<u8>>, request::Error>,
) -> Result<Request<Vec<u8>>, ApiError> {
    request.map_err(|e| ApiError::Refused {
        verb: action.verb,
        resource: action.resource,
        message: chain(&e),
    })
}

fn bytes(action: Action, object: &ChangeStreamLeader) -> Result<Vec<u8>, ApiError> {
    serde_json::to_vec(object).map_err(|e| ApiError::Refused {
        verb: action.verb,
        resource: action.resource,
        message: e.to_string(),
    })
}

fn date<B>(reply: &Response<B>) -> Option<Timestamp> {
    let text = reply.headers().get(header::DATE)?.to_str().ok()?;
    let date: SystemTime = httpdate::parse_http_date(text).ok()?;
    Timestamp::try_from(date).ok()
}
