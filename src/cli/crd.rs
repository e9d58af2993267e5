//! `leasewarden crd`: prints the `ChangeStreamLeader` CRD, so that a binary alone is enough to install it.
//!
//! `crds/changestreamleaders.leasewarden.dev.yaml` is this output; a test fails when the two differ.

use std::{error::Error, io::Write};

const HEADER: &str = "\
# ChangeStreamLeader: who leads each change stream, in `kubectl get csl`; as `leasewarden crd` prints it.
---
";

/// Print the ChangeStreamLeader CRD as YAML.
///
/// Install it with: leasewarden crd | kubectl apply --server-side -f -
#[derive(Debug, clap::Args)]
pub(super) struct Args {}

pub(super) fn run(_: &Args) -> Result<(), Box<dyn Error>> {
    std::io::stdout().write_all(yaml()?.as_bytes())?;
    Ok(())
}

fn yaml() -> Result<String, Box<dyn Error>> {
    Ok(format!(
        "{HEADER}{}\n",
        serde_saphyr::to_string(&crate::crd::definition())?
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_installed_file_is_what_the_code_says() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/crds/changestreamleaders.leasewarden.dev.yaml"
        );
        let file = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            file == yaml().unwrap(),
            "{path} differs from src/crd.rs; regenerate it with `make crds` \
             (cargo run --features cli -- crd > crds/changestreamleaders.leasewarden.dev.yaml)"
        );
    }
}
