//! The whole lock contract, against Leases on a real API server.

use std::{sync::Arc, time::Duration};

use leasewarden::testkit::Contract;

use crate::support::World;

#[tokio::test(flavor = "multi_thread")]
async fn the_lease_service_keeps_the_whole_contract() {
    let world = World::new("contract").await;
    let (plane, namespace, client) = (world.plane, world.ns().to_owned(), world.client.clone());
    let locks = world.locks();
    let in_namespace = namespace.clone();
    let report = Contract::new(move || {
        let config = plane.kube_config();
        Arc::new(
            leasewarden::lease::LeaseLockService::builder(config)
                .namespace(in_namespace.clone())
                .build()
                .unwrap(),
        )
    })
    // `leaseDurationSeconds` rounds a TTL up by less than a second; the rest is a loaded machine.
    .grant_within(Duration::from_secs(2))
    .delete(move |stream| {
        let uri = format!(
            "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{}",
            locks.lease_name(&stream)
        );
        let client = client.clone();
        async move {
            let request = http::Request::delete(uri).body(Vec::new()).unwrap();
            client.request::<serde_json::Value>(request).await.map(drop)
        }
    })
    .run()
    .await;
    println!("{report}");
    report.assert_passed();
    report.assert_nothing_skipped();
}
