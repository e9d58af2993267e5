//! Prints the JSON schema of the `values.yaml` that is named: `leasewarden-chart-schema charts/leasewarden/values.yaml`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(file) = std::env::args_os().nth(1) else {
        eprintln!("usage: leasewarden-chart-schema VALUES.YAML");
        return ExitCode::from(2);
    };
    let schema = std::fs::read_to_string(&file)
        .map_err(|error| error.to_string())
        .and_then(|values| leasewarden_chart::schema(&values).map_err(|error| error.to_string()));
    match schema {
        Ok(schema) => {
            print!("{schema}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{}: {error}", file.display());
            ExitCode::FAILURE
        }
    }
}
