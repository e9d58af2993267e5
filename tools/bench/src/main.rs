//! `make bench-election`: leader election measured, ours and client-go's side by side, on one server in one run.
//!
//! Everything measured is a program of its own: electors of both kinds, which tell by one clock what they do, and a real
//! API server, which counts the requests. Here is only the order of the measurements and what is printed; see
//! `docs/benchmarks.md` for the method. It fails when a measurement did not work. A target that is not met is printed.

mod crash;
mod handover;
mod metrics;
mod report;
mod requests;
mod stage;
mod stats;

use std::process::ExitCode;

use clap::Parser;

use crate::report::{Handover, Report};
use crate::stage::{Side, Stage};

/// Leader election measured: hand-over, takeover after a crash, requests; ours beside client-go at its defaults
#[derive(Debug, Parser)]
#[command(version)]
pub(crate) struct Options {
    /// Print JSON rather than a table
    #[arg(long)]
    json: bool,
    /// Graceful hand-overs of ours, one after the other, of standbys that have waited and of fresh ones
    #[arg(long, default_value_t = 120)]
    handovers: usize,
    /// Elections that client-go hands over at once, three times; ours do the same beside the above
    #[arg(long, default_value_t = 16)]
    parallel: usize,
    /// All elections that wait are in one namespace, so that each write wakes the processes of all of them
    #[arg(long)]
    one_namespace: bool,
    /// Leaders killed, of each kind
    #[arg(long, default_value_t = 30)]
    crashes: usize,
    /// Streams on three instances, when requests are counted
    #[arg(long, default_value_t = 100)]
    streams: usize,
    /// For how many seconds requests are counted
    #[arg(long, default_value_t = 20)]
    seconds: u64,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    ControlPlane(#[from] leasewarden_controlplane::Error),
    #[error(transparent)]
    Program(#[from] leasewarden_controlplane::ProgramError),
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error("kubectl: {0}")]
    Kubectl(String),
    #[error("{0} did not happen in time")]
    Late(String),
    #[error("{0} is not beside this program; `make bench-election` builds both")]
    NoElector(std::path::PathBuf),
    #[error("the server's metrics are not as expected: {0}")]
    Metrics(String),
    #[error("{what}: {n} samples are too few, {wanted} were asked for")]
    TooFew {
        what: &'static str,
        n: usize,
        wanted: usize,
    },
}

fn main() -> ExitCode {
    let options = Options::parse();
    match run(&options) {
        Ok(report) => {
            if options.json {
                println!("{}", report.json());
            } else {
                print!("{report}");
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("bench-election: {error}");
            ExitCode::FAILURE
        }
    }
}

fn say(what: &str) {
    eprintln!("bench-election: {what}");
}

fn run(options: &Options) -> Result<Report, Error> {
    let load_before = report::load();
    let stage = Stage::new()?;
    say("requests of an idle server");
    let idle = requests::idle(&stage, options.seconds)?;

    say("starting elections that wait for a while");
    let waiting = handover::Waiting::new(&stage, options.handovers, options.one_namespace)?;
    let crash_ours = crash::Elections::new(&stage, Side::Ours, options.crashes)?;
    let crash_theirs = crash::Elections::new(&stage, Side::ClientGo, options.crashes)?;

    say("graceful hand-overs, ours, of standbys that have just started");
    let fresh = handover::handovers(&stage, Side::Ours, 1, options.handovers)?;
    say("graceful hand-overs, ours, many at once");
    let together = handover::handovers(&stage, Side::Ours, options.parallel, 3)?;
    say("graceful hand-overs, client-go, many at once");
    let theirs = handover::handovers(&stage, Side::ClientGo, options.parallel, 3)?;
    say("graceful hand-overs, ours, of standbys that have waited for 100 s");
    let waited = waiting.handovers()?;

    say("takeovers after a crash, both");
    let crash = crash::takeovers(crash_ours, crash_theirs)?;

    say("requests, ours");
    let requests_ours = requests::requests(&stage, Side::Ours, options, &idle)?;
    say("requests, client-go");
    let requests_theirs = requests::requests(&stage, Side::ClientGo, options, &idle)?;

    stage.end()?;
    Ok(Report {
        machine: report::machine(),
        load: (load_before, report::load()),
        handover: Handover {
            waited,
            fresh,
            together,
            theirs,
        },
        crash,
        requests: (requests_ours, requests_theirs),
        streams: options.streams,
    })
}
