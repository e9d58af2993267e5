//! Free ports on 127.0.0.1. They are taken from below the range that the kernel hands to outgoing connections:
//! otherwise a client's socket could sit on the API server's port just when that is stopped and started again.

use std::net::{Ipv4Addr, TcpListener};

const FIRST: u16 = 15_000;
const COUNT: u16 = 15_000;

/// A port that was free a moment ago. Whoever uses it copes with its being taken meanwhile.
pub(crate) fn free() -> std::io::Result<u16> {
    let mut last = None;
    for _ in 0..100 {
        // Random, so that control planes which start together seldom want the same one.
        let port = FIRST + u16::try_from(uuid::Uuid::new_v4().as_u128() % u128::from(COUNT)).unwrap_or(0);
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Ok(_) => return Ok(port),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| std::io::Error::other("no free port")))
}
