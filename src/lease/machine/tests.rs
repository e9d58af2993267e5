//! Schedules that a real API server does not produce on demand: replies lost, late or never, writes applied later.
//!
//! The fake has just the compare-and-set of the real one; that both agree on it is tested on the real one
//! (`tests/integration`).

#![allow(clippy::unused_self, clippy::unnecessary_wraps)]

use std::{collections::VecDeque, time::UNIX_EPOCH};

use serde_json::json;

use super::*;
use crate::lock::{FencingToken, Grant, IfExpired};

/// What happens to one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// Applied; the reply is lost after the attempt's time-out.
    DropReply,
    /// Never applied, never answered.
    Lost,
    /// Applied only when the test says so; not answered in time.
    Hold,
    /// Answered after this many milliseconds.
    Late(u64),
}

struct World {
    at: Moment,
    wall: SystemTime,
    version: u64,
    lease: Option<Lease>,
    held: Vec<Lease>,
    faults: VecDeque<Fault>,
    /// Requests that were sent, by verb.
    sent: Vec<&'static str>,
    /// How far the server's clock is ahead of ours.
    uids: u64,
}

impl World {
    fn new() -> Self {
        Self {
            at: Moment::from_origin(Duration::from_secs(1000)),
            wall: UNIX_EPOCH + Duration::from_secs(1_700_000_000),
            version: 10,
            lease: None,
            held: Vec::new(),
            faults: VecDeque::new(),
            sent: Vec::new(),
            uids: 0,
        }
    }

    fn machine(&self) -> Machine {
        let stream = StreamName::new("orders").unwrap();
        Machine::new(stream, "orders".into(), "ns".into(), Some(Duration::from_secs(5)))
    }

    fn advance(&mut self, millis: u64) {
        self.at = self.at + Duration::from_millis(millis);
        self.wall += Duration::from_millis(millis);
    }

    fn now(&self) -> Now {
        Now {
            at: self.at,
            wall: self.wall,
        }
    }

    fn store(&mut self, mut lease: Lease, spec_changed: bool) -> Lease {
        self.version += 1;
        lease.metadata.resource_version = Some(self.version.to_string());
        if spec_changed {
            let time = httpdate_seconds(self.wall);
            lease.metadata.managed_fields =
                serde_json::from_value(json!([{"manager": "m", "time": time, "fieldsV1": {"f:spec": {}}}]))
                    .unwrap();
        }
        self.lease = Some(lease.clone());
        lease
    }

    fn put(&mut self, lease: Lease) -> Option<Lease> {
        let stored = self.lease.as_ref()?;
        let (sent, found) = (&lease.metadata, &stored.metadata);
        assert!(
            sent.uid.is_some() && sent.resource_version.is_some(),
            "every write carries both"
        );
        let same = sent.uid == found.uid && sent.resource_version == found.resource_version;
        same.then(|| self.store(lease, true))
    }

    fn create(&mut self, mut lease: Lease) -> Option<Lease> {
        if self.lease.is_some() {
            return None;
        }
        self.uids += 1;
        lease.metadata.uid = Some(format!("uid-{}", self.uids));
        Some(self.store(lease, true))
    }

    /// A write that another tool makes, with no regard for us.
    fn edit(&mut self, edit: impl FnOnce(&mut Lease)) {
        let mut lease = self.lease.clone().unwrap();
        let before = lease.spec.clone();
        edit(&mut lease);
        let changed = before != lease.spec;
        self.store(lease, changed);
    }

    /// Applies the writes that were held, as far as the compare-and-set lets them.
    fn deliver(&mut self) -> usize {
        let held = std::mem::take(&mut self.held);
        held.into_iter().filter_map(|lease| self.put(lease)).count()
    }

    fn date(&self) -> Option<SystemTime> {
        let whole = self.wall.duration_since(UNIX_EPOCH).unwrap().as_secs();
        Some(UNIX_EPOCH + Duration::from_secs(whole))
    }

