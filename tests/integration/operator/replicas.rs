//! Several replicas: one keeps the statuses, and another does when it ends.

use super::*;

impl Stage {
    /// A replica, which contends in this namespace.
    fn replica(&self, more: &[&str]) -> Program {
        self.replica_by(self.control_plane.kubeconfig_path(), more)
    }

    /// One that reaches the API server by this kubeconfig.
    fn replica_by(&self, kubeconfig: &Path, more: &[&str]) -> Program {
        let namespace = format!("--leader-election-namespace={}", self.namespace.name());
        let mut args = vec![
            "--namespace",
            self.namespace.name(),
            "--leader-election=true",
            &namespace,
        ];
        args.extend(super::serving::SERVES);
        args.extend(more);
        Program::operator(kubeconfig, &args)
    }
}

async fn leads(replica: &Program) {
    until("it leads", || async {
        (replica.metric("leasewarden_operator_leader").await == Some(1.0)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn of_two_replicas_one_writes_and_the_other_takes_over_when_it_is_told_to_end() {
    let stage = Stage::empty("replicas").await;
    let mut first = stage.replica(&[]);
    leads(&first).await;
    let second = stage.replica(&[]);
    until("the second stands by", || async {
        let (code, says) = second.get("/readyz").await;
        (code == 200 && says.contains("standing by; ")).then_some(())
    })
    .await;
    let a = stage.instance("a");
    let grant = a.acquire("orders", LIMIT).await;
    stage.holder_is("orders", Some("a")).await;
    assert_eq!(second.metric("leasewarden_operator_leader").await, Some(0.0));
    let (_, page) = second.get("/metrics").await;
    assert!(!page.contains("stream=\"orders\""), "{page}");
    assert_eq!(
        second
            .metric("leasewarden_status_writes_total{reason=\"transition\"}")
            .await,
        Some(0.0)
    );

    assert_eq!(first.signal("-TERM").await.code(), Some(0), "{}", first.log());
    a.locks.release(ReleaseRequest::of(&grant)).await.unwrap();
    leads(&second).await;
    stage.holder_is("orders", None).await;
    // Nobody's stream: it is not shown as one.
    assert!(
        stage
            .objects()
            .get_opt("leasewarden-operator")
            .await
            .unwrap()
            .is_none()
    );
    let lease = stage.leases().get("leasewarden-operator").await.unwrap();
    assert_eq!(
        lease.spec.unwrap().lease_transitions,
        Some(2),
        "each has led once"
    );
}

#[tokio::test]
async fn a_replica_that_is_killed_is_followed_by_another_within_the_ttl() {
    let stage = Stage::empty("replica-killed").await;
    let ttl = ["--leader-election-ttl=3s"];
    let mut first = stage.replica(&ttl);
    leads(&first).await;
    let second = stage.replica(&ttl);
    assert_eq!(first.signal("-KILL").await.code(), None);
    stage.instance("a").acquire("orders", LIMIT).await;
    stage.holder_is("orders", Some("a")).await;
    leads(&second).await;
}

#[tokio::test]
async fn a_replica_that_cannot_renew_writes_no_more_and_comes_back() {
    let stage = Stage::empty("replica-cut").await;
    let base = stage.control_plane.kube_config();
    let proxy = FaultProxy::start(&base).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("config");
    proxy.write_kubeconfig(&kubeconfig).unwrap();
    let ttl = ["--leader-election-ttl=3s"];
    let cut = stage.replica_by(&kubeconfig, &ttl).keeping(folder);
    leads(&cut).await;
    proxy.cut_all();
    let other = stage.replica(&ttl);
    leads(&other).await;
    assert_eq!(cut.metric("leasewarden_operator_leader").await, Some(0.0));
    proxy.restore();
    stage.instance("a").acquire("orders", LIMIT).await;
    stage.holder_is("orders", Some("a")).await;
    until("it stands by", || async {
        cut.get("/readyz").await.1.contains("standing by; ").then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_lease_name_that_is_none_is_refused() {
    let stage = Stage::empty("replica-name").await;
    let mut replica = stage.replica(&["--leader-election-lease-name=No Lease"]);
    assert_eq!(replica.exit().await.code(), Some(1));
    until("it says why", || async {
        replica
            .log()
            .contains("\"No Lease\" cannot be the name of a Lease")
            .then_some(())
    })
    .await;
}

#[tokio::test]
async fn without_the_permission_for_its_lock_a_replica_stands_by_and_says_why() {
    let stage = Stage::empty("replica-forbidden").await;
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("config");
    let user = format!("nobody-of-{}", stage.namespace.name());
    stage
        .control_plane
        .write_kubeconfig_for_user(&kubeconfig, &user, &[])
        .unwrap();
    let replica = stage.replica_by(&kubeconfig, &[]);
    replica.says("the election among replicas: ").await;
    assert!(replica.log().contains("not permitted to "), "{}", replica.log());
    until("the probe says so too", || async {
        let (code, says) = replica.get("/readyz").await;
        (code == 200 && says.contains("not permitted to ")).then_some(())
    })
    .await;
}
