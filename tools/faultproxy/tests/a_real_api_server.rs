//! TLS, certificates, watches and conflicts, as the real thing has them.
#![allow(clippy::unwrap_used, missing_docs)]

use std::time::Duration;

use http::Request;
use http_body_util::BodyExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::PostParams;
use kube::client::Body;
use kube::{Api, Client};
use leasewarden_controlplane::ControlPlane;
use leasewarden_faultproxy::{Fault, FaultProxy, Match};

const LIMIT: Duration = Duration::from_secs(60);

#[tokio::test]
async fn is_written_to_though_the_reply_is_lost_and_its_watch_tells() {
    let control_plane = ControlPlane::shared().await;
    let namespace = control_plane.namespace("proxied").await.unwrap();
    let base = control_plane.kube_config();
    let proxy = FaultProxy::start(&base).unwrap();
    let client = Client::try_from(proxy.kube_config(&base)).unwrap();
    let leases = Api::<Lease>::namespaced(client.clone(), namespace.name());

    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases?watch=true");
    let mut watch = client
        .send(Request::get(path).body(Body::empty()).unwrap())
        .await
        .unwrap()
        .into_body();

    let mut lease = Lease::default();
    lease.metadata.name = Some("a".to_owned());
    let created = leases.create(&PostParams::default(), &lease).await.unwrap();

    let lost = proxy.rule(Match::put("/leases/a").times(1), Fault::DropReply);
    let mut changed = created.clone();
    changed.spec.get_or_insert_default().holder_identity = Some("me".to_owned());
    leases
        .replace("a", &PostParams::default(), &changed)
        .await
        .unwrap_err();
    lost.wait_fired(1, LIMIT).await.unwrap();
    let conflict = leases
        .replace("a", &PostParams::default(), &changed)
        .await
        .unwrap_err();
    assert!(matches!(conflict, kube::Error::Api(status) if status.code == 409));

    let mut events = String::new();
    while !events.contains("\"holderIdentity\":\"me\"") {
        let frame = tokio::time::timeout(LIMIT, watch.frame())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        events += std::str::from_utf8(&frame.into_data().unwrap()).unwrap();
    }
    assert!(
        events.contains("ADDED") && events.contains("MODIFIED"),
        "{events}"
    );
}
