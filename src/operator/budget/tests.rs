//! The budget with a controller around it that has nothing but the pure parts, second by second.

use std::collections::BTreeMap;

use super::*;
use crate::{
    crd::StatusPolicy,
    operator::{
        projection::{self, Sight, Source, Subject},
        view::LeaseView,
    },
};

const T0: i64 = 1_800_000_000;

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millisecond(T0 * 1000 + millis).unwrap()
}

/// Many Leases that are all acquired at once and renewed every third of their TTL.
struct World {
    budget: Budget,
    ttl: i64,
    objects: Vec<Object>,
    /// By second and reason.
    writes: BTreeMap<(i64, &'static str), u32>,
    /// Whether writes are lost just now.
    failing: bool,
    /// All renew in the same second.
    together: bool,
}

struct Object {
    id: String,
    lease: LeaseView,
    status: ChangeStreamLeaderStatus,
    timer: Option<i64>,
    renewals: bool,
}

impl World {
    fn new(per_second: u32, ttl: i64, leases: usize) -> Self {
        let mut world = Self {
            budget: Budget::new(per_second),
            ttl,
            objects: vec![],
            writes: BTreeMap::new(),
            failing: false,
            together: false,
        };
        world.join(leases, 0);
        world
    }

    fn join(&mut self, leases: usize, now: i64) {
        for _ in 0..leases {
            let n = self.objects.len();
            let lease = serde_json::json!({
                "metadata": {
                    "namespace": "ns", "name": format!("s-{n}"), "uid": "u", "resourceVersion": "1",
                    "labels": crate::lease::LABELS.iter().copied().collect::<BTreeMap<_, _>>(),
                },
                "spec": {"holderIdentity": "a", "leaseDurationSeconds": self.ttl},
            });
            self.objects.push(Object {
                id: format!("uid-{n}"),
                lease: LeaseView::new(&serde_json::from_value(lease).unwrap(), at(now)).unwrap(),
                status: ChangeStreamLeaderStatus::default(),
                timer: None,
                renewals: true,
            });
            self.renew(n, now);
        }
    }

    fn renew(&mut self, n: usize, now: i64) {
        let lease = &mut self.objects[n].lease;
        let version: u64 = lease.resource_version.parse().unwrap();
        lease.resource_version = (version + 1).to_string();
        let whole = Timestamp::from_second(at(now).as_second()).unwrap();
        (lease.written_at, lease.changed_at, lease.received_at) = (Some(whole), Some(whole), at(now));
        self.look(n, now);
    }

    fn look(&mut self, n: usize, now: i64) {
        let object = &mut self.objects[n];
        let sight = Sight {
            lease: Some(&object.lease),
            before: None,
            // No Lease expires here but those that stopped.
            source: Source::Read,
            now: at(now),
            refresh_due: self.budget.is_due(&object.id, at(now)),
            blind: None,
        };
        let subject = Subject {
            stream: &object.lease.name,
            lease: &object.lease.name,
            generation: Some(1),
            policy: StatusPolicy::Full,
        };
        let decision = projection::project(subject, &object.status, sight);
        let decision = self
            .budget
            .afford(&object.id, &object.status, decision, at(now))
            .decision;
        object.timer = decision
            .requeue_after
            .map(|after| now + i64::try_from(after.as_millis()).unwrap() + 1);
        let Some(reason) = decision.write else { return };
        if self.failing {
            self.budget.failed(&object.id, &object.status, at(now));
            object.timer = Some(now + 500);
            return;
        }
        object.status = decision.status;
        *self
            .writes
            .entry((at(now).as_second() - T0, reason.label()))
            .or_default() += 1;
    }

    /// Runs on to this second, and looks every tenth that no expiry that is shown of a live leader has lapsed.
    fn run(&mut self, from: i64, to: i64) {
        for now in (from * 1000..to * 1000).step_by(100) {
            for n in 0..self.objects.len() {
                let third = self.ttl * 1000 / 3;
                let step = if self.together { 7 } else { third / 100 };
                let offset = i64::try_from(n).unwrap() * 37 % step * 100;
                if self.objects[n].renewals && now > 0 && (now - offset) % third == 0 {
                    self.renew(n, now);
                }
                if self.objects[n].timer.is_some_and(|timer| timer <= now) {
                    self.look(n, now);
                }
                let object = &self.objects[n];
                if let Some(shown) = &object.status.expiration_time {
                    assert!(shown.0 > at(now), "{} at {now} ms", object.id);
                }
            }
        }
    }

    fn shown(&self) -> usize {
        let shown = self.objects.iter().filter(|o| o.status.expiration_time.is_some());
        shown.count()
    }

    /// The most writes in one second, from this one on, that were no transitions.
    fn busiest(&self, from: i64) -> u32 {
        let mut seconds = BTreeMap::<i64, u32>::new();
        for ((second, reason), count) in &self.writes {
            if *second >= from && *reason != "transition" {
                *seconds.entry(*second).or_default() += count;
            }
        }
        seconds.into_values().max().unwrap_or_default()
    }

