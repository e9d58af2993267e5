//! Leading: renew, notice the end of the term, and end the work in one of three ways.

use super::{
    super::status::LossReason,
    Answer, CallId, End, Output, TermNo,
    ending::Work,
    step::{Call, Held, Machine, State, doubled, reason_of},
};
use crate::lock::{FencingToken, Moment};

/// Renewals under way at once. A further attempt forgets the oldest: what was not answered for so long is lost.
const IN_FLIGHT: usize = 3;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Leading {
    pub(super) term: TermNo,
    pub(super) token: Option<FencingToken>,
    pub(super) valid_until: Moment,
    pub(super) work: Work,
    since: Moment,
    /// The latest sent of the calls that were granted: an earlier one's late answer moves no deadline back.
    proven: CallId,
    calls: Vec<Call>,
    renew_at: Moment,
    /// Failures since the last proof.
    tries: u32,
    stop: Option<Stop>,
    /// Told that it is lost: irrevocable, so nothing moves the deadline any more.
    lost_at: Option<Moment>,
    /// When the work is told that it is lost, unless a renewal is proven before.
    tell_at: Moment,
    /// When it was told that the term had been shortened, and the deadline from then on.
    shortened: Option<(Moment, Moment)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Stop {
    reason: LossReason,
    until: Moment,
}

impl Leading {
    pub(super) fn new(
        term: TermNo,
        token: Option<FencingToken>,
        since: Moment,
        (valid_until, tell_at): (Moment, Moment),
        proven: CallId,
        renew_at: Moment,
    ) -> Self {
        Self {
            term,
            token,
            valid_until,
            work: Work::default(),
            since,
            proven,
            calls: Vec::new(),
            renew_at,
            tries: 0,
            stop: None,
            lost_at: None,
            tell_at,
            shortened: None,
        }
    }

    pub(super) fn wake(&self) -> Moment {
        let drain = self.stop.as_ref().map_or(Moment::NEVER, |stop| stop.until);
        let until_lost = match self.lost_at {
            Some(_) => Moment::NEVER,
            None => self.tell_at.min(self.renew_at),
        };
        self.valid_until.min(drain).min(until_lost)
    }

    /// Whether a renewal is under way.
    pub(super) fn waits(&self) -> bool {
        !self.calls.is_empty()
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stop.is_some()
    }

    /// Why it ends, once it is asked to.
    fn reason(&self) -> Option<LossReason> {
        self.stop.as_ref().map(|stop| stop.reason.clone())
    }
}

impl Machine {
    pub(super) fn lapse_term(&mut self, now: Moment, out: &mut Vec<Output>) {
        let State::Leading(leading) = &self.state else {
            return;
        };
        if now >= leading.valid_until || leading.stop.as_ref().is_some_and(|stop| now >= stop.until) {
            self.expire(now, out);
        } else {
            self.tell_lost(now, out);
        }
    }

    /// The deadline, or the drain limit: the guard is over. The lock may still be ours, and is given up once the work
    /// is gone.
    fn expire(&mut self, now: Moment, out: &mut Vec<Output>) {
        let reason = self.reason_to_end();
        self.cut_off(now, reason, true, out);
    }

    /// Why the leadership ends: what it was asked to stop for, or else that nothing has renewed it.
    pub(super) fn reason_to_end(&self) -> LossReason {
        match &self.state {
            State::Leading(leading) => leading.reason(),
            _ => None,
        }
        .unwrap_or_else(|| LossReason::ExpiredUnreachable {
            last_error: self.last_error().map(str::to_owned),
        })
    }

    fn tell_lost(&mut self, now: Moment, out: &mut Vec<Output>) {
        let reason = LossReason::ExpiredUnreachable {
            last_error: self.last_error().map(str::to_owned),
        };
        let State::Leading(leading) = &mut self.state else {
            return;
        };
        if leading.lost_at.is_none() && now >= leading.tell_at {
            leading.lost_at = Some(now);
            let until = leading.valid_until;
            leading.stop.get_or_insert_with(|| Stop {
                reason: reason.clone(),
                until,
            });
            out.push(Output::TellLost(reason));
        }
    }

    pub(super) fn renew(&mut self, now: Moment, out: &mut Vec<Output>) {
        let State::Leading(leading) = &self.state else {
            return;
        };
        if leading.lost_at.is_some() || now < leading.renew_at {
            return;
        }
        let id = self.fresh_call();
        let timeout = self.settings.attempt_timeout();
        let State::Leading(leading) = &mut self.state else {
            return;
        };
        if leading.calls.len() == IN_FLIGHT {
            out.push(Output::Forget(leading.calls.remove(0).id));
        }
        leading.calls.push(Call { id, sent: now });
        leading.renew_at = now + timeout;
        out.push(Output::Extend(id, leading.term));
    }

    pub(super) fn extended(&mut self, now: Moment, id: CallId, answer: Answer, out: &mut Vec<Output>) {
        let State::Leading(leading) = &mut self.state else {
            return;
        };
        let Some(at) = leading.calls.iter().position(|call| call.id == id) else {
            return;
        };
        let call = leading.calls.remove(at);
        let term = leading.term;
        match answer {
            Answer::Granted { valid_until, .. } => self.proven(now, call, valid_until, out),
            Answer::HeldBy { holder, token, .. } => {
                self.seen_held(now, Some(Held::By(holder.clone())));
                let reason = LossReason::TakenOver { by: holder, token };
                self.lost(now, term, reason, out);
            }
            Answer::NotHeld => {
                self.seen_held(now, None);
                self.lost(now, term, LossReason::Released, out);
            }
            Answer::Missing => {
                self.seen_held(now, None);
                self.lost(now, term, LossReason::Deleted, out);
            }
            Answer::Over => self.expire(now, out),
            Answer::Unknown(error) | Answer::Failed(error) => {
                // Short, also after many: the first moment at which the lock can be reached again may be the last in time.
                let longest = self.settings.attempt_timeout() / 4;
                let pause = doubled(longest / 4, leading.tries).min(longest);
                leading.renew_at = leading.renew_at.min(now + pause);
                leading.tries += 1;
                self.failing(Some(error));
            }
        }
    }

    fn proven(&mut self, now: Moment, call: Call, valid_until: Moment, out: &mut Vec<Output>) {
        let period = self.renew_pause();
        let State::Leading(leading) = &self.state else {
            return;
        };
        // What was sent before somebody shortened the term proves nothing beyond that.
        let valid_until = match leading.shortened {
            Some((told, until)) if call.sent <= told => valid_until.min(until),
            _ => valid_until,
        };
        let tell_at = self.tell_at(valid_until);
        let State::Leading(leading) = &mut self.state else {
            return;
        };
        if leading.lost_at.is_some() || call.id <= leading.proven {
            return;
        }
        leading.proven = call.id;
        leading.valid_until = valid_until;
        leading.tell_at = tell_at;
        leading.renew_at = call.sent + period;
        leading.tries = 0;
        out.push(Output::Deadline(valid_until));
        self.failing(None);
        self.seen_held(now, Some(Held::ByMe));
    }

    /// A stop margin before the deadline.
    pub(super) fn tell_at(&self, valid_until: Moment) -> Moment {
        if valid_until == Moment::NEVER {
            return valid_until;
        }
        let margin = self.settings.stop_margin();
        Moment::from_origin(valid_until.since_origin().saturating_sub(margin))
    }

    /// It is proven that this term is over.
    pub(super) fn lost(&mut self, now: Moment, of: TermNo, reason: LossReason, out: &mut Vec<Output>) {
        if matches!(&self.state, State::Leading(leading) if leading.term == of) {
            self.cut_off(now, reason, false, out);
        }
    }

    /// Somebody shortened this term in the store.
    pub(super) fn shortened(&mut self, now: Moment, of: TermNo, until: Moment, out: &mut Vec<Output>) {
        let tell_at = self.tell_at(until);
        let State::Leading(leading) = &mut self.state else {
            return;
        };
        if leading.term != of {
            return;
        }
        leading.shortened = Some((now, until));
        if until < leading.valid_until {
            leading.valid_until = until;
            leading.tell_at = tell_at;
            // Renewed at once: the next write stores the whole TTL again.
            leading.renew_at = leading.renew_at.min(now);
            out.push(Output::Deadline(until));
        }
    }

    pub(super) fn guard_lapsed(&mut self, now: Moment, of: TermNo, out: &mut Vec<Output>) {
        if matches!(&self.state, State::Leading(leading) if leading.term == of) {
            self.expire(now, out);
        }
    }

    pub(super) fn ask_stop(&mut self, now: Moment, reason: LossReason, out: &mut Vec<Output>) {
        let until = (now + self.settings.drain_timeout()).min(self.drain_by);
        let State::Leading(leading) = &mut self.state else {
            return;
        };
        if leading.stop.is_none() {
            leading.stop = Some(Stop {
                reason: reason.clone(),
                until,
            });
            out.push(Output::AskStop(reason));
        } else if let Some(stop) = &mut leading.stop {
            stop.until = stop.until.min(self.drain_by);
        }
    }

    pub(super) fn work_ended(&mut self, now: Moment, of: TermNo, end: End, out: &mut Vec<Output>) {
        let Some(work) = self.work_of(of) else { return };
        work.ended = true;
        if let State::Leading(leading) = &self.state
            && !leading.is_stopping()
        {
            let since = leading.since;
            self.work_ended_by_itself(now, since);
            // Clones of the guard may live on; the lock is kept for them while they drain.
            self.ask_stop(now, reason_of(end), out);
        }
        self.gone(now, out);
    }
}
