//! People with kubectl, while several coordinators hand four streams around: they label, annotate, edit, wipe, rewrite
//! and delete Leases that are held.
//!
//! The claim excuses two guards at once only where somebody else deleted or rewrote a held Lease under a process that did
//! not see it, so an overlap counts unless such a thing happened to its Lease within the TTL before. Tokens rise even
//! then.

use std::{
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use leasewarden::election::StreamState;
use leasewarden_controlplane::ControlPlane;
use leasewarden_electors::{now, overlaps};

use super::{Log, Ours, assert_tokens_rise};
use crate::support::{self, World, eventually};

const STREAMS: [&str; 4] = ["orders", "payments", "refunds", "stock"];
const TTL: u64 = 3;
/// How often each thing is done to each stream.
const TIMES: usize = 3;

/// What a person does to a Lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deed {
    Label,
    Unlabel,
    Annotate,
    EditTheDuration,
    Wipe,
    Rewrite,
    Delete,
}

const DEEDS: [Deed; 7] = [
    Deed::Label,
    Deed::Wipe,
    Deed::Unlabel,
    Deed::EditTheDuration,
    Deed::Delete,
    Deed::Annotate,
    Deed::Rewrite,
];

impl Deed {
    /// Deletes or rewrites: what the claim excuses. A duration that is edited and a holder that is wiped excuse nothing.
    fn is_an_excuse(self) -> bool {
        matches!(self, Self::Rewrite | Self::Delete)
    }

    fn command(self, plane: &ControlPlane, namespace: &str, lease: &str, nth: usize) -> Command {
        let mut kubectl = plane.kubectl();
        kubectl.args(["--namespace", namespace]);
        let label = format!("visit={nth}");
        match self {
            Self::Label => kubectl.args(["label", "--overwrite", "lease", lease, &label]),
            Self::Unlabel => kubectl.args(["label", "lease", lease, "app.kubernetes.io/managed-by-"]),
            Self::Annotate => kubectl.args(["annotate", "--overwrite", "lease", lease, &label]),
            // As in an editor, with a hand that is quicker.
            Self::EditTheDuration => kubectl.args(["edit", "lease", lease]).env(
                "KUBE_EDITOR",
                "sed -i 's/leaseDurationSeconds: .*/leaseDurationSeconds: 2/'",
            ),
            Self::Rewrite => kubectl.args(["edit", "lease", lease]).env(
                "KUBE_EDITOR",
                "sed -i 's/holderIdentity: .*/holderIdentity: somebody/'",
            ),
            Self::Wipe => kubectl.args([
                "patch",
                "lease",
                lease,
                "--type=merge",
                r#"--patch={"spec":{"holderIdentity":""}}"#,
            ]),
            Self::Delete => kubectl.args(["delete", "--wait=false", "lease", lease]),
        };
        kubectl
    }
}

/// Something that was done, and between which moments.
#[derive(Debug, Clone, Copy)]
struct Done {
    deed: Deed,
    stream: &'static str,
    from: u64,
    to: u64,
}

/// Does everything to one stream's Lease, each time while one of ours holds it.
async fn person(world: &World, stream: &'static str) -> Vec<Done> {
    let mut all = Vec::new();
    for nth in 0..DEEDS.len() * TIMES {
        let deed = DEEDS[nth % DEEDS.len()];
        let done = eventually((deed, "is done to", stream), || async {
            let lease = world.lease_if_any(stream).await?;
            let holder = lease["spec"]["holderIdentity"].as_str()?.to_owned();
            if !holder.starts_with("ours") {
                return None;
            }
            let mut kubectl = deed.command(world.plane, world.ns(), stream, nth);
            let from = now();
            let output = tokio::task::spawn_blocking(move || kubectl.output().unwrap())
                .await
                .unwrap();
            let to = now();
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            // What was too late, or found nothing to change, has not been done.
            let changed = !said.contains("cancelled") && !said.contains("not labeled");
            (output.status.success() && changed).then_some(Done {
                deed,
                stream,
                from,
                to,
            })
        })
        .await;
        all.push(done);
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_labels_edits_wipes_and_deletes_held_leases_and_still_one_leads_at_a_time() {
    let world = World::new("kubectl").await;
    let log = Log::default();
    let ours: Vec<_> = ["ours-1", "ours-2", "ours-3"]
        .map(|id| Ours::start(world.locks(), id, TTL, &STREAMS, &log))
        .into();
    for stream in STREAMS {
        eventually((stream, "is led"), || async {
            (!log.spans(stream).is_empty()).then_some(())
        })
        .await;
    }

    let mut given_up = 0;
    let finished = AtomicBool::new(false);
    let (done, ()) = tokio::join!(
        async {
            let done = futures_util::future::join_all(STREAMS.map(|stream| person(&world, stream))).await;
            finished.store(true, Ordering::SeqCst);
            done.concat()
        },
        // The load: the leaders give up, one stream after the other, again and again.
        async {
            for stream in STREAMS.iter().cycle() {
                if finished.load(Ordering::SeqCst) {
                    break;
                }
                let leader = ours
                    .iter()
                    .find(|o| o.status(stream).state == StreamState::Working);
                if let Some(leader) = leader {
                    let stream = support::stream(stream);
                    leader.coordinator.restart(&stream).unwrap();
                    given_up += 1;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        },
    );

    // Whatever was done, everything comes right again.
    for stream in STREAMS {
        eventually((stream, "is led and labelled again"), || async {
            let lease = world.lease_if_any(stream).await?;
            let from = now();
            let label = &lease["metadata"]["labels"]["app.kubernetes.io/managed-by"];
            tokio::time::sleep(Duration::from_millis(20)).await;
            let led = log.spans(stream).iter().any(|span| span.to > from);
            (led && label == "leasewarden").then_some(())
        })
        .await;
    }
    for instance in &ours {
        instance.coordinator.stop_all().finished().await;
    }

    let ttl = Duration::from_secs(TTL).as_nanos() as u64;
    let (mut terms, mut excused) = (0, 0);
    for stream in STREAMS {
        let spans = log.spans(stream);
        terms += spans.len();
        assert_tokens_rise(&log, stream);
        for overlap in overlaps(&spans) {
            let begun = overlap.second.from;
            let excuse = done.iter().find(|d| {
                d.stream == stream && d.deed.is_an_excuse() && d.from <= begun && begun <= d.to + ttl
            });
            assert!(excuse.is_some(), "two led {stream} at once: {overlap:#?}");
            println!("excused: {overlap:?} by {excuse:?}");
            excused += 1;
        }
    }
    // After each of these deeds, and after each time that a leader gave up, somebody led anew.
    let ended = done
        .iter()
        .filter(|d| matches!(d.deed, Deed::Wipe | Deed::Rewrite | Deed::Delete));
    assert!(terms > ended.count(), "only {terms} terms");
    assert!(given_up > 10, "the leaders gave up only {given_up} times");
    println!(
        "{} deeds, {given_up} times given up, {terms} terms, {excused} overlaps that the claim excuses",
        done.len()
    );
}
