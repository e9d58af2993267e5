//! The step function: what is due, then what happened. Each phase of a stream's life has a file of its own beside it.

use std::time::Duration;

use super::{
    super::{
        settings::ElectionSettings,
        status::{AfterWork, DeploymentMode, LossReason, StreamState},
    },
    CallId, End, Input, Output, TermNo, Wish,
    contending::{Settling, Standby},
    ending::{Ending, Releasing},
    leading::Leading,
};
use crate::{
    lock::{FencingToken, Moment, NewsSource},
    rules::Rules,
};

/// Contenders that learn of a release together ask this far apart at most. A lock service whose requests take longer
/// spreads its writes itself.
pub(super) const STAGGER: Duration = Duration::from_millis(5);
/// Beyond this the pauses grow no more: 2^10 is more than any bound on them.
pub(super) const DOUBLINGS: u32 = 10;

/// One stream, as one instance sees it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Machine {
    pub(super) settings: ElectionSettings,
    pub(super) after_work: AfterWork,
    /// False in [`DeploymentMode::AllInstances`]: work without a lock.
    pub(super) locked: bool,
    /// Whether the stream is wanted.
    pub(super) wanted: bool,
    pub(super) shut: bool,
    /// When work that drains is dropped at the latest, and when nothing goes on any more: a shutdown's limits.
    pub(super) drain_by: Moment,
    pub(super) done_by: Moment,
    /// Where news of the lock come from.
    pub(super) source: NewsSource,
    /// What was told last: free since, or held until this moment unless renewed.
    pub(super) told: Option<Told>,
    pub(super) state: State,
    pub(super) calls: u64,
    pub(super) terms: u64,
    pub(super) seed: u64,
    /// Failures in a row while contending.
    pub(super) failures: u32,
    /// How often in a row the work ended soon after it began, and the pause that follows from it.
    pub(super) ends: u32,
    pub(super) pause: Duration,
    pub(super) last_error: Option<String>,
    pub(super) holder: Option<(Option<Held>, Moment)>,
    pub(super) last_loss: Option<LossReason>,
    pub(super) rules: Rules,
}

/// By whom.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Held {
    /// This instance.
    ByMe,
    /// Another.
    By(String),
}

