//! What is done to the processes, to what they send and get, to the server, and to their Leases.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use leasewarden_controlplane::ControlPlane;
use leasewarden_electors::{is_stopped, now};
use leasewarden_faultproxy::{Canned, Fault, Match, Seen, StatusCode};
use rustix::process::{Signal, kill_process};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    Error,
    node::stream_name,
    process::{Heard, Node},
};

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Pause,
    LongPause,
    Kill,
    CutOff,
    CutConnections,
    HoldRequests,
    HoldPastTakeover,
    DelayRequests,
    DropReplies,
    DelayReplies,
    Refuse429,
    Refuse500,
    Refuse503,
    KillServer,
    RemoveLabels,
    ShortenTtl,
    WipeHolder,
}

pub(crate) const ALL: [Kind; 17] = [
    Kind::Pause,
    Kind::LongPause,
    Kind::Kill,
    Kind::CutOff,
    Kind::CutConnections,
    Kind::HoldRequests,
    Kind::HoldPastTakeover,
    Kind::DelayRequests,
    Kind::DropReplies,
    Kind::DelayReplies,
    Kind::Refuse429,
    Kind::Refuse500,
    Kind::Refuse503,
    Kind::KillServer,
    Kind::RemoveLabels,
    Kind::ShortenTtl,
    Kind::WipeHolder,
];

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Pause => "process stopped (SIGSTOP) for less than a TTL",
            Self::LongPause => "process stopped (SIGSTOP) for longer than a TTL",
            Self::Kill => "process killed",
            Self::CutOff => "process cut off from the server",
            Self::CutConnections => "connections cut",
            Self::HoldRequests => "writes held, and delivered later",
            Self::HoldPastTakeover => "writes held, and delivered when another led",
            Self::DelayRequests => "writes delayed",
            Self::DropReplies => "replies dropped after the write was applied",
            Self::DelayReplies => "replies delayed",
            Self::Refuse429 => "429 with Retry-After",
            Self::Refuse500 => "500",
            Self::Refuse503 => "503",
            Self::KillServer => "kube-apiserver killed and started again",
            Self::RemoveLabels => "labels of a Lease removed by another",
            Self::ShortenTtl => "TTL of a Lease shortened by another",
            Self::WipeHolder => "holder of a Lease wiped by another",
        }
    }
}

/// A fault that happened, and when, by the boot clock.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Inflicted {
    pub(crate) kind: &'static str,
    pub(crate) on: String,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

/// A process stood still, from one time to another of the boot clock.
#[derive(Debug, Clone)]
pub(crate) struct Paused {
    pub(crate) id: String,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

/// What faults are done to.
pub(crate) struct Target<'a> {
    pub(crate) plane: &'a ControlPlane,
    pub(crate) client: &'a kube::Client,
    pub(crate) namespace: &'a str,
    pub(crate) streams: usize,
    pub(crate) ttl: Duration,
    pub(crate) heard: &'a Heard,
    /// Whose turn it is with the server.
    pub(crate) server: tokio::sync::Mutex<()>,
    /// Those of longer than a TTL.
    pub(crate) long_pauses: Mutex<Vec<Paused>>,
}

/// How long a fault may take to show its effect: all renew within a TTL, and the server starts within seconds.
const SHOWS_WITHIN: Duration = Duration::from_secs(20);

fn is_watch(seen: &Seen) -> bool {
    seen.path.contains("watch=true")
}

