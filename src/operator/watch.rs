//! The two watches, of Leases with our labels and of `ChangeStreamLeader`s, into the index.
//!
//! A watch that fails is started again for as long as the operator lives: after an API server restart within seconds,
//! after the CRD was installed, after a permission was granted. Each reason is said once, and again every half minute.

use std::{
    collections::HashSet,
    panic::AssertUnwindSafe,
    time::{Duration, Instant},
};

use futures_util::{FutureExt, StreamExt, stream::BoxStream};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Client, ResourceExt,
    core::DeserializeGuard,
    runtime::watcher::{self, Config, Event, watcher},
};
use serde::de::DeserializeOwned;

use super::{
    api::{Action, ApiError, LEASES, OBJECTS},
    index::Key,
    lines::{Line, NoAnswer, listening},
    naming::{lease_of, lighten},
    observe::Watched,
    shared::Shared,
    view::LeaseView,
};
use crate::{crd::ChangeStreamLeader, lease::LABEL_SELECTOR};

/// A dead connection is noticed after this and a few seconds.
const WATCH_SECONDS: u32 = 60;
const SHORTEST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
const SAY_AGAIN: Duration = Duration::from_secs(30);
/// How often a watch is refused before it is begun with a list again.
const RESUMES: u32 = 8;
/// How often a watch that seems stuck is begun again at most: each time is a list.
const BEGIN_AGAIN: Duration = Duration::from_secs(10);

/// Follows the Leases of a namespace (or of all) until dropped.
pub(crate) async fn leases(client: Client, namespace: Option<String>, shared: Shared) {
    for_ever(LEASES, || {
        follow_leases(client.clone(), namespace.clone(), shared.clone())
    })
    .await;
}

/// Follows the objects of a namespace (or of all) until dropped.
pub(crate) async fn objects(client: Client, namespace: Option<String>, shared: Shared) {
    for_ever(OBJECTS, || {
        follow_objects(client.clone(), namespace.clone(), shared.clone())
    })
    .await;
}

/// Begins again what a fault of this program has ended: an operator without a watch would be up, and blind for ever.
async fn for_ever<F: Future<Output = ()>>(resource: &str, follow: impl Fn() -> F) {
    loop {
        if AssertUnwindSafe(follow()).catch_unwind().await.is_err() {
            tracing::error!(
                resource,
                "a fault of this program has ended the watch; beginning it again"
            );
        }
        tokio::time::sleep(LONGEST_PAUSE).await;
    }
}

