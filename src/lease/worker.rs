//! The thread that sends: a runtime of its own, so that user code that blocks every worker of the user's runtime delays
//! no renewal.
//!
//! It drives the [`machine`](super::machine)s: one operation per stream at a time, each as a task of its own that nobody
//! aborts, so a dropped future never cuts a write in half. A grant that nobody waits for any more is given back.

use std::{
    cell::RefCell,
    collections::HashMap,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{Mutex, Semaphore, mpsc, oneshot},
    task::{JoinHandle, JoinSet, LocalSet},
};

use super::{
    api::Api,
    machine::{Acquire, Extend, Input, Machine, Now, Operation, Read, Release, Step},
    name::{Prefix, prefixed_lease_name},
    watch::{self, News, Selector},
};
use crate::lock::{
    AcquireRequest, Claim, Clock, ExtendRequest, LockError, LockRecord, Moment, Outcome, ReleaseRequest,
    Released, StreamName, Term,
};

/// Streams remembered without a term of ours. Forgetting one delays a takeover by up to its TTL, and grants nothing.
const REMEMBERED: usize = 10_000;

/// Acquisitions under way at once, and as many reads. Extensions and releases are never held back by them.
const AT_ONCE: usize = 32;

/// How long what is under way may take to finish once nobody can ask any more.
const LINGER: Duration = Duration::from_secs(10);

/// What is fixed when a service is built.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) namespace: String,
    pub(crate) prefix: Option<Prefix>,
    pub(crate) allowance: Option<Duration>,
    pub(crate) clock: Arc<dyn Clock>,
}

/// What is asked of the worker.
pub(crate) enum Job {
    Acquire(AcquireRequest, oneshot::Sender<Delivery>),
    Extend(ExtendRequest, oneshot::Sender<Delivery>),
    Release(ReleaseRequest, oneshot::Sender<Result<Released, LockError>>),
    GiveBack(Forsaken),
    Read(StreamName, oneshot::Sender<Result<Option<LockRecord>, LockError>>),
    /// Finish what is under way, then end the thread.
    ShutDown(oneshot::Sender<()>),
}

/// A term that was granted to somebody who did not wait for it.
pub(crate) struct Forsaken {
    request: ReleaseRequest,
    /// Set once another call was granted the same term: then it is in use, and not given back.
    adopted: Arc<AtomicBool>,
}

/// An answer on its way to who asked. If it is never taken, and was a new grant, the grant is given back.
pub(crate) struct Delivery {
    answer: Option<Result<Outcome, LockError>>,
    give_back: Option<(mpsc::WeakUnboundedSender<Job>, Forsaken)>,
}

impl Delivery {
    /// Takes the answer; a grant in it is the taker's from here on.
    pub(crate) fn take(mut self) -> Result<Outcome, LockError> {
        self.give_back = None;
        self.answer.take().unwrap_or(Err(LockError::ShutDown))
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        if let Some((jobs, forsaken)) = self.give_back.take()
            && let Some(jobs) = jobs.upgrade()
        {
            // Fails only when the thread has ended, and then the Lease expires by itself.
            let _ = jobs.send(Job::GiveBack(forsaken));
        }
    }
}

struct Slot {
    machine: RefCell<Machine>,
    /// One operation that writes at a time: two would race each other for the resourceVersion.
    gate: Mutex<()>,
    used: RefCell<Moment>,
    /// The last new term that was granted, and whether a second call was granted it too.
    delivered: RefCell<Option<(Term, Arc<AtomicBool>)>>,
}

