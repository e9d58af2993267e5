//! Which Lease an object is about, and which object a Lease gets that has none.
//!
//! A discovered object bears the Lease's name and belongs to it, so that it goes with it. One that a person wrote for
//! the same stream wins: the discovered one is then taken away.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::ResourceExt;

use super::{index::Key, view::LeaseView};
use crate::{
    crd::{ChangeStreamLeader, ChangeStreamLeaderSpec},
    lock::{InvalidInput, StreamName},
};

/// The label of a Lease that is no stream: that of a self-test, say, whose absent leader is nobody's trouble.
pub(crate) const HIDDEN: (&str, &str) = ("leasewarden.dev/discovery", "disabled");
/// The label on objects that the operator wrote.
const DISCOVERED: (&str, &str) = ("leasewarden.dev/discovered", "true");

/// The Lease that an object is about.
pub(crate) fn lease_of(object: &ChangeStreamLeader) -> Result<Key, InvalidInput> {
    let lease = match &object.spec.lease_name {
        Some(name) => name.clone(),
        None => crate::lease::lease_name(&StreamName::new(&object.spec.stream_name)?),
    };
    Ok(Key {
        namespace: object.namespace().unwrap_or_default(),
        lease,
    })
}

/// The stream that a Lease locks. One that does not say so is adopted for the stream of its name.
pub(crate) fn stream_of(lease: &LeaseView) -> &str {
    lease.stream.as_deref().unwrap_or(&lease.name)
}

/// Whether the operator wrote this object for a Lease that it found.
pub(crate) fn is_discovered(object: &ChangeStreamLeader) -> bool {
    object
        .labels()
        .get(DISCOVERED.0)
        .is_some_and(|v| v == DISCOVERED.1)
}

/// Leaves of an object what is needed of it: what people hang on an object can be many times that, and is kept in memory
/// for each. A write to the status changes nothing but the status, whatever the metadata that comes with it lacks.
pub(crate) fn lighten(object: &mut ChangeStreamLeader) {
    let discovered = is_discovered(object);
    let full = std::mem::take(&mut object.metadata);
    object.metadata = ObjectMeta {
        name: full.name,
        namespace: full.namespace,
        uid: full.uid,
        resource_version: full.resource_version,
        generation: full.generation,
        labels: discovered.then(|| [(DISCOVERED.0.to_owned(), DISCOVERED.1.to_owned())].into()),
        ..ObjectMeta::default()
    };
}

/// The object for a Lease that has none. `taken` when an object of that name exists that is about another Lease.
pub(crate) fn discovered(lease: &LeaseView, taken: bool) -> ChangeStreamLeader {
    let suffix = if taken { ".discovered" } else { "" };
    let spec = ChangeStreamLeaderSpec {
        stream_name: stream_of(lease).to_owned(),
        lease_name: Some(lease.name.clone()),
        status_policy: None,
    };
    let mut object = ChangeStreamLeader::new(&format!("{}{suffix}", lease.name), spec);
    object.metadata = ObjectMeta {
        namespace: Some(lease.namespace.clone()),
        labels: Some(
            [DISCOVERED, ("app.kubernetes.io/managed-by", "leasewarden")]
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .into(),
        ),
        owner_references: Some(vec![owner(lease)]),
        ..object.metadata
    };
    object
}

fn owner(lease: &LeaseView) -> OwnerReference {
    OwnerReference {
        api_version: "coordination.k8s.io/v1".to_owned(),
        kind: "Lease".to_owned(),
        name: lease.name.clone(),
        uid: lease.uid.clone(),
        ..OwnerReference::default()
    }
}
