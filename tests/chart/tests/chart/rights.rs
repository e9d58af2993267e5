//! What each service account may do on a real API server, rule by rule, against what is meant: nothing less, nothing more.

use std::collections::BTreeSet;

use k8s_openapi::api::authorization::v1::{SelfSubjectRulesReview, SelfSubjectRulesReviewSpec};
use kube::{Api, Client, api::PostParams};
use leasewarden_controlplane::{ControlPlane, TestNamespace};
use serde_json::{Value, json};

use crate::support::{FULLNAME, RELEASE, eventually, kind, output, render_in, values_file};

pub(crate) struct Installed {
    pub(crate) control_plane: &'static ControlPlane,
    pub(crate) own: TestNamespace,
    pub(crate) other: TestNamespace,
    pub(crate) objects: Vec<Value>,
}

/// Applies the roles and what they are about. `values` gets the name of another namespace.
pub(crate) async fn install(values: impl FnOnce(&str) -> Value) -> Installed {
    let control_plane = ControlPlane::shared().await;
    let own = control_plane.namespace("chart-rights").await.unwrap();
    let other = control_plane.namespace("chart-rights-other").await.unwrap();
    let objects: Vec<Value> = render_in(own.name(), &values(other.name()))
        .into_iter()
        .filter(|object| kind(object).contains("Role") || ["ServiceAccount", "Lease"].contains(&kind(object)))
        .collect();
    let file = values_file(&json!({"apiVersion": "v1", "kind": "List", "items": objects}));
    output(
        control_plane
            .kubectl()
            .args(["apply", "--server-side", "-f"])
            .arg(file.path()),
    )
    .unwrap();
    Installed {
        control_plane,
        own,
        other,
        objects,
    }
}

impl Drop for Installed {
    /// Namespaces go by themselves. Where the cluster outlives the tests, so would these.
    fn drop(&mut self) {
        let of_the_cluster: Vec<_> = self
            .objects
            .iter()
            .filter(|object| kind(object).starts_with("Cluster"))
            .collect();
        if !of_the_cluster.is_empty() {
            let file = values_file(&json!({"apiVersion": "v1", "kind": "List", "items": of_the_cluster}));
            let _ = output(
                self.control_plane
                    .kubectl()
                    .args(["delete", "--wait=false", "-f"])
                    .arg(file.path()),
            );
        }
    }
}

impl Installed {
    pub(crate) fn config(&self, account: &str, namespace: &str) -> kube::Config {
        let user = format!("system:serviceaccount:{namespace}:{account}");
        let own = format!("system:serviceaccounts:{namespace}");
        let groups = ["system:serviceaccounts", &own, "system:authenticated"];
        self.control_plane.config_for_user(&user, &groups).unwrap()
    }

    /// What `kubectl auth can-i --list` lists, a line for each verb: `get leases.coordination.k8s.io`.
    async fn may(&self, account: &str, whose: &str, namespace: &str) -> BTreeSet<String> {
        let client = Client::try_from(self.config(account, whose)).unwrap();
        let review = SelfSubjectRulesReview {
            spec: SelfSubjectRulesReviewSpec {
                namespace: Some(namespace.to_owned()),
            },
            ..SelfSubjectRulesReview::default()
        };
        let review = Api::all(client)
            .create(&PostParams::default(), &review)
            .await
            .unwrap();
        let status = review.status.unwrap();
        assert!(!status.incomplete, "{status:?}");
        let mut lines = BTreeSet::new();
        for rule in status.resource_rules {
            for (group, resource) in product(rule.api_groups.as_ref(), rule.resources.as_ref()) {
                for verb in &rule.verbs {
                    let what = if group.is_empty() {
                        resource.clone()
                    } else {
                        format!("{resource}.{group}")
                    };
                    match rule.resource_names.as_deref() {
                        None | Some([]) => lines.insert(format!("{verb} {what}")),
                        Some(names) => lines.insert(format!("{verb} {what} {}", names.join(","))),
                    };
                }
            }
        }
        for rule in status.non_resource_rules {
            for url in rule.non_resource_urls.iter().flatten() {
                lines.extend(rule.verbs.iter().map(|verb| format!("{verb} {url}")));
            }
        }
        lines
    }

    /// Waits until the account may do exactly this there, beside what every account may.
    async fn may_exactly(&self, account: &str, whose: &str, namespace: &str, intended: &[&str]) {
        let intended: BTreeSet<_> = intended
            .iter()
            .flat_map(|line| {
                let (verbs, rest) = line.split_once(' ').unwrap();
                verbs.split(',').map(move |verb| format!("{verb} {rest}"))
            })
            .collect();
        let everybody = &self
            .may("somebody-without-any-role", self.own.name(), namespace)
            .await;
        eventually(|| {
            let intended = &intended;
            async move {
                let may = self.may(account, whose, namespace).await;
                let more: BTreeSet<_> = may.difference(everybody).cloned().collect();
                if more == *intended {
                    Ok(())
                } else {
                    Err(format!(
                        "{account} in {namespace} may {more:#?}, and is to have {intended:#?}"
                    ))
                }
            }
        })
        .await;
    }
}

fn product(groups: Option<&Vec<String>>, resources: Option<&Vec<String>>) -> Vec<(String, String)> {
    let (groups, resources) = (
        groups.cloned().unwrap_or_default(),
        resources.cloned().unwrap_or_default(),
    );
    groups
        .iter()
        .flat_map(|group| {
            resources
                .iter()
                .map(move |resource| (group.clone(), resource.clone()))
        })
        .collect()
}

