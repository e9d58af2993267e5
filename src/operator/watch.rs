//! The two watches, of Leases with our labels and of `ChangeStreamLeader`s, into the index.
//!
//! A watch that fails is started again for as long as the operator lives: after an API server restart within seconds,
//! after the CRD was installed, after a permission was granted. Each reason is said once, and again every half minute.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use futures_util::{Stream, StreamExt};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Client, ResourceExt,
    core::DeserializeGuard,
    runtime::watcher::{self, Config, Event, watcher},
};

use super::{
    api::{Action, ApiError, LEASES, OBJECTS},
    controller::Shared,
    index::Key,
    naming::lease_of,
    view::LeaseView,
};
use crate::{crd::ChangeStreamLeader, lease::LABEL_SELECTOR};

/// A dead connection is noticed after this and a few seconds.
const WATCH_SECONDS: u32 = 60;
const SHORTEST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
const SAY_AGAIN: Duration = Duration::from_secs(30);

fn api<K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>>(
    client: &Client,
    namespace: Option<&str>,
) -> Api<K>
where
    K::DynamicType: Default,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

/// Follows the Leases of a namespace (or of all) until dropped.
pub(crate) async fn leases(client: Client, namespace: Option<String>, shared: Shared) {
    let config = Config::default().labels(LABEL_SELECTOR).timeout(WATCH_SECONDS);
    let mut events = watcher(api::<Lease>(&client, namespace.as_deref()), config).boxed();
    let mut pause = Pause::new(LEASES, namespace.clone());
    let mut listed = HashSet::new();
    while let Some(event) = pause.next(&mut events).await {
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(lease) => {
                if let Some(view) = read(&shared, &lease) {
                    listed.insert(shared.see_lease(view, false));
                }
            }
            Event::InitDone => {
                shared.leases_listed(namespace.as_deref(), &std::mem::take(&mut listed));
            }
            Event::Apply(lease) => {
                let Some(view) = read(&shared, &lease) else {
                    continue;
                };
                // A write that was just made tells the server's time.
                if let Some(written) = view.changed_at {
                    shared.written_at(written);
                }
                let key = shared.see_lease(view, true);
                shared.wake(key);
            }
            Event::Delete(lease) => {
                let key = Key {
                    namespace: lease.namespace().unwrap_or_default(),
                    lease: lease.name_any(),
                };
                shared.lose_lease(&key);
                shared.wake(key);
            }
        }
    }
}

fn read(shared: &Shared, lease: &Lease) -> Option<LeaseView> {
    LeaseView::new(lease, shared.now())
        .inspect_err(|error| {
            tracing::warn!(
                lease = lease.name_any(),
                error,
                "this Lease cannot be read and is left alone"
            );
        })
        .ok()
}

/// Follows the objects of a namespace (or of all) until dropped.
pub(crate) async fn objects(client: Client, namespace: Option<String>, shared: Shared) {
    let config = Config::default().timeout(WATCH_SECONDS);
    // One object that this version cannot read (a newer version's status, say) must not end the watch of all others.
    let api = api::<DeserializeGuard<ChangeStreamLeader>>(&client, namespace.as_deref());
    let mut events = watcher(api, config).boxed();
    let mut pause = Pause::new(OBJECTS, namespace.clone());
    let mut listed = HashSet::new();
    while let Some(event) = pause.next(&mut events).await {
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(object) => {
                listed.insert((object.namespace().unwrap_or_default(), object.name_any()));
                see(&shared, object);
            }
            Event::InitDone => {
                shared.objects_listed(namespace.as_deref(), &std::mem::take(&mut listed));
            }
            Event::Apply(object) => {
                if let Some(key) = see(&shared, object) {
                    shared.wake(key);
                }
            }
            Event::Delete(object) => {
                let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
                if let Some(key) = shared.lose_object(&namespace, &name, object.uid().as_deref()) {
                    shared.wake(key);
                }
            }
        }
    }
}

fn see(shared: &Shared, object: DeserializeGuard<ChangeStreamLeader>) -> Option<Key> {
    let mut object = match object.0 {
        Ok(object) => object,
        Err(invalid) => {
            let name = invalid.metadata.name.unwrap_or_default();
            tracing::warn!(
                object = name,
                error = invalid.error,
                "this ChangeStreamLeader cannot be read and is left alone"
            );
            return None;
        }
    };
    object.metadata.managed_fields = None;
    match lease_of(&object) {
        Ok(key) => {
            shared.see_object(key.clone(), object);
            Some(key)
        }
        Err(error) => {
            tracing::warn!(object = object.name_any(), %error, "this ChangeStreamLeader names no stream that can be locked");
            None
        }
    }
}

/// The pause after an error, and what is said of it.
struct Pause {
    resource: &'static str,
    namespace: String,
    next: Duration,
    said: Option<(String, Instant)>,
}

impl Pause {
    fn new(resource: &'static str, namespace: Option<String>) -> Self {
        Self {
            resource,
            namespace: namespace.unwrap_or_default(),
            next: SHORTEST_PAUSE,
            said: None,
        }
    }

    /// The next event. Errors are said here, and waited after.
    async fn next<K>(
        &mut self,
        events: &mut (impl Stream<Item = Result<Event<K>, watcher::Error>> + Unpin),
    ) -> Option<Event<K>> {
        loop {
            match events.next().await? {
                // The beginning of a list, which may yet break off.
                Ok(event @ (Event::Init | Event::InitApply(_))) => return Some(event),
                Ok(event) => {
                    self.over();
                    return Some(event);
                }
                Err(error) => self.after(&error).await,
            }
        }
    }

    async fn after(&mut self, error: &watcher::Error) {
        let action = |verb| Action {
            verb,
            resource: self.resource,
        };
        let problem = match error {
            watcher::Error::InitialListFailed(e) => Some(ApiError::kube(action("list"), &self.namespace, e)),
            watcher::Error::WatchStartFailed(e) | watcher::Error::WatchFailed(e) => {
                Some(ApiError::kube(action("watch"), &self.namespace, e))
            }
            // 410: what was missed is no longer kept. The watcher lists again, which is no problem of anybody's.
            watcher::Error::WatchError(status) if status.code == 410 => None,
            watcher::Error::WatchError(status) => {
                Some(ApiError::status(action("watch"), &self.namespace, status))
            }
            other @ watcher::Error::NoResourceVersion => Some(ApiError::Refused {
                verb: "watch",
                resource: self.resource,
                message: other.to_string(),
            }),
        };
        if let Some(problem) = problem {
            let text = problem.to_string();
            let fresh = |(said, at): &(String, Instant)| *said == text && at.elapsed() < SAY_AGAIN;
            if !self.said.as_ref().is_some_and(fresh) {
                tracing::warn!(resource = self.resource, namespace = self.namespace, "{text}");
                self.said = Some((text, Instant::now()));
            }
        }
        tokio::time::sleep(self.next).await;
        self.next = (self.next * 2).min(LONGEST_PAUSE);
    }

    fn over(&mut self) {
        self.next = SHORTEST_PAUSE;
        if self.said.take().is_some() {
            tracing::info!(
                resource = self.resource,
                namespace = self.namespace,
                "watching again"
            );
        }
    }
}
