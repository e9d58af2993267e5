//! `controlplane run -- COMMAND` is the command, with a control plane beside it.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use common::{Place, Running};
use rustix::process::{Signal, kill_process};

#[test]
fn its_command_finds_the_control_plane_and_decides_the_exit_code() {
    let place = Place::new();
    let script = "echo \"at $LEASEWARDEN_TEST_KUBECONFIG\"; echo \"other ${KUBECONFIG-none}\"; exit 7";
    let mut run = Running::start(
        place
            .controlplane(&["run", "--", "sh", "-c", script])
            .env("KUBECONFIG", "/mine"),
    );
    let kubeconfig = run.until("at ");
    assert!(
        kubeconfig.starts_with(place.path().to_str().unwrap()),
        "{kubeconfig}"
    );
    assert_eq!(run.until("other "), "/mine");
    assert_eq!(run.child.wait().unwrap().code(), Some(7));
    assert!(place.is_clean(), "{:?} {:?}", place.running(), place.folders());
}

#[test]
fn a_signal_reaches_the_command() {
    for (signal, code) in [(Signal::TERM, 9), (Signal::INT, 8)] {
        let place = Place::new();
        let script = "trap 'exit 9' TERM; trap 'exit 8' INT; echo listening; while :; do sleep 0.05; done";
        let mut run = Running::start(&mut place.controlplane(&["run", "--", "sh", "-c", script]));
        run.until("listening");
        kill_process(run.pid(), signal).unwrap();
        assert_eq!(run.child.wait().unwrap().code(), Some(code));
        assert!(place.is_clean(), "{:?} {:?}", place.running(), place.folders());
    }
}
