//! Graceful hand-over: from the moment when the old leader's work has ended, which is when it releases, to the moment when
//! the new one's work begins.
//!
//! client-go's standbys ask every 2 to 4.4 s, so what they take depends on when in between the leader gives up: they
//! stand by for a while first, each time for another part of that period. Ours are told, and wait for nothing.
//!
//! But a standby that has sent nothing for long has no connection left to send on but that of its watch: an HTTP client
//! drops what is idle after a minute and a half. A Pod that waits for its turn waits for hours, so the figure that counts
//! is that of standbys which have stood by for longer than that ([`Waiting`]).

use std::time::{Duration, Instant};

use leasewarden_electors::{Elector, Event, What};

use crate::stage::{LIMIT, SHARED, Side, Stage, knows, leads};
use crate::stats::{Summary, seconds};
use crate::{Error, stats};

/// Long enough for client-go's jitter to have spread the standbys of one process.
const SETTLE: Duration = Duration::from_secs(9);
/// `RetryPeriod` with the most of client-go's jitter.
const ASKS_EVERY: Duration = Duration::from_millis(4400);

/// Longer than an HTTP client keeps an idle connection.
const IDLE: Duration = Duration::from_secs(100);

/// Elections of ours with a leader and a standby each, in processes of their own, that wait for a long time.
pub(crate) struct Waiting {
    since: Instant,
    elections: Vec<(String, Elector, Elector)>,
}

impl Waiting {
    pub(crate) fn new(stage: &Stage, count: usize, one_namespace: bool) -> Result<Self, Error> {
        let leases = Side::Ours.leases("handover-waiting", count);
        if !one_namespace {
            stage.namespaces(&leases)?;
        }
        let mut elections = Vec::new();
        for lease in leases {
            let namespace = if one_namespace { SHARED } else { &lease };
            let one = std::slice::from_ref(&lease);
            let leader = stage.start(Side::Ours, namespace, "handover-leader", one)?;
            leads(&leader, one)?;
            let standby = stage.start(Side::Ours, namespace, "handover-standby", one)?;
            knows(&standby, one)?;
            elections.push((lease, leader, standby));
        }
        let since = Instant::now();
        Ok(Self { since, elections })
    }

    /// Hands one after the other over, once all have waited long enough.
    pub(crate) fn handovers(mut self) -> Result<Summary, Error> {
        std::thread::sleep(IDLE.saturating_sub(self.since.elapsed()));
        let mut samples = Vec::new();
        for (lease, leader, standby) in &mut self.elections {
            leader.terminate()?;
            leader.wait_ended_well()?;
            leads(standby, std::slice::from_ref(lease))?;
            samples.push(taken(leader, standby, lease)?);
        }
        Summary::of(samples).ok_or(Error::TooFew {
            what: "graceful hand-overs",
            n: 0,
            wanted: self.elections.len(),
        })
    }
}

/// `rounds` times, `parallel` elections at once are handed from one process to another.
pub(crate) fn handovers(stage: &Stage, side: Side, parallel: usize, rounds: usize) -> Result<Summary, Error> {
    let leases = side.leases(&format!("handover-{parallel}"), parallel);
    let mut leader = stage.start(side, SHARED, "handover-0", &leases)?;
    leads(&leader, &leases)?;
    let mut samples = Vec::new();
    for round in 0..rounds {
        let standby = stage.start(side, SHARED, &format!("handover-{}", round + 1), &leases)?;
        knows(&standby, &leases)?;
        if side == Side::ClientGo {
            #[allow(clippy::cast_possible_truncation)]
            let part = ASKS_EVERY * round as u32 / rounds as u32;
            std::thread::sleep(SETTLE + part);
        }
        leader.terminate()?;
        leader.wait_ended_well()?;
        leads(&standby, &leases)?;
        for lease in &leases {
            samples.push(taken(&leader, &standby, lease)?);
        }
        leader = standby;
    }
    let wanted = parallel * rounds;
    let n = samples.len();
    match Summary::of(samples) {
        Some(summary) if n == wanted => Ok(summary),
        _ => Err(Error::TooFew {
            what: "graceful hand-overs",
            n,
            wanted,
        }),
    }
}

fn taken(old: &Elector, new: &Elector, lease: &str) -> Result<f64, Error> {
    let at = |elector: &Elector, what: What| {
        let such = |event: &Event| event.event == what && event.lease == lease;
        let event = elector.wait_for(such, LIMIT);
        event
            .map(|event| event.at)
            .ok_or_else(|| Error::Late(format!("{what:?} of {lease}")))
    };
    Ok(stats::seconds(at(old, What::Ended)?, at(new, What::Elected)?))
}

/// For the crash: from a moment to the first work on a Lease.
pub(crate) fn begins(elector: &Elector, lease: &str, after: u64) -> Result<f64, Error> {
    let such = |event: &Event| event.event == What::Elected && event.lease == lease;
    let event = elector.wait_for(such, LIMIT);
    event
        .map(|event| seconds(after, event.at))
        .ok_or_else(|| Error::Late(format!("a takeover of {lease}")))
}
