//! Gives one stream's [`Machine`] time, replies and hands. Runs on the coordinator's thread; the work does not.

use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::{
    runtime::Handle,
    sync::{mpsc, oneshot, watch},
    task::AbortHandle,
    time::sleep,
};

use super::{
    answer::{news, panic_message},
    calls::Call,
    leadership::{Leadership, Reins},
    machine::{CallId, End, Held, Input, Machine, News, Output, TermNo, Wish},
    metrics::{ElectionEventKind, Metrics},
    status::{DeploymentMode, HolderSeen, IfStuck, Loss, LossReason, Role, StreamState, StreamStatus},
};
use crate::lock::{
    BoxFuture, Change, Changes, FencingToken, InstanceId, LockService, Moment, NewsSource, StreamName, Term,
    Ttl,
};
use crate::telemetry::ELECTION;

/// The user's work.
pub(super) type Work = Arc<dyn Fn(Leadership) -> BoxFuture<'static, ()> + Send + Sync>;

/// What a stream's loop is told.
pub(super) enum Message {
    Input(Input),
    /// Somebody wants something. The sender hears when the stream is down, or when a start has overtaken the stop.
    Wish(Wish, Option<oneshot::Sender<()>>),
}

/// When a stream's loop last ran.
#[derive(Debug)]
pub(super) struct Pulse(Mutex<Instant>);