impl Slot {
    /// What to do with `answer` if nobody takes it: a new term, granted or perhaps yet to be applied, is given back; one
    /// that was granted before is in other hands too, and stays.
    ///
    /// A grant also takes its term out of the hands of earlier calls that it was promised to, whether they were granted
    /// it or left in the unknown: they would give back what is in use.
    fn deliver(
        &self,
        answer: &Result<Outcome, LockError>,
        before: Option<&Term>,
        attempted: Option<&Term>,
    ) -> Option<(Term, Arc<AtomicBool>)> {
        let term = match answer {
            Ok(Outcome::Granted(grant)) => &grant.term,
            // What was never written, or can be applied no more, is nothing to give back.
            Ok(Outcome::Unknown(_)) => attempted.filter(|term| self.machine.borrow().pursues(term))?,
            _ => return None,
        };
        let earlier = self.delivered.borrow().clone();
        let earlier = earlier.filter(|(delivered, _)| delivered == term);
        let in_use = before == Some(term);
        if let Some((_, adopted)) = &earlier
            && (in_use || matches!(answer, Ok(Outcome::Granted(_))))
        {
            adopted.store(true, Ordering::Relaxed);
        } else if earlier.is_some() {
            return earlier;
        }
        if in_use {
            return None;
        }
        let delivered = (term.clone(), Arc::new(AtomicBool::new(false)));
        *self.delivered.borrow_mut() = Some(delivered.clone());
        Some(delivered)
    }
}

struct Worker {
    settings: Settings,
    client: kube::Client,
    api: Api,
    jobs: mpsc::WeakUnboundedSender<Job>,
    acquiring: Semaphore,
    reading: Semaphore,
    /// By Lease name.
    slots: RefCell<HashMap<String, Rc<Slot>>>,
    watches: RefCell<HashMap<Option<String>, JoinHandle<()>>>,
}

/// Runs until the last sender of `jobs` is gone, or a shutdown is asked for.
pub(crate) async fn run(
    settings: Settings,
    client: kube::Client,
    mut jobs: mpsc::UnboundedReceiver<Job>,
    sender: mpsc::WeakUnboundedSender<Job>,
) {
    let worker = Rc::new(Worker {
        api: Api::new(client.clone(), settings.namespace.clone()),
        client,
        settings,
        jobs: sender,
        acquiring: Semaphore::new(AT_ONCE),
        reading: Semaphore::new(AT_ONCE),
        slots: RefCell::default(),
        watches: RefCell::default(),
    });
    LocalSet::new()
        .run_until(async move {
            let mut tasks = JoinSet::new();
            let mut told = None;
            while let Some(job) = jobs.recv().await {
                if let Job::ShutDown(done) = job {
                    told = Some(done);
                    break;
                }
                tasks.spawn_local(Rc::clone(&worker).work(job));
                while tasks.try_join_next().is_some() {}
            }
            let _ = tokio::time::timeout(LINGER, async { while tasks.join_next().await.is_some() {} }).await;
            for (_, watch) in worker.watches.borrow_mut().drain() {
                watch.abort();
            }
            if let Some(done) = told {
                let _ = done.send(());
            }
        })
        .await;
}

impl Worker {
    fn now(&self) -> Now {
        Now {
            at: self.settings.clock.now(),
            wall: self.settings.clock.wall(),
        }
    }

    async fn work(self: Rc<Self>, job: Job) {
        match job {
            Job::Acquire(request, reply) => self.acquire(request, reply).await,
            Job::Extend(request, reply) => self.extend(request, reply).await,
            Job::Release(request, reply) => drop(reply.send(self.release(request, None).await)),
            Job::GiveBack(Forsaken { request, adopted }) => {
                let stream = request.stream.clone();
                let answer = self.release(request, Some(&adopted)).await;
                tracing::debug!(%stream, ?answer, "gave back a grant that nobody waited for");
            }
            Job::Read(stream, reply) => {
                let answer = match self.slot(&stream) {
                    Ok(slot) => {
                        let _permit = self.reading.acquire().await;
                        self.drive(&slot, &mut Read::default()).await
                    }
                    Err(error) => Err(error),
                };
                let _ = reply.send(answer);
            }
            Job::ShutDown(_) => {}
        }
    }

