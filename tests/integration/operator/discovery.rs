//! Which objects there are, and what they say of Leases that are missing, unlabelled or another stream's.

use k8s_openapi::{api::core::v1::Namespace, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kube::api::{DeleteParams, ListParams};
use leasewarden::crd::{HELD, READY};
use leasewarden_faultproxy::{Canned, Fault, FaultProxy, Match, Method, StatusCode};

use super::*;

const TTL: Duration = Duration::from_secs(60);

impl Stage {
    async fn count_objects(&self) -> usize {
        let all = self.objects().list(&ListParams::default()).await.unwrap();
        all.items.len()
    }

    async fn delete_object(&self, name: &str) {
        let objects = self.objects();
        objects.delete(name, &DeleteParams::default()).await.unwrap();
    }

    async fn object_goes(&self, name: &str) {
        until(("the object goes", name), || async {
            let left = self.objects().get_opt(name).await.unwrap();
            left.is_none().then_some(())
        })
        .await;
    }

    /// As another tool would.
    async fn write_lease(&self, lease: Value) {
        let lease: Lease = serde_json::from_value(lease).unwrap();
        let leases = self.leases();
        leases.create(&PostParams::default(), &lease).await.unwrap();
    }
}

/// Those by which the operator finds a Lease.
fn labels() -> Value {
    let labels = leasewarden::lease::LABELS.iter();
    labels.map(|(k, v)| ((*k).to_owned(), json!(v))).collect()
}

#[tokio::test]
async fn a_lease_that_is_found_gets_an_object_that_belongs_to_it() {
    let stage = Stage::new("discovery").await;
    let grant = stage.instance("host-1:shop:8080").acquire("Orders/EU", TTL).await;
    let lease = until("the Lease", || async {
        stage
            .leases()
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .into_iter()
            .next()
    })
    .await;
    let name = lease.metadata.name.clone().unwrap();
    let status = stage.holder_is(&name, Some("host-1:shop:8080")).await;
    assert_eq!(
        status.fencing_token,
        grant.token.map(leasewarden::FencingToken::get)
    );
    assert_eq!(status.lease_duration_seconds, Some(60));
    assert_eq!(condition(&status, HELD), is("True", "LeaseHeld"));
    assert_eq!(condition(&status, READY), is("True", "UpToDate"));

    let object = stage.objects().get(&name).await.unwrap();
    assert_eq!(object.spec.stream_name, "Orders/EU");
    let OwnerReference { kind, uid, .. } = &object.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!(
        (kind.as_str(), uid),
        ("Lease", lease.metadata.uid.as_ref().unwrap())
    );
    let by_holder = ListParams::default().fields("status.holderIdentity=host-1:shop:8080");
    assert_eq!(stage.objects().list(&by_holder).await.unwrap().items.len(), 1);

    // It goes with the Lease.
    stage
        .leases()
        .delete(&name, &DeleteParams::default())
        .await
        .unwrap();
    stage.object_goes(&name).await;
}

#[tokio::test]
async fn an_object_can_be_there_before_its_lease() {
    let stage = Stage::new("before").await;
    stage.write_object("orders", spec("orders")).await;
    let status = stage.status("orders", |s| !s.conditions.is_empty()).await;
    assert_eq!(condition(&status, HELD), is("False", "LeaseNotFound"));
    // So that `helm --wait` never hangs.
    assert_eq!(condition(&status, READY), is("True", "UpToDate"));
    assert_eq!(status.lease_name.as_deref(), Some("orders"));

    stage.instance("a").acquire("orders", TTL).await;
    stage.holder_is("orders", Some("a")).await;
    assert_eq!(stage.count_objects().await, 1);
}

#[tokio::test]
async fn an_object_written_by_hand_wins() {
    let stage = Stage::new("by-hand").await;
    stage.instance("a").acquire("orders", TTL).await;
    stage.holder_is("orders", Some("a")).await;
    stage.write_object("my-orders", spec("orders")).await;
    stage.holder_is("my-orders", Some("a")).await;
    stage.object_goes("orders").await;
    // And comes back when the other is deleted.
    stage.delete_object("my-orders").await;
    stage.holder_is("orders", Some("a")).await;
}

#[tokio::test]
async fn a_deletion_that_came_too_early_is_made_again() {
    let mut stage = Stage::empty("by-hand-conflict").await;
    let proxy = FaultProxy::start(&stage.control_plane.kube_config()).unwrap();
    // As if another replica had written the status in between.
    let deletion = Match::any().method(Method::DELETE).path("/changestreamleaders/");
    let conflict = Canned::status(StatusCode::CONFLICT, "Conflict");
    let lost = proxy.rule(deletion.times(1), Fault::Respond(conflict));
    stage.start_behind(&proxy);
    stage.instance("a").acquire("orders", TTL).await;
    stage.holder_is("orders", Some("a")).await;
    stage.write_object("my-orders", spec("orders")).await;
    lost.wait_fired(1, LIMIT).await.unwrap();
    stage.object_goes("orders").await;
    stage.holder_is("my-orders", Some("a")).await;
}

#[tokio::test]
async fn a_name_that_is_taken_hides_no_stream() {
    let stage = Stage::new("taken").await;
    stage.write_object("orders", spec("payments")).await;
    stage.instance("a").acquire("orders", TTL).await;
    stage.holder_is("orders.discovered", Some("a")).await;
    stage.holder_is("orders", None).await;
}

#[tokio::test]
async fn two_names_that_are_taken_are_said_and_make_no_hot_loop() {
    let mut stage = Stage::empty("both-taken").await;
    stage.write_object("orders", spec("payments")).await;
    stage.write_object("orders.discovered", spec("payments")).await;
    let proxy = FaultProxy::start(&stage.control_plane.kube_config()).unwrap();
    stage.start_behind(&proxy);
    stage.instance("a").acquire("orders", TTL).await;
    stage
        .operator()
        .says("the stream of Lease orders is not shown: ChangeStreamLeader orders.discovered")
        .await;
    // Retries come after half a second, and then later and later.
    proxy.forget_seen();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let asked = proxy.count(|request| request.method == "POST");
    assert!(asked <= 4, "{asked} attempts in two seconds");
    // Freed, the name is taken.
    stage.delete_object("orders.discovered").await;
    stage.holder_is("orders.discovered", Some("a")).await;
}

#[tokio::test]
async fn a_namespace_that_is_deleted_is_no_missing_permission() {
    let mut stage = Stage::new("ends").await;
    if stage.control_plane.is_existing() {
        return; // The finalizer below is for a namespace that is ours alone.
    }
    stage.instance("a").acquire("orders", TTL).await;
    stage.holder_is("orders", Some("a")).await;
    // Held back, so that the Lease outlives its object.
    stage
        .patch_lease(
            "orders",
            json!({"metadata": {"finalizers": ["leasewarden.dev/test"]}}),
        )
        .await;
    Api::<Namespace>::all(stage.client.clone())
        .delete(stage.namespace.name(), &DeleteParams::default())
        .await
        .unwrap();
    stage.object_goes("orders").await;
    stage
        .patch_lease("orders", json!({"metadata": {"finalizers": null}}))
        .await;
    until("the Lease is gone", || async {
        let left = stage.leases().get_opt("orders").await.unwrap();
        left.is_none().then_some(())
    })
    .await;
    assert_eq!(stage.operator().signal("-TERM").await.code(), Some(0));
    let log = stage.operator().log();
    assert!(!log.contains("not permitted"), "{log}");
}

#[tokio::test]
async fn another_streams_lease_is_a_conflict() {
    let stage = Stage::new("conflict").await;
    stage.instance("a").acquire("payments", TTL).await;
    let mut spec = spec("orders");
    spec.lease_name = Some("payments".into());
    stage.write_object("orders", spec).await;
    let status = stage.status("orders", |s| !s.conditions.is_empty()).await;
    assert_eq!(condition(&status, READY), is("False", "LeaseConflict"));
    assert_eq!(condition(&status, HELD), is("Unknown", "LeaseConflict"));
    let message = &status.condition(READY).unwrap().message;
    assert!(
        message.contains("\"payments\"") && message.contains("\"orders\""),
        "{message}"
    );
    assert_eq!(status.holder_identity, None);
    // It hides nothing: the stream whose Lease that is keeps its own object.
    let payments = stage.holder_is("payments", Some("a")).await;
    assert_eq!(condition(&payments, READY), is("True", "UpToDate"));
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(stage.count_objects().await, 2);
}

#[tokio::test]
async fn a_lease_without_our_labels_is_read_and_said_to_be() {
    let stage = Stage::new("unlabelled").await;
    let lease = json!({"metadata": {"name": "orders"}, "spec": {"holderIdentity": "x", "leaseDurationSeconds": 3600}});
    stage.write_lease(lease).await;
    stage.write_object("orders", spec("orders")).await;
    let status = stage.holder_is("orders", Some("x")).await;
    assert_eq!(condition(&status, READY), is("False", "LeaseNotLabelled"));

    let labels = labels();
    stage
        .patch_lease("orders", json!({"metadata": {"labels": labels}}))
        .await;
    stage
        .status("orders", |s| {
            s.condition(READY).is_some_and(|c| c.status == "True")
        })
        .await;
}

#[tokio::test]
async fn without_discovery_nothing_is_created() {
    let mut stage = Stage::empty("no-discovery").await;
    stage.start(&["--discovery=false"]);
    stage.instance("a").acquire("orders", TTL).await;
    stage.write_object("payments", spec("payments")).await;
    stage.instance("a").acquire("payments", TTL).await;
    stage.holder_is("payments", Some("a")).await;
    assert_eq!(stage.count_objects().await, 1);
}

#[tokio::test]
async fn odd_leases_hurt_nobody() {
    let stage = Stage::new("odd").await;
    let labels = labels();
    let odd = [
        ("no-spec", json!({}), Value::Null),
        (
            "enormous",
            json!({}),
            json!({"holderIdentity": "x".repeat(100_000), "leaseDurationSeconds": i32::MAX}),
        ),
        ("no-holder", json!({}), json!({"holderIdentity": ""})),
        (
            "token",
            json!({"leasewarden.dev/fencing-token": u64::MAX.to_string()}),
            json!({}),
        ),
        (
            "lies",
            json!({"leasewarden.dev/term": "{", "leasewarden.dev/ttl-ms": "-1", "leasewarden.dev/stream": ""}),
            json!({}),
        ),
    ];
    for (name, annotations, spec) in &odd {
        let lease =
            json!({"metadata": {"name": name, "labels": labels, "annotations": annotations}, "spec": spec});
        stage.write_lease(lease).await;
    }
    stage.instance("a").acquire("orders", TTL).await;
    stage.holder_is("orders", Some("a")).await;
    for free in ["no-spec", "no-holder"] {
        assert_eq!(
            condition(&stage.holder_is(free, None).await, HELD),
            is("False", "LeaseFree")
        );
    }
    let enormous = stage.status("enormous", |s| s.holder_identity.is_some()).await;
    assert!(enormous.holder_identity.unwrap().len() <= 1024);
    let token = stage.status("token", |s| !s.conditions.is_empty()).await;
    assert_eq!(condition(&token, READY), is("False", "FencingTokenUnusable"));
}
