//! Contending, and no longer wanting to.

use super::*;

#[test]
fn a_standby_that_is_stopped_sends_nothing_and_loses_nothing() {
    let mut m = contending();
    m.step(at(0.1), Input::Acquired(CallId(1), held()));
    assert_eq!(m.step(at(0.2), Input::Wish(Wish::Stop)), []);
    assert_eq!((m.stream_state(), m.last_loss()), (StreamState::Stopped, None));
}

#[test]
fn stopping_while_an_acquisition_is_under_way_settles_it_first() {
    let release = |out: &[Output]| matches!(out, [Output::Release(_, T1)]);
    for (answer, releases) in [
        (granted(0.0), true),
        (unknown(), true),
        (held(), false),
        (Answer::Over, false),
        (Answer::Failed("403".into()), false),
    ] {
        let mut m = contending();
        assert_eq!(m.step(at(0.1), Input::Wish(Wish::Stop)), []);
        assert_eq!(m.stream_state(), StreamState::Releasing);
        let out = m.step(at(0.2), Input::Acquired(CallId(1), answer.clone()));
        assert_eq!(release(&out), releases, "{answer:?}: {out:?}");
        assert!(releases || m.stream_state() == StreamState::Stopped);
    }
    let mut m = contending();
    m.step(at(0.1), Input::Wish(Wish::ShutDown(Moment::NEVER)));
    let out = m.step(at(17.1), Input::Tick);
    assert_eq!(out, [Output::Forget(CallId(1)), Output::Release(CallId(2), T1)]);
    assert!(!m.is_finished());
    m.step(at(17.2), Input::Released(CallId(2), Freed::Done));
    assert!(m.is_finished());
}

#[test]
fn an_unknown_acquisition_keeps_its_term_and_is_released_when_stopped() {
    let mut m = contending();
    m.step(at(0.1), Input::Acquired(CallId(1), unknown()));
    let now = m.wake();
    assert_eq!(m.step(now, Input::Tick), [Output::Acquire(CallId(2), T1)]);
    // Definitely not applied, which says nothing about the first attempt.
    m.step(at(1.0), Input::Acquired(CallId(2), Answer::Failed("403".into())));
    let out = m.step(at(1.1), Input::Wish(Wish::Stop));
    assert_eq!(out, [Output::Release(CallId(3), T1)]);
}

#[test]
fn a_spent_term_is_followed_by_a_new_one() {
    let mut m = contending();
    m.step(at(0.1), Input::Acquired(CallId(1), Answer::Over));
    let now = m.wake();
    assert_eq!(m.step(now, Input::Tick), [Output::Acquire(CallId(2), T2)]);
}

#[test]
fn a_grant_that_comes_too_late_to_act_on_is_given_back() {
    let mut m = contending();
    let out = m.step(at(12.5), Input::Acquired(CallId(1), granted(0.0)));
    assert_eq!(out, [Output::Release(CallId(2), T1)]);
}

#[test]
fn a_standby_polls_within_half_to_the_whole_of_its_period_and_sooner_at_a_hint() {
    for seed in 0..50 {
        let mut m = Machine::new(
            settings(),
            DeploymentMode::SingleLeader,
            AfterWork::default(),
            seed,
        );
        m.step(START, Input::Wish(Wish::Start));
        m.step(at(0.1), Input::Tick);
        m.step(at(0.2), Input::Acquired(CallId(1), held()));
        let pause = m.wake().since(at(0.2));
        assert!((secs(0.75)..=secs(1.5)).contains(&pause), "{pause:?}");
        m.step(at(2.0), Input::Tick);
        let hint = Answer::HeldBy {
            holder: "other".into(),
            expires_in: Some(secs(0.3)),
            token: None,
        };
        m.step(at(2.1), Input::Acquired(CallId(2), hint));
        assert_eq!(m.wake(), at(2.1) + secs(0.3));
    }
}

#[test]
fn a_release_wakes_a_standby_within_the_stagger_and_a_new_holder_calls_it_off() {
    let mut m = contending();
    m.step(at(0.1), Input::Acquired(CallId(1), held()));
    m.step(at(0.2), Input::News(News::Free));
    assert!(m.wake().since(at(0.2)) <= secs(0.02));
    m.step(at(0.2), Input::News(held_until(15.0)));
    assert!(m.wake() >= at(15.0));
}

fn held_until(n: f64) -> News {
    News::Held {
        holder: "third".into(),
        free_from: Some(at(n)),
    }
}

#[test]
fn a_standby_that_is_told_of_renewals_asks_only_when_the_last_of_them_runs_out() {
    let mut m = contending();
    m.step(at(0.05), Input::News(News::Source(NewsSource::SharedWatch)));
    m.step(at(0.05), Input::News(held_until(15.0)));
    m.step(at(0.1), Input::Acquired(CallId(1), held()));
    for n in 1..100 {
        let now = 5.0 * f64::from(n);
        assert!(m.wake() > at(now), "{now}: {:?}", m.wake());
        assert_eq!(m.step(at(now), Input::News(held_until(now + 15.0))), []);
    }
    let expiry = at(495.0 + 15.0);
    assert!(m.wake() >= expiry && m.wake().since(expiry) <= secs(0.02));
    let now = m.wake();
    assert_eq!(m.step(now, Input::Tick), [Output::Acquire(CallId(2), T1)]);
}

#[test]
fn a_release_that_is_told_before_an_older_answer_comes_is_not_missed() {
    let mut m = contending();
    m.step(at(0.05), Input::News(News::Source(NewsSource::SharedWatch)));
    m.step(at(0.05), Input::News(held_until(15.0)));
    m.step(at(0.06), Input::News(News::Free));
    m.step(at(0.1), Input::Acquired(CallId(1), held()));
    assert!(m.wake().since(at(0.1)) <= secs(0.02), "{:?}", m.wake());
}

#[test]
fn without_a_source_of_news_a_standby_polls_again() {
    let mut m = contending();
    m.step(at(0.05), Input::News(News::Source(NewsSource::OwnWatch)));
    m.step(at(0.05), Input::News(held_until(15.0)));
    m.step(at(0.1), Input::Acquired(CallId(1), held()));
    assert!(m.wake() >= at(15.0));
    m.step(at(1.0), Input::News(News::Source(NewsSource::Polling)));
    assert!(m.wake().since(at(1.0)) <= secs(1.5));
}

#[test]
fn news_that_may_be_of_an_own_attempt_put_off_no_retry() {
    let mut m = contending();
    m.step(at(0.05), Input::News(News::Source(NewsSource::SharedWatch)));
    m.step(at(0.1), Input::Acquired(CallId(1), unknown()));
    let retry = m.wake();
    m.step(at(0.11), Input::News(held_until(15.0)));
    assert_eq!(m.wake(), retry);
}
