//! A short soak. `make soak` runs a longer one.

#![allow(clippy::unwrap_used)]

use std::process::Command;

#[test]
fn leaders_under_random_faults_are_never_two_and_lose_or_double_no_work() {
    let soak = Command::new(env!("CARGO_BIN_EXE_leasewarden-soak"))
        .args(["--for", "100s"])
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&soak.stdout), text(&soak.stderr));
    println!("{err}\n{out}");
    assert!(soak.status.success(), "{err}\n{out}");
}
