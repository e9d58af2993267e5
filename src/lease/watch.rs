//! Watching Leases by a selector, and telling what was seen.
//!
//! A watch only brings news sooner. It proves nothing by being silent or closed: what it delivers late costs a 409, and
//! DELETED or an absence from a list only make somebody read.

use std::{rc::Rc, time::Duration};

use futures_util::TryStreamExt;
use kube::core::WatchEvent;
use tokio::task::{JoinHandle, spawn_local};

use super::{
    api::chain,
    wire::{LABEL_SELECTOR, Lease, LeaseList},
};

/// What is watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Selector {
    /// All Leases with our labels in the namespace.
    Labels,
    /// One Lease: it lost its labels, or nothing else may be watched.
    Name(String),
}

impl Selector {
    /// Whether a Lease of this name that it does not find may be gone.
    pub(crate) fn covers(&self, name: &str) -> bool {
        match self {
            Selector::Labels => true,
            Selector::Name(watched) => watched == name,
        }
    }

    fn query(&self) -> String {
        match self {
            // Both are made of characters that a query may hold, but for `=` and `,` within a value.
            Selector::Labels => {
                format!(
                    "labelSelector={}",
                    LABEL_SELECTOR
                        .replace('/', "%2F")
                        .replace('=', "%3D")
                        .replace(',', "%2C")
                )
            }
            Selector::Name(name) => format!("fieldSelector=metadata.name%3D{name}"),
        }
    }
}

/// A watch, until it is dropped.
pub(crate) struct Watch(pub(crate) JoinHandle<()>);

impl Watch {
    /// Begins to watch, on the `LocalSet` that this is called on.
    pub(crate) fn begin(
        client: kube::Client,
        namespace: String,
        selector: Selector,
        tell: impl Fn(News) + 'static,
    ) -> Self {
        Self(spawn_local(run(client, namespace, selector, Rc::new(tell))))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What a watch tells.
pub(crate) enum News {
    /// A version of a Lease.
    Lease(Box<Lease>),
    /// The watch does not show this Lease any more.
    Gone(String),
    /// All that the selector finds now: what is not among them is gone.
    Listed(Vec<String>),
    /// Listing or watching by this selector is not permitted. It is tried again now and then.
    Forbidden(String),
}

/// The server closes a watch after this long; the client gives it up a little later, in case the connection is dead.
const WATCH_SECONDS: u64 = 240;
const LIST_TIMEOUT: Duration = Duration::from_secs(30);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LAST_PAUSE: Duration = Duration::from_secs(5);
/// A missing permission does not come back in seconds.
const FORBIDDEN_PAUSE: Duration = Duration::from_secs(60);

enum End {
    /// Go on from this resourceVersion.
    Resume(String),
    /// The resourceVersion is too old: list again.
    Expired,
}

async fn run(client: kube::Client, namespace: String, selector: Selector, tell: Rc<dyn Fn(News)>) {
    let collection = format!(
        "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases?{}",
        selector.query()
    );
    let mut pause = FIRST_PAUSE;
    let mut from: Option<String> = None;
    loop {
        let round = async {
            let version = match from.clone() {
                Some(version) => version,
                None => list(&client, &collection, &*tell).await?,
            };
            follow(&client, &collection, version, &*tell).await
        };
        match round.await {
            Ok(End::Resume(version)) => {
                pause = FIRST_PAUSE;
                from = Some(version);
            }
            Ok(End::Expired) => from = None,
            Err(kube::Error::Api(status)) if status.code == 403 => {
                tell(News::Forbidden(status.message));
                from = None;
                tokio::time::sleep(FORBIDDEN_PAUSE).await;
            }
            Err(error) => {
                tracing::debug!(
                    target: crate::telemetry::LEASE,
                    namespace,
                    error = chain(&error),
                    "watching leases failed, trying again"
                );
                from = None;
            }
        }
        // Also after a clean end: a server that closes watches at once must not be called in a tight loop.
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LAST_PAUSE);
    }
}

async fn list(client: &kube::Client, collection: &str, tell: &dyn Fn(News)) -> Result<String, kube::Error> {
    let list = client.request::<LeaseList>(get(collection)?);
    let list = tokio::time::timeout(LIST_TIMEOUT, list)
        .await
        .map_err(|_| timed_out("list"))??;
    let names = list
        .items
        .iter()
        .map(|lease| lease.metadata.name.clone())
        .collect();
    for lease in list.items {
        tell(News::Lease(Box::new(lease)));
    }
    tell(News::Listed(names));
    Ok(list.metadata.resource_version.unwrap_or_default())
}

async fn follow(
    client: &kube::Client,
    collection: &str,
    mut version: String,
    tell: &dyn Fn(News),
) -> Result<End, kube::Error> {
    let uri = format!(
        "{collection}&watch=true&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}&resourceVersion={version}"
    );
    let opening = client.request_events::<Lease>(get(&uri)?);
    let events = tokio::time::timeout(LIST_TIMEOUT, opening)
        .await
        .map_err(|_| timed_out("watch"))??;
    let mut events = std::pin::pin!(events);
    let silence = Duration::from_secs(WATCH_SECONDS + 30);
    loop {
        let event = match tokio::time::timeout(silence, events.try_next()).await {
            Err(_) | Ok(Ok(None)) => return Ok(End::Resume(version)),
            Ok(Ok(Some(event))) => event,
            Ok(Err(kube::Error::Api(status))) if status.code == 410 => return Ok(End::Expired),
            Ok(Err(error)) => return Err(error),
        };
        match event {
            WatchEvent::Added(lease) | WatchEvent::Modified(lease) => {
                if let Some(seen) = &lease.metadata.resource_version {
                    version.clone_from(seen);
                }
                tell(News::Lease(Box::new(lease)));
            }
            WatchEvent::Deleted(lease) => {
                if let Some(seen) = &lease.metadata.resource_version {
                    version.clone_from(seen);
                }
                tell(News::Gone(lease.metadata.name));
            }
            WatchEvent::Bookmark(bookmark) => version = bookmark.metadata.resource_version,
            WatchEvent::Error(status) if status.code == 410 => return Ok(End::Expired),
            WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
        }
    }
}

fn get(uri: &str) -> Result<http::Request<Vec<u8>>, kube::Error> {
    http::Request::get(uri)
        .body(Vec::new())
        .map_err(kube::Error::HttpError)
}

fn timed_out(what: &str) -> kube::Error {
    kube::Error::Service(format!("no reply to a {what} of leases within {LIST_TIMEOUT:?}").into())
}
