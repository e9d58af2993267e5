//! The coordinator on Leases: standbys that are told rather than ask, and holders that hear of a loss at once.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use leasewarden::{
    InstanceId, StreamName,
    election::{
        DeploymentMode, ElectionSettings, LeaderElectionCoordinator, Leadership, LossReason, StreamSpec,
        StreamState, StreamStatus,
    },
    lease::LeaseLockService,
    lock::NewsSource,
};
use leasewarden_faultproxy::{FaultProxy, Seen};

use crate::support::{World, eventually, instance, secs, stream, user_of};

/// An instance of a program: its work does nothing but wait to be stopped.
struct Instance {
    coordinator: LeaderElectionCoordinator,
    stream: StreamName,
}

impl Instance {
    fn new(locks: LeaseLockService, id: InstanceId, ttl: u64, leaders: &Leaders) -> Self {
        let stream = stream("orders");
        let coordinator = LeaderElectionCoordinator::builder(Arc::new(locks))
            .instance_id(id.clone())
            .settings(ElectionSettings::with_ttl(secs(ttl)).unwrap())
            .build()
            .unwrap();
        let leaders = Arc::clone(leaders);
        let work = move |leadership: Leadership| {
            let (leaders, id) = (Arc::clone(&leaders), id.to_string());
            async move {
                leaders
                    .lock()
                    .unwrap()
                    .push((id, leadership.token().unwrap().get()));
                leadership.stop_requested().await;
            }
        };
        let spec = StreamSpec::new(stream.clone(), DeploymentMode::SingleLeader, work);
        coordinator.register(spec).unwrap();
        coordinator.start(&stream).unwrap();
        Self { coordinator, stream }
    }

    fn status(&self) -> StreamStatus {
        self.coordinator.status(&self.stream).unwrap()
    }

    async fn is(&self, state: StreamState) {
        eventually(("it is", state), || async {
            (self.status().state == state).then_some(())
        })
        .await;
    }

    async fn follows(&self, source: NewsSource) {
        eventually(("it follows", source), || async {
            (self.status().source == source).then_some(())
        })
        .await;
    }

    /// Waits for two renewals that it is told of: after that nothing that it asked before is under way.
    async fn hears_of_renewals(&self) {
        for _ in 0..2 {
            let before = self.status().holder.map(|holder| holder.seen_at);
            eventually("it hears of a renewal", || async {
                (self.status().holder.map(|holder| holder.seen_at) > before).then_some(())
            })
            .await;
        }
    }

    async fn knows_the_holder(&self) {
        eventually("it knows the holder", || async { self.status().holder?.holder }).await;
    }
}

/// Who led, with which token, in order.
type Leaders = Arc<Mutex<Vec<(String, i64)>>>;

/// A standby of its own, behind a proxy that counts what it sends, once it knows who leads.
async fn standby(world: &World, id: &str, ttl: u64, leaders: &Leaders) -> (FaultProxy, Instance) {
    let base = world.plane.kube_config();
    let proxy = FaultProxy::start(&base).unwrap();
    let locks = world.locks_with(proxy.kube_config(&base));
    let standby = Instance::new(locks, instance(id), ttl, leaders);
    standby.follows(NewsSource::SharedWatch).await;
    standby.knows_the_holder().await;
    standby.is(StreamState::Contending).await;
    (proxy, standby)
}

fn is_watch(seen: &Seen) -> bool {
    seen.path.contains("watch=true")
}

#[tokio::test]
async fn standbys_send_nothing_while_the_leader_renews_and_one_of_them_follows_a_release() {
    let world = World::new("told").await;
    let leaders = Leaders::default();
    let leader = Instance::new(world.locks(), instance("leader"), 4, &leaders);
    leader.is(StreamState::Working).await;
    let mut standbys = Vec::new();
    for n in 0..5 {
        standbys.push(standby(&world, &format!("standby-{n}"), 4, &leaders).await);
    }
    for (_, standby) in &standbys {
        standby.hears_of_renewals().await;
    }
    for (proxy, _) in &standbys {
        proxy.forget_seen();
    }
    // What passes here is time: the leader renews, for longer than its TTL.
    tokio::time::sleep(Duration::from_secs(6)).await;
    for (proxy, _) in &standbys {
        let sent = proxy.seen();
        assert!(sent.iter().all(is_watch), "an idle standby asked: {sent:?}");
    }
    assert_eq!(leaders.lock().unwrap().len(), 1);

    leader.coordinator.stop(&leader.stream).unwrap().finished().await;
    eventually("a standby leads", || async {
        (leaders.lock().unwrap().len() == 2).then_some(())
    })
    .await;
    let working = |(_, s): &&(FaultProxy, Instance)| s.status().state == StreamState::Working;
    assert_eq!(standbys.iter().filter(working).count(), 1);
    let led = leaders.lock().unwrap().clone();
    assert!(led[1].1 > led[0].1, "{led:?}");
}

