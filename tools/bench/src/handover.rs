//! Graceful hand-over: from the moment when the old leader's work has ended, which is when it releases, to the moment when
//! the new one's work begins.
//!
//! client-go's standbys ask every 2 to 4.4 s, so what they take depends on when in between the leader gives up: they
//! stand by for a while first, each time for another part of that period. Ours are told, and wait for nothing.

use std::time::Duration;

use leasewarden_electors::{Elector, Event, What};

use crate::stage::{LIMIT, Side, Stage, knows, leads};
use crate::stats::{Summary, seconds};
use crate::{Error, stats};

/// Long enough for client-go's jitter to have spread the standbys of one process.
const SETTLE: Duration = Duration::from_secs(9);
/// `RetryPeriod` with the most of client-go's jitter.
const ASKS_EVERY: Duration = Duration::from_millis(4400);

/// `rounds` times, `parallel` elections at once are handed from one process to another.
pub(crate) fn handovers(stage: &Stage, side: Side, parallel: usize, rounds: usize) -> Result<Summary, Error> {
    let leases = side.leases(&format!("handover-{parallel}"), parallel);
    let mut leader = stage.start(side, "handover-0", &leases)?;
    leads(&leader, &leases)?;
    let mut samples = Vec::new();
    for round in 0..rounds {
        let standby = stage.start(side, &format!("handover-{}", round + 1), &leases)?;
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
