//! What is done to the processes, to what they send and get, to the server, and to their Leases.

use std::time::Duration;

use leasewarden_controlplane::ControlPlane;
use leasewarden_electors::is_stopped;
use leasewarden_faultproxy::{Canned, Fault, Match, StatusCode};
use rustix::process::{Signal, kill_process};
use serde_json::json;

use crate::{Error, driver::Node, node::stream_name};

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Pause,
    LongPause,
    Kill,
    CutOff,
    CutConnections,
    HoldRequests,
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

pub(crate) const ALL: [Kind; 16] = [
    Kind::Pause,
    Kind::LongPause,
    Kind::Kill,
    Kind::CutOff,
    Kind::CutConnections,
    Kind::HoldRequests,
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

/// What faults are done to.
pub(crate) struct Target<'a> {
    pub(crate) plane: &'a ControlPlane,
    pub(crate) client: &'a kube::Client,
    pub(crate) namespace: &'a str,
    pub(crate) streams: usize,
    pub(crate) ttl: Duration,
}

/// How long a rule may take to meet a request: all renew within a TTL.
const FIRES_WITHIN: Duration = Duration::from_secs(20);

impl Target<'_> {
    /// Does it to `node`, until it is over. Whether it happened.
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
                node.kill().await?;
                tokio::time::sleep(for_part(lots, 0.0, 0.5)).await;
                node.start()?;
                Ok(true)
            }
            Kind::CutOff => {
                node.proxy.cut_all();
                tokio::time::sleep(for_part(lots, 0.1, 1.5)).await;
                node.proxy.restore();
                Ok(true)
            }
            Kind::CutConnections => {
                node.proxy.cut_connections();
                Ok(true)
            }
            Kind::HoldRequests => self.rule(node, Fault::Hold, lots).await,
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
                self.plane.kill_apiserver().await?;
                self.plane.start_apiserver().await?;
                Ok(true)
            }
            Kind::RemoveLabels => self.edit(json!({"metadata": {"labels": null}}), lots).await,
            Kind::ShortenTtl => {
                self.edit(json!({"spec": {"leaseDurationSeconds": 1}}), lots)
                    .await
            }
            Kind::WipeHolder => self.edit(json!({"spec": {"holderIdentity": ""}}), lots).await,
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
        tokio::time::sleep(lasts).await;
        kill_process(pid, Signal::CONT)?;
        Ok(stopped)
    }

    /// A few writes of the process meet the fault.
    async fn rule(&self, node: &Node, fault: Fault, lots: &mut fastrand::Rng) -> Result<bool, Error> {
        let rule = node
            .proxy
            .rule(Match::put("/leases/").times(lots.u64(1..8)), fault);
        let happened = rule.wait_fired(1, FIRES_WITHIN).await.is_ok();
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

    /// Somebody edits a Lease without asking which version it is of.
    async fn edit(&self, patch: serde_json::Value, lots: &mut fastrand::Rng) -> Result<bool, Error> {
        let stream = stream_name(lots.usize(..self.streams));
        let uri = format!(
            "/apis/coordination.k8s.io/v1/namespaces/{}/leases/{stream}",
            self.namespace
        );
        let request = http::Request::patch(uri).header("content-type", "application/merge-patch+json");
        let request = request.body(serde_json::to_vec(&patch)?)?;
        Ok(self.client.request::<serde_json::Value>(request).await.is_ok())
    }
}