#[tokio::test]
async fn a_release_before_forty_standbys_causes_a_handful_of_writes() {
    let world = World::new("forty").await;
    let leaders = Leaders::default();
    let leader = Instance::new(world.locks(), instance("leader"), 15, &leaders);
    leader.is(StreamState::Working).await;
    // One proxy counts for all; each standby has connections of its own.
    let base = world.plane.kube_config();
    let proxy = FaultProxy::start(&base).unwrap();
    let mut standbys = Vec::new();
    for n in 0..40 {
        let locks = world.locks_with(proxy.kube_config(&base));
        standbys.push(Instance::new(
            locks,
            instance(&format!("standby-{n}")),
            15,
            &leaders,
        ));
    }
    for standby in &standbys {
        standby.follows(NewsSource::SharedWatch).await;
        standby.knows_the_holder().await;
        standby.is(StreamState::Contending).await;
    }
    let led_by = |n: usize| {
        let leaders = &leaders;
        eventually(("hand-over", n), move || async move {
            (leaders.lock().unwrap().len() == n + 1).then_some(())
        })
    };
    let mut writes = Vec::new();
    let mut led = &leader;
    for n in 1..=5 {
        proxy.forget_seen();
        led.coordinator.stop(&led.stream).unwrap().finished().await;
        led_by(n).await;
        let working = |standby: &&Instance| standby.status().state == StreamState::Working;
        led = standbys.iter().find(working).unwrap();
        for standby in standbys
            .iter()
            .filter(|s| s.status().state == StreamState::Contending)
        {
            standby.knows_the_holder().await;
        }
        let is_write = |seen: &&Seen| seen.method != "GET";
        writes.push(proxy.seen().iter().filter(is_write).count());
    }
    println!("writes after each release: {writes:?}");
    writes.sort_unstable();
    assert!(writes[2] <= 12, "a release caused {writes:?} writes");
}

#[tokio::test]
async fn a_leader_hears_at_once_that_its_lease_was_deleted() {
    let world = World::new("hears").await;
    let leaders = Leaders::default();
    // At this TTL the next renewal is minutes away.
    let leader = Instance::new(world.locks(), instance("leader"), 3600, &leaders);
    leader.is(StreamState::Working).await;
    leader.follows(NewsSource::SharedWatch).await;
    world.delete("orders").await;
    let loss = eventually("the loss is known", || async { leader.status().last_loss }).await;
    assert_eq!(loss.reason, LossReason::Deleted);
}

#[tokio::test]
async fn with_a_role_for_named_leases_they_are_watched_by_name_and_without_watch_polled() {
    let world = World::new("named").await;
    let leaders = Leaders::default();
    let leader = Instance::new(world.locks(), instance("leader"), 4, &leaders);
    leader.is(StreamState::Working).await;
    for (id, verbs, source) in [
        (
            "by-name",
            &["get", "update", "list", "watch"][..],
            NewsSource::OwnWatch,
        ),
        ("polls", &["get", "update"][..], NewsSource::Polling),
    ] {
        let config = user_of(&world, id, verbs, &["orders"]).await;
        let client = kube::Client::try_from(config.clone()).unwrap();
        eventually("the role is in force", || async {
            let uri = format!(
                "/apis/coordination.k8s.io/v1/namespaces/{}/leases/orders",
                world.ns()
            );
            let get = http::Request::get(uri).body(Vec::new()).unwrap();
            client.request::<serde_json::Value>(get).await.ok()
        })
        .await;
        let standby = Instance::new(world.locks_with(config), instance(id), 4, &leaders);
        standby.follows(source).await;
        standby.knows_the_holder().await;
        // In either way it takes over.
        let before = leaders.lock().unwrap().len();
        leader.coordinator.stop(&leader.stream).unwrap().finished().await;
        eventually((id, "leads"), || async {
            (leaders.lock().unwrap().len() > before).then_some(())
        })
        .await;
        standby
            .coordinator
            .shutdown(Duration::from_secs(20))
            .await
            .unwrap();
        leader.coordinator.start(&leader.stream).unwrap();
        leader.is(StreamState::Working).await;
    }
}
