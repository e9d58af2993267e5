//! The end of a term: drain, then release; and what follows.

use super::*;

#[test]
fn the_lock_is_renewed_while_asked_work_drains_and_released_after_it() {
    let mut m = leading();
    let out = m.step(at(2.0), Input::Wish(Wish::Stop));
    assert_eq!(out, [Output::AskStop(LossReason::Stopped)]);
    assert_eq!(m.step(at(5.1), Input::Tick), [Output::Extend(CallId(2), T1)]);
    let out = m.step(at(5.2), Input::Extended(CallId(2), granted(5.1)));
    assert_eq!(out, [Output::Deadline(until(5.1))]);
    assert_eq!(m.step(at(6.0), Input::WorkEnded(T1, End::Returned)), []);
    let out = m.step(at(6.1), Input::GuardsGone(T1));
    assert_eq!(
        out,
        [
            Output::CutOff(LossReason::Stopped),
            Output::Release(CallId(3), T1)
        ]
    );
    assert_eq!(m.step(at(6.2), Input::Released(CallId(3), Freed::Done)), []);
    assert_eq!(
        (m.stream_state(), m.wake()),
        (StreamState::Stopped, Moment::NEVER)
    );
}

#[test]
fn work_that_drains_too_long_is_cut_off_and_not_released_while_it_lives() {
    let mut m = leading();
    m.step(at(2.0), Input::Wish(Wish::Stop));
    let mut now = at(5.1);
    let cut = loop {
        let out = m.step(now, Input::Tick);
        match out[..] {
            [Output::Extend(id, T1)] => {
                let sent = now.since(START).as_secs_f64();
                m.step(now, Input::Extended(id, granted(sent)));
            }
            _ => break out,
        }
        now = m.wake();
    };
    assert_eq!((now, cut), (at(17.0), vec![Output::CutOff(LossReason::Stopped)]));
    assert_eq!(m.wake(), at(17.75));
    assert_eq!(
        m.step(at(18.0), Input::WorkEnded(T1, End::Returned)),
        [Output::Stuck]
    );
    // A thread holds a clone: that is told, once, and minutes later there is still no release.
    assert_eq!(m.step(at(599.0), Input::Tick), []);
    assert_eq!(m.step(at(600.0), Input::Tick), []);
    assert_eq!(m.stream_state(), StreamState::Lingering);
    let out = m.step(at(601.0), Input::GuardsGone(T1));
    assert!(matches!(out[..], [Output::Release(_, T1)]));
}

#[test]
fn a_clone_that_outlives_the_work_keeps_the_lock_for_the_drain_limit() {
    let mut m = leading();
    let out = m.step(at(2.0), Input::WorkEnded(T1, End::Returned));
    assert_eq!(out, [Output::AskStop(LossReason::WorkEnded)]);
    assert_eq!(m.step(at(5.1), Input::Tick), [Output::Extend(CallId(2), T1)]);
    let out = m.step(at(5.5), Input::GuardsGone(T1));
    assert_eq!(
        out,
        [
            Output::CutOff(LossReason::WorkEnded),
            Output::Release(CallId(3), T1)
        ]
    );
}

