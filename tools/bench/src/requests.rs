//! Requests at the server: many streams on three instances, one of which leads all of them.
//!
//! Counted twice, each time when all is quiet: with the leader alone, and with two instances more that stand by. What an
//! idle server does is taken off. Watches are left out: the server counts one when it ends, which is after minutes.

use std::thread::sleep;
use std::time::Duration;

use leasewarden_electors::{Elector, What};
use serde::Serialize;

use crate::metrics::Counted;
use crate::stage::{SHARED, Side, Stage, knows, leads};
use crate::stats::seconds;
use crate::{Error, Options};

/// All instances.
const INSTANCES: usize = 3;
/// Longer than a TTL: whatever follows from the start is over.
const SETTLE: Duration = Duration::from_secs(17);

/// Requests per second of a server that nobody uses.
#[derive(Debug)]
pub(crate) struct Idle {
    puts: f64,
    others: f64,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Requests {
    /// Per second, with all three instances.
    pub(crate) per_second: f64,
    /// How many renewals were seen, with the leader alone.
    pub(crate) renewals: f64,
    /// How many requests the server counted meanwhile.
    pub(crate) counted: f64,
    pub(crate) per_renewal: f64,
    /// Requests that were no renewals, with all three instances, per second and stream that is stood by for.
    pub(crate) per_standby_second: f64,
    /// How many those were in all.
    pub(crate) of_standbys: f64,
}

/// What was counted between two moments.
struct Window {
    from: u64,
    to: u64,
    puts: f64,
    puts_done: f64,
    others: f64,
}

impl Window {
    fn count(stage: &Stage, length: u64) -> Result<Self, Error> {
        let before = Counted::now(stage)?;
        sleep(Duration::from_secs(length));
        let after = Counted::now(stage)?;
        let sum = |such: &dyn Fn(&str, &str) -> bool| after.sum(such) - before.sum(such);
        Ok(Self {
            from: before.at,
            to: after.at,
            puts: sum(&|verb, _| verb == "PUT"),
            puts_done: sum(&|verb, code| verb == "PUT" && code == "200"),
            others: sum(&|verb, _| verb != "PUT" && verb != "WATCH"),
        })
    }

    fn seconds(&self) -> f64 {
        seconds(self.from, self.to)
    }

    /// Without what an idle server does.
    fn less(mut self, idle: &Idle) -> Self {
        let seconds = self.seconds();
        self.puts -= idle.puts * seconds;
        self.puts_done -= idle.puts * seconds;
        self.others -= idle.others * seconds;
        self
    }
}

pub(crate) fn idle(stage: &Stage, length: u64) -> Result<Idle, Error> {
    let window = Window::count(stage, length)?;
    Ok(Idle {
        puts: window.puts / window.seconds(),
        others: window.others / window.seconds(),
    })
}

pub(crate) fn requests(stage: &Stage, side: Side, options: &Options, idle: &Idle) -> Result<Requests, Error> {
    let leases = side.leases("requests", options.streams);
    let leader = stage.start(side, SHARED, "requests-0", &leases)?;
    leads(&leader, &leases)?;
    sleep(SETTLE);
    let alone = Window::count(stage, options.seconds)?.less(idle);
    let renewals = match side {
        Side::Ours => renewals(&leader, alone.from, alone.to),
        // It does not tell; each write that was done is a renewal, since there is nothing else to write.
        Side::ClientGo => alone.puts_done,
    };

    let mut standbys = Vec::new();
    for n in 1..INSTANCES {
        let standby = stage.start(side, SHARED, &format!("requests-{n}"), &leases)?;
        knows(&standby, &leases)?;
        standbys.push(standby);
    }
    sleep(SETTLE);
    let all = Window::count(stage, options.seconds)?.less(idle);
    if !leases.iter().all(|lease| leader.leads(lease)) {
        return Err(Error::Late("leading everything to the end".to_owned()));
    }
    #[allow(clippy::cast_precision_loss)]
    let stood_by = (standbys.len() * leases.len()) as f64;
    // A standby's failed write would be one too.
    let of_standbys = all.others + all.puts - all.puts_done;
    Ok(Requests {
        per_second: (all.puts + all.others) / all.seconds(),
        renewals,
        counted: alone.puts + alone.others,
        per_renewal: (alone.puts + alone.others) / renewals,
        per_standby_second: of_standbys / stood_by / all.seconds(),
        of_standbys,
    })
}

#[allow(clippy::cast_precision_loss)]
fn renewals(leader: &Elector, from: u64, to: u64) -> f64 {
    let events = leader.events();
    let such = events
        .iter()
        .filter(|e| e.event == What::Renewed && (from..to).contains(&e.at));
    such.count() as f64
}
