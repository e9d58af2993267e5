//! A term of our own: what was sent, what is proven, and until when its holder may act.
//!
//! The deadline counts from the moment *before the last proven write was sent*, never from its reply: a reply that took
//! four seconds would make two leaders. A write is proven by its reply, or by a read that shows its term and its
//! renewTime; so every attempt has a renewTime of its own.

use std::time::{Duration, SystemTime};

use super::{record::Record, wire::TermMark};
use crate::{
    lock::{Claim, FencingToken, Grant, InstanceId, Moment, StreamName, Term, Ttl},
    rules::{Rule, Rules},
};

/// One write that was sent and not yet answered.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    pub(crate) renew_text: String,
    pub(crate) sent: Moment,
    pub(crate) sent_wall: SystemTime,
    pub(crate) ttl: Ttl,
    /// What this write stores as the token: an acquisition draws one, a renewal keeps it.
    pub(crate) token: FencingToken,
    /// What this write leaves as the acquireTime.
    pub(crate) acquired_at: SystemTime,
    /// Which attempt of this service it is: a grant must be proven by a write of the operation that asked.
    pub(crate) serial: u64,
    /// The resourceVersion that it is conditioned on. Once that has moved, the write can be applied no more.
    pub(crate) condition: u64,
}

impl Attempt {
    /// When the holder's leave by this write ends.
    fn binds_until(&self, rules: Rules) -> Moment {
        self.sent + share(self.ttl, rules)
    }
}

/// The part of `ttl` in which the holder may act, however both clocks drift.
fn share(ttl: Ttl, rules: Rules) -> Duration {
    if rules.keeps(Rule::DriftAllowance) {
        ttl.holder_share()
    } else {
        ttl.as_duration()
    }
}

#[derive(Debug, Clone)]
struct Proven {
    attempt: Attempt,
    /// The holder's share of the smaller of our TTL and the stored one.
    share: Duration,
}

/// Unanswered writes remembered at once. A day of them under a TTL of days would fill the memory; what is forgotten and
/// applied after all proves nothing, and costs one more write.
const ATTEMPTS: usize = 16;

/// A term that this service wrote, or tries to.
#[derive(Debug, Clone)]
pub(crate) struct OwnTerm {
    pub(crate) stream: StreamName,
    pub(crate) term: Term,
    pub(crate) instance: InstanceId,
    pub(crate) uid: String,
    attempts: Vec<Attempt>,
    proven: Option<Proven>,
    over: bool,
    pub(crate) rules: Rules,
}

/// What a record says about a term of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ownership {
    /// It shows our term.
    Ours,
    /// It proves that the term is over: another Lease, holder or term, or our own release.
    Lost,
}

impl OwnTerm {
    /// A term that was not yet written.
    pub(crate) fn new(stream: StreamName, term: Term, instance: InstanceId, uid: String) -> Self {
        Self {
            stream,
            term,
            instance,
            uid,
            attempts: Vec::new(),
            proven: None,
            over: false,
            rules: Rules::default(),
        }
    }

    pub(crate) fn under(self, rules: Rules) -> Self {
        Self { rules, ..self }
    }

    /// The term annotation of a write of this term.
    pub(crate) fn mark(&self, transitions: i64, released: bool) -> TermMark {
        TermMark {
            id: self.term.to_string(),
            holder: self.instance.to_string(),
            transitions,
            released,
        }
    }

    pub(crate) fn is_for(&self, instance: &InstanceId, claim: &Claim) -> bool {
        self.instance == *instance
            && match claim {
                Claim::Instance => true,
                Claim::Term(term) => self.term == *term,
            }
    }

    /// Notes a write that is about to be sent.
    pub(crate) fn sending(&mut self, attempt: Attempt) {
        self.attempts.push(attempt);
        if self.attempts.len() > ATTEMPTS {
            // The one that binds soonest stays: it may have been applied, and contenders go by it.
            let ends = self
                .attempts
                .iter()
                .map(|a| a.binds_until(self.rules))
                .enumerate();
            let soonest = ends.min_by_key(|&(_, end)| end).map(|(at, _)| at);
            self.attempts.remove(usize::from(soonest == Some(0)));
        }
    }

    /// The latest renewTime that was sent under this term.
    pub(crate) fn last_renew_text(&self) -> Option<&str> {
        self.attempts
            .last()
            .or(self.proven.as_ref().map(|p| &p.attempt))
            .map(|a| a.renew_text.as_str())
    }

    /// The TTL of the last write that was sent.
    pub(crate) fn last_ttl(&self) -> Option<Ttl> {
        self.attempts.last().or(self.proven()).map(|attempt| attempt.ttl)
    }

    /// The last proven write.
    pub(crate) fn proven(&self) -> Option<&Attempt> {
        self.proven.as_ref().map(|p| &p.attempt)
    }

