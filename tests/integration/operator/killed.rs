//! The operator is killed in the middle of many transitions and started again: the statuses are right, and what was
//! missed is not invented.

use std::collections::HashMap;

use leasewarden::crd::{Ended, HELD};

use super::*;

const STREAMS: usize = 10;
const ROUNDS: usize = 20;
const TTL: Duration = Duration::from_secs(600);

#[tokio::test]
async fn killed_amid_two_hundred_transitions_it_is_right_again_when_it_is_back() {
    let mut stage = Stage::new("killed").await;
    let instances = ["a", "b"].map(|id| stage.instance(id));
    let mut granted = HashMap::<String, Vec<(String, i64)>>::new();
    let mut transitions = 0;
    for round in 0..ROUNDS {
        for n in 0..STREAMS {
            let stream = format!("s-{n}");
            let leader = &instances[round % 2];
            if round > 0 {
                instances[(round + 1) % 2].release(&stream).await;
            }
            let grant = leader.acquire(&stream, TTL).await;
            let token = grant.token.unwrap().get();
            granted
                .entry(stream)
                .or_default()
                .push((leader.id.to_string(), token));
            transitions += 1;
            match transitions {
                // While it writes.
                100 => {
                    stage.operator().child.start_kill().unwrap();
                    stage.operator().exit().await;
                }
                115 => stage.start(&[]),
                _ => {}
            }
        }
    }
    let begun = Instant::now();
    for (stream, terms) in &granted {
        let (holder, token) = terms.last().unwrap();
        let status = stage.status(stream, |s| s.fencing_token == Some(*token)).await;
        assert_eq!(status.holder_identity.as_ref(), Some(holder), "{stream}");
        assert_eq!(condition(&status, HELD), is("True", "LeaseHeld"), "{stream}");
        // Each entry is a term that there was, in order; how one ended that ended unseen is unknown.
        let past: Vec<_> = status
            .history
            .iter()
            .map(|p| (p.holder_identity.clone(), p.fencing_token.unwrap()))
            .collect();
        assert!(
            past.iter().all(|term| terms.contains(term)),
            "{stream}: {past:?} of {terms:?}"
        );
        assert!(
            past.is_sorted_by(|later, earlier| later.1 > earlier.1),
            "{stream}: {past:?}"
        );
        for entry in &status.history {
            let (released, unknown) = (entry.ended == Ended::Released, entry.ended == Ended::Unknown);
            assert!(released || unknown, "{stream}: {entry:?}");
            assert_eq!(entry.to.is_some(), released, "{stream}: {entry:?}");
        }
    }
    eprintln!("right {:?} after the last transition", begun.elapsed());
}

#[tokio::test]
async fn what_ended_while_it_was_away_is_unknown_and_who_leads_is_right() {
    let mut stage = Stage::new("away").await;
    let (a, b) = (stage.instance("a"), stage.instance("b"));
    // By hand: one that was discovered would go with its Lease.
    stage.write_object("gone", spec("gone")).await;
    a.acquire("orders", TTL).await;
    a.acquire("gone", TTL).await;
    a.acquire("short", Duration::from_secs(2)).await;
    stage.holder_is("orders", Some("a")).await;
    stage.holder_is("gone", Some("a")).await;
    stage.status("short", |s| !s.conditions.is_empty()).await;
    stage.operator().child.start_kill().unwrap();
    stage.operator().exit().await;
    // Two leaderships that nobody saw, a deletion, and an expiry.
    a.release("orders").await;
    b.acquire("orders", TTL).await;
    b.release("orders").await;
    a.acquire("orders", TTL).await;
    stage
        .leases()
        .delete("gone", &kube::api::DeleteParams::default())
        .await
        .unwrap();
    stage.start(&[]);
    let orders = stage
        .status("orders", |s| s.holder_identity.is_some() && !s.history.is_empty())
        .await;
    assert_eq!(orders.holder_identity.as_deref(), Some("a"));
    assert_eq!(
        (orders.history[0].ended, orders.history[0].to.is_none()),
        (Ended::Unknown, true)
    );
    assert_eq!(orders.history.len(), 1, "nothing is told of what nobody saw");
    let gone = stage.says("gone", HELD, "LeaseNotFound").await;
    assert_eq!(gone.history[0].ended, Ended::Deleted);
    let short = stage.says("short", HELD, "LeaseExpired").await;
    assert_eq!(short.history[0].ended, Ended::Expired);
}
