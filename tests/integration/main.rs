//! Scenarios on a real API server, in one program so that they share one control plane.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod operator;
