//! Reading: what is shown, and what a late reply does not undo.

use super::*;

#[test]
fn a_state_never_lies_in_the_past() {
    let (mut world, mut a) = (World::new(), World::new().machine());
    world.granted(&mut a, "a", 3);
    for _ in 0..50 {
        let mut reader = world.machine();
        let record = world.run(&mut reader, Read::default()).unwrap().unwrap();
        if !record.expired {
            assert!(record.state.expires_at > world.date().unwrap());
        }
        world.advance(137);
    }
    let mut reader = world.machine();
    assert!(world.run(&mut reader, Read::default()).unwrap().unwrap().expired);
}

#[test]
fn a_late_404_of_a_read_does_not_end_a_term_that_was_written_meanwhile() {
    let (mut world, mut a) = (World::new(), World::new().machine());
    let mut read = Read::default();
    assert!(matches!(
        read.step(&mut a, world.now(), Input::Continue),
        Step::Get
    ));
    // Answered before the Lease was created, and delivered after it was acquired.
    let grant = world.granted(&mut a, "a", 15);
    let step = read.step(&mut a, world.now(), Input::Missing);
    assert!(!matches!(step, Step::Done(_)), "asks again: {step:?}");
    assert_eq!(a.valid_term(world.at), Some(grant.term));
    let record = world.run(&mut a, read).unwrap().unwrap();
    assert_eq!(record.state.instance, "a");
}
