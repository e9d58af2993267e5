//! Contending: ask for the lock under one term until it is granted, and settle what was asked when it is no longer wanted.

use std::time::Duration;

use super::{
    Answer, CallId, News, Output, TermNo,
    step::{Call, Held, Machine, STAGGER, State, Told, doubled},
};
use crate::lock::{Moment, NewsSource};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Standby {
    pub(super) term: TermNo,
    pub(super) call: Option<Call>,
    /// Whether an earlier attempt under this term may yet be applied.
    pub(super) unsettled: bool,
    pub(super) next: Moment,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Settling {
    pub(super) term: TermNo,
    pub(super) call: Call,
    pub(super) unsettled: bool,
}

impl Machine {
    /// Contends under a new term, from `delay` on.
    pub(super) fn contend(&mut self, now: Moment, delay: Duration) {
        self.failures = 0;
        self.state = State::Standby(Standby {
            term: self.fresh_term(),
            call: None,
            unsettled: false,
            next: now + delay,
        });
    }

    /// Whoever sends it gives back a grant that nobody waits for; until it is known, the term stays.
    pub(super) fn lapse_acquisition(&mut self, now: Moment, out: &mut Vec<Output>) {
        let (timeout, done_by) = (self.settings.acquire_timeout(), self.done_by);
        let lapsed = |call: &Call| now >= (call.sent + timeout).min(done_by);
        match &mut self.state {
            State::Settling(settling) if lapsed(&settling.call) => {
                out.push(Output::Forget(settling.call.id));
                let term = settling.term;
                self.release(now, term);
            }
            State::Standby(standby) => {
                if let Some(call) = standby.call.take_if(|call| lapsed(call)) {
                    out.push(Output::Forget(call.id));
                    standby.unsettled = true;
                    let retry = self.retry_pause();
                    self.failed(now, retry, "an acquisition was not answered in time".into());
                }
            }
            _ => {}
        }
    }

    pub(super) fn ask(&mut self, now: Moment, out: &mut Vec<Output>) {
        let State::Standby(standby) = &self.state else {
            return;
        };
        if standby.call.is_some() || now < standby.next {
            return;
        }
        let term = standby.term;
        let id = self.fresh_call();
        self.pause = Duration::ZERO;
        if !self.locked {
            let sent = Moment::NEVER;
            return self.lead(now, Call { id, sent }, term, (Moment::NEVER, None), out);
        }
        if let State::Standby(standby) = &mut self.state {
            standby.call = Some(Call { id, sent: now });
        }
        out.push(Output::Acquire(id, term));
    }

    pub(super) fn acquired(&mut self, now: Moment, id: CallId, answer: Answer, out: &mut Vec<Output>) {
        match &self.state {
            State::Settling(settling) if settling.call.id == id => {
                let term = settling.term;
                match answer {
                    Answer::Granted { .. } | Answer::Unknown(_) => self.release(now, term),
                    // This attempt was not applied, but an earlier one may be yet.
                    Answer::Failed(_) if settling.unsettled => self.release(now, term),
                    _ => self.down_or_again(now),
                }
            }
            State::Standby(standby) if standby.call.is_some_and(|call| call.id == id) => {
                self.answered(now, answer, out);
            }
            _ => {}
        }
    }

    fn answered(&mut self, now: Moment, answer: Answer, out: &mut Vec<Output>) {
        let retry = self.retry_pause();
        let poll = self.poll_pause();
        let stagger = self.lot(STAGGER);
        let (told, polling) = (self.told, self.source == NewsSource::Polling);
        let State::Standby(standby) = &mut self.state else {
            return;
        };
        let Some(call) = standby.call.take() else { return };
        let term = standby.term;
        match answer {
            Answer::Granted { valid_until, token } => {
                self.holder = Some((Some(Held::ByMe), now));
                let margin = self.settings.stop_margin();
                if valid_until.since(now) <= margin {
                    // Work that starts now would be told to stop at once.
                    self.last_error = Some("the grant came too late to act on it".into());
                    self.pause = retry;
                    self.release(now, term);
                } else {
                    self.last_error = None;
                    self.lead(now, call, term, (valid_until, token), out);
                }
            }
            Answer::HeldBy {
                holder, expires_in, ..
            } => {
                standby.unsettled = false;
                standby.next = match told {
                    // The news overtook the answer.
                    Some(Told::FreeAt(at)) if at >= call.sent => now + stagger,
                    Some(Told::HeldUntil(at)) if !polling && at > now => at + stagger,
                    _ => {
                        let hint = expires_in.filter(|left| !left.is_zero());
                        now + hint.map_or(poll, |left| left.min(poll))
                    }
                };
                self.held_by_other(now, Some(holder));
            }
            Answer::NotHeld | Answer::Missing => {
                standby.next = now + poll;
                self.held_by_other(now, None);
            }
            Answer::Over => {
                self.failures += 1;
                let failures = self.failures;
                self.contend(now, retry);
                self.failures = failures;
            }
            Answer::Unknown(error) => {
                standby.unsettled = true;
                self.failed(now, retry, error);
            }
            Answer::Failed(error) => self.failed(now, retry, error),
        }
    }

    fn held_by_other(&mut self, now: Moment, holder: Option<String>) {
        self.failures = 0;
        self.last_error = None;
        self.holder = Some((holder.map(Held::By), now));
    }

    fn failed(&mut self, now: Moment, retry: Duration, error: String) {
        self.failures += 1;
        self.last_error = Some(error);
        if let State::Standby(standby) = &mut self.state {
            standby.next = now + retry;
        }
    }

    pub(super) fn news(&mut self, now: Moment, news: News, out: &mut Vec<Output>) {
        match news {
            News::Source(source) => {
                self.source = source;
                let poll = self.poll_pause();
                if let State::Standby(standby) = &mut self.state
                    && source == NewsSource::Polling
                    && self.pause.is_zero()
                {
                    standby.next = standby.next.min(now + poll);
                }
            }
            News::Free => {
                let stagger = self.lot(STAGGER);
                self.told = Some(Told::FreeAt(now));
                if let State::Standby(standby) = &mut self.state {
                    // A pause after failing work is not cut short.
                    if self.pause.is_zero() {
                        standby.next = standby.next.min(now + stagger);
                    }
                    self.holder = Some((None, now));
                }
            }
            News::Held { holder, free_from } => self.held(now, holder, free_from),
            News::Lost(term, reason) => self.lost(now, term, reason, out),
            News::Shortened(term, until) => self.shortened(now, term, until, out),
            News::Failing(error) => {
                let waits = match &self.state {
                    State::Standby(standby) => standby.call.is_some(),
                    State::Leading(leading) => leading.waits(),
                    _ => false,
                };
                // An answer that came meanwhile is newer.
                if waits {
                    self.last_error = Some(error);
                }
            }
        }
    }

    /// Calls off an attempt that was due on a release, and times the one that follows on an expiry.
    fn held(&mut self, now: Moment, holder: String, free_from: Option<Moment>) {
        let stagger = self.lot(STAGGER);
        let poll = self.poll_pause();
        self.told = free_from.map(Told::HeldUntil);
        let State::Standby(standby) = &mut self.state else {
            return;
        };
        // What may be held is perhaps by an attempt of our own whose outcome is not known: that is settled first. And a
        // pause after failing work is not cut short.
        if standby.call.is_none() && !standby.unsettled && self.pause.is_zero() {
            standby.next = match free_from {
                Some(at) => at.max(now) + stagger,
                None => now + poll,
            };
        }
        self.holder = Some((Some(Held::By(holder)), now));
    }

    /// Half to the whole of the poll period.
    fn poll_pause(&mut self) -> Duration {
        let half = self.settings.poll_period() / 2;
        half + self.lot(half)
    }

    /// After a failed acquisition: a quarter of the poll period, doubling up to the renew period; half to the whole.
    fn retry_pause(&mut self) -> Duration {
        let whole = doubled(self.settings.poll_period() / 4, self.failures)
            .min(self.settings.renew_period())
            .max(Duration::from_millis(1));
        whole / 2 + self.lot(whole / 2)
    }
}
