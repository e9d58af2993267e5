//! The rules as sentences, at a TTL of 15 s: renewed every 5 s, told at 12.07 s, over at 13.57 s.

mod contending;
mod ending;
mod random;

use super::*;
use crate::{
    election::{
        settings::ElectionSettings,
        status::{AfterWork, DeploymentMode, StreamState},
    },
    lock::Ttl,
};

const START: Moment = Moment::from_origin(Duration::from_secs(1000));
const T1: TermNo = TermNo(1);
const T2: TermNo = TermNo(2);

fn secs(n: f64) -> Duration {
    Duration::from_secs_f64(n)
}

fn at(n: f64) -> Moment {
    START + secs(n)
}

fn settings() -> ElectionSettings {
    ElectionSettings::builder(Ttl::from_secs(15).unwrap())
        .renew_period(secs(5.0))
        .renew_jitter(Duration::ZERO)
        .build()
        .unwrap()
}

fn machine() -> Machine {
    Machine::new(
        settings(),
        DeploymentMode::SingleLeader,
        AfterWork::ContendAgain,
        7,
    )
}

/// The deadline of a write that was sent at `n`.
fn until(n: f64) -> Moment {
    at(n) + Ttl::from_secs(15).unwrap().holder_share()
}

fn granted(n: f64) -> Answer {
    Answer::Granted {
        valid_until: until(n),
        token: FencingToken::new(9),
    }
}

fn held() -> Answer {
    Answer::HeldBy {
        holder: "other".into(),
        expires_in: None,
        token: None,
    }
}

fn unknown() -> Answer {
    Answer::Unknown("timed out".into())
}

fn expired(error: Option<&str>) -> LossReason {
    LossReason::ExpiredUnreachable {
        last_error: error.map(str::to_owned),
    }
}

/// Started at `START`, and has asked: call 1, term 1.
fn contending() -> Machine {
    let mut m = machine();
    assert_eq!(m.step(START, Input::Wish(Wish::Start)), []);
    let asked = m.wake();
    assert!(asked.since(START) <= Duration::from_millis(20));
    assert_eq!(m.step(asked, Input::Tick), [Output::Acquire(CallId(1), T1)]);
    m
}

/// Leads since 1 s, under a term that was asked for at (about) 0 s.
fn leading() -> Machine {
    let mut m = contending();
    let started = m.step(at(1.0), Input::Acquired(CallId(1), granted(0.0)));
    assert_eq!(
        started,
        [Output::StartWork {
            term: T1,
            valid_until: until(0.0),
            token: FencingToken::new(9),
        }]
    );
    m
}

fn work_gone(m: &mut Machine, now: Moment, term: TermNo) -> Vec<Output> {
    let mut out = m.step(now, Input::GuardsGone(term));
    out.extend(m.step(now, Input::WorkEnded(term, End::Returned)));
    out
}

#[test]
fn a_lock_is_renewed_a_third_after_its_last_proven_write_was_sent() {
    let mut m = leading();
    assert!(m.wake() >= at(5.0) && m.wake() < at(5.1));
    assert_eq!(m.step(at(5.1), Input::Tick), [Output::Extend(CallId(2), T1)]);
    let out = m.step(at(6.0), Input::Extended(CallId(2), granted(5.1)));
    assert_eq!(out, [Output::Deadline(until(5.1))]);
    assert_eq!(m.wake(), at(10.1));
}

#[test]
fn two_renewals_that_are_never_answered_leave_room_for_a_third() {
    let mut m = leading();
    let mut now = at(5.1);
    for call in 2..=4 {
        assert_eq!(m.step(now, Input::Tick), [Output::Extend(CallId(call), T1)]);
        now = m.wake();
    }
    let out = m.step(at(11.0), Input::Extended(CallId(4), granted(10.1)));
    assert_eq!(out, [Output::Deadline(until(10.1))]);
    assert_eq!(m.stream_state(), StreamState::Working);
}

#[test]
fn a_reply_that_comes_with_the_deadline_finds_the_term_over() {
    let mut m = leading();
    m.step(at(5.1), Input::Tick);
    let out = m.step(until(0.0), Input::Extended(CallId(2), granted(5.1)));
    assert!(out.contains(&Output::CutOff(expired(None))), "{out:?}");
    assert!(!out.iter().any(|o| matches!(o, Output::Deadline(_))), "{out:?}");
}

#[test]
fn an_earlier_attempts_late_reply_moves_no_deadline_back() {
    let mut m = leading();
    m.step(at(5.1), Input::Tick);
    m.step(at(7.6), Input::Tick);
    m.step(at(8.0), Input::Extended(CallId(3), granted(7.6)));
    assert_eq!(m.step(at(8.1), Input::Extended(CallId(2), granted(5.1))), []);
    assert_eq!(m.leadership().unwrap().0, until(7.6));
}

