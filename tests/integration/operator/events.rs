//! Events on `ChangeStreamLeader`s.

use k8s_openapi::api::events::v1::Event;
use leasewarden_faultproxy::{Canned, Fault, Match, StatusCode};

use super::*;

impl Stage {
    /// Waits for an Event on this object whose note has this in it.
    pub(super) async fn event(&self, name: &str, reason: &str, says: &str) -> Event {
        let events = Api::<Event>::namespaced(self.client.clone(), self.namespace.name());
        until(("an event", reason, says), || async {
            let all = events.list(&Default::default()).await.ok()?;
            all.items.into_iter().find(|event| {
                let on = event.regarding.as_ref().and_then(|object| object.name.as_deref());
                on == Some(name)
                    && event.reason.as_deref() == Some(reason)
                    && event.note.as_deref().is_some_and(|note| note.contains(says))
            })
        })
        .await
    }
}

#[tokio::test]
async fn each_transition_is_an_event_and_the_same_again_is_counted() {
    let stage = Stage::new("events").await;
    stage.write_object("orders", spec("orders")).await;
    stage.event("orders", "LeaseNotFound", "There is no Lease").await;
    let (a, b) = (stage.instance("a"), stage.instance("b"));
    let grant = a.acquire("orders", LIMIT).await;
    let elected = stage.event("orders", "LeaderElected", "a leads.").await;
    assert_eq!(elected.type_.as_deref(), Some("Normal"));
    assert_eq!(
        elected.reporting_controller.as_deref(),
        Some("leasewarden-operator")
    );
    stage.holder_is("orders", Some("a")).await;
    a.locks.release(ReleaseRequest::of(&grant)).await.unwrap();
    stage
        .event("orders", "LeaderReleased", "a released the lock.")
        .await;
    b.acquire("orders", Duration::from_secs(3)).await;
    stage.event("orders", "LeaderElected", "b leads.").await;
    let expired = stage.event("orders", "LeaseExpired", "b did not renew").await;
    assert_eq!(expired.type_.as_deref(), Some("Warning"));
    // The same once more is no other event.
    a.acquire("orders", LIMIT).await;
    until("it is counted", || async {
        let again = stage.event("orders", "LeaderElected", "a leads.").await;
        again.series.filter(|series| series.count >= 2)
    })
    .await;
}

#[tokio::test]
async fn a_leader_that_changes_all_the_time_is_flapping() {
    let stage = Stage::new("flapping").await;
    let (a, b) = (stage.instance("a"), stage.instance("b"));
    for leader in [&a, &b, &a, &b, &a, &b] {
        let grant = leader.acquire("orders", LIMIT).await;
        stage.holder_is("orders", Some(leader.id.as_str())).await;
        leader.locks.release(ReleaseRequest::of(&grant)).await.unwrap();
        stage.holder_is("orders", None).await;
    }
    let event = stage.event("orders", "LeaderFlapping", "changed 6 times").await;
    assert_eq!(event.type_.as_deref(), Some("Warning"));
}

#[tokio::test]
async fn events_that_are_not_permitted_are_said_once_and_hold_up_no_status() {
    let mut stage = Stage::empty("no-events").await;
    let proxy = FaultProxy::start(&stage.control_plane.kube_config()).unwrap();
    let refused = proxy.rule(
        Match::any().path("/events"),
        Fault::Respond(Canned::status(StatusCode::FORBIDDEN, "Forbidden")),
    );
    stage.start_behind(&proxy);
    for stream in ["orders", "payments", "returns"] {
        stage.instance("a").acquire(stream, LIMIT).await;
        stage.holder_is(stream, Some("a")).await;
    }
    refused.wait_fired(3, LIMIT).await.unwrap();
    stage
        .operator()
        .says("not permitted to create and patch events")
        .await;
    let log = stage.operator().log();
    assert_eq!(
        log.matches("not permitted to create and patch events").count(),
        1,
        "{log}"
    );
}
