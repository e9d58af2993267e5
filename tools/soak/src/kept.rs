//! What is kept of a run that found something: the shortest stretch that shows it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::Serialize;

use crate::{
    Error,
    checker::{Checker, Clash, Leadership},
    faults::Inflicted,
};

/// How long before and after a clash something may have to do with it, in nanoseconds.
const AROUND: u64 = 30_000_000_000;

#[derive(Serialize)]
struct Stretch<'a> {
    clash: &'a Clash,
    leaderships: Vec<&'a Leadership>,
    faults: Vec<&'a Inflicted>,
}

/// Writes each clash with the leaderships of its stream and the faults around it. Answers where.
pub(crate) fn keep(
    folder: &Path,
    seed: u64,
    checker: &Checker,
    inflicted: &[Inflicted],
) -> Result<PathBuf, Error> {
    let clashes = checker.clashes();
    let stretches = clashes.iter().map(|clash| {
        let from = clash.before.first.min(clash.next.first).saturating_sub(AROUND);
        let to = clash.before.last.max(clash.next.last) + AROUND;
        Stretch {
            clash,
            leaderships: checker.around(&clash.stream, from, to),
            faults: inflicted
                .iter()
                .filter(|fault| fault.from <= to && fault.to >= from)
                .collect(),
        }
    });
    let stretches: Vec<_> = stretches.collect();
    fs::create_dir_all(folder)?;
    let file = folder.join(format!("seed-{seed}.json"));
    fs::write(&file, serde_json::to_vec_pretty(&stretches)?)?;
    Ok(file)
}
