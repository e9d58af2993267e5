//! Leases of the program's own: locks like any other, but no streams. Whoever does want to see one writes a
//! `ChangeStreamLeader` for it.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client, api::PostParams};

use super::naming::HIDDEN;
use crate::lease::LABELS;

const TIMEOUT: Duration = Duration::from_secs(10);

/// Creates a Lease that is shown as no stream, unless there is one of this name. What fails here fails again when the lock
/// is acquired, which says why.
pub(crate) async fn create_hidden(client: Client, namespace: &str, name: &str) {
    let mut lease = Lease::default();
    lease.metadata.name = Some(name.to_owned());
    let labels = LABELS.into_iter().chain([HIDDEN]);
    lease.metadata.labels = Some(labels.map(|(k, v)| (k.to_owned(), v.to_owned())).collect());
    let leases = Api::<Lease>::namespaced(client, namespace);
    let created = tokio::time::timeout(TIMEOUT, leases.create(&PostParams::default(), &lease)).await;
    drop(created);
}
