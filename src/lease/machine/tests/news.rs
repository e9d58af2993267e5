//! News: late, of deletions, and of what other tools did to the Lease.

use super::*;

#[test]
fn old_news_of_a_watch_is_not_believed() {
    let (mut world, mut a) = (World::new(), World::new().machine());
    world.granted(&mut a, "a", 15);
    let old = world.lease.clone().unwrap();
    assert!(matches!(world.release(&mut a, "a"), Released::Released));
    let second = world.granted(&mut a, "a", 15);
    assert!(!a.observe(world.at, old).unwrap());
    assert_eq!(a.valid_term(world.at), Some(second.term));
}

#[test]
fn a_takeover_that_a_watch_shows_ends_the_term_at_once() {
    let (mut world, mut a) = (World::new(), World::new().machine());
    world.granted(&mut a, "a", 15);
    world.edit(|lease| lease.spec.as_mut().unwrap().holder_identity = Some("b".into()));
    assert!(a.valid_term(world.at).is_some());
    assert!(a.observe(world.at, world.lease.clone().unwrap()).unwrap());
    assert_eq!(a.valid_term(world.at), None);
}

#[test]
fn a_lease_that_was_deleted_and_created_again_is_another() {
    let (mut world, mut a) = (World::new(), World::new().machine());
    let mut b = world.machine();
    let first = world.granted(&mut a, "a", 15);
    world.lease = None;
    world.granted(&mut b, "b", 15);
    let outcome = world.extend(&mut a, "a", 15);
    assert!(matches!(outcome, Outcome::Refused(Refusal::HeldBy { holder, .. }) if holder == "b"));
    assert_eq!(a.valid_term(world.at), None);
    assert!(
        world.at < first.valid_until,
        "what was proven, not time, ended it"
    );
}

#[test]
fn a_contender_that_saw_the_live_term_waits_out_a_deleted_lease_even_if_it_is_created_again() {
    let (mut world, mut a) = (World::new(), World::new().machine());
    let mut b = world.machine();
    let first = world.granted(&mut a, "a", 15);
    world.acquire(&mut b, "b", 15);
    world.lease = None;
    world.create(write::free("orders", "ns", &stream()));
    let outcome = world.acquire(&mut b, "b", 15);
    assert!(matches!(outcome, Outcome::Refused(Refusal::HeldBy { holder, .. }) if holder == "a"));
    world.advance(15_000);
    assert!(world.granted(&mut b, "b", 15).token > first.token);
}

#[test]
fn the_holder_of_a_deleted_lease_may_return_at_once() {
    let (mut world, mut a) = (World::new(), World::new().machine());
    let first = world.granted(&mut a, "a", 15);
    world.lease = None;
    let second = world.granted(&mut a, "a", 15);
    assert_ne!(second.term, first.term);
}

#[test]
fn a_second_deleted_lease_does_not_hide_that_the_first_ones_holder_may_still_act() {
    let (mut world, mut a) = (World::new(), World::new().machine());
    let (mut b, mut c) = (world.machine(), world.machine());
    let first = world.granted(&mut a, "a", 60);
    world.acquire(&mut c, "c", 1);
    world.lease = None;
    assert!(
        !world.acquire(&mut c, "c", 1).is_granted(),
        "learns of the deletion"
    );
    world.granted(&mut b, "b", 1);
    world.acquire(&mut c, "c", 1);
    world.lease = None;
    assert!(!world.acquire(&mut c, "c", 1).is_granted(), "and of the second");
    world.advance(2000);
    let outcome = world.acquire(&mut c, "c", 1);
    assert!(world.at < first.valid_until);
    assert!(
        matches!(&outcome, Outcome::Refused(Refusal::HeldBy { holder, .. }) if holder == "a"),
        "{outcome:?}"
    );
    world.advance(60_000);
    assert!(world.acquire(&mut c, "c", 1).is_granted());
}