    async fn release(
        &self,
        request: ReleaseRequest,
        adopted: Option<&AtomicBool>,
    ) -> Result<Released, LockError> {
        let slot = self.slot(&request.stream)?;
        let _gate = slot.gate.lock().await;
        if adopted.is_some_and(|adopted| adopted.load(Ordering::Relaxed)) {
            return Ok(Released::NotHeld);
        }
        self.drive(&slot, &mut Release::new(request)).await
    }

    async fn acquire(self: &Rc<Self>, request: AcquireRequest, reply: oneshot::Sender<Delivery>) {
        let slot = match self.slot(&request.stream) {
            Ok(slot) => slot,
            Err(error) => {
                return drop(reply.send(Delivery {
                    answer: Some(Err(error)),
                    give_back: None,
                }));
            }
        };
        let _gate = slot.gate.lock().await;
        if reply.is_closed() {
            return;
        }
        let _permit = self.acquiring.acquire().await;
        let before = slot.machine.borrow_mut().valid_term(self.now().at);
        let mut operation = Acquire::new(request.clone());
        let answer = self.drive(&slot, &mut operation).await;
        if let Ok(Outcome::Refused(_)) = &answer {
            // A contender: from here on, what becomes of the holder should arrive as it happens.
            self.watch(None);
            if slot.machine.borrow().left_selector() {
                self.watch(Some(slot.machine.borrow().name.clone()));
            }
        }
        let release = ReleaseRequest::new(&request.stream, &request.instance);
        let delivered = slot.deliver(&answer, before.as_ref(), Some(operation.term()));
        self.deliver(reply, answer, delivered, release);
    }

    async fn extend(self: &Rc<Self>, request: ExtendRequest, reply: oneshot::Sender<Delivery>) {
        let slot = match self.slot(&request.stream) {
            Ok(slot) => slot,
            Err(error) => {
                return drop(reply.send(Delivery {
                    answer: Some(Err(error)),
                    give_back: None,
                }));
            }
        };
        let _gate = slot.gate.lock().await;
        let before = slot.machine.borrow_mut().valid_term(self.now().at);
        let release = ReleaseRequest::new(&request.stream, &request.instance);
        let mut operation = Extend::new(request);
        let answer = self.drive(&slot, &mut operation).await;
        let delivered = slot.deliver(&answer, before.as_ref(), operation.new_term());
        self.deliver(reply, answer, delivered, release);
    }

    fn deliver(
        &self,
        reply: oneshot::Sender<Delivery>,
        answer: Result<Outcome, LockError>,
        delivered: Option<(Term, Arc<AtomicBool>)>,
        release: ReleaseRequest,
    ) {
        let give_back = delivered.map(|(term, adopted)| {
            let request = release.claim(Claim::Term(term));
            (self.jobs.clone(), Forsaken { request, adopted })
        });
        let answer = Some(answer);
        // If nobody waits, the delivery comes back, and its drop gives the grant back.
        drop(reply.send(Delivery { answer, give_back }));
    }

    async fn drive<O: Operation>(&self, slot: &Slot, operation: &mut O) -> O::Answer {
        let (stream, name) = {
            let machine = slot.machine.borrow();
            (machine.stream.clone(), machine.name.clone())
        };
        let mut input = Input::Continue;
        loop {
            // The time is taken before the request is sent: deadlines count from here.
            let step = operation.step(&mut slot.machine.borrow_mut(), self.now(), input);
            let timeout = operation.attempt_timeout();
            input = match step {
                Step::Get => self.api.get(&stream, &name, timeout).await,
                Step::Create(lease) => self.api.create(&stream, &lease, timeout).await,
                Step::Put(lease) => self.api.update(&stream, &lease, timeout).await,
                Step::Wait(pause) => {
                    tokio::time::sleep(jittered(pause)).await;
                    Input::Continue
                }
                Step::Done(answer) => return answer,
            };
        }
    }

