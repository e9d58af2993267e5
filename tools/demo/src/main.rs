//! `make demo`.
fn main() {}