#[test]
fn work_that_ends_by_itself_is_contended_for_again_after_a_growing_bounded_pause() {
    let mut m = leading();
    let (mut now, mut pauses) = (at(2.0), Vec::new());
    for n in 1..=9 {
        let term = TermNo(n);
        m.step(now, Input::GuardsGone(term));
        let out = m.step(now, Input::WorkEnded(term, End::Panicked("oops".into())));
        let [
            Output::AskStop(_),
            Output::CutOff(LossReason::WorkPanicked { message }),
            Output::Release(id, _),
        ] = &out[..]
        else {
            panic!("{out:?}")
        };
        assert_eq!(message, "oops");
        m.step(now, Input::Released(*id, Freed::Done));
        // Neither is the pause cut short by the news of our own release.
        m.step(now, Input::News(News::Free));
        pauses.push(m.wake().since(now).as_secs());
        now = m.wake();
        let out = m.step(now, Input::Tick);
        let [Output::Acquire(id, _)] = out[..] else {
            panic!("{out:?}")
        };
        m.step(now, Input::Acquired(id, granted(now.since(START).as_secs_f64())));
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
}

#[test]
fn work_that_is_to_stay_down_stays_down_until_it_is_started() {
    let mut m = Machine::new(settings(), DeploymentMode::SingleLeader, AfterWork::StayDown, 7);
    m.step(START, Input::Wish(Wish::Start));
    m.step(at(0.1), Input::Tick);
    m.step(at(0.2), Input::Acquired(CallId(1), granted(0.1)));
    let _ = work_gone(&mut m, at(1.0), T1);
    m.step(at(1.1), Input::Released(CallId(2), Freed::Done));
    assert_eq!(
        (m.stream_state(), m.wake()),
        (StreamState::Stopped, Moment::NEVER)
    );
    m.step(at(2.0), Input::Wish(Wish::Start));
    assert_eq!(m.step(at(2.1), Input::Tick), [Output::Acquire(CallId(3), T2)]);
}

#[test]
fn a_start_while_draining_brings_a_new_term_after_the_release() {
    let mut m = leading();
    m.step(at(2.0), Input::Wish(Wish::Stop));
    assert_eq!(m.step(at(2.0), Input::Wish(Wish::Start)), []);
    let _ = work_gone(&mut m, at(3.0), T1);
    let out = m.step(at(3.1), Input::Released(CallId(2), Freed::Done));
    assert_eq!(out, [Output::Acquire(CallId(3), T2)]);
}

#[test]
fn a_release_of_unknown_outcome_is_tried_until_the_lock_has_expired_by_itself() {
    let mut m = leading();
    m.step(at(2.0), Input::Wish(Wish::Stop));
    let mut out = work_gone(&mut m, at(2.0), T1);
    let (mut now, mut tries) = (at(2.0), 0);
    while m.stream_state() == StreamState::Releasing {
        if let Some(Output::Release(id, T1)) = out.last() {
            tries += 1;
            m.step(now, Input::Released(*id, Freed::Unknown("cut".into())));
        }
        now = m.wake();
        out = m.step(now, Input::Tick);
    }
    assert_eq!((m.stream_state(), now), (StreamState::Stopped, at(17.0)));
    assert!((5..20).contains(&tries), "{tries}");
}

#[test]
fn a_shutdown_leaves_time_for_the_release_within_its_limit() {
    let mut m = leading();
    let out = m.step(at(2.0), Input::Wish(Wish::ShutDown(at(22.0))));
    assert_eq!(out, [Output::AskStop(LossReason::Stopped)]);
    let mut hasty = leading();
    hasty.step(at(2.0), Input::Wish(Wish::ShutDown(at(8.0))));
    // Half of six seconds is less than two attempts: dropped at 5 s, given up until 8 s.
    assert_eq!(hasty.wake(), at(5.0));
    let out = hasty.step(at(5.0), Input::Tick);
    assert_eq!(out, [Output::CutOff(LossReason::Stopped)]);
    let out = work_gone(&mut hasty, at(5.0), T1);
    assert_eq!(out, [Output::Release(CallId(2), T1)]);
    assert_eq!(hasty.wake(), at(8.0));
    assert_eq!(hasty.step(at(8.0), Input::Tick), [Output::Forget(CallId(2))]);
    assert!(hasty.is_finished());
}

#[test]
fn a_shutdown_shortens_a_stop_that_is_under_way() {
    let mut m = leading();
    m.step(at(1.5), Input::Wish(Wish::Stop));
    m.step(at(2.0), Input::Wish(Wish::ShutDown(at(8.0))));
    assert_eq!(m.wake(), at(5.0));
}

#[test]
fn a_term_that_is_shortened_ends_earlier_and_is_renewed_at_once() {
    let mut m = leading();
    let out = m.step(at(2.0), Input::News(News::Shortened(T1, at(6.0))));
    assert_eq!(out, [Output::Deadline(at(6.0)), Output::Extend(CallId(2), T1)]);
    let out = m.step(at(2.1), Input::Extended(CallId(2), granted(2.0)));
    assert_eq!(
        out,
        [Output::Deadline(at(6.0))],
        "what was sent before the news proves nothing beyond"
    );
}
