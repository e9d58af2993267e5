//! Following Leases: where their news come from, and what becomes of it.
//!
//! One watch by label tells of all streams of a namespace. Where the permissions name single Leases, each followed Lease
//! is watched by its name; where nothing may be watched, those who follow are told to poll. A Lease that lost our labels
//! is watched by its name too. News only move the machines' knowledge; none of it is needed to be safe.

use std::{
    cell::{Cell, RefCell},
    collections::HashSet,
    rc::Rc,
};

use super::{
    machine::Read,
    slot::Slot,
    watch::{News, Selector, Watch},
    worker::Worker,
};
use crate::lock::{ChangeSender, NewsSource, StreamName};

/// What is watched, and what may be.
#[derive(Default)]
pub(super) struct Following {
    /// All Leases with our labels, once there is a contender or a follower.
    watch: RefCell<Option<Watch>>,
    /// Whether that is permitted.
    label_watch: Cell<Permission>,
    /// Whether it was said that some Leases can only be polled.
    polls: Cell<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Permission {
    #[default]
    Unknown,
    Granted,
    Denied,
}

impl Worker {
    /// From here on `follower` is told of this stream.
    pub(super) fn follow(self: &Rc<Self>, stream: &StreamName, follower: ChangeSender) {
        match self.slot(stream) {
            Ok(slot) => {
                slot.follow(follower);
                self.watch(&slot);
                slot.comes_from(self.source(&slot));
            }
            // Dropping it says that nothing is told; what is wrong is said to who acquires.
            Err(error) => {
                tracing::debug!(target: crate::telemetry::LEASE, %error, "a stream cannot be followed");
            }
        }
    }

    /// Where news of a Lease come from, as things are.
    fn source(&self, slot: &Slot) -> NewsSource {
        match self.following.label_watch.get() {
            Permission::Granted if !slot.machine.borrow().left_selector() => NewsSource::SharedWatch,
            _ => slot.source(),
        }
    }

    /// Watches all Leases with our labels, and by its name one that has lost them, or all where labels are not permitted
    /// as a selector, unless that is done already.
    pub(super) fn watch(self: &Rc<Self>, slot: &Slot) {
        self.following
            .watch
            .borrow_mut()
            .get_or_insert_with(|| self.begin(Selector::Labels));
        let by_name =
            slot.machine.borrow().left_selector() || self.following.label_watch.get() == Permission::Denied;
        if by_name {
            let name = slot.machine.borrow().name.clone();
            slot.watch
                .borrow_mut()
                .get_or_insert_with(|| self.begin(Selector::Name(name)));
        }
    }

    fn begin(self: &Rc<Self>, selector: Selector) -> Watch {
        let (worker, watched) = (Rc::downgrade(self), selector.clone());
        let tell = move |news| {
            if let Some(worker) = worker.upgrade() {
                worker.hear(news, &watched);
            }
        };
        let (client, namespace) = (self.client.clone(), self.settings.namespace.clone());
        Watch::begin(client, namespace, selector, tell)
    }

    fn hear(self: &Rc<Self>, news: News, watched: &Selector) {
        match news {
            News::Lease(lease) => {
                let Some(slot) = self.slots.get(&lease.metadata.name) else {
                    return;
                };
                let labelled = lease.is_labelled();
                let now = self.now();
                let observed = slot.machine.borrow_mut().observe(now.at, *lease);
                if let Err(error) = observed {
                    tracing::debug!(target: crate::telemetry::LEASE, %error, "a watched lease is unusable");
                }
                slot.tell(now);
                if labelled && *watched == Selector::Labels {
                    slot.watch.take();
                    slot.comes_from(NewsSource::SharedWatch);
                }
            }
            News::Gone(name) => self.look(&name),
            News::Forbidden(message) => self.forbidden(watched, &message),
            News::Listed(names) => {
                self.permitted(watched);
                let listed: HashSet<String> = names.into_iter().collect();
                let absent = self.slots.names(|name, slot| {
                    watched.covers(name) && !listed.contains(name) && slot.machine.borrow().has_seen()
                });
                for name in &absent {
                    self.look(name);
                }
            }
        }
    }

    fn forbidden(self: &Rc<Self>, watched: &Selector, message: &str) {
        let namespace = &self.settings.namespace;
        match watched {
            Selector::Labels => {
                if self.following.label_watch.replace(Permission::Denied) != Permission::Denied {
                    tracing::warn!(
                        target: crate::telemetry::LEASE,
                        namespace,
                        reason = message,
                        "not permitted to list and watch leases.coordination.k8s.io by label: watching each stream's lease by \
                         its name"
                    );
                }
                for slot in self.slots.those(Slot::is_followed) {
                    if slot.source() == NewsSource::SharedWatch {
                        slot.comes_from(NewsSource::Polling);
                    }
                    self.watch(&slot);
                }
            }
            Selector::Name(name) => {
                let Some(slot) = self.slots.get(name) else { return };
                if !self.following.polls.replace(true) {
                    tracing::warn!(
                        target: crate::telemetry::LEASE,
                        namespace,
                        lease = name,
                        reason = message,
                        "not permitted to list and watch leases.coordination.k8s.io by name either: polling"
                    );
                }
                slot.comes_from(NewsSource::Polling);
            }
        }
    }

    fn permitted(&self, watched: &Selector) {
        let namespace = &self.settings.namespace;
        match watched {
            Selector::Labels => {
                if self.following.label_watch.replace(Permission::Granted) != Permission::Granted {
                    tracing::info!(target: crate::telemetry::LEASE, namespace, "watching the leases of all streams by label");
                }
                for slot in self.slots.those(Slot::is_followed) {
                    if !slot.machine.borrow().left_selector() {
                        slot.watch.take();
                        slot.comes_from(NewsSource::SharedWatch);
                    }
                }
            }
            Selector::Name(name) => {
                self.following.polls.set(false);
                if let Some(slot) = self.slots.get(name) {
                    tracing::debug!(target: crate::telemetry::LEASE, namespace, lease = name, "watching a lease by its name");
                    slot.comes_from(NewsSource::OwnWatch);
                }
            }
        }
    }

    /// DELETED and an absence only cause a read: removing a label looks the same.
    fn look(self: &Rc<Self>, name: &str) {
        let Some(slot) = self.slots.get(name) else {
            return;
        };
        let worker = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let _permit = worker.reading.acquire().await;
            if let Err(error) = worker.drive(&slot, &mut Read::default()).await {
                tracing::debug!(target: crate::telemetry::LEASE, %error, "could not read a lease that left the watch");
            }
            worker.watch(&slot);
        });
    }
}
