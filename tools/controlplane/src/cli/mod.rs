//! The command line: what there is to say, and which file does it.

// Doc comments here are what `--help` prints.
#![allow(clippy::doc_markdown)]

mod run;
mod up;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use leasewarden_controlplane::{Error, build_programs, down, locate, supervise};

/// A real Kubernetes control plane for tests
///
/// etcd, kube-apiserver, kube-controller-manager and kubectl are built once per machine from Go modules (some 8
/// minutes on two cores, Go 1.26 needed) and kept in ~/.cache/leasewarden. A control plane is ready in a few
/// seconds, listens on 127.0.0.1 only, keeps everything in one temporary folder, and leaves nothing behind.
#[derive(Debug, Parser)]
#[command(after_help = EXAMPLES, after_long_help = ENVIRONMENT)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Subcommands,
}

const EXAMPLES: &str = "Examples:
  controlplane run -- cargo test     one control plane for all test programs
  controlplane up                    one to play with; Ctrl-C stops it

More with --help.";

const ENVIRONMENT: &str = "Examples:
  controlplane run -- cargo test     one control plane for all test programs
  controlplane up                    one to play with; Ctrl-C stops it
  controlplane up --keep             one that stays; `controlplane down DIR` stops it
  controlplane build                 build the programs now rather than at first use
  $(controlplane path kubectl) get leases -A

Environment:
  LEASEWARDEN_KUBERNETES=1.36  another Kubernetes version than the default, 1.37
  LEASEWARDEN_CACHE=DIR        keep programs there, not in ~/.cache/leasewarden
  KUBEBUILDER_ASSETS=DIR       take etcd, kube-apiserver, kubectl from there (and
                               kube-controller-manager, if there); build nothing
  TEST_ASSET_ETCD=FILE, TEST_ASSET_KUBE_APISERVER, TEST_ASSET_KUBECTL,
  TEST_ASSET_KUBE_CONTROLLER_MANAGER
                               one program each
  USE_EXISTING_CLUSTER=true    `run` starts nothing: tests use the cluster of the
                               current kubeconfig";

#[derive(Debug, Subcommand)]
enum Subcommands {
    /// Start a control plane, run a command that tests on it, stop it, and exit as the command did
    ///
    /// The command finds it by LEASEWARDEN_TEST_KUBECONFIG. KUBECONFIG is left alone. SIGINT and SIGTERM are passed on.
    Run {
        /// The command and its arguments, after `--`
        #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
        command: Vec<std::ffi::OsString>,
    },
    /// Start a control plane, say how to use it, and stop it on Ctrl-C
    Up {
        /// Return once it is ready and leave it running; `controlplane down` stops it
        #[arg(long)]
        keep: bool,
    },
    /// Stop a control plane that `up --keep` has left running
    Down {
        /// The folder that `up --keep` has printed
        folder: PathBuf,
    },
    /// Build programs into the cache; those of a control plane when none is named
    ///
    /// Safe to run twice at once (the second waits) and to interrupt (finished programs are kept).
    Build {
        /// etcd, etcdctl, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl, kubelet,
        /// clientgo-elector, helm, helm-docs, promtool
        programs: Vec<String>,
    },
    /// Print where a program is; builds it when it is not there yet
    Path {
        /// Such as kubectl
        program: String,
    },
    #[command(hide = true)]
    Supervise,
}

impl Cli {
    pub(crate) fn run(self) -> Result<ExitCode, Error> {
        match self.command {
            Subcommands::Run { command } => return run::run(&command),
            Subcommands::Up { keep } => up::up(keep)?,
            Subcommands::Down { folder } => {
                if let Err(error) = down(&folder) {
                    eprintln!("controlplane: {error}");
                    return Ok(ExitCode::FAILURE);
                }
            }
            Subcommands::Build { programs } => {
                for folder in build_programs(&programs)? {
                    println!("{}", folder.display());
                }
            }
            Subcommands::Path { program } => println!("{}", locate(&program)?.display()),
            Subcommands::Supervise => return Ok(supervise::main()),
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The runtime that waits for signals.
fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}