impl Pulse {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Instant::now()))
    }

    fn beat(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    pub(super) fn last(&self) -> Instant {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a stream's loop needs.
pub(super) struct Driver {
    pub(super) machine: Machine,
    pub(super) stream: StreamName,
    pub(super) mode: DeploymentMode,
    pub(super) if_stuck: IfStuck,
    pub(super) instance: InstanceId,
    pub(super) ttl: Ttl,
    pub(super) service: Arc<dyn LockService>,
    pub(super) work: Work,
    /// Where the work runs.
    pub(super) runtime: Handle,
    /// The longest sleep. The runtime's timers stand still while the machine is suspended, and know nothing of an
    /// injected clock; so the clock is asked at least this often.
    pub(super) slice: Duration,
    pub(super) inbox: mpsc::UnboundedReceiver<Message>,
    pub(super) outbox: mpsc::UnboundedSender<Message>,
    pub(super) status: watch::Sender<StreamStatus>,
    pub(super) changes: watch::Sender<u64>,
    pub(super) pulse: Arc<Pulse>,
    pub(super) metrics: Metrics,
    pub(super) hands: Hands,
}

/// What the loop holds while it runs.
#[derive(Default)]
pub(super) struct Hands {
    term: Option<(TermNo, Term)>,
    leading: Option<(Reins, AbortHandle)>,
    pub(super) calls: HashMap<CallId, Call>,
    last_loss: Option<Loss>,
    waiting: Vec<oneshot::Sender<()>>,
}

impl Drop for Hands {
    fn drop(&mut self) {
        // The loop is gone: nobody renews, so nobody may act.
        if let Some((_, work)) = &self.leading {
            work.abort();
        }
    }
}

/// A stream's first status.
pub(super) fn initial_status(stream: StreamName, mode: DeploymentMode) -> StreamStatus {
    StreamStatus {
        stream,
        mode,
        role: role(mode, StreamState::Stopped),
        state: StreamState::Stopped,
        holder: None,
        token: None,
        valid_until: None,
        last_error: None,
        last_loss: None,
        source: NewsSource::default(),
    }
}

fn role(mode: DeploymentMode, state: StreamState) -> Role {
    match (mode, state) {
        (DeploymentMode::AllInstances, _) => Role::NotApplicable,
        (DeploymentMode::SingleLeader, StreamState::Working | StreamState::Draining) => Role::Leader,
        (DeploymentMode::SingleLeader, _) => Role::Standby,
    }
}

/// Whether a stream's changes are followed.
enum Following {
    Not,
    Told(Changes),
    /// The service does not tell, or does so no more.
    Untold,
}

impl Following {
    /// The next change, for ever none where nothing is told. `None` once, when the service stops telling.
    async fn next(&mut self) -> Option<Change> {
        let Self::Told(changes) = self else {
            return std::future::pending().await;
        };
        let change = changes.next().await;
        if change.is_none() {
            *self = Self::Untold;
        }
        change
    }
}

impl Driver {
    /// Runs until the stream is shut down and everything of it is gone.
    pub(super) async fn run(mut self) {
        let mut following = Following::Not;
        while !self.machine.is_finished() {
            // A stream that is stopped follows nothing.
            let follows = self.mode == DeploymentMode::SingleLeader
                && self.machine.stream_state() != StreamState::Stopped;
            match (&following, follows) {
                (Following::Not, true) => following = self.follow(),
                (_, false) => following = Following::Not,
                _ => {}
            }
            let now = self.service.clock().now();
            let pause = self.machine.wake().since(now).min(self.slice);
            let message = tokio::select! {
                message = self.inbox.recv() => message,
                change = following.next() => Some(Message::Input(self.hear(change))),
                () = sleep(pause) => Some(Message::Input(Input::Tick)),
            };
            self.pulse.beat();
            match message {
                Some(Message::Input(input)) => self.step(input),
                Some(Message::Wish(wish, told)) => {
                    self.step(Input::Wish(wish));
                    if wish == Wish::Start {
                        self.hands.waiting.clear();
                    }
                    self.hands.waiting.extend(told);
                }
                // The loop holds a sender itself, so this does not happen.
                None => return,
            }
            self.publish();
            if self.machine.stream_state() == StreamState::Stopped {
                self.hands.waiting.clear();
            }
        }
    }

    /// A panic of the lock service is nobody else's trouble: then nothing is told.
    fn follow(&self) -> Following {
        let follow = AssertUnwindSafe(|| self.service.changes(&self.stream));
        let changes = catch_unwind(follow).unwrap_or_default();
        changes.map_or(Following::Untold, Following::Told)
    }

    fn hear(&self, change: Option<Change>) -> Input {
        let news = match change {
            Some(change) => {
                let term = self.hands.term.as_ref();
                news(change, |told| {
                    term.filter(|(_, term)| term == told).map(|(number, _)| *number)
                })
            }
            // There will be no more news.
            None => Some(News::Source(NewsSource::Polling)),
        };
        news.map_or(Input::Tick, Input::News)
    }

    fn step(&mut self, input: Input) {
        let now = self.service.clock().now();
        let outputs = self.machine.step(now, input);
        let mut lapsed = None;
        for output in outputs {
            match output {
                Output::Deadline(deadline) => {
                    if let Some((reins, _)) = &self.hands.leading
                        && !reins.deadline(deadline)
                    {
                        lapsed = self.hands.term.as_ref().map(|(number, _)| *number);
                    }
                }
                output => self.perform(output),
            }
        }
        if let Some(term) = lapsed {
            self.step(Input::GuardLapsed(term));
        }
    }

    fn perform(&mut self, output: Output) {
        match output {
            Output::Acquire(id, term) => self.acquire(id, term),
            Output::Extend(id, term) => self.extend(id, term),
            Output::Release(id, term) => self.release(id, term),
            Output::Forget(id) => {
                if let Some(call) = self.hands.calls.remove(&id) {
                    self.timed_out(&call);
                    call.abort();
                }
            }
            Output::StartWork {
                term,
                valid_until,
                token,
            } => {
                let number = term;
                let term = self.term(number);
                tracing::info!(
                    target: ELECTION,
                    stream = %self.stream, instance = %self.instance, %term, token = token.map(FencingToken::get),
                    "leading"
                );
                self.tell(ElectionEventKind::Acquired { token });
                let outbox = self.outbox.clone();
                let gone = move || drop(outbox.send(Message::Input(Input::GuardsGone(number))));
                let service = Arc::clone(&self.service);
                let (reins, leadership) =
                    Reins::new(self.stream.clone(), term, token, valid_until, service, gone);
                let work = self.spawn_work(number, leadership);
                self.hands.leading = Some((reins, work));
            }
            Output::Deadline(_) => {}
            Output::AskStop(reason) => {
                tracing::info!(
                    target: ELECTION,
                    stream = %self.stream, instance = %self.instance, %reason,
                    "asking the work to stop"
                );
                if let Some((reins, _)) = &self.hands.leading {
                    reins.ask_stop(reason);
                }
            }
            Output::TellLost(reason) => {
                tracing::warn!(
                    target: ELECTION,
                    stream = %self.stream, instance = %self.instance, %reason,
                    "leadership cannot be kept"
                );
                if let Some((reins, _)) = &self.hands.leading {
                    reins.tell_lost(reason);
                }
            }
            Output::CutOff(reason) => self.cut_off(reason),
            Output::Stuck => self.stuck(),
        }
    }

    fn stuck(&self) {
        let (stream, instance) = (&self.stream, &self.instance);
        match self.if_stuck {
            IfStuck::Wait => tracing::error!(
                target: ELECTION,
                %stream, %instance,
                "the work goes on although its leadership is over; the lock is left to expire"
            ),
            IfStuck::AbortProcess => {
                tracing::error!(
                    target: ELECTION,
                    %stream, %instance,
                    "the work goes on although its leadership is over; aborting"
                );
                std::process::abort();
            }
        }
    }

    fn cut_off(&mut self, reason: LossReason) {
        let term = self
            .hands
            .term
            .as_ref()
            .map(|(_, term)| tracing::field::display(term));
        tracing::info!(
            target: ELECTION,
            stream = %self.stream, instance = %self.instance, term, %reason,
            "no longer leading"
        );
        // A renewal that is still under way is left alone, and comes too late.
        for call in self.hands.calls.values() {
            if call.is_renewal() {
                self.timed_out(call);
            }
        }
        self.tell(ElectionEventKind::Lost {
            reason: reason.clone(),
        });
        if let Some((reins, work)) = self.hands.leading.take() {
            reins.end(reason.clone());
            work.abort();
        }
        self.hands.last_loss = Some(Loss {
            reason,
            at: self.service.clock().wall(),
        });
    }

    /// Starts the work on the user's runtime and tells when it has ended.
    fn spawn_work(&self, term: TermNo, leadership: Leadership) -> AbortHandle {
        let work = Arc::clone(&self.work);
        // Called inside the task, so that a panic of the function itself is the task's.
        let task = self.runtime.spawn(async move { work(leadership).await });
        let abort = task.abort_handle();
        let outbox = self.outbox.clone();
        tokio::task::spawn_local(async move {
            let end = match task.await {
                Err(error) if error.is_panic() => End::Panicked(panic_message(&*error.into_panic())),
                Ok(()) | Err(_) => End::Returned,
            };
            let _ = outbox.send(Message::Input(Input::WorkEnded(term, end)));
        });
        abort
    }

    /// The random term that goes by this number.
    pub(super) fn term(&mut self, number: TermNo) -> Term {
        match &self.hands.term {
            Some((of, term)) if *of == number => term.clone(),
            _ => {
                let term = Term::random();
                self.hands.term = Some((number, term.clone()));
                term
            }
        }
    }

    /// A stream without a leader has no metrics of leadership.
    pub(super) fn tell(&self, kind: ElectionEventKind) {
        if self.mode == DeploymentMode::SingleLeader {
            self.metrics.tell(&self.stream, kind);
        }
    }

    fn publish(&mut self) {
        let state = self.machine.stream_state();
        let leadership = self.machine.leadership();
        let holder = self.machine.holder().map(|(held, seen_at)| HolderSeen {
            holder: held.map(|held| match held {
                Held::ByMe => self.instance.to_string(),
                Held::By(other) => other.clone(),
            }),
            seen_at,
        });
        let status = StreamStatus {
            stream: self.stream.clone(),
            mode: self.mode,
            role: role(self.mode, state),
            state,
            holder,
            token: leadership.and_then(|(_, token)| token),
            valid_until: leadership
                .map(|(until, _)| until)
                .filter(|until| *until != Moment::NEVER),
            last_error: self.machine.last_error().map(str::to_owned),
            last_loss: self.hands.last_loss.clone(),
            source: self.machine.source(),
        };
        let mut notable = false;
        let mut was = status.role;
        let is = status.role;
        self.status.send_if_modified(|old| {
            notable =
                old.state != status.state || old.token != status.token || old.last_loss != status.last_loss;
            let changed = *old != status;
            was = old.role;
            *old = status;
            changed
        });
        if was != is {
            self.tell(ElectionEventKind::RoleChanged { from: was, to: is });
        }
        if notable {
            self.changes.send_modify(|version| *version += 1);
        }
    }
}
