//! `make demo`: the main job on a real API server, measured.
//!
//! Three processes: the driver, which tells the [`story`]; the control plane's supervisor, which comes from
//! `leasewarden-controlplane`; and the [`stage`], which holds the store and is the parent of operator and workers.
//! Supervisor and stage end with the driver, however it ends.

mod clock;
mod cluster;
mod error;
mod programs;
mod say;
mod scene;
mod serve;
mod stage;
mod store;
mod story;
mod summary;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

/// Three workers, four streams, one leader per stream, on a real Kubernetes API server
///
/// Builds what is missing, starts a control plane, the operator and three workers, kills one leader, stops another, and
/// tells how long each takeover took and whether every event was processed once. Exits with 0 when all of it held.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Cli {
    /// Leave everything up at the end, to play with
    #[arg(long, env = "KEEP", value_parser = clap::builder::FalseyValueParser::new())]
    keep: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// End what --keep has left up
    Down {
        /// The folder that was printed
        folder: PathBuf,
    },
    #[command(hide = true)]
    Stage { folder: PathBuf, streams: Vec<String> },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match cli.command {
        None => run(cli.keep),
        Some(Command::Stage { folder, streams }) => stage::main(&folder, streams),
        Some(Command::Down { folder }) => match stage::down::down(&folder) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => failure(&error),
        },
    }
}

fn run(keep: bool) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failure(&error),
    };
    let result = runtime.block_on(async {
        tokio::select! {
            result = story::tell(keep) => result.map(|()| ExitCode::SUCCESS),
            // What was started is stopped when the story is dropped here.
            code = interrupted() => code.map_err(error::Error::from),
        }
    });
    // Not waiting for a control plane that is being started: its supervisor sees to the rest.
    runtime.shutdown_background();
    result.unwrap_or_else(|error| failure(&error))
}

/// Waits for Ctrl-C or SIGTERM; exits as a shell reports them.
async fn interrupted() -> std::io::Result<ExitCode> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let code = tokio::select! {
        _ = interrupt.recv() => 130,
        _ = terminate.recv() => 143,
    };
    say::warn("stopping everything");
    Ok(ExitCode::from(code))
}

fn failure(error: &dyn std::error::Error) -> ExitCode {
    say::warn(&format!("demo: {}", error::chain(error)));
    ExitCode::FAILURE
}
