//! Many who contend, and what they see.

use leasewarden::{StreamName, election::StreamState};
use leasewarden_faultproxy::{Canned, Fault, FaultProxy, Match, Seen, StatusCode};

use super::stage::{Instance, Stage, settings};
use crate::support::{LIMIT, World, eventually, granted, instance, secs};

// Reported against fabric8 (#5733) and pekko (`PendingRead`).
#[tokio::test]
async fn scenario_07_coordinators_with_one_instance_id_are_two() {
    for one_process in [true, false] {
        let world = World::new("twins").await;
        let stage = Stage::default();
        let locks = world.locks();
        let others = if one_process { locks.clone() } else { world.locks() };
        let first = Instance::steady(locks, "twin", 4, &stage);
        first.leads().await;
        let second = Instance::steady(others, "twin", 4, &stage);
        second.stands_by().await;
        // The one renews and the other stands by, for longer than a TTL.
        first.renews(4).await;
        assert_eq!(
            (second.status().state, stage.begun()),
            (StreamState::Contending, 1)
        );
        first.stop().await;
        second.leads().await;
        stage.kept_apart();
    }
}

// Reported against kube-leader-election.
#[tokio::test]
async fn scenario_15_of_two_who_read_the_same_expired_lease_one_wins() {
    let world = World::new("same-read").await;
    granted(&world.locks(), "orders", "dead", secs(4)).await;
    let base = world.plane.kube_config();
    let stage = Stage::default();
    let contender = |id: &'static str| {
        let proxy = FaultProxy::start(&base).unwrap();
        let instance = Instance::steady(world.locks_with(proxy.kube_config(&base)), id, 600, &stage);
        (proxy, instance)
    };
    let (a, b) = (contender("a"), contender("b"));
    a.1.stands_by().await;
    b.1.stands_by().await;
    // Both wait for the expiry. What they read then reaches neither before it was read by both.
    let read = Match::get(format!("/namespaces/{}/leases/orders", world.ns()));
    let held = [&a, &b].map(|(proxy, _)| proxy.rule(read.clone(), Fault::HoldReply));
    for held in &held {
        held.wait_fired(1, LIMIT).await.unwrap();
    }
    let writes = |proxy: &FaultProxy| proxy.count(|seen| seen.method == "PUT");
    assert_eq!(
        (writes(&a.0), writes(&b.0)),
        (0, 0),
        "both have read, and neither has written"
    );
    held.iter().for_each(leasewarden_faultproxy::Rule::release);
    stage.began(1).await;
    for (_, instance) in [&a, &b] {
        instance
            .shows("who won", |status| {
                status.holder?.holder.filter(|holder| holder != "dead")
            })
            .await;
    }
    let working = |(_, instance): &&(FaultProxy, Instance)| instance.status().state == StreamState::Working;
    assert_eq!([&a, &b].into_iter().filter(working).count(), 1);
    assert_eq!(stage.begun(), 1);
    stage.kept_apart();
}

// Reported against akka-management (#910, #1194).
#[tokio::test]
async fn scenario_23_streams_of_odd_names_have_leases_of_their_own_and_are_led_at_once() {
    let world = World::new("names").await;
    let stages: Vec<Stage> = (0..6).map(|_| Stage::default()).collect();
    let long = "x".repeat(300);
    let names = ["Orders", "orders", "a/b", "a:b", long.as_str(), "🦀"];
    let instances: Vec<Instance> = names
        .iter()
        .zip(&stages)
        .map(|(name, stage)| {
            let stream = StreamName::new(*name).unwrap();
            Instance::of(
                &stream,
                world.locks(),
                instance("a"),
                settings(15),
                stage.steady("a"),
            )
        })
        .collect();
    for instance in &instances {
        instance.leads().await;
    }
    let uri = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", world.ns());
    let list: serde_json::Value = world
        .client
        .request(http::Request::get(uri).body(Vec::new()).unwrap())
        .await
        .unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), names.len());
    let error = StreamName::new("").unwrap_err();
    assert!(error.to_string().contains("empty"), "{error}");
}

// Reported against flamingock-java (#310).
#[tokio::test]
async fn scenario_24_of_forty_candidates_that_start_at_once_one_leads_and_the_rest_is_quiet() {
    let world = World::new("forty-start").await;
    let base = world.plane.kube_config();
    let proxy = FaultProxy::start(&base).unwrap();
    let stage = Stage::default();
    let candidate = |n: usize| {
        let locks = world.locks_with(proxy.kube_config(&base));
        Instance::steady(locks, &format!("candidate-{n}"), 600, &stage)
    };
    let candidates: Vec<Instance> = (0..40).map(candidate).collect();
    let is_leader = |candidate: &&Instance| candidate.status().state == StreamState::Working;
    eventually("one leads", || async {
        candidates.iter().find(is_leader).map(drop)
    })
    .await;
    for candidate in candidates.iter().filter(|candidate| !is_leader(candidate)) {
        candidate.stands_by().await;
    }
    assert_eq!(
        (candidates.iter().filter(is_leader).count(), stage.begun()),
        (1, 1)
    );
    let asked_by = |method: &str| proxy.count(|seen| seen.method == method);
    assert!(asked_by("POST") >= 1, "the Lease did not exist");
    // Each may have tried to create it, and to take it, once.
    let writes = asked_by("POST") + asked_by("PUT");
    assert!(writes <= 80, "{writes} writes");
    proxy.forget_seen();
    // What passes here is time: a storm of retries would show.
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    let sent: Vec<Seen> = proxy
        .seen()
        .into_iter()
        .filter(|seen| !seen.path.contains("watch=true"))
        .collect();
    assert!(sent.is_empty(), "{sent:?}");
    stage.kept_apart();
}

// Reported against kube (#1615, #1791).
#[tokio::test]
async fn scenario_26_watches_that_are_cut_or_too_old_cost_no_takeover_and_no_leadership() {
    let world = World::new("watches").await;
    let base = world.plane.kube_config();
    let proxy = FaultProxy::start(&base).unwrap();
    let stage = Stage::default();
    let behind = || world.locks_with(proxy.kube_config(&base));
    let leader = Instance::steady(behind(), "a", 6, &stage);
    leader.leads().await;
    let standby = Instance::steady(behind(), "b", 6, &stage);
    standby.stands_by().await;
    let watches = || proxy.count(|seen| seen.path.contains("watch=true"));
    for round in 0..5 {
        let before = watches();
        let gone = Canned::status(StatusCode::GONE, "Expired");
        let too_old =
            (round % 2 == 0).then(|| proxy.rule(Match::watch("/leases").times(2), Fault::Respond(gone)));
        proxy.cut_connections();
        eventually("both watch again", || async {
            (watches() >= before + 2).then_some(())
        })
        .await;
        if let Some(too_old) = too_old {
            too_old.wait_fired(2, LIMIT).await.unwrap();
        }
        leader.renews(1).await;
    }
    assert_eq!((leader.status().state, stage.begun()), (StreamState::Working, 1));
    proxy.cut_connections();
    leader.stop().await;
    standby.leads().await;
    stage.kept_apart();
}
