//! `make bench-operator`: how soon a status tells the truth, and what the operator costs.
//!
//! The operator is the program, in a process of its own; the API server is real. Here are the Leases' holders, a watch of
//! the statuses, and what is printed; see `docs/benchmarks.md` for the method. It fails when a measurement did not work. A
//! target that is not met is printed.

mod footprint;
mod latency;
mod stage;
#[allow(dead_code, reason = "the electors' clock has no part in this")]
#[path = "../stats.rs"]
mod stats;

use std::{fmt, process::ExitCode, time::Duration};

use clap::Parser;
use serde::Serialize;

use crate::{footprint::Footprint, stage::Stage, stats::Summary};

/// The operator measured: from a transition to its status; memory and CPU with many Leases
#[derive(Debug, Clone, Parser)]
#[command(version)]
pub(crate) struct Options {
    /// Print JSON rather than tables
    #[arg(long)]
    json: bool,
    /// Leases that are held and renewed while transitions are measured
    #[arg(long, default_value_t = 1000)]
    streams: usize,
    /// Transitions a second
    #[arg(long, default_value_t = 20)]
    transitions: u32,
    /// For how many seconds each is measured
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Leases that are held and renewed while memory and CPU are measured; 0 to leave that out
    #[arg(long, default_value_t = 10_000)]
    leases: usize,
    /// The TTL of all Leases, in seconds
    #[arg(long, default_value_t = 60)]
    ttl: u64,
}

impl Options {
    pub(crate) fn ttl(&self) -> Duration {
        Duration::from_secs(self.ttl)
    }

    pub(crate) fn window(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    ControlPlane(#[from] leasewarden_controlplane::Error),
    #[error(transparent)]
    Kube(#[from] kube::Error),
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    Lock(#[from] leasewarden::LockError),
    #[error(transparent)]
    Input(#[from] leasewarden::lock::InvalidInput),
    #[error(transparent)]
    Service(#[from] leasewarden::lease::BuildError),
    #[error("{0} is not beside this program; `make bench-operator` builds both")]
    NoOperator(std::path::PathBuf),
    #[error("{0}")]
    Failed(String),
}

#[derive(Debug, Serialize)]
struct Report {
    /// From the sending of the Lease's write to the arrival of the status that shows it, in seconds.
    latency: Summary,
    /// How many transitions a second there were.
    rate: f64,
    /// How many renewals a second beside them.
    renewals: f64,
    /// The operator's own memory and CPU meanwhile.
    beside: Footprint,
    many: Option<Footprint>,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    let options = Options::parse();
    match run(&options).await {
        Ok(report) => {
            if options.json {
                match serde_json::to_string_pretty(&report) {
                    Ok(text) => println!("{text}"),
                    Err(error) => eprintln!("bench-operator: {error}"),
                }
            } else {
                print!("{report}");
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("bench-operator: {error}");
            ExitCode::FAILURE
        }
    }
}

pub(crate) fn say(what: &str) {
    eprintln!("bench-operator: {what}");
}

async fn run(options: &Options) -> Result<Report, Error> {
    let stage = Stage::new().await?;
    say("from a transition to its status");
    let truth = latency::measure(&stage, options).await?;
    let many = if options.leases == 0 {
        None
    } else {
        say("memory and CPU with many Leases");
        Some(footprint::measure(&stage, options).await?)
    };
    stage.end().await?;
    Ok(Report {
        latency: truth.latency,
        rate: truth.rate,
        renewals: truth.renewals,
        beside: truth.beside,
        many,
    })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |seconds: f64| format!("{:.0} ms", seconds * 1000.0);
        let s = &self.latency;
        writeln!(f, "| from a transition to its status | |\n|---|---|")?;
        writeln!(
            f,
            "| transitions | {} ({:.1}/s, beside {:.0} renewals/s) |",
            s.n, self.rate, self.renewals
        )?;
        writeln!(f, "| median | {} |", ms(s.median))?;
        writeln!(f, "| p99 | {} |", ms(s.p99))?;
        writeln!(f, "| worst | {} |", ms(s.worst))?;
        let met = if s.p99 <= 0.25 { "met" } else { "**not met**" };
        writeln!(f, "| target: p99 ≤ 250 ms | {met} |")?;
        writeln!(f, "\n| the operator | Leases | |\n|---|---|---|")?;
        for footprint in std::iter::once(&self.beside).chain(&self.many) {
            writeln!(f, "{footprint}")?;
        }
        Ok(())
    }
}
