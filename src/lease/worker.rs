//! The thread that sends: a runtime of its own, so that user code that blocks every worker of the user's runtime delays
//! no renewal.
//!
//! It drives the [`machine`](super::machine)s: one operation per stream at a time, each as a task of its own that nobody
//! aborts, so a dropped future never cuts a write in half. A grant that nobody waits for any more is given back.

use std::{
    rc::Rc,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use tokio::{
    sync::{MutexGuard, Semaphore, mpsc, oneshot},
    task::{JoinSet, LocalSet},
};

use super::{
    api::Api,
    delivery::{Delivery, Forsaken, deliver},
    following::Following,
    machine::{Acquire, Extend, Input, Now, Operation, Read, Release, Step},
    name::Prefix,
    slot::{Slot, Slots},
};
use crate::lock::{
    AcquireRequest, ChangeSender, Clock, ExtendRequest, LockError, LockRecord, Outcome, ReleaseRequest,
    Released, StreamName, Term, Ttl, Unknown,
};

/// Reads of acquisitions under way at once, and as many others. Extensions and releases are never held back by them.
const AT_ONCE: usize = 32;

/// How long what is under way may take to finish once nobody can ask any more.
const LINGER: Duration = Duration::from_secs(10);

/// The longest pause before a write that others may want to send too.
const STAGGER_MOST: Duration = Duration::from_millis(500);

/// Why an acquisition had no reply to its read.
const GAVE_WAY: &str = "a renewal or release of the same stream in this process came first, again and again";

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
    Follow(StreamName, ChangeSender),
    /// Finish what is under way, then end the thread.
    ShutDown(oneshot::Sender<()>),
}

pub(super) struct Worker {
    pub(super) settings: Settings,
    pub(super) client: kube::Client,
    api: Api,
    jobs: mpsc::WeakUnboundedSender<Job>,
    acquiring: Semaphore,
    pub(super) reading: Semaphore,
    pub(super) slots: Slots,
    pub(super) following: Following,
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
        slots: Slots::default(),
        following: Following::default(),
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
            if let Some(done) = told {
                let _ = done.send(());
            }
        })
        .await;
}

impl Worker {
    pub(super) fn now(&self) -> Now {
        Now {
            at: self.settings.clock.now(),
            wall: self.settings.clock.wall(),
        }
    }

    async fn work(self: Rc<Self>, job: Job) {
        match job {
            Job::Acquire(request, reply) => self.acquire(request, reply).await,
            Job::Extend(request, reply) => self.extend(request, reply).await,
            Job::Release(request, reply) => drop(reply.send(self.release(request).await)),
            Job::GiveBack(forsaken) => self.give_back(forsaken).await,
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
            Job::Follow(stream, follower) => self.follow(&stream, follower),
            Job::ShutDown(_) => {}
        }
    }

    async fn release(&self, request: ReleaseRequest) -> Result<Released, LockError> {
        let slot = self.slot(&request.stream)?;
        let _gate = slot.urgently().await;
        self.drive(&slot, &mut Release::new(request)).await
    }

    /// Never ahead of an acquisition that runs: it may be about to be granted the very term.
    async fn give_back(&self, Forsaken { request, adopted }: Forsaken) {
        let Ok(slot) = self.slot(&request.stream) else {
            return;
        };
        let _gate = slot.gate.lock().await;
        if adopted.load(Ordering::Relaxed) {
            return;
        }
        let stream = request.stream.clone();
        let answer = self.drive(&slot, &mut Release::new(request)).await;
        tracing::debug!(target: crate::telemetry::LEASE, %stream, reason = ?answer, "gave back a grant that nobody waited for");
    }

    async fn acquire(self: &Rc<Self>, request: AcquireRequest, reply: oneshot::Sender<Delivery>) {
        let slot = match self.slot(&request.stream) {
            Ok(slot) => slot,
            Err(error) => return deliver(reply, Err(error), None),
        };
        let gate = slot.gate.lock().await;
        if reply.is_closed() {
            return;
        }
        let mut operation = Acquire::new(request.clone());
        let (answer, before, _gate) = self.drive_giving_way(&slot, gate, &mut operation).await;
        if let Ok(Outcome::Refused(_)) = &answer {
            // A contender: from here on, what becomes of the holder should arrive as it happens.
            self.watch(&slot);
        }
        let promise = slot.promise(&answer, before.as_ref(), Some(operation.term()));
        let release = ReleaseRequest::new(&request.stream, &request.instance);
        deliver(reply, answer, promise.map(|p| p.kept_by(&self.jobs, release)));
    }

    async fn extend(self: &Rc<Self>, request: ExtendRequest, reply: oneshot::Sender<Delivery>) {
        let slot = match self.slot(&request.stream) {
            Ok(slot) => slot,
            Err(error) => return deliver(reply, Err(error), None),
        };
        let _gate = slot.urgently().await;
        let before = slot.machine.borrow_mut().valid_term(self.now().at);
        let release = ReleaseRequest::new(&request.stream, &request.instance);
        let mut operation = Extend::new(request);
        let answer = self.drive(&slot, &mut operation).await;
        let promise = slot.promise(&answer, before.as_ref(), operation.new_term());
        deliver(reply, answer, promise.map(|p| p.kept_by(&self.jobs, release)));
    }

