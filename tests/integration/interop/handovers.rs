//! The lock goes back and forth between ours and client-go's elector: given up, left by a crash, held by somebody who
//! stands still or is cut off.

use leasewarden_faultproxy::FaultProxy;

use super::{
    Log, Ours, assert_never_two_at_once, assert_tokens_rise,
    client_go::{ClientGo, LEASE_DURATION},
};
use crate::support::World;

/// Two hand-overs a round.
const ROUNDS: usize = 14;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ours_and_client_go_take_turns_on_one_lease_and_never_lead_at_once() {
    let world = World::new("interop").await;
    let base = world.plane.kube_config();
    let proxy = FaultProxy::start(&base).unwrap();
    let log = Log::default();
    let locks = world.locks_with(proxy.kube_config(&base));
    let ours = Ours::start(locks, "ours", LEASE_DURATION, &["orders"], &log);
    let mut client_go_led = Vec::new();
    let mut crashes = 0;
    for round in 0..ROUNDS {
        ours.leads("orders").await;
        let mut other = ClientGo::start(
            &world,
            world.plane.kubeconfig_path(),
            &format!("client-go-{round}"),
            "orders",
        )
        .await;
        other.stands_by("ours").await;
        if round % 7 == 2 {
            // Cut off while it leads: it goes on believing so for as long as it may, and not longer.
            proxy.cut_all();
            other.leads().await;
            proxy.restore();
            crashes += 1;
        } else {
            ours.stop("orders").await;
            other.leads().await;
            ours.coordinator.start_all();
        }
        ours.stands_by("orders", &other.id).await;
        let before = log.led("ours");
        match round % 7 {
            3 => {
                other.kill();
                crashes += 1;
            }
            5 => {
                other.pause();
                crashes += 1;
            }
            _ => {
                other.terminate();
                other.has_ended().await;
            }
        }
        ours.leads("orders").await;
        assert_eq!(log.led("ours"), before + 1, "a new term begins");
        other.kill();
        client_go_led.extend(other.spans());
    }
    ours.stop("orders").await;

    let ours_led = log.spans("orders");
    assert!(ours_led.len() > ROUNDS, "{ours_led:#?}");
    assert_eq!(client_go_led.len(), ROUNDS, "{client_go_led:#?}");
    assert_eq!(crashes, 6);
    // Each has really worked while it led.
    let worked = |span: &&leasewarden_electors::Span| span.to > span.from;
    assert_eq!(client_go_led.iter().filter(worked).count(), ROUNDS);
    assert_eq!(ours_led.iter().filter(worked).count(), ours_led.len());
    assert_tokens_rise(&log, "orders");
    let all = [ours_led, client_go_led].concat();
    assert_never_two_at_once(&all);
    println!("{} hand-overs, {crashes} of them by a fault", all.len() - 1);
}
