//! A proxy in front of a Kubernetes API server, for tests: it loses replies, delays requests, answers in the
//! server's stead, cuts connections. Plain HTTP/1 on 127.0.0.1 towards the client; towards the server whatever the
//! kubeconfig says.
//!
//! ```no_run
//! # async fn a_test(base: kube::Config) -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use leasewarden_faultproxy::{Fault, FaultProxy, Match};
//!
//! let proxy = FaultProxy::start(&base)?;
//! let client = kube::Client::try_from(proxy.kube_config(&base))?;
//! // The second write is applied, and its reply never comes.
//! let lost = proxy.rule(Match::put("/leases/").nth(2), Fault::DropReply);
//! // ... whatever is under test works with `client` ...
//! # let _ = client;
//! lost.wait_fired(1, Duration::from_secs(30)).await?; // the fault did happen
//! assert_eq!(proxy.count(|request| request.method == "PUT"), 3);
//! # Ok(())
//! # }
//! ```
//!
//! The proxy runs on a thread and a runtime of its own: it keeps real time when a test's runtime is paused, and
//! serves while a test blocks. A request that it has received it delivers, also when the client has gone meanwhile, as
//! a network would. Unless a rule says so, it never keeps a reply back in parts: watches come through event by event.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod proxy;
mod record;
mod rule;
mod serve;
mod trickle;
mod wire;

pub use http::{Method, StatusCode};
pub use proxy::{Error, FaultProxy};
pub use record::Seen;
pub use rule::{Canned, Fault, Match, NotFired, Rule};
