//! Bad input of every kind: the error says what is wrong, the work stops in time, and all is well again when it is mended.

use std::{
    cell::Cell,
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

use leasewarden::{
    election::{CoordinatorError, DeploymentMode, LossReason, StreamSpec, StreamState},
    lease::LeaseLockService,
    lock::{Clock, Moment, SystemClock},
};
use serde_json::json;

use super::stage::{Instance, Stage};
use crate::support::{World, eventually, stream, user};

#[tokio::test]
async fn two_streams_of_one_name_are_refused_in_one_program_and_in_one_lease() {
    let world = World::new("one-name").await;
    let stage = Stage::default();
    let first = Instance::steady(world.locks(), "a", 15, &stage);
    let again = StreamSpec::new(stream("orders"), DeploymentMode::SingleLeader, |_| async {});
    let error = first.coordinator.register(again).unwrap_err();
    assert!(matches!(error, CoordinatorError::DuplicateStream(_)), "{error}");
    first.leads().await;
    first.stop().await;

    // A Lease of this name that is another stream's.
    let spec = json!({});
    world.delete("orders").await;
    world
        .create("orders", json!({"leasewarden.dev/stream": "Other"}), spec)
        .await;
    let second = Instance::steady(world.locks(), "b", 15, &stage);
    let error = second.shows("the error", |status| status.last_error).await;
    assert!(error.contains("Other") && error.contains("orders"), "{error}");
    assert_eq!(stage.begun(), 1, "and nobody works");
    stage.kept_apart();
}

/// The machine's clocks, and how far they have jumped.
#[derive(Debug, Clone, Default)]
struct JumpingClock(Arc<Mutex<(Duration, i64)>>);

impl JumpingClock {
    /// As after a suspend of so long.
    fn sleep(&self, by: Duration) {
        self.0.lock().unwrap().0 += by;
    }

    /// As when an administrator sets the wall clock.
    fn set_wall(&self, ahead_secs: i64) {
        self.0.lock().unwrap().1 = ahead_secs;
    }
}

impl Clock for JumpingClock {
    fn now(&self) -> Moment {
        SystemClock.now() + self.0.lock().unwrap().0
    }

    fn wall(&self) -> SystemTime {
        let ahead = self.0.lock().unwrap().1;
        let by = Duration::from_secs(ahead.unsigned_abs());
        if ahead < 0 {
            SystemTime::now() - by
        } else {
            SystemTime::now() + by
        }
    }
}

#[tokio::test]
async fn a_wall_clock_that_jumps_costs_nothing_and_a_machine_that_slept_has_lost() {
    let world = World::new("jumps").await;
    let stage = Stage::default();
    let clock = JumpingClock::default();
    let builder = LeaseLockService::builder(world.plane.kube_config()).namespace(world.ns());
    let locks = builder.clock(Arc::new(clock.clone())).build().unwrap();
    let sleeper = Instance::steady(locks, "a", 6, &stage);
    sleeper.leads().await;
    let standby = Instance::steady(world.locks(), "b", 6, &stage);
    standby.stands_by().await;
    for ahead in [3600, -3600, 0] {
        clock.set_wall(ahead);
        sleeper.renews(2).await;
        assert_eq!(
            (sleeper.status().state, stage.begun()),
            (StreamState::Working, 1),
            "{ahead} s ahead"
        );
    }
    clock.sleep(Duration::from_secs(12));
    let slept = SystemClock.now();
    let loss = sleeper.loses().await;
    assert!(matches!(loss, LossReason::ExpiredUnreachable { .. }), "{loss:?}");
    stage.began(2).await;
    let last = stage.events();
    let last_of_old_term = stage
        .last_act_of("a")
        .filter(|act| act.token == stage.tokens()[0]);
    assert!(
        last_of_old_term.is_none_or(|act| act.at <= slept),
        "it acted after it woke: {last:?}"
    );
    stage.kept_apart();
}

#[tokio::test]
async fn a_permission_taken_away_in_mid_term_ends_the_work_in_time_names_the_verb_and_is_followed_when_it_returns()
 {
    let world = World::new("forbidden").await;
    let all = ["get", "create", "update", "list", "watch"];
    let config = user(&world, "worker", &all).await;
    let stage = Stage::default();
    let leader = Instance::steady(world.locks_with(config), "a", 6, &stage);
    leader.leads().await;
    user(&world, "worker", &["get", "create", "list", "watch"]).await;
    let until = Cell::new(leader.status().valid_until);
    let loss = eventually("it is lost", || async {
        let status = leader.status();
        until.set(until.get().max(status.valid_until));
        status.last_loss
    })
    .await;
    let reason = loss.reason.to_string();
    assert!(
        matches!(loss.reason, LossReason::ExpiredUnreachable { .. }),
        "{reason}"
    );
    assert!(
        reason.contains("403") && reason.contains("update leases.coordination.k8s.io"),
        "{reason}"
    );
    let last = stage.last_act_of("a").unwrap();
    assert!(Some(last.at) < until.get(), "{last:?} after {until:?}");
    assert_eq!(stage.begun(), 1);
    user(&world, "worker", &all).await;
    stage.began(2).await;
    stage.kept_apart();
}

#[tokio::test]
async fn the_namespace_deleted_under_a_leader_ends_the_work_and_is_named() {
    let world = World::new("vanishes").await;
    let stage = Stage::default();
    let leader = Instance::steady(world.locks(), "a", 4, &stage);
    leader.leads().await;
    let uri = format!("/api/v1/namespaces/{}", world.ns());
    let delete = http::Request::delete(&uri).body(Vec::new()).unwrap();
    world.client.request::<serde_json::Value>(delete).await.unwrap();
    let loss = leader.loses().await;
    assert!(
        matches!(loss, LossReason::Deleted | LossReason::ExpiredUnreachable { .. }),
        "{loss:?}"
    );
    stage.is_empty().await;
    let error = leader
        .shows("why it cannot lead", |status| {
            status.last_error.filter(|error| error.contains("namespace"))
        })
        .await;
    assert!(error.contains(world.ns()), "{error}");
    assert_eq!(stage.begun(), 1);
    stage.kept_apart();
}