const OPERATOR: [&str; 4] = [
    "get,list,watch leases.coordination.k8s.io",
    "get,list,watch,create,delete changestreamleaders.leasewarden.dev",
    "update changestreamleaders/status.leasewarden.dev",
    "create,patch events.events.k8s.io",
];
const ELECTION: [&str; 2] = [
    "get,list,watch,create leases.coordination.k8s.io",
    "update leases.coordination.k8s.io lw-leasewarden",
];

fn both(one: &[&'static str], two: &[&'static str]) -> Vec<&'static str> {
    one.iter().chain(two).copied().collect()
}

#[tokio::test]
async fn the_operator_of_the_cluster_may_look_everywhere_and_elect_at_home() {
    let installed = install(|_| json!({})).await;
    let (own, other) = (installed.own.name(), installed.other.name());
    installed
        .may_exactly(FULLNAME, own, own, &both(&OPERATOR, &ELECTION))
        .await;
    installed.may_exactly(FULLNAME, own, other, &OPERATOR).await;
}

#[tokio::test]
async fn the_operator_of_one_namespace_may_do_nothing_in_another() {
    let installed = install(|_| json!({"scope": "Namespaced"})).await;
    let (own, other) = (installed.own.name(), installed.other.name());
    installed
        .may_exactly(FULLNAME, own, own, &both(&OPERATOR, &ELECTION))
        .await;
    installed.may_exactly(FULLNAME, own, other, &[]).await;
}

#[tokio::test]
async fn the_operator_of_another_namespace_may_only_elect_at_home() {
    let installed = install(|other| json!({"scope": "Namespaced", "namespaces": [other]})).await;
    let (own, other) = (installed.own.name(), installed.other.name());
    installed.may_exactly(FULLNAME, own, other, &OPERATOR).await;
    installed.may_exactly(FULLNAME, own, own, &ELECTION).await;
    installed.may_exactly(FULLNAME, own, "default", &[]).await;
}

#[tokio::test]
async fn an_operator_that_needs_less_gets_less() {
    let installed = install(|_| {
        json!({"scope": "Namespaced", "replicaCount": 1, "operator": {
            "discovery": false, "events": false, "leaderElection": {"enabled": false},
        }})
    })
    .await;
    let own = installed.own.name();
    let less = [
        "get,list,watch leases.coordination.k8s.io",
        "get,list,watch,delete changestreamleaders.leasewarden.dev",
        "update changestreamleaders/status.leasewarden.dev",
    ];
    installed.may_exactly(FULLNAME, own, own, &less).await;
}

#[tokio::test]
async fn secure_metrics_add_two_reviews_and_readers_may_read() {
    let installed = install(|other| {
        json!({"metrics": {"secure": {"enabled": true, "readers": [{"name": "prometheus", "namespace": other}]}}})
    })
    .await;
    let (own, other) = (installed.own.name(), installed.other.name());
    let reviews = [
        "create tokenreviews.authentication.k8s.io",
        "create subjectaccessreviews.authorization.k8s.io",
    ];
    installed
        .may_exactly(FULLNAME, own, other, &both(&OPERATOR, &reviews))
        .await;
    installed
        .may_exactly("prometheus", other, other, &["get /metrics", "get /debug/leases"])
        .await;
}

#[tokio::test]
async fn a_worker_may_use_leases_of_its_namespace_and_delete_none() {
    let installed = install(|other| {
        json!({"worker": {"serviceAccounts": [{"name": "worker"}, {"name": "worker", "namespace": other}]}})
    })
    .await;
    let (own, other) = (installed.own.name(), installed.other.name());
    let worker = ["get,create,update,list,watch leases.coordination.k8s.io"];
    installed.may_exactly("worker", own, own, &worker).await;
    installed.may_exactly("worker", other, other, &worker).await;
    installed.may_exactly("worker", own, other, &[]).await;
}

#[tokio::test]
async fn a_worker_that_does_not_watch_may_not() {
    let installed =
        install(|_| json!({"worker": {"role": {"watch": false}, "serviceAccounts": [{"name": "worker"}]}}))
            .await;
    let own = installed.own.name();
    installed
        .may_exactly(
            "worker",
            own,
            own,
            &["get,create,update leases.coordination.k8s.io"],
        )
        .await;
}

#[tokio::test]
async fn a_worker_of_named_leases_may_use_those_alone() {
    let installed = install(|_| {
        json!({"worker": {"serviceAccounts": [{"name": "worker"}], "leases": [{"name": "returns"}, {"name": "orders"}]}})
    })
    .await;
    let own = installed.own.name();
    let named = ["get,update,list,watch leases.coordination.k8s.io orders,returns"];
    installed.may_exactly("worker", own, own, &named).await;
}

#[tokio::test]
async fn the_selftest_may_what_a_worker_may_and_delete_what_it_has_made() {
    let installed = install(|_| json!({})).await;
    let (own, other) = (installed.own.name(), installed.other.name());
    let account = format!("{RELEASE}-leasewarden-selftest");
    installed
        .may_exactly(
            &account,
            own,
            own,
            &["get,create,update,list,watch,delete leases.coordination.k8s.io"],
        )
        .await;
    installed.may_exactly(&account, own, other, &[]).await;
}
