//! How the program's log lines look: for people, or a JSON object a line for machines. They go to standard error.

use std::{error::Error, io::IsTerminal};

use tracing_subscriber::EnvFilter;

/// The form of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Starts logging.
pub(super) fn start(format: LogFormat, filter: &str) -> Result<(), Box<dyn Error>> {
    let filter = EnvFilter::try_new(filter).map_err(|e| format!("--log {filter:?} is no filter: {e}"))?;
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Text => subscriber
            .with_ansi(std::io::stderr().is_terminal())
            .with_target(false)
            .try_init(),
        LogFormat::Json => subscriber
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .try_init(),
    }
    .map_err(|e| e.to_string().into())
}
