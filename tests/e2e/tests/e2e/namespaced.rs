//! `scope: Namespaced`: the operator and the workers have no right outside of their namespace.

use leasewarden_e2e::eventually;

use crate::support::{Namespace, Release, node, workers};

/// What a service account may do, as the API server says: resources and verbs, without what everybody may.
fn rights(account: &str, namespace: &str) -> Vec<String> {
    let user = format!("--as=system:serviceaccount:namespaced:{account}");
    let groups = [
        "--as-group=system:serviceaccounts",
        "--as-group=system:authenticated",
    ];
    let args = [
        &["auth", "can-i", "--list", "--no-headers", "-n", namespace, &user][..],
        &groups,
    ]
    .concat();
    let list = node().kubectl(&args).unwrap();
    let mut rights: Vec<String> = list
        .lines()
        .filter(|line| !line.trim_start().starts_with('[') && !line.contains("selfsubject"))
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    rights.sort();
    rights
}

#[test]
fn it_works_without_a_single_cluster_wide_right() {
    let namespace = Namespace::new("namespaced");
    let values = [
        r#"scope="Namespaced""#,
        r#"worker.serviceAccounts=[{"name":"worker"}]"#,
    ];
    let release = Release::install("lw", &namespace, &values);
    workers(&namespace, "worker", 2);
    namespace.leader_but("orders", &[]);
    // What every service account may, as Kubernetes itself has it.
    let everybody = rights("bystander", "namespaced");
    let own = |account: &str| {
        let mut rights = rights(account, "namespaced");
        rights.retain(|right| !everybody.contains(right));
        rights
    };
    assert_eq!(
        own("lw-leasewarden"),
        [
            "changestreamleaders.leasewarden.dev [] [] [get list watch create delete]",
            "changestreamleaders.leasewarden.dev/status [] [] [update]",
            "events.events.k8s.io [] [] [create patch]",
            "leases.coordination.k8s.io [] [] [get list watch create]",
            "leases.coordination.k8s.io [] [lw-leasewarden] [update]",
        ]
    );
    assert_eq!(
        own("worker"),
        ["leases.coordination.k8s.io [] [] [get create update list watch]"]
    );
    for account in ["lw-leasewarden", "worker"] {
        let mut elsewhere = rights(account, "default");
        elsewhere.retain(|right| !everybody.contains(right));
        assert_eq!(elsewhere, Vec::<String>::new(), "{account} elsewhere");
    }
    let roles = node()
        .kubectl(&["get", "clusterroles,clusterrolebindings", "-o", "name"])
        .unwrap();
    assert!(!roles.contains("leasewarden"), "{roles}");
    eventually("a status is written", || {
        (namespace.status("payments")["conditions"][0]["status"] == "True").then_some(())
    });
    drop(release);
}