    fn run<O: Operation>(&mut self, machine: &mut Machine, mut operation: O) -> O::Answer {
        let mut input = Input::Continue;
        for _ in 0..10_000 {
            let step = operation.step(machine, self.now(), input);
            let fault = match step {
                Step::Wait(_) | Step::Done(_) => Fault::None,
                _ => self.faults.pop_front().unwrap_or(Fault::None),
            };
            let timeout = u64::try_from(operation.attempt_timeout().as_millis()).unwrap();
            let date = self.date();
            let reply = |lease: Option<Lease>, none: Input| match lease {
                Some(lease) => Input::Lease(Box::new(lease), date),
                None => none,
            };
            let answer = match step {
                Step::Done(answer) => return answer,
                Step::Wait(pause) => {
                    self.advance(u64::try_from(pause.as_millis()).unwrap());
                    Input::Continue
                }
                Step::Get => {
                    self.sent.push("get");
                    reply(self.lease.clone(), Input::Missing)
                }
                Step::Create(lease) => {
                    self.sent.push("create");
                    let made = if fault == Fault::Lost {
                        None
                    } else {
                        self.create(lease)
                    };
                    reply(made, Input::Conflict)
                }
                Step::Put(lease) => {
                    self.sent.push("put");
                    match fault {
                        Fault::Lost => Input::Conflict,
                        Fault::Hold => {
                            self.held.push(lease);
                            Input::Conflict
                        }
                        _ => {
                            let put = self.put(lease);
                            reply(put, Input::Conflict)
                        }
                    }
                }
            };
            input = match fault {
                Fault::None => answer,
                Fault::Late(millis) => {
                    self.advance(millis);
                    answer
                }
                Fault::DropReply | Fault::Lost | Fault::Hold => {
                    self.advance(timeout);
                    Input::Unknown(Unknown::new("no reply"))
                }
            };
        }
        panic!("the operation does not end: {:?}", &self.sent[..20]);
    }

    fn acquire(&mut self, machine: &mut Machine, id: &str, secs: u64) -> Outcome {
        self.run(
            machine,
            Acquire::new(AcquireRequest::new(&stream(), &instance(id), ttl(secs))),
        )
        .unwrap()
    }

    fn granted(&mut self, machine: &mut Machine, id: &str, secs: u64) -> Grant {
        match self.acquire(machine, id, secs) {
            Outcome::Granted(grant) => grant,
            other => panic!("{other:?}"),
        }
    }

    fn extend(&mut self, machine: &mut Machine, id: &str, secs: u64) -> Outcome {
        self.run(
            machine,
            Extend::new(ExtendRequest::new(&stream(), &instance(id), ttl(secs))),
        )
        .unwrap()
    }

    fn release(&mut self, machine: &mut Machine, id: &str) -> Released {
        self.run(
            machine,
            Release::new(ReleaseRequest::new(&stream(), &instance(id))),
        )
        .unwrap()
    }

    fn holder(&self) -> String {
        self.lease
            .as_ref()
            .and_then(|l| l.spec.as_ref()?.holder_identity.clone())
            .unwrap_or_default()
    }
}

fn httpdate_seconds(at: SystemTime) -> String {
    let text = crate::lease::time::micro_time(at).unwrap_or("9999-12-30T00:00:00.000000Z".into());
    format!("{}Z", &text[..19])
}

fn stream() -> StreamName {
    StreamName::new("orders").unwrap()
}

fn instance(id: &str) -> InstanceId {
    InstanceId::new(id).unwrap()
}

fn ttl(secs: u64) -> Ttl {
    Ttl::from_secs(secs).unwrap()
}

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
fn renewal_is_one_put() {
    let (mut world, mut a) = (World::new(), World::new().machine());
    world.granted(&mut a, "a", 15);
    world.sent.clear();
    assert!(world.extend(&mut a, "a", 15).is_granted());
    assert_eq!(world.sent, ["put"]);
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
    assert!(matches!(
        world.release(&mut a, "a"),
        Released::NotHeld | Released::Released
    ));
    assert_eq!(world.lease, before);
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
