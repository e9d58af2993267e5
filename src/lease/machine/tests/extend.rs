//! Extending: one PUT when all is well, and what a term survives when it is not.

use super::*;

#[test]
fn renewal_is_one_put() {
    let (mut world, mut a) = (World::new(), World::new().machine());
    world.granted(&mut a, "a", 15);
    world.sent.clear();
    assert!(world.extend(&mut a, "a", 15).is_granted());
    assert_eq!(world.sent, ["put"]);
}

#[test]
fn scenario_04_a_late_reply_counts_from_its_send() {
    let (mut world, mut a) = (World::new(), World::new().machine());
    world.granted(&mut a, "a", 21);
    world.faults = [Fault::Late(3000)].into();
    let sent = world.at;
    let grant = world.extend(&mut a, "a", 21).granted().unwrap();
    assert_eq!(grant.valid_until, sent + Duration::from_secs(19));
}

#[test]
fn scenario_03_two_requests_in_a_row_that_are_never_answered_lose_nothing() {
    for fault in [Fault::Lost, Fault::DropReply, Fault::Hold] {
        let (mut world, mut a) = (World::new(), World::new().machine());
        let first = world.granted(&mut a, "a", 15);
        world.faults = [fault, fault].into();
        let second = world
            .extend(&mut a, "a", 15)
            .granted()
            .unwrap_or_else(|| panic!("{fault:?}"));
        assert_eq!((second.term, second.token), (first.term, first.token));
        assert!(world.at < first.valid_until, "{fault:?}: with room to spare");
        assert_eq!(world.deliver(), 0, "what was overtaken is not applied");
    }
}

#[test]
fn a_held_first_attempt_that_is_applied_after_all_is_what_counts() {
    let (mut world, mut a) = (World::new(), World::new().machine());
    world.granted(&mut a, "a", 21);
    let sent = world.at;
    world.faults = [Fault::Hold].into();
    let mut extend = Extend::new(ExtendRequest::new(&stream(), &instance("a"), ttl(21)));
    // First attempt: held. Then it is applied, before the second attempt is sent.
    let Step::Put(lease) = extend.step(&mut a, world.now(), Input::Continue) else {
        panic!()
    };
    world.advance(3000);
    world.put(lease).unwrap();
    let Step::Wait(_) = extend.step(&mut a, world.now(), Input::Unknown(Unknown::new("lost"))) else {
        panic!()
    };
    let Step::Put(second) = extend.step(&mut a, world.now(), Input::Continue) else {
        panic!()
    };
    assert!(world.put(second).is_none(), "overtaken");
    let Step::Get = extend.step(&mut a, world.now(), Input::Conflict) else {
        panic!()
    };
    let read = Input::Lease(Box::new(world.lease.clone().unwrap()), world.date());
    let Step::Done(Ok(Outcome::Granted(grant))) = extend.step(&mut a, world.now(), read) else {
        panic!()
    };
    assert_eq!(
        grant.valid_until,
        sent + Duration::from_secs(19),
        "from the first attempt's send, not the second's"
    );
}

#[test]
fn a_renewal_that_no_reply_proves_ends_with_the_term() {
    let (mut world, mut a) = (World::new(), World::new().machine());
    let first = world.granted(&mut a, "a", 15);
    world.faults = [Fault::Lost; 100].into();
    let outcome = world.extend(&mut a, "a", 15);
    assert!(
        matches!(outcome, Outcome::Refused(Refusal::Expired)),
        "{outcome:?}"
    );
    assert!(world.at >= first.valid_until);
    // The server is back, and still nobody has taken the Lease: the old term stays over.
    world.faults.clear();
    assert!(matches!(
        world.extend(&mut a, "a", 15),
        Outcome::Refused(Refusal::Expired)
    ));
    let again = world.granted(&mut a, "a", 15);
    assert_ne!(again.term, first.term);
    assert!(again.token > first.token);
}

#[test]
fn a_reply_that_comes_after_the_deadline_revives_nothing() {
    let (mut world, mut a) = (World::new(), World::new().machine());
    let first = world.granted(&mut a, "a", 15);
    world.advance(13_000);
    world.faults = [Fault::Late(2000)].into();
    let outcome = world.extend(&mut a, "a", 15);
    assert!(
        matches!(outcome, Outcome::Refused(Refusal::Expired)),
        "{outcome:?}"
    );
    assert!(world.granted(&mut a, "a", 15).token > first.token);
}

