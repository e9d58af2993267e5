//! The Helm chart `charts/leasewarden`: what is generated for it, and (in `tests/`) the tests that hold it.
//!
//! The chart's README is written by helm-docs and its alerts are checked by promtool, but the generators of
//! `values.schema.json` that are in use come in no registry that this repository builds from, so a small one is
//! here.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod schema;

pub use schema::{Error as SchemaError, schema};
