//! Builds programs from the Go modules into the cache. A program is either wholly there or not at all: it is built
//! under another name and renamed, each by itself, so that an interrupted build keeps what it had finished.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::cache::{self, BuildLock};
use crate::process::tail;
use crate::progress::{Progress, say};
use crate::versions::{Family, Kubernetes, Program, UnknownVersion};

/// Why a program could not be built.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// See [`UnknownVersion`].
    #[error(transparent)]
    Version(#[from] UnknownVersion),
    /// There is no folder to keep programs in.
    #[error("no home folder to keep the built programs in; set {}=DIR", cache::VARIABLE)]
    NoCache,
    /// The programs have to be built, and Go is not there to do it.
    #[error(
        "{missing} must be built once, and there is no `go` on PATH. Any one of these will do:\n  \
         - install Go 1.26 or newer (https://go.dev/dl); the first build takes some 8 minutes on two cores\n  \
         - KUBEBUILDER_ASSETS=DIR, a folder that holds etcd, kube-apiserver and kubectl \
         (kube-controller-manager too, if owner references and deletion of namespaces matter)\n  \
         - TEST_ASSET_ETCD, TEST_ASSET_KUBE_APISERVER, TEST_ASSET_KUBECTL, TEST_ASSET_KUBE_CONTROLLER_MANAGER=FILE, \
         one by one\n  \
         - {cache}=DIR, a cache that was built on another machine of the same kind (now: {folder})",
        cache = cache::VARIABLE, folder = folder.display()
    )]
    NoGo {
        /// The programs that are not in the cache.
        missing: String,
        /// Where they would be.
        folder: PathBuf,
    },
    /// A program that is no part of a control plane has to be built, and Go is not there to do it.
    #[error(
        "{program} must be built once, and there is no `go` on PATH. Any one of these will do:\n  \
         - install Go 1.26 or newer (https://go.dev/dl); the first build takes a minute or two\n  \
         - TEST_ASSET_{variable}=FILE\n  \
         - {cache}=DIR, a cache that was built on another machine of the same kind (now: {folder})",
        variable = program.to_uppercase().replace('-', "_"),
        cache = cache::VARIABLE, folder = folder.display()
    )]
    NoGoForOne {
        /// The program.
        program: &'static str,
        /// Where it would be.
        folder: PathBuf,
    },
    /// The compiler said no.
    #[error("building {program} failed ({status}); the whole output is in {}\n{tail}", log.display())]
    Failed {
        /// What was to be built.
        program: &'static str,
        /// How `go build` ended.
        status: ExitStatus,
        /// Its output.
        log: PathBuf,
        /// The output's last lines.
        tail: String,
    },
    /// The cache could not be read or written.
    #[error("cannot build into {}", folder.display())]
    Io {
        /// The cache's folder.
        folder: PathBuf,
        /// What the file system said.
        #[source]
        source: io::Error,
    },
}

/// Makes sure that the programs, which all belong into one folder of the cache, are there, and says where that is.
/// Blocks, possibly for many minutes.
pub(crate) fn ensure(programs: &[&'static Program]) -> Result<PathBuf, Error> {
    let kubernetes = Kubernetes::chosen()?;
    let family = programs.first().map_or(Family::Kubernetes, |p| p.family);
    let folder = cache::folder(kubernetes, family).ok_or(Error::NoCache)?;
    let io = |source| Error::Io {
        folder: folder.clone(),
        source,
    };
    let missing = || {
        programs
            .iter()
            .copied()
            .filter(|p| !folder.join(p.name).exists())
            .collect::<Vec<_>>()
    };
    // Nothing to build: no lock either, so that a read-only cache will do.
    if missing().is_empty() {
        return Ok(folder);
    }
    if !go_is_there() {
        if let (Family::Apart(_), Some(first)) = (family, missing().first()) {
            let program = first.name;
            return Err(Error::NoGoForOne { program, folder });
        }
        let missing = missing().iter().map(|p| p.name).collect::<Vec<_>>().join(", ");
        return Err(Error::NoGo { missing, folder });
    }
    let _lock = BuildLock::take(&folder, |pid| {
        say(&format!("waiting for another build (pid {pid})"));
    })
    .map_err(io)?;
    remove_leftovers(&folder).map_err(io)?;
    // Asked again: the other build may have made them.
    let missing = missing();
    let total = missing.len();
    for (index, program) in missing.into_iter().enumerate() {
        let whose = match family {
            Family::Apart(_) => String::new(),
            Family::Etcd | Family::Kubernetes => format!(" for Kubernetes {}", kubernetes.minor),
        };
        let text = format!("building {}{whose} ({} of {total})", program.name, index + 1);
        build(kubernetes, program, &folder, Progress::new(text))?;
    }
    Ok(folder)
}

/// Under the lock nobody else writes here: what an interrupted build left is nobody's.
fn remove_leftovers(folder: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().ends_with(".partial") {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn go_is_there() -> bool {
    Command::new("go")
        .arg("version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok()
}

fn build(
    kubernetes: &Kubernetes,
    program: &'static Program,
    folder: &Path,
    mut progress: Progress,
) -> Result<(), Error> {
    let io = |source| Error::Io {
        folder: folder.to_owned(),
        source,
    };
    let module = kubernetes.module(program.family);
    let source = folder.join("modules").join(module.name);
    std::fs::create_dir_all(&source).map_err(io)?;
    std::fs::write(source.join("go.mod"), module.go_mod).map_err(io)?;
    std::fs::write(source.join("go.sum"), module.go_sum).map_err(io)?;
    for (name, code) in module.sources {
        std::fs::write(source.join(name), code).map_err(io)?;
    }

    // The pid keeps it apart from a compiler that outlived a killed builder and still writes to its old name.
    let partial = folder.join(format!("{}.{}.partial", program.name, std::process::id()));
    let log = folder.join(format!("{}.log", program.name));
    let output = File::create(&log).map_err(io)?;
    let mut go = Command::new("go")
        .args([
            "build",
            "-mod=readonly",
            "-trimpath",
            "-buildvcs=false",
            "-ldflags",
        ])
        .arg(kubernetes.ldflags(program.family))
        .arg("-o")
        .arg(&partial)
        .arg(program.package)
        .current_dir(&source)
        .env("CGO_ENABLED", "0")
        // The cache may lie below somebody's go.work.
        .env("GOWORK", "off")
        .stdin(Stdio::null())
        .stdout(output.try_clone().map_err(io)?)
        .stderr(output)
        .spawn()
        .map_err(io)?;
    let mut tick = Instant::now();
    let status = loop {
        if let Some(status) = go.try_wait().map_err(io)? {
            break status;
        }
        if tick.elapsed() >= Duration::from_secs(1) {
            tick = Instant::now();
            progress.tick();
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    if !status.success() {
        progress.end("failed");
        let _ = std::fs::remove_file(&partial);
        let tail = tail(&log, 20);
        return Err(Error::Failed {
            program: program.name,
            status,
            log,
            tail,
        });
    }
    // On disk before it has its name: a crash must not leave an empty program that looks finished.
    File::open(&partial)
        .and_then(|file| file.sync_all())
        .map_err(io)?;
    std::fs::rename(&partial, folder.join(program.name)).map_err(io)?;
    progress.end("done");
    Ok(())
}
