//! `controlplane run -- COMMAND`: a control plane for as long as a command runs. Whatever ends this process, the
//! control plane ends; what a signal asks of this process it asks of the command.

use std::ffi::OsString;
use std::process::{ExitCode, ExitStatus};

use leasewarden_controlplane::{ControlPlane, Error, TEST_KUBECONFIG, is_existing_cluster};
use rustix::process::{Pid, Signal, getpgrp, kill_process};
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};

pub(crate) fn run(command: &[OsString]) -> Result<ExitCode, Error> {
    let (Some(program), arguments) = (command.first(), command.get(1..).unwrap_or_default()) else {
        return Ok(ExitCode::FAILURE);
    };
    let control_plane = if is_existing_cluster() {
        None
    } else {
        let started = ControlPlane::builder().start_blocking();
        Some(started.map_err(Error::or_an_existing_cluster)?)
    };
    let mut command = Command::new(program);
    command.args(arguments);
    if let Some(control_plane) = &control_plane {
        command.env(TEST_KUBECONFIG, control_plane.kubeconfig_path());
    }
    let status = super::runtime()?.block_on(wait(command)).map_err(|error| {
        let reason = format!("cannot run {}: {error}", program.display());
        std::io::Error::new(error.kind(), reason)
    });
    if let Some(control_plane) = control_plane {
        control_plane.stop()?;
    }
    Ok(code(status?))
}

async fn wait(mut command: Command) -> std::io::Result<ExitStatus> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut child = command.spawn()?;
    let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    let pass_on = |signal| {
        if let Some(pid) = pid {
            // Not waited for yet, so the process id is still its own.
            let _ = kill_process(pid, signal);
        }
    };
    loop {
        tokio::select! {
            status = child.wait() => return status,
            _ = interrupt.recv() => {
                if !in_foreground() {
                    pass_on(Signal::INT);
                }
            }
            _ = terminate.recv() => pass_on(Signal::TERM),
        }
    }
}

/// Whether the terminal's Ctrl-C reaches the command by itself, being in our process group. Many programs take a
/// second one for impatience.
fn in_foreground() -> bool {
    rustix::termios::tcgetpgrp(rustix::stdio::stdin()).is_ok_and(|foreground| foreground == getpgrp())
}

/// As a shell reports it: what a signal ended exits with 128 and its number.
fn code(status: ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt as _;
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal))
        .unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
