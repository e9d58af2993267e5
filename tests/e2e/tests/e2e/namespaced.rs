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
    let operator = rights("lw-leasewarden", "namespaced");
    println!("{operator:#?}");
    let expected = [
        "changestreamleaders.leasewarden.dev [] [] [get list watch create delete]",
        "changestreamleaders.leasewarden.dev/status [] [] [update]",
        "events.events.k8s.io [] [] [create patch]",
        "leases.coordination.k8s.io [] [] [get list watch create]",
        "leases.coordination.k8s.io [] [lw-leasewarden] [update]",
    ];
    let names = |rights: &[String]| -> Vec<String> {
        let mut names: Vec<_> = rights
            .iter()
            .filter_map(|r| Some(r.split_whitespace().next()?.to_owned()))
            .collect();
        names.dedup();
        names
    };
    let wanted: Vec<String> = expected.iter().map(|&line| line.to_owned()).collect();
    assert_eq!(names(&operator), names(&wanted), "{operator:#?}");
    let worker = rights("worker", "namespaced");
    println!("{worker:#?}");
    assert_eq!(names(&worker), ["leases.coordination.k8s.io"], "{worker:#?}");
    for account in ["lw-leasewarden", "worker"] {
        assert_eq!(
            rights(account, "default"),
            Vec::<String>::new(),
            "{account} elsewhere"
        );
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
