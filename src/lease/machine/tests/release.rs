//! Releasing: what is given up for good, and what is left alone.

use super::*;

#[test]
fn an_acquisition_that_is_never_settled_is_unknown_and_a_release_settles_it() {
    let (mut world, mut a) = (World::new(), World::new().machine());
    world.granted(&mut a, "a", 15);
    assert!(matches!(world.release(&mut a, "a"), Released::Released));
    world.faults = [Fault::None, Fault::Hold].into();
    world.faults.extend([Fault::Lost; 100]);
    let outcome = world.acquire(&mut a, "a", 1);
    assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
    world.faults.clear();
    // The held write may still be applied: giving up for good moves the resourceVersion.
    assert!(matches!(world.release(&mut a, "a"), Released::Released));
    assert_eq!(world.deliver(), 0);
    assert_eq!(world.holder(), "");
}

#[test]
fn scenario_01_a_release_that_meets_a_conflict_reads_again() {
    // (a) Its own renewal had committed, or somebody edited a label.
    let (mut world, mut a) = (World::new(), World::new().machine());
    world.granted(&mut a, "a", 15);
    world.edit(|lease| lease.annotate("team", "x".into()));
    world.sent.clear();
    assert!(matches!(world.release(&mut a, "a"), Released::Released));
    assert_eq!(world.sent, ["put", "get", "put"]);
    // (b) Another took over in between: nothing is written.
    let mut b = world.machine();
    world.granted(&mut a, "a", 15);
    world.acquire(&mut b, "b", 15);
    world.advance(16_000);
    world.granted(&mut b, "b", 15);
    let before = world.lease.clone();
    assert!(matches!(world.release(&mut a, "a"), Released::NotHeld));
    assert_eq!(world.lease, before);
}

#[test]
fn a_release_that_meets_conflicts_without_end_comes_to_an_end() {
    let (mut world, mut a) = (World::new(), World::new().machine());
    world.granted(&mut a, "a", 15);
    // A store restored from a backup repeats its versions: what is read is older than what is known, for ever.
    world.edit(|_| {});
    let lease = world.lease.as_mut().unwrap();
    lease.metadata.resource_version = Some("3".into());
    let begun = world.at;
    let request = ReleaseRequest::new(&stream(), &instance("a"));
    let answer = world.run(&mut a, Release::new(request));
    assert!(
        matches!(
            answer,
            Err(LockError::Unavailable { .. }) | Ok(Released::Unknown(_))
        ),
        "{answer:?}"
    );
    assert!(world.at < begun + Duration::from_secs(20));
    assert!(world.sent.len() < 200, "and does not storm: {}", world.sent.len());
}

#[test]
fn a_release_whose_reply_was_lost_is_one_also_when_another_has_the_lease_by_then() {
    let (mut world, mut a) = (World::new(), World::new().machine());
    let mut b = world.machine();
    world.granted(&mut a, "a", 15);
    let mut release = Release::new(ReleaseRequest::new(&stream(), &instance("a")));
    let Step::Put(lease) = release.step(&mut a, world.now(), Input::Continue) else {
        panic!()
    };
    world.put(lease).unwrap();
    world.granted(&mut b, "b", 15);
    let lost = Input::Unknown(Unknown::new("no reply"));
    assert!(matches!(release.step(&mut a, world.now(), lost), Step::Wait(_)));
    let answer = world.run(&mut a, release);
    assert!(matches!(answer, Ok(Released::Released)), "{answer:?}");
    assert_eq!(world.holder(), "b");
}
