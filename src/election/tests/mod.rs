//! The coordinator on the in-memory lock. Where time matters it is a manual clock's, moved only once every loop has
//! seen where it stands; so a busy machine makes these tests slow, not wrong.

mod bench;
mod ending;
mod faults;
mod leading;
mod watching;