    fn count(&self, reason: &str) -> u32 {
        let such = self.writes.iter().filter(|((_, r), _)| *r == reason);
        such.map(|(_, count)| count).sum()
    }
}

#[test]
fn what_fits_is_shown_and_a_thousand_leases_of_one_second_are_refreshed_in_many() {
    // 100 Leases at TTL 15 need 7 to 10 writes a second.
    for together in [true, false] {
        let mut world = World::new(20, 15, 100);
        world.together = together;
        world.run(0, 120);
        assert_eq!(world.shown(), 100);
        assert_eq!(world.count("transition"), 100, "each was acquired once");
        assert_eq!(world.count("expiration_removed"), 0);
        // A second that passed without news is made up for.
        assert!(world.busiest(0) <= 24, "{}", world.busiest(0));
        let a_second = f64::from(world.count("refresh")) / 120.0;
        assert!(a_second <= 15.0, "{a_second} writes a second");
    }
}

#[test]
fn what_does_not_fit_is_left_out_and_nothing_that_is_shown_lapses() {
    let mut world = World::new(5, 15, 300);
    world.run(0, 120);
    assert_eq!(world.count("transition"), 300, "transitions ask nobody");
    // 5 a second, at 10 to 15 seconds each.
    let shown = world.shown();
    assert!((35..=80).contains(&shown), "{shown} are shown");
    assert_eq!(world.budget.without(), 300 - shown);
    assert!(world.busiest(0) <= 6, "{} writes in a second", world.busiest(0));
    let removed = world.count("expiration_removed");
    assert!(
        removed <= 60,
        "{removed} were put back only to be taken out again"
    );
}

#[test]
fn it_is_put_back_when_the_budget_suffices_again() {
    let mut world = World::new(5, 15, 300);
    world.run(0, 40);
    assert!(world.shown() < 100);
    for object in world.objects.split_off(30) {
        world.budget.forget(&object.id);
    }
    world.run(40, 100);
    assert_eq!((world.shown(), world.budget.without()), (30, 0));
}

#[test]
fn a_write_that_failed_is_as_due_as_before() {
    let mut world = World::new(2, 15, 20);
    world.run(0, 30);
    let shown = world.shown();
    assert!(shown > 0);
    // For less than the time between the booked second and the end.
    world.failing = true;
    world.run(30, 31);
    world.failing = false;
    world.run(31, 60);
    assert!(world.shown() > 0);
}

#[test]
fn another_operators_expiry_is_kept_or_taken_out_in_time() {
    let mut world = World::new(20, 15, 100);
    world.run(0, 20);
    // The next operator allows less.
    world.budget = Budget::new(3);
    for n in 0..world.objects.len() {
        world.look(n, 20_000);
    }
    world.run(20, 120);
    assert!((20..=45).contains(&world.shown()), "{}", world.shown());
    assert!(world.count("expiration_removed") >= 50);
    assert!(world.busiest(50) <= 4, "{}", world.busiest(50));
}

#[test]
fn without_a_budget_no_expiry_is_shown_and_conditions_are_told_all_the_same() {
    let mut world = World::new(0, 15, 3);
    world.run(0, 40);
    assert_eq!((world.shown(), world.writes.values().sum::<u32>()), (0, 3));
    let now = at(100_000);
    assert_eq!(world.budget.pace("a", now), Ok(()));
    let wait = world.budget.pace("b", now).unwrap_err();
    assert!(wait <= Duration::from_secs(2), "{wait:?}");
    assert_eq!(world.budget.pace("b", now.checked_add(wait).unwrap()), Ok(()));
}

#[test]
fn ten_thousand_conditions_take_their_turns() {
    let mut budget = Budget::new(20);
    let mut waits = Vec::new();
    for n in 0..10_000 {
        let id = n.to_string();
        let wait = budget.pace(&id, at(0)).err().unwrap_or_default();
        // Asked again too early, it keeps its turn.
        assert_eq!(budget.pace(&id, at(0)).err().unwrap_or_default(), wait);
        waits.push(wait.as_secs());
    }
    let last = *waits.last().unwrap();
    assert!((499..=501).contains(&last), "{last}");
    for second in 0..500 {
        let count = waits.iter().filter(|w| **w == second).count();
        assert!(count <= 21, "{count} in second {second}");
    }
}

#[test]
fn a_leader_that_stops_leaves_its_second_to_others() {
    let mut world = World::new(1, 15, 1);
    world.run(0, 3);
    world.objects[0].renewals = false;
    world.run(3, 10);
    world.budget.forget("uid-0");
    assert!(world.budget.shown.is_empty());
    assert!(
        world.budget.seconds.values().all(|count| *count == 0),
        "{:?}",
        world.budget.seconds
    );
}