    fn slot(&self, stream: &StreamName) -> Result<Rc<Slot>, LockError> {
        let name = prefixed_lease_name(self.settings.prefix.as_ref(), stream);
        let now = self.settings.clock.now();
        let mut slots = self.slots.borrow_mut();
        if slots.len() >= REMEMBERED && !slots.contains_key(&name) {
            evict(&mut slots, now);
        }
        let slot = slots.entry(name.clone()).or_insert_with(|| {
            let Settings {
                namespace, allowance, ..
            } = &self.settings;
            Rc::new(Slot {
                machine: RefCell::new(Machine::new(stream.clone(), name, namespace.clone(), *allowance)),
                gate: Mutex::new(()),
                used: RefCell::new(now),
                delivered: RefCell::default(),
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

    /// Watches by label (`None`), or one Lease by name, unless that is done already.
    fn watch(self: &Rc<Self>, name: Option<String>) {
        let mut watches = self.watches.borrow_mut();
        if watches.contains_key(&name) {
            return;
        }
        let worker = Rc::downgrade(self);
        let selector = name.clone().map_or(Selector::Labels, Selector::Name);
        let by_label = name.is_none();
        let tell = Rc::new(move |news| {
            if let Some(worker) = worker.upgrade() {
                worker.hear(news, by_label);
            }
        });
        let run = watch::run(
            self.client.clone(),
            self.settings.namespace.clone(),
            selector,
            tell,
        );
        watches.insert(name, tokio::task::spawn_local(run));
    }

    fn hear(self: &Rc<Self>, news: News, by_label: bool) {
        match news {
            News::Lease(lease) => {
                let name = lease.metadata.name.clone();
                let Some(slot) = self.slots.borrow().get(&name).cloned() else {
                    return;
                };
                let labelled = lease.is_labelled();
                if let Err(error) = slot
                    .machine
                    .borrow_mut()
                    .observe(self.settings.clock.now(), *lease)
                {
                    tracing::debug!(%error, "a watched lease is unusable");
                }
                if by_label
                    && labelled
                    && let Some(watch) = self.watches.borrow_mut().remove(&Some(name))
                {
                    watch.abort();
                }
            }
            News::Gone(name) => self.look(&name),
            News::Listed(names) => {
                let listed: std::collections::HashSet<String> = names.into_iter().collect();
                let absent: Vec<String> = self
                    .slots
                    .borrow()
                    .iter()
                    .filter(|(name, slot)| {
                        by_label && !listed.contains(*name) && slot.machine.borrow().has_seen()
                    })
                    .map(|(name, _)| name.clone())
                    .collect();
                for name in &absent {
                    self.look(name);
                }
            }
        }
    }

    /// DELETED and an absence only cause a read: removing a label looks the same.
    fn look(self: &Rc<Self>, name: &str) {
        let Some(slot) = self.slots.borrow().get(name).cloned() else {
            return;
        };
        let worker = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let _permit = worker.reading.acquire().await;
            if let Err(error) = worker.drive(&slot, &mut Read::default()).await {
                tracing::debug!(%error, "could not read a lease that left the watch");
            }
            if slot.machine.borrow().left_selector() {
                let name = slot.machine.borrow().name.clone();
                worker.watch(Some(name));
            }
        });
    }
}

/// Forgets the longest unused tenth of what may be forgotten.
fn evict(slots: &mut HashMap<String, Rc<Slot>>, now: Moment) {
    let mut idle: Vec<(Moment, String)> = slots
        .iter()
        .filter(|(_, slot)| Rc::strong_count(slot) == 1 && slot.machine.borrow_mut().may_be_forgotten(now))
        .map(|(name, slot)| (*slot.used.borrow(), name.clone()))
        .collect();
    idle.sort();
    for (_, name) in idle.into_iter().take(REMEMBERED / 10) {
        slots.remove(&name);
    }
}

/// Half to the whole of `pause`, so that many who failed together do not return together.
fn jittered(pause: Duration) -> Duration {
    let [byte, ..] = *uuid::Uuid::new_v4().as_bytes();
    pause / 2 + (pause / 2).mul_f64(f64::from(byte) / 255.0)
}
