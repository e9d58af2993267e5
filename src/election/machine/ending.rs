//! The end of a term: the guard is over, then the work is gone, then the lock is released. In this order, always.

use super::{
    super::status::{AfterWork, LossReason},
    CallId, Freed, Output, TermNo,
    step::{Call, DOUBLINGS, Held, Machine, State, doubled},
};
use crate::{lock::Moment, rules::Rule};

/// The guard is over; what it guarded is not gone yet.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Ending {
    pub(super) term: TermNo,
    pub(super) work: Work,
    /// False when the lock is proven to be somebody else's.
    pub(super) release: bool,
    /// When work that is not gone by then is told of.
    pub(super) stuck_at: Moment,
}

/// What keeps a lock from being released.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Work {
    pub(super) ended: bool,
    pub(super) guards_gone: bool,
}

impl Work {
    pub(super) fn is_gone(self) -> bool {
        self.ended && self.guards_gone
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Releasing {
    pub(super) term: TermNo,
    pub(super) call: Option<Call>,
    pub(super) next: Moment,
    pub(super) until: Moment,
    pub(super) tries: u32,
}

impl Machine {
    pub(super) fn work_of(&mut self, of: TermNo) -> Option<&mut Work> {
        match &mut self.state {
            State::Leading(leading) if leading.term == of => Some(&mut leading.work),
            State::Ending(ending) if ending.term == of => Some(&mut ending.work),
            _ => None,
        }
    }

    /// Work or guards have gone: if all are, the lock can be given up.
    pub(super) fn gone(&mut self, now: Moment, out: &mut Vec<Output>) {
        match &self.state {
            State::Ending(ending) if ending.work.is_gone() || !self.rules.keeps(Rule::ReleaseAfterWork) => {
                if ending.release {
                    let term = ending.term;
                    self.release(now, term);
                } else {
                    self.down_or_again(now);
                }
            }
            State::Leading(leading) if leading.work.is_gone() => {
                let reason = self.reason_to_end();
                self.cut_off(now, reason, true, out);
            }
            _ => {}
        }
    }

    /// The guard is false from here on.
    pub(super) fn cut_off(&mut self, now: Moment, reason: LossReason, release: bool, out: &mut Vec<Output>) {
        let State::Leading(leading) = &self.state else {
            return;
        };
        let (term, work) = (leading.term, leading.work);
        self.last_loss = Some(reason.clone());
        out.push(Output::CutOff(reason));
        let stuck_at = now + self.settings.stop_margin() / 2;
        self.state = State::Ending(Ending {
            term,
            work,
            release,
            stuck_at,
        });
        self.gone(now, out);
    }

    /// The work of a leadership that began at `since` ended by itself: what follows its release.
    pub(super) fn work_ended_by_itself(&mut self, now: Moment, since: Moment) {
        if self.after_work == AfterWork::StayDown {
            self.wanted = false;
        }
        let (first, longest) = (self.settings.work_pause(), self.settings.work_pause_max());
        // Work that lasted is not failing in a loop.
        if now.since(since) >= longest {
            self.ends = 0;
        }
        self.pause = doubled(first, self.ends).min(longest);
        self.ends = (self.ends + 1).min(DOUBLINGS);
    }

    /// Gives this term up. Only when nothing acts under it any more.
    pub(super) fn release(&mut self, now: Moment, term: TermNo) {
        if !self.locked {
            return self.down_or_again(now);
        }
        self.state = State::Releasing(Releasing {
            term,
            call: None,
            next: now,
            until: (now + self.settings.release_timeout()).min(self.done_by),
            tries: 0,
        });
    }

    pub(super) fn tell_stuck(&mut self, now: Moment, out: &mut Vec<Output>) {
        if let State::Ending(ending) = &mut self.state
            && now >= ending.stuck_at
        {
            ending.stuck_at = Moment::NEVER;
            out.push(Output::Stuck);
        }
    }

    pub(super) fn lapse_release(&mut self, now: Moment, out: &mut Vec<Output>) {
        let State::Releasing(releasing) = &self.state else {
            return;
        };
        if now >= releasing.until {
            if let Some(call) = releasing.call {
                out.push(Output::Forget(call.id));
            }
            self.down_or_again(now);
        }
    }

    pub(super) fn give_up(&mut self, now: Moment, out: &mut Vec<Output>) {
        let State::Releasing(releasing) = &self.state else {
            return;
        };
        if releasing.call.is_some() || now < releasing.next {
            return;
        }
        let term = releasing.term;
        let id = self.fresh_call();
        if let State::Releasing(releasing) = &mut self.state {
            releasing.call = Some(Call { id, sent: now });
        }
        out.push(Output::Release(id, term));
    }

    pub(super) fn released(&mut self, now: Moment, id: CallId, freed: Freed) {
        let longest = self.settings.attempt_timeout();
        let State::Releasing(releasing) = &mut self.state else {
            return;
        };
        if releasing.call.is_none_or(|call| call.id != id) {
            return;
        }
        match freed {
            Freed::Done => {
                self.last_error = None;
                if matches!(self.holder, Some((Some(Held::ByMe), _))) {
                    self.holder = Some((None, now));
                }
                self.down_or_again(now);
            }
            Freed::Unknown(error) => {
                releasing.call = None;
                releasing.next = now + doubled(longest / 16, releasing.tries).min(longest);
                releasing.tries = (releasing.tries + 1).min(DOUBLINGS);
                self.last_error = Some(error);
            }
        }
    }

    /// Nothing of the old term is left.
    pub(super) fn down_or_again(&mut self, now: Moment) {
        let pause = std::mem::take(&mut self.pause);
        if self.wanted {
            self.contend(now, pause);
            // Kept while it lasts: news must not cut it short.
            self.pause = pause;
        } else {
            self.state = State::Down;
        }
    }
}