#[test]
fn scenario_17_a_deposed_holders_late_renewal_is_refused() {
    let (mut world, mut a) = (World::new(), World::new().machine());
    let mut b = world.machine();
    world.granted(&mut a, "a", 15);
    world.acquire(&mut b, "b", 15);
    world.advance(15_000);
    world.granted(&mut b, "b", 15);
    let before = world.lease.clone();
    let outcome = world.extend(&mut a, "a", 15);
    assert!(matches!(outcome, Outcome::Refused(Refusal::HeldBy { holder, .. }) if holder == "b"));
    assert_eq!(world.lease, before);
}

#[test]
fn extending_a_free_lease_takes_nothing() {
    let (mut world, mut a) = (World::new(), World::new().machine());
    world.granted(&mut a, "a", 15);
    assert!(matches!(world.release(&mut a, "a"), Released::Released));
    for if_expired in [IfExpired::Refuse, IfExpired::TakeAgain] {
        let request = ExtendRequest::new(&stream(), &instance("a"), ttl(15)).if_expired(if_expired);
        let outcome = world.run(&mut a, Extend::new(request)).unwrap();
        assert!(
            matches!(outcome, Outcome::Refused(Refusal::NotHeld)),
            "{outcome:?}"
        );
        assert_eq!(world.holder(), "");
    }
}

#[test]
fn a_term_that_is_over_is_taken_again_when_asked_to_also_by_its_claim() {
    let (mut world, mut a) = (World::new(), World::new().machine());
    let first = world.granted(&mut a, "a", 15);
    world.advance(14_000);
    let refused = world
        .run(&mut a, Extend::new(ExtendRequest::of(&first, ttl(15))))
        .unwrap();
    assert!(
        matches!(refused, Outcome::Refused(Refusal::Expired)),
        "{refused:?}"
    );
    let again = ExtendRequest::of(&first, ttl(15)).if_expired(IfExpired::TakeAgain);
    let second = world
        .run(&mut a, Extend::new(again.clone()))
        .unwrap()
        .granted()
        .unwrap();
    assert_ne!(second.term, first.term);
    assert!(second.token > first.token);
    let outcome = world.run(&mut a, Extend::new(again)).unwrap();
    assert!(
        !outcome.is_granted(),
        "the first claim has nothing left: {outcome:?}"
    );
    assert!(matches!(world.release(&mut a, "a"), Released::Released));
    let outcome = world
        .run(&mut a, Extend::new(ExtendRequest::of(&second, ttl(15))))
        .unwrap();
    assert!(
        matches!(outcome, Outcome::Refused(Refusal::Expired)),
        "{outcome:?}"
    );
}

#[test]
fn a_term_that_is_taken_again_and_proven_too_late_is_written_once_more() {
    let (mut world, mut a) = (World::new(), World::new().machine());
    let first = world.granted(&mut a, "a", 1);
    world.advance(950);
    world.faults = [Fault::None, Fault::None, Fault::Late(950)].into();
    let again = ExtendRequest::of(&first, ttl(1)).if_expired(IfExpired::TakeAgain);
    let outcome = world.run(&mut a, Extend::new(again)).unwrap();
    let grant = outcome.granted().expect("its own late write does not refuse it");
    assert_ne!(grant.term, first.term);
    assert!(grant.token > first.token);
}

#[test]
fn an_extension_or_acquisition_that_meets_conflicts_without_end_does_not_storm() {
    let (mut world, mut a) = (World::new(), World::new().machine());
    world.granted(&mut a, "a", 15);
    world.edit(|_| {});
    let lease = world.lease.as_mut().unwrap();
    lease.metadata.resource_version = Some("3".into());
    world.sent.clear();
    assert!(!world.extend(&mut a, "a", 15).is_granted());
    assert!(world.sent.len() < 200, "{}", world.sent.len());
    world.sent.clear();
    let request = AcquireRequest::new(&stream(), &instance("a"), ttl(15));
    let outcome = world.run(&mut a, Acquire::new(request));
    assert!(!matches!(outcome, Ok(Outcome::Granted(_))), "{outcome:?}");
    assert!(world.sent.len() < 200, "{}", world.sent.len());
}

#[test]
fn a_wall_clock_beyond_all_times_still_renews() {
    let (mut world, mut a) = (World::new(), World::new().machine());
    world.wall = UNIX_EPOCH + Duration::from_secs(300_000_000_000);
    world.granted(&mut a, "a", 15);
    let renewed = |world: &World| {
        world
            .lease
            .as_ref()
            .unwrap()
            .spec
            .as_ref()
            .unwrap()
            .renew_time
            .clone()
    };
    let before = renewed(&world);
    world.advance(1000);
    assert!(world.extend(&mut a, "a", 15).is_granted());
    assert_ne!(
        renewed(&world),
        before,
        "an unchanged PUT writes nothing, and contenders see no renewal"
    );
}
