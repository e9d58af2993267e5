//! One stream's place in the worker: its machine, and the gate that lets one operation write at a time.
//!
//! An acquisition may take long, and a holder in the same process must not wait for it: what is urgent says so here, and
//! an acquisition that runs gives way.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    future::Future,
    rc::Rc,
    time::Duration,
};

use tokio::sync::{Mutex, MutexGuard, Notify};

use super::{
    delivery::{Delivered, Promise},
    machine::{Machine, Now},
    name::prefixed_lease_name,
    watch::Watch,
    wire::Lease,
    worker::Settings,
};
use crate::lock::{Change, ChangeSender, LockError, Moment, NewsSource, Outcome, StreamName, Term, Unknown};

/// Streams remembered without a term of ours. Forgetting one delays a takeover by up to its TTL, and grants nothing.
const REMEMBERED: usize = 10_000;

/// One stream: its machine, and whose turn it is.
pub(crate) struct Slot {
    pub(crate) machine: RefCell<Machine>,
    /// One operation that writes at a time: two would race each other for the resourceVersion.
    pub(crate) gate: Mutex<()>,
    used: RefCell<Moment>,
    /// How many wait for the gate that may not wait for an acquisition.
    urgent: Cell<usize>,
    /// Tells a running acquisition that one more does.
    hurry: Notify,
    /// Tells who is about to write that the machine may have learnt something.
    learnt: Notify,
    pub(crate) delivered: Delivered,
    /// Where the Lease has lost our labels, or no others may be watched: a watch of its own, which ends with the slot.
    pub(crate) watch: RefCell<Option<Watch>>,
    followers: RefCell<Vec<ChangeSender>>,
    told: RefCell<Told>,
}

/// What the followers know.
#[derive(Default)]
struct Told {
    source: NewsSource,
    standing: Option<Change>,
    own: Option<(Term, Moment)>,
}

impl Slot {
    pub(crate) fn names(&self) -> (StreamName, String) {
        let machine = self.machine.borrow();
        (machine.stream.clone(), machine.name.clone())
    }

    /// The gate, for what may not wait for an acquisition.
    pub(crate) async fn urgently(&self) -> MutexGuard<'_, ()> {
        self.urgent.set(self.urgent.get() + 1);
        self.hurry.notify_waiters();
        let gate = self.gate.lock().await;
        self.urgent.set(self.urgent.get() - 1);
        gate
    }

    /// `work`, or `None` once the gate is wanted: for what may be cut short because it leaves nothing half done.
    pub(crate) async fn unless_urgent<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let hurry = self.hurry.notified();
        if self.urgent.get() > 0 {
            return None;
        }
        tokio::select! {
            biased;
            done = work => Some(done),
            () = hurry => None,
        }
    }

    /// Waits for `pause`, or until news show that `write` would meet a conflict; answers whether they do.
    pub(crate) async fn overtaken_within(&self, pause: Duration, write: &Lease) -> bool {
        let overtaken = async {
            loop {
                let learnt = self.learnt.notified();
                if !self.machine.borrow().would_apply(write) {
                    return;
                }
                learnt.await;
            }
        };
        tokio::time::timeout(pause, overtaken).await.is_ok()
    }

    /// Tells `follower` how things stand, and what changes from now on.
    pub(crate) fn follow(&self, follower: ChangeSender) {
        let told = self.told.borrow();
        follower.send(Change::Source(told.source));
        if let Some(standing) = &told.standing {
            follower.send(standing.clone());
        }
        self.followers.borrow_mut().push(follower);
    }

    /// Whether anybody follows.
    pub(crate) fn is_followed(&self) -> bool {
        let mut followers = self.followers.borrow_mut();
        followers.retain(|follower| !follower.is_closed());
        !followers.is_empty()
    }

    /// Where news of this Lease come from.
    pub(crate) fn source(&self) -> NewsSource {
        self.told.borrow().source
    }

    /// News come from here now.
    pub(crate) fn comes_from(&self, source: NewsSource) {
        let before = std::mem::replace(&mut self.told.borrow_mut().source, source);
        if before != source {
            self.send(&Change::Source(source));
        }
    }

    /// Tells the followers what the machine has learnt since it was last asked, and who is about to write that there may
    /// be something.
    pub(crate) fn tell(&self, now: Now) {
        self.learnt.notify_waiters();
        let mut machine = self.machine.borrow_mut();
        for (term, why) in machine.take_ended() {
            self.send(&Change::Over { term, why });
        }
        let mut told = self.told.borrow_mut();
        let own = machine.own_deadline().map(|(term, until)| (term.clone(), until));
        if let (Some((before, was)), Some((term, is))) = (&told.own, &own)
            && before == term
            && is < was
        {
            self.send(&Change::Shortened {
                term: term.clone(),
                valid_until: *is,
            });
        }
        told.own = own;
        let standing = machine.standing(now);
        if told.standing != standing {
            if let Some(change) = &standing {
                self.send(change);
            }
            told.standing = standing;
        }
    }

    /// Tells the followers what a request of ours met with.
    pub(crate) fn failed(&self, error: &Unknown) {
        self.send(&Change::Failing {
            error: error.to_string(),
        });
    }

    fn send(&self, change: &Change) {
        for follower in &*self.followers.borrow() {
            follower.send(change.clone());
        }
    }

    pub(crate) fn promise(
        &self,
        answer: &Result<Outcome, LockError>,
        before: Option<&Term>,
        attempted: Option<&Term>,
    ) -> Option<Promise> {
        // What was never written, or can be applied no more, is nothing to give back.
        let attempted = attempted.filter(|term| self.machine.borrow().pursues(term));
        self.delivered.promise(answer, before, attempted)
    }
}

