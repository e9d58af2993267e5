//! The `leasewarden` program.
fn main() {}
