//! The chart's roles are enough: locks are acquired with them and nothing else.

use std::time::Duration;

use leasewarden::{
    AcquireRequest, InstanceId, LockService, Outcome, StreamName, Ttl, lease::LeaseLockService,
};
use serde_json::json;

use crate::{
    rights::{Installed, install},
    support::{eventually, output},
};

const TTL: Duration = Duration::from_secs(60);

fn locks(installed: &Installed, account: &str) -> LeaseLockService {
    let namespace = installed.own.name();
    LeaseLockService::builder(installed.config(account, namespace))
        .namespace(namespace)
        .build()
        .unwrap()
}

async fn acquire(locks: &LeaseLockService, stream: &str, instance: &str) -> Result<(), String> {
    let (stream, instance) = (
        StreamName::new(stream).unwrap(),
        InstanceId::new(instance).unwrap(),
    );
    let request = AcquireRequest::new(&stream, &instance, Ttl::new(TTL).unwrap());
    match locks.acquire(request).await {
        Ok(Outcome::Granted(_)) => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

#[tokio::test]
async fn a_worker_locks_with_the_charts_role_alone() {
    let installed = install(|_| json!({"worker": {"serviceAccounts": [{"name": "worker"}]}})).await;
    let locks = locks(&installed, "worker");
    eventually(|| acquire(&locks, "Any Stream", "a")).await;
    let nobody = self::locks(&installed, "somebody-without-any-role");
    acquire(&nobody, "another", "b").await.unwrap_err();
}

#[tokio::test]
async fn a_worker_locks_leases_that_were_made_beforehand_and_no_others() {
    let installed = install(|_| {
        json!({"worker": {
            "serviceAccounts": [{"name": "worker"}],
            "leases": [{"name": "orders"}, {"name": "orders-xw7ukzxksfz", "stream": "Orders"}],
        }})
    })
    .await;
    let locks = locks(&installed, "worker");
    eventually(|| acquire(&locks, "orders", "a")).await;
    eventually(|| acquire(&locks, "Orders", "a")).await;
    acquire(&locks, "returns", "a").await.unwrap_err();

    // They stay those that the chart made, with its labels, by which the operator finds them.
    let mut get = installed.control_plane.kubectl();
    get.args([
        "get",
        "leases",
        "-n",
        installed.own.name(),
        "-o",
        "jsonpath={.items[*].spec.holderIdentity}",
    ]);
    get.args([
        "-l",
        "app.kubernetes.io/managed-by=leasewarden,app.kubernetes.io/component=stream-lock",
    ]);
    assert_eq!(output(&mut get).unwrap(), "a a");
}
