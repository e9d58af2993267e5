//! The `leasewarden` command line: one file per subcommand.
//!
//! Exit codes: 0 done, 1 failed (the last line on standard error says why), 2 wrong usage.

// Comments are printed by --help, where a backtick is noise.
#![allow(clippy::doc_markdown)]

mod config;
mod crd;
mod log;
mod operator;
mod selftest;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// One leader per change stream on Kubernetes.
///
/// The lock is a coordination.k8s.io/v1 Lease per stream. The operator shows who leads each stream in
/// `kubectl get changestreamleaders` (short: `kubectl get csl`).
#[derive(Debug, Parser)]
#[command(name = "leasewarden", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Operator(operator::Args),
    Crd(crd::Args),
    Selftest(selftest::Args),
}

/// Runs the program with the process's arguments.
pub fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Operator(args) => operator::run(args),
        Command::Crd(args) => crd::run(&args),
        Command::Selftest(args) => selftest::run(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("leasewarden: {error}");
            ExitCode::FAILURE
        }
    }
}
