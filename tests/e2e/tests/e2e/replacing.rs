//! A rollout of the operator: how long nobody keeps the statuses.

use std::time::Duration;

use leasewarden_e2e::eventually;
use serde_json::Value;

use crate::support::{Namespace, Recording, Release, node};

/// Microseconds of a time in a Lease.
fn micros(time: &Value) -> Option<i64> {
    let text = time.as_str()?;
    let (whole, fraction) = text.trim_end_matches('Z').split_once('.')?;
    let clock = whole.split_once('T')?.1;
    let parts: Vec<i64> = clock.split(':').filter_map(|part| part.parse().ok()).collect();
    let [hours, minutes, seconds] = parts[..] else {
        return None;
    };
    Some(((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + fraction.parse::<i64>().ok()?)
}

#[test]
fn a_rollout_hands_the_operators_lock_over_within_a_second() {
    let namespace = Namespace::new("rollout");
    let release = Release::install("lw", &namespace, &[]);
    let lease = "lw-leasewarden";
    let holder = || {
        namespace.lease(lease)["spec"]["holderIdentity"]
            .as_str()
            .map(str::to_owned)
    };
    let first = eventually("a replica leads", || holder().filter(|holder| !holder.is_empty()));
    let pods = release.pods();
    let watched = Recording::start(
        "rollout",
        &["get", "lease", lease, "-n", "rollout", "--watch", "-o", "json"],
    );
    namespace.kubectl(&["rollout", "restart", "deployment/lw-leasewarden"]);
    namespace.kubectl(&["rollout", "status", "deployment/lw-leasewarden", "--timeout=180s"]);
    eventually("all Pods are others", || {
        let now = release.pods();
        (now.len() == pods.len() && now.iter().all(|pod| !pods.contains(pod))).then_some(())
    });
    let last = eventually("one of them leads", || {
        holder().filter(|holder| !holder.is_empty() && *holder != first)
    });
    // Each version that the watch brought, in order.
    let text = watched.text();
    let versions: Vec<Value> = serde_json::Deserializer::from_str(&text)
        .into_iter::<Value>()
        .map_while(Result::ok)
        .collect();
    let mut gaps = Vec::new();
    let mut released = None;
    for version in &versions {
        let spec = &version["spec"];
        let is_free = spec["holderIdentity"].as_str().unwrap_or_default().is_empty();
        if is_free {
            // The write that released it, by the API server's own record of it.
            released = released.or_else(|| micros(&spec["renewTime"]));
        } else if let (Some(from), Some(to)) = (released.take(), micros(&spec["acquireTime"])) {
            gaps.push(Duration::from_micros(
                u64::try_from(to - from).unwrap_or_default(),
            ));
        }
    }
    println!("{first} to {last}; without a holder: {gaps:?}");
    assert!(!gaps.is_empty(), "nobody released it:\n{text}");
    assert!(gaps.iter().all(|gap| *gap <= Duration::from_secs(1)), "{gaps:?}");
    drop(watched);
    let _ = node();
}
