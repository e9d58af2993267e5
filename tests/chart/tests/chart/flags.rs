//! What the Deployment passes is what the program takes.

use std::{collections::BTreeSet, path::PathBuf, process::Command};

use serde_json::json;

use crate::{
    cases::cases,
    support::{args, output, render},
};

/// The program, which lies beside the tests: `make test` builds both.
pub(crate) fn leasewarden() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test
        .parent()
        .and_then(|deps| deps.parent())
        .unwrap()
        .join("leasewarden");
    assert!(
        program.is_file(),
        "{} is missing: cargo build --features cli",
        program.display()
    );
    program
}

/// What `leasewarden operator` is agreed to take.
const AGREED: [&str; 15] = [
    "--namespace",
    "--discovery",
    "--status-policy",
    "--status-writes-per-second",
    "--events",
    "--leader-election",
    "--leader-election-lease-name",
    "--leader-election-ttl",
    "--log-format",
    "--log",
    "--health-probe-bind-address",
    "--metrics-bind-address",
    "--metrics-secure",
    "--metrics-cert-dir",
    "--context",
];

#[test]
fn every_argument_of_the_deployment_is_one_of_the_programs() {
    let mut passed = BTreeSet::new();
    for case in cases("other") {
        let objects = render(&case.values);
        // --help comes last: whatever is before it has to be known, and to have a value that is understood.
        let mut program = Command::new(leasewarden());
        program.args(args(&objects)).arg("--help");
        output(&mut program).unwrap_or_else(|said| panic!("{}: {said}", case.name));
        passed.extend(
            args(&objects)
                .iter()
                .skip(1)
                .map(|arg| arg.split('=').next().unwrap().to_owned()),
        );
    }
    let agreed: BTreeSet<_> = AGREED.into_iter().map(str::to_owned).collect();
    assert_eq!(passed, agreed, "what the cases pass, and what is agreed");
}

#[test]
fn the_helm_test_calls_what_there_is() {
    let objects = render(&json!({}));
    let pod = crate::support::one(&objects, "Pod");
    let arguments: Vec<_> = pod["spec"]["containers"][0]["args"]
        .as_array()
        .unwrap()
        .iter()
        .map(|arg| arg.as_str().unwrap())
        .collect();
    assert_eq!(arguments[0], "selftest");
    output(Command::new(leasewarden()).args(arguments).arg("--help")).unwrap();
}
