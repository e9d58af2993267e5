//! Bad input around the service: no server, wrong namespace, wrong names.

use leasewarden::{AcquireRequest, LockError, LockService, LockServiceExt, lease::LeaseLockService};

use crate::support::{World, instance, secs, stream};

fn nowhere() -> kube::Config {
    // Port 1 of loopback: nobody listens, and the refusal comes at once.
    kube::Config::new("http://127.0.0.1:1".parse().unwrap())
}

#[tokio::test]
async fn no_api_server_is_false_or_an_error_that_says_so_and_never_a_lock() {
    let locks = LeaseLockService::builder(nowhere()).build().unwrap();
    let error = locks
        .acquire(AcquireRequest::new(&stream("s"), &instance("a"), secs(1)))
        .await
        .unwrap_err();
    assert!(matches!(error, LockError::Unavailable { .. }), "{error}");
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.to_lowercase().contains("connection refused"), "{source}");
    assert!(!locks.renew(&stream("s"), &instance("a"), secs(1)).await);
    assert_eq!(locks.current_leader(&stream("s")).await, None);
}

#[tokio::test]
async fn a_namespace_that_does_not_exist_is_named() {
    let world = World::new("exists").await;
    let builder = LeaseLockService::builder(world.plane.kube_config()).namespace("does-not-exist");
    let locks = builder.build().unwrap();
    let error = locks
        .acquire(AcquireRequest::new(&stream("s"), &instance("a"), secs(15)))
        .await
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains(r#"namespaces "does-not-exist" not found"#),
        "{error}"
    );
}

#[tokio::test]
async fn a_namespace_or_prefix_that_is_no_dns_label_is_refused_before_anything_is_sent() {
    for bad in ["", "Upper", "a/b", "a.b", "-a", "../kube-system"] {
        let error = LeaseLockService::builder(nowhere())
            .namespace(bad)
            .build()
            .unwrap_err()
            .to_string();
        assert!(error.contains("is no namespace"), "{error}");
        let error = LeaseLockService::builder(nowhere())
            .name_prefix(bad)
            .build()
            .unwrap_err()
            .to_string();
        assert!(error.contains("is not a DNS label"), "{error}");
    }
}

#[tokio::test]
async fn after_a_shutdown_every_answer_says_so() {
    let locks = LeaseLockService::builder(nowhere()).build().unwrap();
    locks.shutdown().await;
    let error = locks.state(&stream("s")).await.unwrap_err();
    assert!(matches!(error, LockError::ShutDown), "{error}");
    locks.shutdown().await;
}

#[tokio::test]
async fn prefixes_separate_applications_in_one_namespace() {
    let world = World::new("prefix").await;
    let with = |prefix: &str| {
        LeaseLockService::builder(world.plane.kube_config())
            .namespace(world.ns())
            .name_prefix(prefix)
            .build()
            .unwrap()
    };
    let (shop, bank) = (with("shop"), with("bank"));
    assert!(
        shop.try_acquire(&stream("orders"), &instance("a"), secs(60))
            .await
    );
    assert!(
        bank.try_acquire(&stream("orders"), &instance("b"), secs(60))
            .await
    );
    assert_eq!(world.lease("shop.orders").await["spec"]["holderIdentity"], "a");
    assert_eq!(world.lease("bank.orders").await["spec"]["holderIdentity"], "b");
}
