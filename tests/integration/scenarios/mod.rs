//! What went wrong elsewhere, done to coordinators on a real API server. `docs/scenarios.md` lists all of it, with the
//! tests of the lock alone; each test here fails too when its fault did not happen.

mod contending;
mod ending;
mod frozen;
mod half_open;
mod inputs;
mod later;
mod loss;
mod outage;
mod page;
mod renewing;
mod server_faults;
pub mod stage;
