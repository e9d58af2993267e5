//! `make soak`: processes contend for many streams on a real API server, while faults of every kind happen at random; a
//! checker then looks for two leaders at once and for lost or doubled work.

mod checker;
mod driver;
mod faults;
mod kept;
mod node;
mod process;
mod report;
mod store;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::{Args, Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

/// Why it ended without a verdict.
type Error = Box<dyn std::error::Error + Send + Sync>;

/// Leaders under random faults on a real API server.
///
/// Starts an etcd and a kube-apiserver, and NODES processes that contend for STREAMS streams, each process behind a
/// proxy of its own. Leaders hand over, processes are stopped and killed, connections are cut, requests and replies are
/// lost, late or refused, the server is killed, and other people edit the Leases. Every side effect goes to a store that
/// checks fencing tokens, and to one that does not.
///
/// A hand-over is a leadership that follows on one of another process. A fault counts when its effect was seen.
///
/// Fails when two leaders were valid at once, tokens fell, or work was lost or doubled in the store that checks; when
/// fewer hand-overs or faults of a kind happened than it is about; when the checker misses an overlap that is planted
/// in its input; when something that a process said cannot be read; and when writes of processes that were stopped for
/// longer than a TTL did no damage in the store that checks nothing.
#[derive(Debug, Parser)]
#[command(name = "leasewarden-soak", version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    part: Option<Part>,
    #[command(flatten)]
    run: Run,
}

#[derive(Debug, Subcommand)]
enum Part {
    /// One of the processes. Started by the driver.
    #[command(hide = true)]
    Node(node::Part),
}

/// How long, how much.
#[derive(Debug, Clone, Args)]
pub(crate) struct Run {
    /// Repeats the lots of an earlier run, those of its processes too. Which lot meets which moment is up to the machine.
    /// Default: at random, printed.
    #[arg(long)]
    seed: Option<u64>,
    /// Stops after so long, or up to five times as long if too few hand-overs or faults have happened by then.
    #[arg(long = "for", value_parser = humantime::parse_duration, default_value = "2m", value_name = "TIME")]
    lasts: Duration,
    /// Stops after so many hand-overs instead, and when enough faults of each kind have happened.
    #[arg(long, conflicts_with = "lasts", value_name = "N")]
    hand_overs: Option<u64>,
    /// With --hand-overs: stops after so long at the latest, and fails if there were fewer.
    #[arg(long, value_parser = humantime::parse_duration, default_value = "6h", value_name = "TIME", requires = "hand_overs")]
    at_most: Duration,
    /// How many streams.
    #[arg(long, default_value_t = 24)]
    streams: usize,
    /// How many processes.
    #[arg(long, default_value_t = 4)]
    nodes: usize,
    /// The TTL in seconds.
    #[arg(long, default_value_t = 4)]
    ttl: u64,
    /// How long a leadership lasts before its process hands over, on average.
    #[arg(long, value_parser = humantime::parse_duration, default_value = "3s", value_name = "TIME")]
    term: Duration,
    /// How many faults may go on at once, each on another process.
    #[arg(long, default_value_t = 2, value_name = "N")]
    at_once: usize,
    /// How long it is quiet after a fault, on average.
    #[arg(long, value_parser = humantime::parse_duration, default_value = "500ms", value_name = "TIME")]
    quiet: Duration,
    /// The fewest hand-overs that make it a soak.
    #[arg(long, default_value_t = 100, value_name = "N")]
    at_least: u64,
    /// The fewest faults of each kind that make it a soak.
    #[arg(long, default_value_t = 2, value_name = "N")]
    faults_at_least: u64,
    /// Where to keep what shows it, if two led at once or tokens fell.
    #[arg(long, default_value = "target/soak", value_name = "FOLDER")]
    keep: PathBuf,
    /// Prints the report as JSON.
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let threads = if cli.part.is_some() { 1 } else { 2 };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error.into()),
    };
    let code = runtime.block_on(async {
        match cli.part {
            Some(Part::Node(part)) => node::run(part).await.map(|()| ExitCode::SUCCESS),
            None => {
                let mut terminate = signal(SignalKind::terminate())?;
                tokio::select! {
                    verdict = driver::run(cli.run) => verdict,
                    // What was started is stopped as the driver is dropped.
                    _ = tokio::signal::ctrl_c() => Ok(ExitCode::from(130)),
                    _ = terminate.recv() => Ok(ExitCode::from(143)),
                }
            }
        }
    });
    runtime.shutdown_background();
    code.unwrap_or_else(|error| failed(&error))
}

fn failed(error: &Error) -> ExitCode {
    eprintln!("soak: {error}");
    ExitCode::FAILURE
}
