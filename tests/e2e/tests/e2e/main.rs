//! The chart and the image on a real node. One node serves all tests, one after the other; each has namespaces of its own.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod second;
mod support;

mod attacks;
mod installing;
mod leading;
mod namespaced;
mod replacing;