impl Target<'_> {
    /// Does it to `node`, until it is over. Whether it was seen to have its effect.
    pub(crate) async fn inflict(
        &self,
        kind: Kind,
        node: &mut Node,
        lots: &mut fastrand::Rng,
    ) -> Result<bool, Error> {
        let for_part =
            |lots: &mut fastrand::Rng, from: f64, to: f64| self.ttl.mul_f64(from + lots.f64() * (to - from));
        match kind {
            Kind::Pause => self.pause(node, for_part(lots, 0.1, 0.9)).await,
            Kind::LongPause => self.pause(node, for_part(lots, 1.1, 2.0)).await,
            Kind::Kill => {
                let died = node.kill().await?;
                tokio::time::sleep(for_part(lots, 0.0, 0.5)).await;
                node.start()?;
                Ok(died)
            }
            Kind::CutOff => {
                node.proxy.cut_all();
                let before = node.proxy.count(|_| true);
                tokio::time::sleep(for_part(lots, 0.3, 1.5)).await;
                let silent = node.proxy.count(|_| true) == before;
                node.proxy.restore();
                // And it was there to be cut off.
                Ok(silent && shows(|| node.proxy.count(|_| true) > before).await)
            }
            Kind::CutConnections => {
                let before = node.proxy.count(is_watch);
                node.proxy.cut_connections();
                // A watch lasts for minutes, unless it is cut.
                Ok(shows(|| node.proxy.count(is_watch) > before).await)
            }
            Kind::HoldRequests => self.rule(node, Fault::Hold, lots).await,
            Kind::HoldPastTakeover => self.hold_past_takeover(node, lots).await,
            Kind::DelayRequests => {
                let delay = for_part(lots, 0.05, 0.5);
                self.rule(node, Fault::Delay(delay), lots).await
            }
            Kind::DropReplies => self.rule(node, Fault::DropReply, lots).await,
            Kind::DelayReplies => {
                let delay = for_part(lots, 0.05, 0.5);
                self.rule(node, Fault::DelayReply(delay), lots).await
            }
            Kind::Refuse429 => {
                self.refuse(node, StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", lots)
                    .await
            }
            Kind::Refuse500 => {
                self.refuse(node, StatusCode::INTERNAL_SERVER_ERROR, "InternalError", lots)
                    .await
            }
            Kind::Refuse503 => {
                self.refuse(node, StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", lots)
                    .await
            }
            Kind::KillServer => {
                let _turn = self.server.lock().await;
                self.plane.kill_apiserver().await?;
                let asked = tokio::time::timeout(Duration::from_secs(2), self.client.apiserver_version());
                let gone = !matches!(asked.await, Ok(Ok(_)));
                self.plane.start_apiserver().await?;
                Ok(gone)
            }
            Kind::RemoveLabels => {
                let patch = json!({"metadata": {"labels": null}});
                self.edit("/metadata/labels", Value::Null, &patch, lots).await
            }
            Kind::ShortenTtl => {
                let patch = json!({"spec": {"leaseDurationSeconds": 1}});
                self.edit("/spec/leaseDurationSeconds", json!(1), &patch, lots)
                    .await
            }
            Kind::WipeHolder => {
                let patch = json!({"spec": {"holderIdentity": ""}});
                self.edit("/spec/holderIdentity", json!(""), &patch, lots).await
            }
        }
    }

    async fn pause(&self, node: &Node, lasts: Duration) -> Result<bool, Error> {
        let pid = node.pid()?;
        kill_process(pid, Signal::STOP)?;
        let mut stopped = false;
        for _ in 0..100 {
            stopped = is_stopped(pid);
            if stopped {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let from = now();
        tokio::time::sleep(lasts).await;
        let to = now();
        kill_process(pid, Signal::CONT)?;
        if stopped && lasts > self.ttl {
            let mut pauses = self.long_pauses.lock().unwrap_or_else(PoisonError::into_inner);
            pauses.push(Paused {
                id: node.id().to_owned(),
                from,
                to,
            });
        }
        Ok(stopped)
    }

    /// All writes of the process to one Lease that it holds are held, until another has led; then they arrive.
    async fn hold_past_takeover(&self, node: &Node, lots: &mut fastrand::Rng) -> Result<bool, Error> {
        let me = node.life();
        let mut led = self.heard.checker(|checker| checker.led_by(me));
        if led.is_empty() {
            return Ok(false);
        }
        let stream = led.swap_remove(lots.usize(..led.len()));
        let is_conflict =
            |seen: &Seen| seen.path.contains(&stream) && seen.status() == Some(StatusCode::CONFLICT);
        let before = node.proxy.count(is_conflict);
        let rule = node
            .proxy
            .rule(Match::put(format!("/leases/{stream}")), Fault::Hold);
        let another_leads = || {
            let latest = self.heard.checker(|checker| checker.latest(&stream).cloned());
            rule.fired() > 0 && latest.is_some_and(|latest| latest.node != me)
        };
        let taken = shows_within(SHOWS_WITHIN + 3 * self.ttl, another_leads).await;
        rule.release();
        Ok(taken && shows(|| node.proxy.count(is_conflict) > before).await)
    }

    /// A few writes of the process meet the fault.
    async fn rule(&self, node: &Node, fault: Fault, lots: &mut fastrand::Rng) -> Result<bool, Error> {
        let rule = node
            .proxy
            .rule(Match::put("/leases/").times(lots.u64(1..8)), fault);
        let happened = rule.wait_fired(1, SHOWS_WITHIN).await.is_ok();
        tokio::time::sleep(self.ttl.mul_f64(lots.f64())).await;
        rule.release();
        Ok(happened)
    }

    async fn refuse(
        &self,
        node: &Node,
        status: StatusCode,
        reason: &str,
        lots: &mut fastrand::Rng,
    ) -> Result<bool, Error> {
        let canned = Canned::status(status, reason).header("Retry-After", "60");
        self.rule(node, Fault::Respond(canned), lots).await
    }

    /// Somebody edits a Lease without asking which version it is of. It happened if the field was different before.
    async fn edit(
        &self,
        field: &str,
        becomes: Value,
        patch: &Value,
        lots: &mut fastrand::Rng,
    ) -> Result<bool, Error> {
        let stream = stream_name(lots.usize(..self.streams));
        let uri = format!(
            "/apis/coordination.k8s.io/v1/namespaces/{}/leases/{stream}",
            self.namespace
        );
        let read = http::Request::get(&uri).body(Vec::new())?;
        let request = http::Request::patch(uri).header("content-type", "application/merge-patch+json");
        let request = request.body(serde_json::to_vec(patch)?)?;
        let is = |lease: &Value| lease.pointer(field).cloned().unwrap_or_default();
        let (Ok(before), Ok(after)) = (
            self.client.request::<Value>(read).await,
            self.client.request::<Value>(request).await,
        ) else {
            return Ok(false);
        };
        Ok(is(&before) != becomes && is(&after) == becomes)
    }
}

async fn shows(effect: impl Fn() -> bool) -> bool {
    shows_within(SHOWS_WITHIN, effect).await
}

async fn shows_within(limit: Duration, effect: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < limit {
        if effect() {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    false
}
