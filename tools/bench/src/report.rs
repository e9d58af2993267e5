//! What is printed: a table for people, JSON for programs, and which targets were met.

use std::fmt;

use serde_json::{Value, json};

use crate::requests::Requests;
use crate::stats::Summary;

/// Everything that was measured.
pub(crate) struct Report {
    pub(crate) machine: String,
    /// The machine's load average over a minute, before and after.
    pub(crate) load: (String, String),
    pub(crate) handover: Handover,
    pub(crate) crash: (Summary, Summary),
    pub(crate) requests: (Requests, Requests),
    pub(crate) streams: usize,
}

/// Graceful hand-overs.
pub(crate) struct Handover {
    /// Ours, one after the other, to standbys that had sent nothing for 100 s.
    pub(crate) waited: Summary,
    /// The same to standbys that had just started.
    pub(crate) fresh: Summary,
    /// Ours, many at once, to a fresh standby.
    pub(crate) together: Summary,
    /// client-go's, many at once.
    pub(crate) theirs: Summary,
}

/// A figure of ours and what it is to be.
struct Target {
    what: &'static str,
    is: f64,
    at_most: f64,
    unit: &'static str,
}

impl Target {
    fn is_met(&self) -> bool {
        self.is <= self.at_most
    }
}

impl Report {
    fn targets(&self) -> Vec<Target> {
        let alone = &self.handover.waited;
        let (crash, _) = &self.crash;
        let (requests, _) = &self.requests;
        let target = |what, is, at_most, unit| Target {
            what,
            is,
            at_most,
            unit,
        };
        vec![
            target("graceful hand-over, median", alone.median * 1e3, 25.0, "ms"),
            target(
                "graceful hand-over, 99th percentile",
                alone.p99 * 1e3,
                100.0,
                "ms",
            ),
            target("crash takeover, mean", crash.mean, 12.6, "s"),
            target("crash takeover, worst", crash.worst, 15.5, "s"),
            // One in a hundred: a renewal can lie on the edge of the counted time.
            target("requests per renewal", requests.per_renewal, 1.01, ""),
            // What an idle server does is taken off by its rate, so the rest is no whole number.
            target(
                "requests of standbys while counted",
                requests.of_standbys,
                0.5,
                "",
            ),
        ]
    }

    pub(crate) fn json(&self) -> Value {
        let targets = self.targets().into_iter().map(|target| {
            json!({
                "what": target.what, "is": target.is, "at_most": target.at_most, "unit": target.unit,
                "met": target.is_met(),
            })
        });
        let handover = &self.handover;
        json!({
            "machine": self.machine,
            "load": {"before": self.load.0, "after": self.load.1},
            "handover_seconds": {
                "ours": handover.waited, "ours_fresh": handover.fresh, "ours_fresh_at_once": handover.together,
                "client_go_at_once": handover.theirs,
            },
            "crash_takeover_seconds": {"ours": self.crash.0, "client_go": self.crash.1},
            "requests": {
                "streams": self.streams, "instances": 3, "ours": self.requests.0, "client_go": self.requests.1,
            },
            "targets": targets.collect::<Vec<_>>(),
        })
    }
}

fn time(seconds: f64) -> String {
    if seconds < 1.0 {
        format!("{:.1} ms", seconds * 1e3)
    } else {
        format!("{seconds:.2} s")
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = |f: &mut fmt::Formatter<'_>, cells: [&str; 7]| {
            let [what, n, median, p99, mean, worst, ratio] = cells;
            writeln!(
                f,
                "{what:<44} {n:>5} {median:>10} {p99:>10} {mean:>10} {worst:>10} {ratio:>14}"
            )
        };
        let summary = |f: &mut fmt::Formatter<'_>, what: &str, s: &Summary, beside: Option<&Summary>| {
            let ratio = beside.map_or(String::new(), |other| format!("{:.1} times", other.mean / s.mean));
            row(
                f,
                [
                    what,
                    &s.n.to_string(),
                    &time(s.median),
                    &time(s.p99),
                    &time(s.mean),
                    &time(s.worst),
                    &ratio,
                ],
            )
        };
        writeln!(
            f,
            "{}; load {} before, {} after",
            self.machine, self.load.0, self.load.1
        )?;
        writeln!(
            f,
            "ours at a TTL of 15 s; client-go v0.37.2 at 15 s, 10 s, 2 s, releasing on cancel; same server, same run\n"
        )?;
        row(f, ["", "n", "median", "p99", "mean", "worst", "theirs to ours"])?;
        let Handover {
            waited,
            fresh,
            together,
            theirs,
        } = &self.handover;
        summary(
            f,
            "graceful hand-over, ours, idle for 100 s",
            waited,
            Some(theirs),
        )?;
        summary(f, "graceful hand-over, ours, just started", fresh, Some(theirs))?;
        summary(
            f,
            "graceful hand-over, ours, many at once",
            together,
            Some(theirs),
        )?;
        summary(f, "graceful hand-over, client-go, many at once", theirs, None)?;
        let (ours, theirs) = &self.crash;
        summary(f, "takeover after SIGKILL, ours", ours, Some(theirs))?;
        summary(f, "takeover after SIGKILL, client-go", theirs, None)?;

        let (ours, theirs) = &self.requests;
        writeln!(
            f,
            "\n{:<44} {:>12} {:>12} {:>14}",
            "", "ours", "client-go", "theirs to ours"
        )?;
        writeln!(
            f,
            "{:<44} {:>12.1} {:>12.1} {:>14}",
            format!("requests per second, {} streams × 3", self.streams),
            ours.per_second,
            theirs.per_second,
            format!("{:.1} times", theirs.per_second / ours.per_second)
        )?;
        writeln!(
            f,
            "{:<44} {:>12.3} {:>12.3}",
            "requests per renewal", ours.per_renewal, theirs.per_renewal
        )?;
        writeln!(
            f,
            "{:<44} {:>12.3} {:>12.3}",
            "requests per second and idle standby", ours.per_standby_second, theirs.per_standby_second
        )?;
        writeln!(
            f,
            "ours: {:.0} requests for {:.0} renewals\n",
            ours.counted, ours.renewals
        )?;
        for target in self.targets() {
            writeln!(
                f,
                "{:<8} {:<38} {:>9.3} {unit} (at most {} {unit})",
                if target.is_met() { "met" } else { "NOT MET" },
                target.what,
                target.is,
                target.at_most,
                unit = target.unit,
            )?;
        }
        Ok(())
    }
}

/// Kernel, processors and their name.
pub(crate) fn machine() -> String {
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = cpuinfo
        .lines()
        .find(|line| line.starts_with("model name"))
        .and_then(|line| line.split_once(':'))
        .map_or("unknown processor", |(_, name)| name.trim());
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{cpus} × {name}, Linux {}", kernel.trim())
}

/// The load average over the last minute.
pub(crate) fn load() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').next().unwrap_or_default().to_owned()
}