    /// Drives an acquisition, which gives way at its reads and pauses to an extension or a release of the same stream: a
    /// read that is never answered must not cost a holder in this process its term. Also answers which term was valid
    /// before the acquisition's last turn.
    async fn drive_giving_way<'a>(
        &self,
        slot: &'a Slot,
        mut gate: MutexGuard<'a, ()>,
        operation: &mut Acquire,
    ) -> (Result<Outcome, LockError>, Option<Term>, MutexGuard<'a, ()>) {
        let mut before = slot.machine.borrow_mut().valid_term(self.now().at);
        let mut input = Input::Continue;
        let mut round_trip = None;
        loop {
            let step = self.step(slot, operation, input);
            let timeout = operation.attempt_timeout();
            let pausing = matches!(step, Step::Wait(_));
            let next = match &step {
                Step::Get => {
                    let read = async {
                        let _permit = self.acquiring.acquire().await;
                        let sent = Instant::now();
                        let input = self.request(slot, step, timeout).await;
                        round_trip = Some(sent.elapsed());
                        input
                    };
                    slot.unless_urgent(read).await
                }
                Step::Wait(_) => slot.unless_urgent(self.request(slot, step, timeout)).await,
                Step::Create(lease) | Step::Put(lease) => {
                    let pause = round_trip.take().map(|taken| stagger(taken, operation.ttl()));
                    if let Some(pause) = pause
                        && slot.machine.borrow().changes_holder(lease)
                        && slot.overtaken_within(pause, lease).await
                    {
                        // It was not sent, and would have met a conflict.
                        Some(Ok(Input::Conflict))
                    } else {
                        Some(self.request(slot, step, timeout).await)
                    }
                }
                Step::Done(_) => Some(self.request(slot, step, timeout).await),
            };
            input = match next {
                Some(Ok(input)) => input,
                Some(Err(answer)) => return (answer, before, gate),
                None => {
                    drop(gate);
                    gate = slot.gate.lock().await;
                    before = slot.machine.borrow_mut().valid_term(self.now().at);
                    if pausing {
                        Input::Continue
                    } else {
                        // A failure like any other, so that who renews without a pause cannot keep it from its end.
                        Input::Unknown(Unknown::new(GAVE_WAY))
                    }
                }
            };
        }
    }

    pub(super) async fn drive<O: Operation>(&self, slot: &Slot, operation: &mut O) -> O::Answer {
        let mut input = Input::Continue;
        loop {
            let step = self.step(slot, operation, input);
            input = match self.request(slot, step, operation.attempt_timeout()).await {
                Ok(input) => input,
                Err(answer) => return answer,
            };
        }
    }

    /// The time is taken before anything that the step asks for is sent: deadlines count from here.
    fn step<O: Operation>(&self, slot: &Slot, operation: &mut O, input: Input) -> Step<O::Answer> {
        let now = self.now();
        let step = operation.step(&mut slot.machine.borrow_mut(), now, input);
        slot.tell(now);
        step
    }

    /// Does what a step asks for: what came of it, or the answer.
    async fn request<A>(&self, slot: &Slot, step: Step<A>, timeout: Duration) -> Result<Input, A> {
        let (stream, name) = slot.names();
        let input = match step {
            Step::Get => self.api.get(&stream, &name, timeout).await,
            Step::Create(lease) => self.api.create(&stream, &lease, timeout).await,
            Step::Put(lease) => self.api.update(&stream, &lease, timeout).await,
            Step::Wait(pause) => {
                tokio::time::sleep(jittered(pause)).await;
                Input::Continue
            }
            Step::Done(answer) => return Err(answer),
        };
        if let Input::Unknown(error) = &input {
            slot.failed(error);
        }
        Ok(input)
    }

    pub(super) fn slot(&self, stream: &StreamName) -> Result<Rc<Slot>, LockError> {
        self.slots.of(&self.settings, stream)
    }
}

/// How long who read that a lock may be taken waits with the write, so that of many who read the same at once only a few
/// write: whoever hears meanwhile that another was first sends nothing.
///
/// A lot between nothing and four times what the read took. A crowd that reads at once, or a slow server, makes reads take
/// long, and so spreads the writes by itself; it takes about the time of one write until the others hear of it. No longer
/// than a twentieth of the TTL, as a term counts from before the pause.
fn stagger(round_trip: Duration, ttl: Ttl) -> Duration {
    let most = STAGGER_MOST.min(ttl.as_duration() / 20);
    (round_trip * 4).min(most).mul_f64(lot())
}

/// Half to the whole of `pause`, so that many who failed together do not return together.
fn jittered(pause: Duration) -> Duration {
    pause / 2 + (pause / 2).mul_f64(lot())
}

/// At random between 0 and 1.
fn lot() -> f64 {
    let [a, b, ..] = *uuid::Uuid::new_v4().as_bytes();
    f64::from(u16::from_be_bytes([a, b])) / f64::from(u16::MAX)
}