    /// Whether a write of this term may be applied yet.
    pub(crate) fn is_unsettled(&self) -> bool {
        self.proven.is_none() && !self.attempts.is_empty()
    }

    /// When the holder's leave ends; `None` before anything was proven and after the term is over.
    pub(crate) fn valid_until(&self) -> Option<Moment> {
        let proven = self.proven.as_ref().filter(|_| !self.over)?;
        // A shorter TTL binds from the send, answered or not. A longer one gives a later moment, which min() ignores.
        let binding = |_: &&Attempt| self.rules.keeps(Rule::ShorterBindsAtOnce);
        let sent = self
            .attempts
            .iter()
            .filter(binding)
            .map(|a| a.binds_until(self.rules));
        Some(sent.fold(proven.attempt.sent + proven.share, Moment::min))
    }

    /// Whether the holder may act now. Once false it stays false: what follows is a new term.
    pub(crate) fn is_valid(&mut self, now: Moment) -> bool {
        match self.valid_until() {
            Some(until) if now < until => true,
            Some(_) => {
                self.over = self.rules.keeps(Rule::NoRevival);
                false
            }
            None => false,
        }
    }

    /// The term, while it is valid.
    pub(crate) fn valid_term(&mut self, now: Moment) -> Option<Term> {
        self.is_valid(now).then(|| self.term.clone())
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over
    }

    /// The last write that was sent was definitely not applied.
    pub(crate) fn last_was_refused(&mut self) {
        self.attempts.pop();
    }

    /// A version of the Lease was seen that is not (or not only) an attempt's: those conditioned on an older one are dead.
    /// False when that leaves nothing of this term: it was never granted and never will be.
    pub(crate) fn outlive(&mut self, resource_version: u64) -> bool {
        self.attempts
            .retain(|attempt| attempt.condition >= resource_version);
        self.proven.is_some() || !self.attempts.is_empty()
    }

    /// Ends the term: a release was sent, or a loss is proven.
    pub(crate) fn end(&mut self) {
        self.over = true;
    }

    /// The write with this renewTime was applied. False when that proves nothing: an unknown renewTime, or a proof that
    /// came after the term was over.
    pub(crate) fn prove(&mut self, renew_text: &str, now: Moment) -> bool {
        let lapsed = self.proven.is_some() && !self.is_valid(now) && self.rules.keeps(Rule::NoRevival);
        if self.over || lapsed {
            return false;
        }
        let proves = |a: &Attempt| a.renew_text == renew_text || !self.rules.keeps(Rule::ProvenByRenewTime);
        let Some(at) = self.attempts.iter().rposition(proves) else {
            return false;
        };
        let last_sent = self.attempts.last().map_or(now, |last| last.sent);
        // Whatever else was sent was conditioned on a resourceVersion that this write has moved: it cannot be applied.
        let mut attempt = self.attempts.swap_remove(at);
        self.attempts.clear();
        if !self.rules.keeps(Rule::DeadlineFromSend) {
            attempt.sent = now;
        }
        if !self.rules.keeps(Rule::SendOfProvenAttempt) {
            attempt.sent = last_sent;
        }
        let share = share(attempt.ttl, self.rules);
        // An acquisition whose proof took its whole share grants nothing: another write under the same term may.
        if now >= attempt.binds_until(self.rules) {
            self.over = self.proven.is_some();
            return false;
        }
        self.proven = Some(Proven { attempt, share });
        true
    }

    /// What `record`, which is news, says about this term. Of a term that was never proven nothing can be lost.
    pub(crate) fn ownership(&self, record: &Record) -> Ownership {
        if record.uid != self.uid && self.rules.keeps(Rule::CreatedFree) {
            return Ownership::Lost;
        }
        let other_term = record
            .mark
            .as_ref()
            .is_some_and(|mark| mark.id != self.term.as_str());
        // Another holder in between leaves our annotation but moves the transitions, and then it is not believed.
        let believed = record
            .believed()
            .is_some_and(|mark| mark.id == self.term.as_str() && !mark.released);
        // Somebody edited our annotations or the transitions; our own renewTime shows that the spec is still our write. It
        // does not show that an acquisition was: a twin with our id that read the same record may have sent the same one.
        let our_write = self.proven.is_some()
            && record.holder == self.instance.as_str()
            && self.wrote(record.renew_text.as_deref());
        let ours = !other_term && (believed || our_write);
        if ours { Ownership::Ours } else { Ownership::Lost }
    }

    pub(crate) fn wrote(&self, renew_text: Option<&str>) -> bool {
        renew_text.is_some_and(|text| {
            self.attempts
                .iter()
                .chain(self.proven.as_ref().map(|p| &p.attempt))
                .any(|a| a.renew_text == text)
        })
    }