#[test]
fn a_stripped_annotation_costs_no_leadership() {
    let (mut world, mut a) = (World::new(), World::new().machine());
    let first = world.granted(&mut a, "a", 15);
    world.edit(|lease| lease.metadata.annotations = None);
    let second = world.extend(&mut a, "a", 15).granted().unwrap();
    assert_eq!(second.term, first.term);
    assert_eq!(
        world.lease.unwrap().annotation(crate::lease::TOKEN_ANNOTATION),
        Some("11"),
        "and is put back"
    );
}

#[test]
fn a_foreign_elector_with_our_id_is_not_us() {
    let (mut world, mut a) = (World::new(), World::new().machine());
    world.granted(&mut a, "a", 15);
    // client-go with the same identity renews: it keeps what it does not know, annotations among them.
    world.edit(|lease| lease.spec.as_mut().unwrap().renew_time = Some("2030-01-01T00:00:00.000000Z".into()));
    let grant = world.extend(&mut a, "a", 15);
    assert!(
        grant.is_granted(),
        "the term is still ours: only its renewTime was edited"
    );
    world.edit(|lease| {
        lease.metadata.annotations = None;
        lease.spec.as_mut().unwrap().renew_time = Some("2031-01-01T00:00:00.000000Z".into());
    });
    let outcome = world.extend(&mut a, "a", 15);
    assert!(
        !matches!(&outcome, Outcome::Granted(new) if Some(&new.term) == grant.granted().as_ref().map(|g| &g.term))
    );
}

#[test]
fn what_ended_a_term_of_ours_is_told_once() {
    type End = fn(&mut World, &mut Machine);
    let ends: [(End, Refusal); 4] = [
        (
            |world, a| {
                world.lease = None;
                a.missing(world.at);
            },
            Refusal::Missing,
        ),
        (
            |world, a| {
                world.edit(|lease| lease.spec.as_mut().unwrap().holder_identity = Some("b".into()));
                a.observe(world.at, world.lease.clone().unwrap()).unwrap();
            },
            Refusal::HeldBy {
                holder: "b".into(),
                expires_at: None,
                token: None,
            },
        ),
        (
            |world, a| {
                world.lease = None;
                world.create(write::free("orders", "ns", &stream()));
                a.observe(world.at, world.lease.clone().unwrap()).unwrap();
            },
            Refusal::Missing,
        ),
        (
            |world, a| assert!(matches!(world.release(a, "a"), Released::Released)),
            Refusal::Expired,
        ),
    ];
    for (end, why) in ends {
        let (mut world, mut a) = (World::new(), World::new().machine());
        let grant = world.granted(&mut a, "a", 15);
        assert_eq!(a.take_ended(), []);
        end(&mut world, &mut a);
        assert_eq!(a.take_ended(), [(grant.term, why)]);
        assert_eq!(a.take_ended(), []);
    }
}

#[test]
fn a_follower_is_told_from_when_the_lease_may_be_found_expired_also_when_it_was_deleted() {
    let (mut world, mut a) = (World::new(), World::new().machine());
    let mut b = world.machine();
    assert_eq!(b.standing(world.now()), None, "nothing is known yet");
    let grant = world.granted(&mut a, "a", 15);
    world.acquire(&mut b, "b", 15);
    let told = |b: &Machine, world: &World| match b.standing(world.now()) {
        Some(crate::lock::Change::Held {
            holder,
            token,
            free_from,
            ..
        }) => (holder, token, free_from.unwrap().since(world.at)),
        other => panic!("{other:?}"),
    };
    let whole = Duration::from_secs(15);
    assert_eq!(told(&b, &world), ("a".into(), grant.token, whole));
    world.advance(4_000);
    assert_eq!(told(&b, &world).2, Duration::from_secs(11));
    world.extend(&mut a, "a", 15);
    b.observe(world.at, world.lease.clone().unwrap()).unwrap();
    assert_eq!(told(&b, &world).2, whole, "renewed");
    world.advance(4_000);
    world.lease = None;
    b.missing(world.at);
    assert_eq!(
        told(&b, &world),
        ("a".into(), None, whole),
        "its holder may not know"
    );
    world.advance(15_000);
    assert_eq!(b.standing(world.now()), Some(crate::lock::Change::Free));
}