/// The slots of all streams that are remembered, by Lease name.
#[derive(Default)]
pub(crate) struct Slots(RefCell<HashMap<String, Rc<Slot>>>);

impl Slots {
    /// The slot of `stream`, from now on if there was none.
    ///
    /// # Errors
    /// When another stream has the same Lease name.
    pub(crate) fn of(&self, settings: &Settings, stream: &StreamName) -> Result<Rc<Slot>, LockError> {
        let name = prefixed_lease_name(settings.prefix.as_ref(), stream);
        let now = settings.clock.now();
        let mut slots = self.0.borrow_mut();
        if slots.len() >= REMEMBERED && !slots.contains_key(&name) {
            evict(&mut slots, now);
        }
        let slot = slots.entry(name.clone()).or_insert_with(|| {
            let Settings {
                namespace, allowance, ..
            } = settings;
            Rc::new(Slot {
                machine: RefCell::new(Machine::new(stream.clone(), name, namespace.clone(), *allowance)),
                gate: Mutex::new(()),
                used: RefCell::new(now),
                urgent: Cell::new(0),
                hurry: Notify::new(),
                learnt: Notify::new(),
                delivered: Delivered::default(),
                watch: RefCell::default(),
                followers: RefCell::default(),
                told: RefCell::default(),
            })
        });
        *slot.used.borrow_mut() = now;
        let machine = slot.machine.borrow();
        if machine.stream == *stream {
            Ok(Rc::clone(slot))
        } else {
            Err(LockError::StreamConflict {
                stream: stream.clone(),
                found: machine.stream.to_string(),
                location: machine.location(),
            })
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<Rc<Slot>> {
        self.0.borrow().get(name).cloned()
    }

    /// The slots that are as asked.
    pub(crate) fn those(&self, wanted: impl Fn(&Slot) -> bool) -> Vec<Rc<Slot>> {
        let slots = self.0.borrow();
        let wanted = slots.values().filter(|slot| wanted(slot));
        wanted.cloned().collect()
    }

    /// The Lease names of the slots that are as asked.
    pub(crate) fn names(&self, wanted: impl Fn(&str, &Slot) -> bool) -> Vec<String> {
        let slots = self.0.borrow();
        let wanted = slots.iter().filter(|(name, slot)| wanted(name, slot));
        wanted.map(|(name, _)| name.clone()).collect()
    }
}

/// Forgets the longest unused tenth of what may be forgotten.
fn evict(slots: &mut HashMap<String, Rc<Slot>>, now: Moment) {
    let mut idle: Vec<(Moment, String)> = slots
        .iter()
        .filter(|(_, slot)| {
            Rc::strong_count(slot) == 1
                && !slot.is_followed()
                && slot.machine.borrow_mut().may_be_forgotten(now)
        })
        .map(|(name, slot)| (*slot.used.borrow(), name.clone()))
        .collect();
    idle.sort();
    for (_, name) in idle.into_iter().take(REMEMBERED / 10) {
        slots.remove(&name);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::{
        sync::oneshot::{self, error::TryRecvError},
        task::{LocalSet, spawn_local, yield_now},
    };

    use super::*;
    use crate::lock::ManualClock;

    #[tokio::test]
    async fn a_stream_that_is_forgotten_is_watched_no_more() {
        let settings = Settings {
            namespace: "ns".to_owned(),
            prefix: None,
            allowance: None,
            clock: Arc::new(ManualClock::new()),
        };
        let stream = |n: usize| StreamName::new(format!("s{n:06}")).unwrap();
        let (mut open, mut watched) = oneshot::channel::<()>();
        let watching = async move { open.closed().await };
        LocalSet::new()
            .run_until(async {
                let slots = Slots::default();
                let slot = slots.of(&settings, &stream(0)).unwrap();
                *slot.watch.borrow_mut() = Some(Watch(spawn_local(watching)));
                drop(slot);
                for n in 1..REMEMBERED {
                    slots.of(&settings, &stream(n)).unwrap();
                }
                yield_now().await;
                assert_eq!(watched.try_recv(), Err(TryRecvError::Empty));
                slots.of(&settings, &stream(REMEMBERED)).unwrap();
                yield_now().await;
                assert_eq!(watched.try_recv(), Err(TryRecvError::Closed));
            })
            .await;
    }
}
