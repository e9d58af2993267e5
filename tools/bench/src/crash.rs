//! Takeover after a crash: from the SIGKILL of the leader's process to the moment when another one's work begins, at a
//! TTL (client-go: `LeaseDuration`) of 15 s.
//!
//! A takeover takes a TTL less the age that the last renewal has when the leader dies. So the moments of death must be
//! spread evenly over the time between renewals, or the mean is that of the moments that were chosen. Each of our leaders
//! dies at an age of its own, one of `count` evenly spread quantiles of the age that a renewal has at a random moment; one
//! that renews before it has come to that age gets another try. client-go's do not tell when they renew: they die at
//! evenly spread moments of one renew period.

use std::thread;
use std::time::Duration;

use leasewarden::election::ElectionSettings;
use leasewarden_electors::{Elector, What};

use crate::Error;
use crate::handover::begins;
use crate::stage::{LIMIT, Side, Stage, knows, leads};
use crate::stats::Summary;

/// client-go's `RetryPeriod`: how often a leader renews.
const CLIENT_GO_RENEWS: Duration = Duration::from_secs(2);
/// Both kinds, at the same time on the same server. The standbys should have stood by for long: see `handover`.
pub(crate) fn takeovers(mut ours: Elections, mut theirs: Elections) -> Result<(Summary, Summary), Error> {
    thread::scope(|scope| {
        let theirs = scope.spawn(|| theirs.takeovers());
        let ours = ours.takeovers()?;
        let theirs = theirs
            .join()
            .map_err(|_| Error::Late("client-go's takeovers".to_owned()))??;
        Ok((ours, theirs))
    })
}

/// As many elections as there are to be samples, each with a leader and a standby in processes of their own.
pub(crate) struct Elections {
    side: Side,
    leases: Vec<String>,
    leaders: Vec<Elector>,
    /// One for each.
    standbys: Vec<Elector>,
}

impl Elections {
    pub(crate) fn new(stage: &Stage, side: Side, count: usize) -> Result<Self, Error> {
        let leases = side.leases("crash", count);
        stage.namespaces(&leases)?;
        let mut leaders = Vec::new();
        for (nth, lease) in leases.iter().enumerate() {
            let leader = stage.start(side, lease, &format!("crash-{nth}"), std::slice::from_ref(lease))?;
            leads(&leader, std::slice::from_ref(lease))?;
            leaders.push(leader);
        }
        let mut standbys = Vec::new();
        for lease in &leases {
            let standby = stage.start(side, lease, "crash-standby", std::slice::from_ref(lease))?;
            knows(&standby, std::slice::from_ref(lease))?;
            standbys.push(standby);
        }
        Ok(Self {
            side,
            leases,
            leaders,
            standbys,
        })
    }

    fn takeovers(&mut self) -> Result<Summary, Error> {
        let count = self.leases.len();
        let side = self.side;
        let leaders = self.leaders.iter_mut().enumerate();
        let died = thread::scope(|scope| {
            let deaths: Vec<_> = leaders
                .map(|(nth, leader)| scope.spawn(move || dies(side, leader, nth, count)))
                .collect();
            let died = deaths.into_iter().map(|death| match death.join() {
                Ok(at) => at,
                Err(_) => Err(Error::Late("a leader's death".to_owned())),
            });
            died.collect::<Result<Vec<_>, _>>()
        })?;
        let samples = self
            .leases
            .iter()
            .zip(&self.standbys)
            .zip(&died)
            .map(|((lease, standby), &died)| begins(standby, lease, died));
        let samples: Vec<_> = samples.collect::<Result<_, _>>()?;
        Summary::of(samples).ok_or(Error::TooFew {
            what: "takeovers",
            n: 0,
            wanted: count,
        })
    }
}

/// Kills a leader at the moment that is its own; tells when that was.
fn dies(side: Side, leader: &mut Elector, nth: usize, count: usize) -> Result<u64, Error> {
    if side == Side::ClientGo {
        // Not in the order in which they were started, with which the phase of their renewals goes.
        #[allow(clippy::cast_possible_truncation)]
        let moment = CLIENT_GO_RENEWS * ((nth * 7) % count) as u32 / count as u32;
        thread::sleep(moment);
        return Ok(leader.kill()?);
    }
    #[allow(clippy::cast_precision_loss)]
    let age = age_at_a_random_moment((nth as f64 + 0.5) / count as f64);
    let renewals = |leader: &Elector| {
        let events = leader.events();
        events.iter().filter(|e| e.event == What::Renewed).count()
    };
    for _ in 0..50 {
        let before = renewals(leader);
        leader
            .wait_until(
                |events| {
                    let now = events.iter().filter(|e| e.event == What::Renewed).count();
                    (now > before).then_some(())
                },
                LIMIT,
            )
            .ok_or_else(|| Error::Late("a renewal".to_owned()))?;
        thread::sleep(age);
        if renewals(leader) == before + 1 {
            return Ok(leader.kill()?);
        }
    }
    Err(Error::Late(format!("a renewal that gets {age:?} old")))
}

/// The age that the last renewal has at a random moment, by its quantile. From one to the next it takes a period less
/// something between nothing and the jitter, all equally likely; so ages below the shortest are equally likely, and from
/// there on they get rarer in a straight line.
fn age_at_a_random_moment(quantile: f64) -> Duration {
    let settings = ElectionSettings::default();
    let longest = settings.renew_period().as_secs_f64();
    let jitter = settings.renew_jitter().as_secs_f64();
    let shortest = longest - jitter;
    let area = quantile * (shortest + jitter / 2.0);
    if area <= shortest {
        return Duration::from_secs_f64(area);
    }
    // (area − shortest) = x − x²/(2·jitter), for the x beyond the shortest.
    let beyond = jitter - (jitter * (jitter - 2.0 * (area - shortest)).max(0.0)).sqrt();
    Duration::from_secs_f64(shortest + beyond)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_the_mean_of_a_renewal_process() {
        let settings = ElectionSettings::default();
        let longest = settings.renew_period().as_secs_f64();
        let jitter = settings.renew_jitter().as_secs_f64();
        let mean_period = longest - jitter / 2.0;
        // E[P²] / 2·E[P].
        let expected = (mean_period * mean_period + jitter * jitter / 12.0) / (2.0 * mean_period);
        let ages = (0..10_000).map(|n| age_at_a_random_moment((f64::from(n) + 0.5) / 10_000.0).as_secs_f64());
        let mean = ages.sum::<f64>() / 10_000.0;
        assert!((mean - expected).abs() < 0.001, "{mean} is not {expected}");
        assert!(age_at_a_random_moment(1.0).as_secs_f64() <= longest + 1e-9);
    }
}