async fn follow_leases(client: Client, namespace: Option<String>, shared: Shared) {
    let config = Config::default().labels(LABEL_SELECTOR).timeout(WATCH_SECONDS);
    let mut follower = Follower::<Lease>::new(&client, namespace.clone(), &shared, Watched::Leases, config);
    let mut listed = HashSet::new();
    loop {
        match follower.next().await {
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

async fn follow_objects(client: Client, namespace: Option<String>, shared: Shared) {
    let config = Config::default().timeout(WATCH_SECONDS);
    // One object that this version cannot read (a newer version's status, say) must not end the watch of all others.
    let mut follower = Follower::<DeserializeGuard<ChangeStreamLeader>>::new(
        &client,
        namespace.clone(),
        &shared,
        Watched::Objects,
        config,
    );
    let mut listed = HashSet::new();
    loop {
        match follower.next().await {
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
    lighten(&mut object);
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

/// A watch that is begun again for ever, the pauses in between, and what is said of them.
struct Follower<K: kube::Resource> {
    begin: Box<dyn Fn() -> Events<K> + Send>,
    events: Events<K>,
    line: Line,
    shared: Shared,
    pause: Duration,
    said: Option<(String, Instant)>,
    begun: Instant,
    /// How often in a row.
    failed: u32,
}

type Events<K> = BoxStream<'static, Result<Event<K>, watcher::Error>>;

impl<K> Follower<K>
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug
        + Send
        + 'static,
{
    fn new(
        client: &Client,
        namespace: Option<String>,
        shared: &Shared,
        resource: Watched,
        config: Config,
    ) -> Self {
        let line = shared.lines.add(resource, namespace.as_deref());
        let accepted = {
            let (line, shared) = (line.clone(), shared.clone());
            move || {
                if line.up() {
                    tracing::info!(resource = line.name(), namespace = line.scope, "watching again");
                    shared.wake_all();
                }
            }
        };
        let client = listening(client, &line, accepted);
        let begin = move || {
            let api = match namespace.as_deref() {
                Some(namespace) => Api::namespaced(client.clone(), namespace),
                None => Api::all(client.clone()),
            };
            watcher(api, config.clone()).boxed()
        };
        Self {
            events: begin(),
            begin: Box::new(begin),
            line,
            shared: shared.clone(),
            pause: SHORTEST_PAUSE,
            said: None,
            begun: Instant::now(),
            failed: 0,
        }
    }

    /// The next event. Errors are said here, and waited after.
    async fn next(&mut self) -> Event<K> {
        loop {
            let event = tokio::select! {
                event = self.events.next() => event,
                () = self.line.stuck() => {
                    if self.begun.elapsed() >= BEGIN_AGAIN {
                        tracing::warn!(
                            resource = self.line.name(),
                            namespace = self.line.scope,
                            "the watch does not bring what a read has shown; beginning it again"
                        );
                        self.begin_again();
                    }
                    continue;
                }
            };
            match event {
                // The beginning of a list, which may yet break off.
                Some(Ok(event @ (Event::Init | Event::InitApply(_)))) => return event,
                Some(Ok(event)) => {
                    self.over();
                    return event;
                }
                Some(Err(error)) => self.after(&error).await,
                None => self.begin_again(),
            }
        }
    }

    fn begin_again(&mut self) {
        self.events = (self.begin)();
        self.begun = Instant::now();
    }

    async fn after(&mut self, error: &watcher::Error) {
        if let Some(problem) = problem(&self.line, error) {
            let text = problem.to_string();
            let fresh = |(said, at): &(String, Instant)| *said == text && at.elapsed() < SAY_AGAIN;
            if !self.said.as_ref().is_some_and(fresh) {
                tracing::warn!(resource = self.line.name(), namespace = self.line.scope, "{text}");
                self.said = Some((text, Instant::now()));
            }
            if self.line.down(&problem, timed_out(error)) {
                self.shared.wake_all();
            }
        }
        self.failed += 1;
        // The watcher goes on where it was for as long as it is refused. It may be refused for where it was.
        let gone =
            matches!(error, watcher::Error::WatchStartFailed(kube::Error::Api(status)) if status.code == 410);
        let refused = matches!(error, watcher::Error::WatchStartFailed(_));
        if gone || (refused && self.failed.is_multiple_of(RESUMES)) {
            self.begin_again();
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

    fn over(&mut self) {
        self.pause = SHORTEST_PAUSE;
        self.said = None;
        self.failed = 0;
    }
}

fn problem(line: &Line, error: &watcher::Error) -> Option<ApiError> {
    let resource = line.name();
    let action = |verb| Action { verb, resource };
    match error {
        watcher::Error::InitialListFailed(e) => Some(ApiError::kube(action("list"), &line.scope, e)),
        watcher::Error::WatchStartFailed(e) | watcher::Error::WatchFailed(e) => {
            Some(ApiError::kube(action("watch"), &line.scope, e))
        }
        // 410: what was missed is no longer kept. The watcher lists again, which is no problem of anybody's.
        watcher::Error::WatchError(status) if status.code == 410 => None,
        watcher::Error::WatchError(status) => Some(ApiError::status(action("watch"), &line.scope, status)),
        other @ watcher::Error::NoResourceVersion => Some(ApiError::Refused {
            verb: "watch",
            resource,
            message: other.to_string(),
        }),
    }
}

fn timed_out(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Service(e))
        | watcher::Error::WatchStartFailed(kube::Error::Service(e)) => e.is::<NoAnswer>(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_fault_ends_no_watch_for_good() {
        let times = AtomicU32::new(0);
        let follow = || async {
            assert!(times.fetch_add(1, Ordering::SeqCst) > 2, "a fault");
            std::future::pending::<()>().await;
        };
        let watched = for_ever("leases", follow);
        assert!(
            tokio::time::timeout(Duration::from_secs(60), watched)
                .await
                .is_err()
        );
        assert_eq!(times.load(Ordering::SeqCst), 4);
    }
}
