//! Decides where each program comes from: the variables that the tools of this field agree on (`KUBEBUILDER_ASSETS`,
//! `TEST_ASSET_*`), else the cache, into which it is built when it is missing. Nothing is ever skipped: what is
//! missing is an error that names the ways out.

use std::path::PathBuf;

use crate::versions::{Family, PROGRAMS, Program, program};
use crate::{build, cache, versions::Kubernetes};

const FOLDER: &str = "KUBEBUILDER_ASSETS";

/// Why a program is not there.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It could not be built.
    #[error(transparent)]
    Build(#[from] build::Error),
    /// A variable names a file that does not exist.
    #[error("{variable} says {}, but there is no such file", file.display())]
    Missing {
        /// The variable.
        variable: String,
        /// The file it leads to.
        file: PathBuf,
    },
    /// No program of that name is known.
    #[error("no program is called {0:?}; known are {known}", known = PROGRAMS.iter().map(|p| p.name).collect::<Vec<_>>().join(", "))]
    Unknown(String),
}

/// The programs of a running control plane.
#[derive(Debug)]
pub(crate) struct Programs {
    pub(crate) etcd: PathBuf,
    pub(crate) apiserver: PathBuf,
    /// Absent where a folder of somebody else's (`KUBEBUILDER_ASSETS`) has none: envtest's own has not.
    pub(crate) controller_manager: Option<PathBuf>,
}

impl Programs {
    /// Finds them, and builds what must be built, kubectl included, so that nothing is left to be built later, in
    /// the middle of a test. Blocks.
    pub(crate) fn find() -> Result<Self, Error> {
        let needed: Vec<_> = PROGRAMS
            .iter()
            .filter(|p| p.default && given(p).is_none())
            .collect();
        if !needed.is_empty() {
            build::ensure(&needed)?;
        }
        let controller_manager = match locate("kube-controller-manager") {
            Err(Error::Missing { variable, .. }) if variable == FOLDER => None,
            found => Some(found?),
        };
        Ok(Self {
            etcd: locate("etcd")?,
            apiserver: locate("kube-apiserver")?,
            controller_manager,
        })
    }
}

/// Where the program is; builds it when that is what it takes. Blocks.
pub fn locate(name: &str) -> Result<PathBuf, Error> {
    let program = program(name).ok_or_else(|| Error::Unknown(name.to_owned()))?;
    match given(program) {
        Some((_, file)) if file.exists() => Ok(file),
        Some((variable, file)) => Err(Error::Missing { variable, file }),
        None => Ok(build::ensure(&[program])?.join(name)),
    }
}

/// Builds the named programs, or those that a control plane needs when none is named; returns the folders they are in.
/// The variables that name other programs are not looked at. Blocks.
pub fn build_programs(names: &[String]) -> Result<Vec<PathBuf>, Error> {
    let programs: Vec<_> = if names.is_empty() {
        PROGRAMS.iter().filter(|p| p.default).collect()
    } else {
        let known = |name: &String| program(name).ok_or_else(|| Error::Unknown(name.clone()));
        names.iter().map(known).collect::<Result<Vec<_>, _>>()?
    };
    // What is no part of a control plane lies in folders of its own.
    let (apart, together): (Vec<_>, Vec<_>) = programs
        .into_iter()
        .partition(|p| matches!(p.family, Family::Apart(_)));
    let mut groups = vec![together];
    groups.extend(apart.into_iter().map(|program| vec![program]));
    let groups = groups.into_iter().filter(|group| !group.is_empty());
    groups.map(|group| Ok(build::ensure(&group)?)).collect()
}

/// The kubectl to run: never builds one, falls back to whatever PATH has.
pub(crate) fn kubectl() -> PathBuf {
    let cached = || Some(cache::folder(Kubernetes::chosen().ok()?, Family::Kubernetes)?.join("kubectl"));
    program("kubectl")
        .and_then(given)
        .map(|(_, file)| file)
        .or_else(cached)
        .filter(|file| file.exists())
        .unwrap_or_else(|| PathBuf::from("kubectl"))
}

/// The variable that says where this program is, and the file it leads to.
fn given(program: &Program) -> Option<(String, PathBuf)> {
    let value = |name: &str| {
        std::env::var_os(name)
            .filter(|v| !v.is_empty())
            .map(PathBuf::from)
    };
    let variable = format!("TEST_ASSET_{}", program.name.to_uppercase().replace('-', "_"));
    match value(&variable) {
        Some(file) => Some((variable, file)),
        // Such a folder holds a control plane: what is no part of one is not expected in it.
        None if matches!(program.family, Family::Apart(_)) => None,
        None => value(FOLDER).map(|folder| (FOLDER.to_owned(), folder.join(program.name))),
    }
}
