//! client-go's elector as the tests start it, and its durations.

use std::path::Path;

use leasewarden_controlplane::locate;
use leasewarden_electors::{Elector, Event, Span, What};

use crate::support::{LIMIT, World, eventually};

/// LeaseDuration: as long as the TTL of ours. It is written into the Lease, and ours wait for it.
pub const LEASE_DURATION: u64 = 6;
/// RenewDeadline: half of that, so that an elector on a loaded machine has 3 s to notice that it is over.
const RENEW_DEADLINE: &str = "3s";
/// RetryPeriod: how often a standby of client-go's asks (up to 1.2 times more seldom), and a leader renews.
const RETRY_PERIOD: &str = "250ms";

/// An elector's process that contends for one Lease.
pub struct ClientGo {
    pub id: String,
    lease: String,
    elector: Elector,
    /// When it was paused or killed: it has done nothing since.
    gone: Option<u64>,
}

impl ClientGo {
    pub async fn start(world: &World, kubeconfig: &Path, id: &str, lease: &str) -> Self {
        let duration = format!("{LEASE_DURATION}s");
        let arguments = [
            "--kubeconfig",
            kubeconfig.to_str().unwrap(),
            "--namespace",
            world.ns(),
            "--lease",
            lease,
            "--id",
            id,
            "--lease-duration",
            &duration,
            "--renew-deadline",
            RENEW_DEADLINE,
            "--retry-period",
            RETRY_PERIOD,
            "--effect-every",
            "2ms",
        ];
        // The first time on a machine it is built.
        let program = tokio::task::spawn_blocking(|| locate("clientgo-elector"))
            .await
            .unwrap()
            .unwrap();
        Self {
            id: id.to_owned(),
            lease: lease.to_owned(),
            elector: Elector::start(&program, &arguments, false).unwrap(),
            gone: None,
        }
    }

    async fn tells(&self, what: &str, such: impl Fn(&Event) -> bool) {
        eventually((&self.id, what), || async {
            self.elector.events().iter().any(&such).then_some(())
        })
        .await;
    }

    pub async fn leads(&self) {
        self.tells("leads", |event| event.event == What::Elected).await;
    }

    pub async fn stands_by(&self, leader: &str) {
        self.tells("knows the leader", |event| {
            event.event == What::Leader && event.leader == leader
        })
        .await;
    }

    /// SIGTERM, to be seen by a process that runs.
    pub fn terminate(&self) {
        self.elector.terminate().unwrap();
    }

    pub async fn has_ended(&mut self) {
        let mut ended = false;
        let begun = std::time::Instant::now();
        while !ended {
            ended = self.elector.has_ended().unwrap();
            assert!(begun.elapsed() < LIMIT, "{} has not ended", self.id);
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        self.elector.wait_ended_well().unwrap();
    }

    pub fn kill(&mut self) {
        let killed = self.elector.kill().unwrap();
        self.gone.get_or_insert(killed);
    }

    pub fn pause(&mut self) {
        self.gone = Some(self.elector.pause().unwrap());
    }

    pub fn resume(&mut self) {
        self.elector.resume().unwrap();
        self.gone = None;
    }

    /// When it led. For one that was resumed that includes its pause.
    pub fn spans(&self) -> Vec<Span> {
        Span::of(&self.elector.events(), &self.lease, self.gone)
    }
}
