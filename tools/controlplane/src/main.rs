//! `controlplane`: the control plane for tests, by hand. See `--help`.

mod cli;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    match cli::Cli::parse().run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("controlplane: {error:?}");
            ExitCode::FAILURE
        }
    }
}
