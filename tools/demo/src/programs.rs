//! Where the programs of ours are: `leasewarden`, the worker and the control plane's supervisor. cargo knows, and builds
//! what is missing or old; where there is no cargo they are taken from beside this program.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

use crate::error::Error;

/// Both that the stage starts.
#[derive(Debug)]
pub(crate) struct Programs {
    pub(crate) leasewarden: PathBuf,
    pub(crate) worker: PathBuf,
}

const LEASEWARDEN: &str = "LEASEWARDEN_BIN";
const WORKER: &str = "LEASEWARDEN_WORKER_BIN";

impl Programs {
    /// Both by name, when the environment names both.
    pub(crate) fn named() -> Option<Self> {
        Some(Self {
            leasewarden: named(LEASEWARDEN)?,
            worker: named(WORKER)?,
        })
    }

    /// Builds what has to be built. What the environment names goes before what was built.
    pub(crate) async fn find() -> Result<Self, Error> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let found = match build(Path::new(&cargo)).await? {
            Some(built) => Self::among(&built)?,
            None => Self::beside()?,
        };
        Ok(Self {
            leasewarden: named(LEASEWARDEN).unwrap_or(found.leasewarden),
            worker: named(WORKER).unwrap_or(found.worker),
        })
    }

    fn among(built: &[PathBuf]) -> Result<Self, Error> {
        let executable = |name: &str| {
            let missing = || Error::Programs(format!("cargo did not say where it put {name}"));
            built
                .iter()
                .find(|file| file.ends_with(name))
                .cloned()
                .ok_or_else(missing)
        };
        Ok(Self {
            leasewarden: executable("leasewarden")?,
            worker: executable("worker")?,
        })
    }

    fn beside() -> Result<Self, Error> {
        let this = std::env::current_exe()?;
        let folder = this.parent().unwrap_or(Path::new("."));
        let programs = Self {
            leasewarden: folder.join("leasewarden"),
            worker: folder.join("examples/worker"),
        };
        if programs.leasewarden.is_file() && programs.worker.is_file() {
            return Ok(programs);
        }
        Err(Error::Programs(format!(
            "neither cargo nor the programs of the demo were found: install Rust, or name them by {LEASEWARDEN}=FILE \
             and {WORKER}=FILE"
        )))
    }
}

fn named(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable)
        .filter(|v| !v.is_empty())
        .map(PathBuf::from)
}

/// All programs that cargo has built, or found fresh. `None` when there is no cargo.
async fn build(cargo: &Path) -> Result<Option<Vec<PathBuf>>, Error> {
    let mut command = Command::new(cargo);
    command
        // The Makefile's set of packages and features, so that nothing is compiled a second time.
        .args(["build", "--message-format=json-render-diagnostics", "--workspace"])
        .args(["--features", "leasewarden/cli,leasewarden/testkit"])
        .args([
            "--bin",
            "leasewarden",
            "--bin",
            "controlplane",
            "--example",
            "worker",
        ])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .kill_on_drop(true);
    // `cargo run` tells us about our own package. Build scripts that look at these (ring's does) would run again, and
    // everything above them be built again, each time.
    for (name, _) in std::env::vars_os() {
        let prefixes = ["CARGO_PKG_", "CARGO_MANIFEST_"];
        if name
            .to_str()
            .is_some_and(|name| prefixes.iter().any(|prefix| name.starts_with(prefix)))
        {
            command.env_remove(name);
        }
    }
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    // cargo's progress is for a terminal; errors are printed either way.
    if !std::io::stderr().is_terminal() {
        command.arg("--quiet");
    }
    let output = match command.spawn() {
        Ok(child) => child.wait_with_output().await?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    if !output.status.success() {
        return Err(Error::Programs(
            "cargo could not build the programs of the demo".to_owned(),
        ));
    }
    let executable = |line: &str| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        message["executable"].as_str().map(PathBuf::from)
    };
    Ok(Some(
        String::from_utf8_lossy(&output.stdout)
            .lines()
            .filter_map(executable)
            .collect(),
    ))
}