/// The last news of the lock itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Told {
    FreeAt(Moment),
    HeldUntil(Moment),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum State {
    Down,
    Standby(Standby),
    /// Stopped while an acquisition is under way: its answer comes first, then its release.
    Settling(Settling),
    Leading(Leading),
    Ending(Ending),
    Releasing(Releasing),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Call {
    pub(super) id: CallId,
    pub(super) sent: Moment,
}

impl Machine {
    /// A stream that is down. `seed` draws the lots that keep many instances apart.
    pub fn new(settings: ElectionSettings, mode: DeploymentMode, after_work: AfterWork, seed: u64) -> Self {
        Self {
            settings,
            after_work,
            locked: mode == DeploymentMode::SingleLeader,
            wanted: false,
            shut: false,
            drain_by: Moment::NEVER,
            done_by: Moment::NEVER,
            source: NewsSource::default(),
            told: None,
            state: State::Down,
            calls: 0,
            terms: 0,
            seed,
            failures: 0,
            ends: 0,
            pause: Duration::ZERO,
            last_error: None,
            holder: None,
            last_loss: None,
            rules: Rules::default(),
        }
    }

    /// What follows from `input` at `now`. What has lapsed by then counts first, however late the caller's
    /// timer is.
    pub fn step(&mut self, now: Moment, input: Input) -> Vec<Output> {
        let mut out = Vec::new();
        self.lapse(now, &mut out);
        self.take(now, input, &mut out);
        self.lapse(now, &mut out);
        // Last, so that nothing is sent that the input has made pointless: no renewal just before a release.
        self.send(now, &mut out);
        out
    }

    /// When [`step`](Self::step) is to be called with [`Input::Tick`] unless something happens before.
    pub fn wake(&self) -> Moment {
        let timeout = |call: &Call| call.sent + self.settings.acquire_timeout();
        match &self.state {
            State::Down => Moment::NEVER,
            State::Ending(ending) => ending.stuck_at,
            State::Standby(standby) => standby.call.as_ref().map_or(standby.next, timeout),
            State::Settling(settling) => timeout(&settling.call).min(self.done_by),
            State::Leading(leading) => leading.wake(),
            State::Releasing(r) if r.call.is_some() => r.until,
            State::Releasing(r) => r.until.min(r.next),
        }
    }

    /// What is going on.
    pub fn stream_state(&self) -> StreamState {
        match &self.state {
            State::Down => StreamState::Stopped,
            State::Standby(_) => StreamState::Contending,
            State::Leading(leading) if leading.is_stopping() => StreamState::Draining,
            State::Leading(_) => StreamState::Working,
            State::Ending(_) => StreamState::Lingering,
            State::Settling(_) | State::Releasing(_) => StreamState::Releasing,
        }
    }

    /// Whether it is down and no wish can start it any more.
    pub fn is_finished(&self) -> bool {
        self.shut && self.state == State::Down
    }

    /// Deadline and token of the leadership.
    pub fn leadership(&self) -> Option<(Moment, Option<FencingToken>)> {
        match &self.state {
            State::Leading(leading) => Some((leading.valid_until, leading.token)),
            _ => None,
        }
    }

    /// What the last failed request said, unless one has succeeded since.
    pub fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }

    /// Who holds the lock, and when that was seen.
    pub fn holder(&self) -> Option<(Option<&Held>, Moment)> {
        self.holder.as_ref().map(|(held, at)| (held.as_ref(), *at))
    }

    /// Where news of the lock come from.
    pub fn source(&self) -> NewsSource {
        self.source
    }

    /// Why leadership was last lost.
    pub fn last_loss(&self) -> Option<&LossReason> {
        self.last_loss.as_ref()
    }

    /// What has come to its end by `now`.
    fn lapse(&mut self, now: Moment, out: &mut Vec<Output>) {
        match &self.state {
            State::Down | State::Ending(_) => {}
            State::Standby(_) | State::Settling(_) => self.lapse_acquisition(now, out),
            State::Leading(_) => self.lapse_term(now, out),
            State::Releasing(_) => self.lapse_release(now, out),
        }
    }

    /// The requests that are due by `now`, and the word that something is stuck: the input may have been its end.
    fn send(&mut self, now: Moment, out: &mut Vec<Output>) {
        match &self.state {
            State::Down | State::Settling(_) => {}
            State::Standby(_) => self.ask(now, out),
            State::Ending(_) => self.tell_stuck(now, out),
            State::Leading(_) => self.renew(now, out),
            State::Releasing(_) => self.give_up(now, out),
        }
    }

    fn take(&mut self, now: Moment, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Tick => {}
            Input::Wish(wish) => self.wish(now, wish, out),
            Input::Acquired(id, answer) => self.acquired(now, id, answer, out),
            Input::Extended(id, answer) => self.extended(now, id, answer, out),
            Input::Released(id, freed) => self.released(now, id, freed),
            Input::News(news) => self.news(now, news, out),
            Input::WorkEnded(term, end) => self.work_ended(now, term, end, out),
            Input::GuardsGone(term) => {
                if let Some(work) = self.work_of(term) {
                    work.guards_gone = true;
                    self.gone(now, out);
                }
            }
            Input::GuardLapsed(term) => self.guard_lapsed(now, term, out),
        }
    }

    fn wish(&mut self, now: Moment, wish: Wish, out: &mut Vec<Output>) {
        if self.shut {
            return;
        }
        self.wanted = wish == Wish::Start;
        if let Wish::ShutDown(by) = wish {
            self.shut = true;
            self.limit(now, by);
        }
        match (&mut self.state, wish) {
            (State::Down, Wish::Start) => {
                self.ends = 0;
                let stagger = self.lot(STAGGER);
                self.contend(now, stagger);
            }
            (_, Wish::Start) => {}
            (State::Standby(standby), _) => {
                let &mut Standby { term, unsettled, .. } = standby;
                match standby.call {
                    Some(call) => {
                        self.state = State::Settling(Settling {
                            term,
                            call,
                            unsettled,
                        });
                    }
                    None if unsettled => self.release(now, term),
                    // A standby had nothing, and so loses nothing.
                    None => self.state = State::Down,
                }
            }
            (State::Leading(_), _) => self.ask_stop(now, LossReason::Stopped, out),
            (State::Releasing(releasing), _) => releasing.until = releasing.until.min(self.done_by),
            _ => {}
        }
    }

    /// All is to be done by then, and a release wants two attempts, or half of the time where there is not enough.
    fn limit(&mut self, now: Moment, by: Moment) {
        let reserve = (self.settings.attempt_timeout() * 2).min(by.since(now) / 2);
        self.done_by = by;
        if by != Moment::NEVER {
            self.drain_by = Moment::from_origin(by.since_origin().saturating_sub(reserve));
        }
    }

    pub(super) fn fresh_call(&mut self) -> CallId {
        self.calls += 1;
        CallId(self.calls)
    }

    pub(super) fn fresh_term(&mut self) -> TermNo {
        self.terms += 1;
        TermNo(self.terms)
    }

    pub(super) fn lead(
        &mut self,
        now: Moment,
        call: Call,
        term: TermNo,
        (valid_until, token): (Moment, Option<FencingToken>),
        out: &mut Vec<Output>,
    ) {
        let renew_at = call.sent + self.first_renew_pause();
        let times = (valid_until, self.tell_at(valid_until));
        self.state = State::Leading(Leading::new(term, token, now, times, call.id, renew_at));
        out.push(Output::StartWork {
            term,
            valid_until,
            token,
        });
    }

    pub(super) fn failing(&mut self, error: Option<String>) {
        self.last_error = error;
    }

    pub(super) fn seen_held(&mut self, now: Moment, held: Option<Held>) {
        self.holder = Some((held, now));
    }

    /// A tenth of the renew period to the whole: the renewals of streams that were acquired together are spread over the
    /// period.
    fn first_renew_pause(&mut self) -> Duration {
        let period = self.settings.renew_period();
        if self.settings.renew_jitter().is_zero() {
            return period;
        }
        period.saturating_sub(self.lot(period / 10 * 9))
    }

    /// From one renewal's sending to the next one's.
    pub(super) fn renew_pause(&mut self) -> Duration {
        let earlier = self.lot(self.settings.renew_jitter());
        self.settings.renew_period().saturating_sub(earlier)
    }

    /// Zero to `below`. Draws nothing for zero, so that a model without jitter has one state where it would have many.
    pub(super) fn lot(&mut self, below: Duration) -> Duration {
        if below.is_zero() {
            return Duration::ZERO;
        }
        // splitmix64.
        self.seed = self.seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.seed;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^= z >> 31;
        // 32 bits are exact in an f64.
        below.mul_f64(f64::from((z >> 32) as u32) / f64::from(u32::MAX))
    }
}

pub(super) fn doubled(first: Duration, times: u32) -> Duration {
    first.saturating_mul(1 << times.min(DOUBLINGS))
}

/// What the end of work is called.
pub(super) fn reason_of(end: End) -> LossReason {
    match end {
        End::Returned => LossReason::WorkEnded,
        End::Panicked(message) => LossReason::WorkPanicked { message },
    }
}
