//! Each change of leadership, as the status and the history tell it.

use leasewarden::crd::{Ended, HELD};

use super::*;

const TTL: Duration = Duration::from_secs(60);

fn past(status: &ChangeStreamLeaderStatus) -> Vec<(&str, Ended)> {
    status
        .history
        .iter()
        .map(|p| (p.holder_identity.as_str(), p.ended))
        .collect()
}

#[tokio::test]
async fn a_release_a_new_leader_an_expiry_and_a_takeover_are_told_apart() {
    let mut stage = Stage::new("transitions").await;
    let (a, b) = (stage.instance("a"), stage.instance("b"));
    let first = a.acquire("orders", TTL).await;
    let held = stage.holder_is("orders", Some("a")).await;
    assert_eq!(
        held.fencing_token,
        first.token.map(leasewarden::FencingToken::get)
    );
    assert!(held.expiration_time.is_some() && held.acquire_time.is_some());

    a.release("orders").await;
    let free = stage.holder_is("orders", None).await;
    assert_eq!(condition(&free, HELD), is("False", "LeaseReleased"));
    assert!(free.acquire_time.is_none() && free.expiration_time.is_none() && free.fencing_token.is_none());
    assert_eq!(past(&free), [("a", Ended::Released)]);
    assert_eq!(free.history[0].fencing_token, held.fencing_token);
    assert!(free.history[0].to.is_some());

    // It dies, and nobody takes over.
    b.acquire("orders", Duration::from_secs(2)).await;
    // On a busy machine it may be over before it is shown.
    let expired = stage
        .status("orders", |s| condition(s, HELD) == is("False", "LeaseExpired"))
        .await;
    assert_eq!(past(&expired), [("b", Ended::Expired), ("a", Ended::Released)]);

    // It dies, and somebody does.
    b.acquire("orders", Duration::from_secs(1)).await;
    a.acquire("orders", TTL).await;
    let taken = stage.holder_is("orders", Some("a")).await;
    assert_eq!(past(&taken)[..2], [("b", Ended::Expired), ("b", Ended::Expired)]);

    // Somebody writes another holder over a live one.
    let transitions = taken.lease_transitions.unwrap() + 1;
    let spec = json!({"holderIdentity": "intruder", "leaseTransitions": transitions});
    stage.patch_lease("orders", json!({"spec": spec})).await;
    let stolen = stage.holder_is("orders", Some("intruder")).await;
    assert_eq!(past(&stolen)[0], ("a", Ended::TakenOver));
    assert_eq!(stolen.fencing_token, None, "the token is the other's");

    let lines: Vec<_> = stage
        .operator()
        .events()
        .into_iter()
        .filter(|e| !e["reason"].is_null() && e["level"] == "INFO")
        .collect();
    for line in &lines {
        for field in ["stream", "namespace", "lease", "reason"] {
            assert!(line[field].is_string(), "{line}");
        }
    }
    assert!(
        lines
            .iter()
            .any(|e| e["reason"] == "LeaseReleased" && e["holder"] == "a" && e["token"].is_i64()),
        "{lines:#?}"
    );
}

#[tokio::test]
async fn changes_too_quick_to_be_shown_are_in_the_history() {
    let stage = Stage::new("quick").await;
    let (a, b) = (stage.instance("a"), stage.instance("b"));
    a.acquire("orders", TTL).await;
    stage.holder_is("orders", Some("a")).await;
    for _ in 0..4 {
        a.release("orders").await;
        b.acquire("orders", TTL).await;
        b.release("orders").await;
        a.acquire("orders", TTL).await;
    }
    let status = stage
        .status("orders", |s| {
            s.holder_identity.as_deref() == Some("a") && s.history.len() == 8
        })
        .await;
    let expected: Vec<_> = ["b", "a"]
        .into_iter()
        .cycle()
        .take(8)
        .map(|h| (h, Ended::Released))
        .collect();
    assert_eq!(past(&status), expected);
    let tokens: Vec<_> = status.history.iter().map(|p| p.fencing_token.unwrap()).collect();
    assert!(tokens.is_sorted_by(|a, b| a > b), "{tokens:?}");
}

#[tokio::test]
async fn a_wiped_holder_is_not_called_free() {
    let stage = Stage::new("wiped").await;
    stage.instance("a").acquire("orders", TTL).await;
    stage.holder_is("orders", Some("a")).await;
    stage
        .patch_lease("orders", json!({"spec": {"holderIdentity": null}}))
        .await;
    let wiped = stage.holder_is("orders", None).await;
    assert_eq!(condition(&wiped, HELD), is("Unknown", "HolderWiped"));
    assert_eq!(past(&wiped), [("a", Ended::Wiped)]);
    // Only now, so that a busy machine shows it while it lasts.
    let shorter = json!({
        "metadata": {"annotations": {"leasewarden.dev/ttl-ms": "1000"}}, "spec": {"leaseDurationSeconds": 1},
    });
    stage.patch_lease("orders", shorter).await;
    stage
        .status("orders", |s| condition(s, HELD) == is("False", "LeaseFree"))
        .await;
}

#[tokio::test]
async fn the_same_id_again_is_another_leadership() {
    let stage = Stage::new("again").await;
    let first = stage.instance("a").acquire("orders", TTL).await;
    stage.holder_is("orders", Some("a")).await;
    // Another process with the same id.
    let second = stage.instance("a").acquire("orders", TTL).await;
    assert!(second.token > first.token);
    let token = second.token.map(leasewarden::FencingToken::get);
    let status = stage.status("orders", |s| s.fencing_token == token).await;
    assert_eq!(past(&status), [("a", Ended::Reacquired)]);
}

#[tokio::test]
async fn a_deleted_lease_ends_a_leadership() {
    let stage = Stage::new("deleted").await;
    stage.write_object("orders", spec("orders")).await;
    stage.instance("a").acquire("orders", TTL).await;
    stage.holder_is("orders", Some("a")).await;
    stage
        .leases()
        .delete("orders", &kube::api::DeleteParams::default())
        .await
        .unwrap();
    let status = stage.holder_is("orders", None).await;
    assert_eq!(condition(&status, HELD), is("False", "LeaseNotFound"));
    assert_eq!(past(&status), [("a", Ended::Deleted)]);
    stage.instance("b").acquire("orders", TTL).await;
    stage.holder_is("orders", Some("b")).await;
}

#[tokio::test]
async fn what_happened_while_no_operator_ran_is_not_invented() {
    let mut stage = Stage::new("gap").await;
    let (a, b, c) = (stage.instance("a"), stage.instance("b"), stage.instance("c"));
    a.acquire("orders", TTL).await;
    stage.holder_is("orders", Some("a")).await;
    stage.operator().signal("-TERM").await;
    a.release("orders").await;
    b.acquire("orders", TTL).await;
    stage.start(&[]);
    let status = stage.holder_is("orders", Some("b")).await;
    assert_eq!(past(&status), [("a", Ended::Unknown)]);
    assert_eq!(status.history[0].to, None);
    // A release leaves its mark on the Lease: that can be told.
    stage.operator().signal("-TERM").await;
    b.release("orders").await;
    stage.start(&[]);
    let status = stage.holder_is("orders", None).await;
    assert_eq!(past(&status)[0], ("b", Ended::Released));
    c.acquire("orders", TTL).await;
    stage.holder_is("orders", Some("c")).await;
}