    /// Somebody stored a shorter duration: contenders wait only that, so it binds us too.
    pub(crate) fn bound_by_stored(&mut self, stored: Option<Duration>) {
        if let (Some(proven), Some(stored)) = (&mut self.proven, stored)
            && self.rules.keeps(Rule::DriftAllowance)
        {
            proven.share = proven.share.min(stored / 21 * 19);
        }
    }

    /// The grant that the last proven write gives.
    pub(crate) fn grant(&self) -> Option<Grant> {
        let proven = self.proven.as_ref()?;
        let expires_at = proven
            .attempt
            .sent_wall
            .checked_add(proven.attempt.ttl.as_duration());
        Some(
            Grant::new(
                self.stream.clone(),
                self.instance.clone(),
                self.term.clone(),
                self.valid_until()?,
            )
            .with_token(Some(proven.attempt.token))
            .with_times(
                proven.attempt.acquired_at,
                expires_at.unwrap_or(proven.attempt.sent_wall),
            ),
        )
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::from_origin(Duration::from_millis(millis))
    }

    fn attempt(name: &str, sent: u64, ttl: u64) -> Attempt {
        let ttl = Ttl::new(Duration::from_millis(ttl)).unwrap();
        let token = FencingToken::new(7).unwrap();
        Attempt {
            renew_text: name.into(),
            sent: at(sent),
            sent_wall: UNIX_EPOCH,
            ttl,
            token,
            acquired_at: UNIX_EPOCH,
            serial: 1,
            condition: 1,
        }
    }

    fn term() -> OwnTerm {
        let stream = StreamName::new("s").unwrap();
        OwnTerm::new(stream, Term::random(), InstanceId::new("a").unwrap(), "u".into())
    }

    #[test]
    fn a_late_reply_never_extends_the_term() {
        let mut own = term();
        own.sending(attempt("1", 0, 21_000));
        assert!(own.prove("1", at(4000)));
        assert_eq!(
            own.valid_until(),
            Some(at(19_000)),
            "from the send, not from the reply"
        );
    }

    #[test]
    fn a_read_of_the_first_attempt_does_not_count_from_the_second() {
        let mut own = term();
        own.sending(attempt("1", 0, 21_000));
        own.sending(attempt("2", 3000, 21_000));
        assert!(own.prove("1", at(4000)));
        assert_eq!(own.valid_until(), Some(at(19_000)));
    }

    #[test]
    fn a_shorter_ttl_binds_from_its_send_and_a_longer_one_once_proven() {
        let mut own = term();
        own.sending(attempt("1", 0, 21_000));
        assert!(own.prove("1", at(10)));
        own.sending(attempt("2", 1000, 42_000));
        assert_eq!(
            own.valid_until(),
            Some(at(19_000)),
            "longer: not before it is proven"
        );
        own.sending(attempt("3", 1000, 2100));
        assert_eq!(own.valid_until(), Some(at(2900)), "shorter: at once");
        assert!(own.prove("2", at(1500)));
        assert_eq!(own.valid_until(), Some(at(39_000)));
    }

    #[test]
    fn attempts_without_end_take_no_memory_without_end_and_the_shortest_of_them_binds() {
        let mut own = term();
        own.sending(attempt("0", 0, 210_000_000));
        assert!(own.prove("0", at(10)));
        own.sending(attempt("short", 10, 21_000_000));
        for n in 1..1000 {
            own.sending(attempt(&n.to_string(), 1000 * n, 210_000_000));
        }
        assert!(own.attempts.len() <= ATTEMPTS);
        assert_eq!(own.valid_until(), Some(at(19_000_010)));
        assert_eq!(own.last_renew_text(), Some("999"));
        assert!(
            own.prove("999", at(1_000_000)),
            "the latest is the likeliest to be read"
        );
    }

    #[test]
    fn a_guard_that_was_once_false_stays_false() {
        let mut own = term();
        own.sending(attempt("1", 0, 2100));
        assert!(own.prove("1", at(10)));
        own.sending(attempt("2", 1000, 2100));
        assert!(
            !own.prove("2", at(2000)),
            "the reply came after the deadline of what was proven before"
        );
        assert!(!own.is_valid(at(2000)) && own.is_over());
    }

    #[test]
    fn an_acquisition_proven_too_late_is_no_grant_but_may_be_written_again() {
        let mut own = term();
        own.sending(attempt("1", 0, 2100));
        assert!(!own.prove("1", at(1900)));
        assert!(!own.is_over());
        own.sending(attempt("2", 1950, 2100));
        assert!(own.prove("2", at(2000)));
    }

    #[test]
    fn a_stored_duration_that_is_shorter_binds_too() {
        let mut own = term();
        own.sending(attempt("1", 0, 21_000));
        assert!(own.prove("1", at(10)));
        own.bound_by_stored(Some(Duration::from_millis(4200)));
        assert_eq!(own.valid_until(), Some(at(3800)));
    }
}