#[test]
fn a_failed_renewal_is_tried_again_soon_and_costs_nothing() {
    let mut m = leading();
    m.step(at(5.1), Input::Tick);
    assert_eq!(m.step(at(5.2), Input::Extended(CallId(2), unknown())), []);
    assert_eq!(m.last_error(), Some("timed out"));
    assert!(m.wake() < at(5.4), "{:?}", m.wake());
    let now = m.wake();
    assert_eq!(m.step(now, Input::Tick), [Output::Extend(CallId(3), T1)]);
    m.step(at(6.0), Input::Extended(CallId(3), granted(5.4)));
    assert_eq!((m.last_error(), m.stream_state()), (None, StreamState::Working));
}

#[test]
fn unreachable_is_told_a_margin_before_the_deadline_and_cut_off_at_it_irrevocably() {
    let mut m = leading();
    m.step(at(5.1), Input::Tick);
    m.step(at(5.2), Input::Extended(CallId(2), unknown()));
    m.step(at(11.9), Input::Tick);
    let told = m.step(at(12.1), Input::Tick);
    assert_eq!(told, [Output::TellLost(expired(Some("timed out")))]);
    // A reply that would have saved it a moment ago moves nothing now.
    assert_eq!(m.step(at(12.2), Input::Extended(CallId(3), granted(11.9))), []);
    assert_eq!(m.wake(), until(0.0));
    assert_eq!(
        m.step(until(0.0), Input::Tick),
        [Output::CutOff(expired(Some("timed out")))]
    );
    assert_eq!(m.stream_state(), StreamState::Lingering);
    // Given up once the work is gone: the lock may well be ours still.
    let out = work_gone(&mut m, at(14.0), T1);
    assert_eq!(out, [Output::Release(CallId(4), T1)]);
}

#[test]
fn a_loss_while_a_renewal_was_still_tried_says_what_that_met_with() {
    let mut m = leading();
    m.step(at(5.1), Input::Tick);
    let refused = || Input::News(News::Failing("connection refused".into()));
    m.step(at(5.2), refused());
    assert_eq!(m.last_error(), Some("connection refused"));
    m.step(at(5.3), Input::Extended(CallId(2), granted(5.1)));
    assert_eq!(m.last_error(), None);
    // Told late, when the answer is here: old news.
    m.step(at(5.4), refused());
    assert_eq!(m.last_error(), None);
    m.step(at(10.2), Input::Tick);
    m.step(at(10.3), refused());
    let out = m.step(until(5.1), Input::Tick);
    assert!(
        out.contains(&Output::CutOff(expired(Some("connection refused")))),
        "{out:?}"
    );
}

#[test]
fn a_proven_loss_cuts_the_work_off_at_once_and_releases_nothing() {
    for (answer, reason) in [
        (
            held(),
            LossReason::TakenOver {
                by: "other".into(),
                token: None,
            },
        ),
        (Answer::NotHeld, LossReason::Released),
    ] {
        let mut m = leading();
        m.step(at(5.1), Input::Tick);
        let out = m.step(at(5.2), Input::Extended(CallId(2), answer));
        assert_eq!(out, [Output::CutOff(reason)]);
        let out = work_gone(&mut m, at(5.3), T1);
        assert_eq!(out, [Output::Acquire(CallId(3), T2)], "contends under a new term");
    }
}

#[test]
fn a_loss_that_the_service_tells_counts_for_its_term_only() {
    let mut m = leading();
    assert_eq!(
        m.step(at(2.0), Input::News(News::Lost(T2, LossReason::Deleted))),
        []
    );
    let out = m.step(at(2.0), Input::News(News::Lost(T1, LossReason::Deleted)));
    assert_eq!(out, [Output::CutOff(LossReason::Deleted)]);
}

#[test]
fn what_nobody_waits_for_changes_nothing() {
    let mut m = leading();
    let before = m.clone();
    for input in [
        Input::Acquired(CallId(1), granted(0.9)),
        Input::Extended(CallId(7), held()),
        Input::Released(CallId(1), Freed::Done),
        Input::WorkEnded(T2, End::Returned),
        Input::GuardsGone(TermNo(0)),
        Input::GuardLapsed(T2),
    ] {
        assert_eq!(m.step(at(1.5), input.clone()), [], "{input:?}");
        assert_eq!(m, before, "{input:?}");
    }
}

#[test]
fn a_guard_that_lapsed_ends_the_leadership() {
    let mut m = leading();
    let out = m.step(at(2.0), Input::GuardLapsed(T1));
    assert_eq!(out, [Output::CutOff(expired(None))]);
}

#[test]
fn a_stream_of_all_instances_works_without_a_single_request() {
    let mut m = Machine::new(settings(), DeploymentMode::AllInstances, AfterWork::default(), 7);
    m.step(START, Input::Wish(Wish::Start));
    let out = m.step(at(0.1), Input::Tick);
    let never = Moment::NEVER;
    assert_eq!(
        out,
        [Output::StartWork {
            term: T1,
            valid_until: never,
            token: None
        }]
    );
    assert_eq!((m.step(at(9e6), Input::Tick), m.wake()), (vec![], never));
    m.step(at(9e6), Input::Wish(Wish::ShutDown(Moment::NEVER)));
    let out = work_gone(&mut m, at(9e6), T1);
    assert_eq!(out, [Output::CutOff(LossReason::Stopped)]);
    assert!(m.is_finished());
}
