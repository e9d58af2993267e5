//! The Helm chart under helm, promtool and a real API server. One topic a module; what they share is in `support`
//! (running the programs) and `cases` (values to run them on).
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod alerts;
mod cases;
mod dashboard;
mod docs;
mod flags;
mod flow;
mod fresh;
mod gitops;
mod installing;
mod page;
mod pods;
mod refusals;
mod rendering;
mod rights;
mod server;
mod shape;
mod support;
mod values;
mod working;
