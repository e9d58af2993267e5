//! Acquiring: which write grants, what proves it, and what is never taken.

use super::*;

#[test]
fn a_first_acquisition_creates_the_lease_free_and_then_takes_it() {
    let (mut world, mut a) = (World::new(), World::new().machine());
    let grant = world.granted(&mut a, "a", 15);
    assert_eq!(world.sent, ["get", "create", "put"]);
    assert_eq!(
        grant.token,
        FencingToken::new(11),
        "the version that the acquiring write was conditioned on"
    );
}

#[test]
fn an_acquisition_whose_reply_was_lost_is_proven_by_a_read_and_counts_from_its_send() {
    let (mut world, mut a) = (World::new(), World::new().machine());
    world.faults = [Fault::None, Fault::None, Fault::DropReply].into();
    let begun = world.at;
    let grant = world.granted(&mut a, "a", 21);
    assert_eq!(world.sent, ["get", "create", "put", "get"], "not written twice");
    assert_eq!(grant.valid_until, begun + Duration::from_secs(19));
    assert_eq!(grant.token, FencingToken::new(11));
}

#[test]
fn scenario_02_who_loses_and_regains_within_its_old_term_gets_a_new_one() {
    let (mut world, mut a) = (World::new(), World::new().machine());
    let first = world.granted(&mut a, "a", 60);
    world.edit(|lease| {
        let spec = lease.spec.as_mut().unwrap();
        spec.holder_identity = Some("b".into());
        spec.lease_transitions = Some(2);
    });
    world.edit(|lease| lease.spec.as_mut().unwrap().holder_identity = None);
    let second = world.granted(&mut a, "a", 60);
    assert_ne!(second.term, first.term);
    assert!(second.token > first.token);
}

#[test]
fn a_takeover_is_a_compare_and_set_on_what_was_seen() {
    let (mut world, mut a) = (World::new(), World::new().machine());
    let mut b = world.machine();
    world.granted(&mut a, "a", 15);
    world.acquire(&mut b, "b", 15);
    world.advance(12_000);
    assert!(world.extend(&mut a, "a", 15).is_granted());
    world.advance(4000);
    // `b` last saw the record 16 s ago, but a read comes before the write.
    assert!(matches!(world.acquire(&mut b, "b", 15), Outcome::Refused(_)));
}

#[test]
fn a_term_that_was_released_is_not_acquired_again() {
    let (mut world, mut a) = (World::new(), World::new().machine());
    let claim = Claim::Term(Term::random());
    let acquire = || AcquireRequest::new(&stream(), &instance("a"), ttl(15)).claim(claim.clone());
    let first = world.run(&mut a, Acquire::new(acquire())).unwrap();
    assert!(first.is_granted());
    let release = ReleaseRequest::new(&stream(), &instance("a")).claim(claim.clone());
    assert!(matches!(
        world.run(&mut a, Release::new(release)),
        Ok(Released::Released)
    ));
    // A late retry of the acquisition, in this process or by another that was told the term.
    for mut machine in [a, world.machine()] {
        let again = world.run(&mut machine, Acquire::new(acquire())).unwrap();
        assert!(
            matches!(again, Outcome::Refused(Refusal::Expired)),
            "a guard that was once false stays false: {again:?}"
        );
    }
    assert_eq!(world.holder(), "");
}

#[test]
fn a_twins_write_of_the_same_renew_time_does_not_prove_an_acquisition_once_its_term_is_stripped() {
    let (mut world, mut a) = (World::new(), World::new().machine());
    let mut twin = world.machine();
    let request = |_| {
        let claim = Claim::Term(Term::random());
        Acquire::new(AcquireRequest::new(&stream(), &instance("a"), ttl(15)).claim(claim))
    };
    world.create(write::free("orders", "ns", &stream()));
    // Both read the same record at the same time, so both writes have the same holder and renewTime.
    let [mut one, mut two] = [0, 1].map(request);
    let mut puts = Vec::new();
    for (acquire, machine) in [(&mut one, &mut a), (&mut two, &mut twin)] {
        acquire.step(machine, world.now(), Input::Continue);
        let read = Input::Lease(Box::new(world.lease.clone().unwrap()), world.date());
        let Step::Put(lease) = acquire.step(machine, world.now(), read) else {
            panic!()
        };
        puts.push(lease);
    }
    world.put(puts.remove(0)).unwrap();
    world.edit(|lease| lease.metadata.annotations = None);
    assert!(world.put(puts.remove(0)).is_none());
    two.step(&mut twin, world.now(), Input::Conflict);
    let read = Input::Lease(Box::new(world.lease.clone().unwrap()), world.date());
    let step = two.step(&mut twin, world.now(), read);
    assert!(
        matches!(&step, Step::Done(Ok(Outcome::Refused(Refusal::HeldBy { .. })))),
        "{step:?}"
    );
}
