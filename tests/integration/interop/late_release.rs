//! client-go's release reads the Lease and then goes by what it remembers: an elector that was deposed while it stood
//! still, and is told to stop when it goes on, wipes its successor's Lease.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::{StreamExt, pin_mut};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api,
    api::{WatchEvent, WatchParams},
};
use leasewarden_electors::now;
use leasewarden_faultproxy::{Fault, FaultProxy, Match};

use super::{
    Log, Ours, assert_never_two_at_once, assert_tokens_rise,
    client_go::{ClientGo, LEASE_DURATION},
};
use crate::support::{LIMIT, World, eventually};

/// All versions of the Lease, as the API server tells of them, and when that was.
type History = Arc<Mutex<Vec<(u64, Lease)>>>;

async fn history(world: &World, name: &str) -> History {
    let history = History::default();
    let leases = Api::<Lease>::namespaced(world.client.clone(), world.ns());
    let params = WatchParams::default().fields(&format!("metadata.name={name}"));
    let events = leases.watch(&params, "0").await.unwrap();
    let all = Arc::clone(&history);
    tokio::spawn(async move {
        pin_mut!(events);
        while let Some(Ok(event)) = events.next().await {
            if let WatchEvent::Added(lease) | WatchEvent::Modified(lease) = event {
                all.lock().unwrap().push((now(), lease));
            }
        }
    });
    history
}

/// Wiped: nobody is named, and the term that the annotation tells of was never released.
fn is_wiped(lease: &Lease, by_whom: &str) -> bool {
    let spec = lease.spec.clone().unwrap_or_default();
    let term = lease
        .metadata
        .annotations
        .as_ref()
        .and_then(|a| a.get("leasewarden.dev/term"));
    let Some(term) = term else { return false };
    let term: serde_json::Value = serde_json::from_str(term).unwrap();
    spec.holder_identity.unwrap_or_default().is_empty()
        && term["holder"] == by_whom
        && term["released"] != true
        && term["transitions"] == spec.lease_transitions.unwrap_or_default()
}

/// Three of ours stand by for an elector of client-go's that stands still; one of them leads in its stead; and then the
/// elector goes on, is told to stop before it learns that it was deposed, and wipes the Lease.
struct Wiped {
    log: Log,
    history: History,
    /// Each with the proxy that it goes through.
    ours: Vec<(FaultProxy, Ours)>,
    leader: String,
    at: u64,
}

impl Wiped {
    /// `before` is told who leads, just before the Lease is wiped.
    async fn new(world: &World, ttl: u64, before: impl Fn(&FaultProxy)) -> Self {
        let base = world.plane.kube_config();
        let proxy = FaultProxy::start(&base).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        proxy.write_kubeconfig(&kubeconfig).unwrap();
        let mut deposed = ClientGo::start(world, &kubeconfig, "deposed", "orders").await;
        deposed.leads().await;
        let history = history(world, "orders").await;

        let log = Log::default();
        let mut ours = Vec::new();
        for id in ["ours-1", "ours-2", "ours-3"] {
            let proxy = FaultProxy::start(&base).unwrap();
            let locks = world.locks_with(proxy.kube_config(&base));
            let contender = Ours::start(locks, id, ttl, &["orders"], &log);
            contender.stands_by("orders", "deposed").await;
            ours.push((proxy, contender));
        }
        deposed.pause();
        let leader = eventually("one of ours leads", || async {
            log.terms().first().map(|term| term.span.who.clone())
        })
        .await;
        for (_, standby) in ours.iter().filter(|(_, o)| o.id != leader) {
            standby.stands_by("orders", &leader).await;
        }

        let late = proxy.rule(
            Match::get("/leases/orders"),
            Fault::Delay(Duration::from_millis(500)),
        );
        let own = ours.iter().find(|(_, o)| o.id == leader).unwrap();
        before(&own.0);
        deposed.terminate();
        deposed.resume();
        late.wait_fired(1, LIMIT).await.unwrap();
        let at = eventually("the Lease is wiped", || async {
            let history = history.lock().unwrap();
            let wiped = history.iter().find(|(_, lease)| is_wiped(lease, &leader));
            wiped.map(|(at, _)| *at)
        })
        .await;
        deposed.has_ended().await;
        Self {
            log,
            history,
            ours,
            leader,
            at,
        }
    }

    /// Waits until one of ours is named in the Lease again, and works.
    async fn one_leads_again(&self) {
        eventually("one of ours leads again", || async {
            let history = self.history.lock().unwrap();
            let (at, last) = history.last()?;
            let holder = last.spec.as_ref()?.holder_identity.clone()?;
            let terms = self.log.terms();
            let last = terms.last()?;
            (*at > self.at && last.span.from > self.at && last.span.who == holder).then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deposed_client_go_elector_wipes_our_lease_and_the_leader_hears_of_it() {
    let world = World::new("wiped").await;
    let wiped = Wiped::new(&world, LEASE_DURATION, |_| ()).await;
    wiped.one_leads_again().await;
    let terms = wiped.log.terms();
    assert_eq!(terms[0].span.who, wiped.leader);
    assert_never_two_at_once(&wiped.log.spans("orders"));
    assert_tokens_rise(&wiped.log, "orders");
    drop(wiped.ours);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn none_of_ours_joins_a_leader_that_does_not_hear_that_its_lease_was_wiped() {
    let world = World::new("unheard").await;
    // Long, so that the leader's guard has seconds left when the Lease is wiped. What client-go leaves there says 1 s.
    let wiped = Wiped::new(&world, 12, FaultProxy::cut_all).await;
    wiped.one_leads_again().await;
    let terms = wiped.log.terms();
    assert_eq!(terms[0].span.who, wiped.leader);
    assert!(
        terms[0].span.to > wiped.at,
        "the guard was over before the Lease was wiped: {terms:#?}"
    );
    assert_ne!(terms[1].span.who, wiped.leader, "it is cut off: {terms:#?}");
    assert_never_two_at_once(&wiped.log.spans("orders"));
    assert_tokens_rise(&wiped.log, "orders");
    let valid_on = Duration::from_nanos(terms[0].span.to - wiped.at);
    println!("the guard was valid for {valid_on:?} after the Lease was wiped");
}
