//! Electors in processes of their own: started, paused, killed, and listened to.
//!
//! Two programs speak the same lines: `clientgo-elector` (client-go's leader election, in Go; `controlplane path
//! clientgo-elector` says where it is) and `leasewarden-elector` (ours, in `tools/bench`). What the lines say is stamped
//! by the program itself with a clock that all processes of a machine share ([`now`]), so that it does not matter when
//! they are read. Which of two electors may lead is decided elsewhere; here is only what they say they did, and whether
//! two did so at once ([`overlaps`]).

mod elector;
mod terms;

use rustix::process::Pid;

pub use elector::{Elector, Event, What};
pub use terms::{Overlap, Span, overlaps};

/// Whether the kernel says that a process is stopped, as by SIGSTOP; not so of one that is gone.
pub fn is_stopped(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    // The state follows on the program's name, which may hold anything, also brackets.
    let state = |stat: String| Some(stat.rsplit(')').next()?.trim_start().starts_with('T'));
    stat.ok().and_then(state).unwrap_or(false)
}

/// Nanoseconds of `CLOCK_BOOTTIME`.
pub fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    // Since boot: neither is ever negative.
    u64::try_from(now.tv_sec * 1_000_000_000 + now.tv_nsec).unwrap_or(0)
}
