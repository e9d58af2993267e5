//! Namespaces for tests: one each, so that tests which share a control plane do not meet.

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use kube::{Api, Client, Config};

use crate::control_plane::ControlPlane;
use crate::error::Error;
use crate::progress::say;
use crate::{blocking, report};

/// A namespace that no other test uses.
///
/// On somebody's own cluster (`USE_EXISTING_CLUSTER`) it is deleted when this is dropped, also by a panic. On a
/// control plane of ours it goes with the control plane. One that a killed run has left on somebody's cluster is found
/// by its label `app.kubernetes.io/managed-by=leasewarden-test`.
#[derive(Debug)]
pub struct TestNamespace {
    name: String,
    delete_with: Option<Config>,
}

impl TestNamespace {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl std::fmt::Display for TestNamespace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

impl AsRef<str> for TestNamespace {
    fn as_ref(&self) -> &str {
        &self.name
    }
}

impl ControlPlane {
    /// Makes a namespace whose name is `prefix` and something random.
    pub async fn namespace(&self, prefix: &str) -> Result<TestNamespace, Error> {
        let random = uuid::Uuid::new_v4().simple().to_string();
        let name = format!("{prefix}-{}", &random[..10]);
        let metadata = ObjectMeta {
            name: Some(name.clone()),
            labels: Some(
                [(
                    "app.kubernetes.io/managed-by".to_owned(),
                    "leasewarden-test".to_owned(),
                )]
                .into(),
            ),
            ..ObjectMeta::default()
        };
        let namespaces = Api::<Namespace>::all(self.client()?);
        // Held before it exists: a caller that gives up in between still deletes it.
        let namespace = TestNamespace {
            name,
            delete_with: self.is_existing().then(|| self.kube_config()),
        };
        namespaces
            .create(
                &PostParams::default(),
                &Namespace {
                    metadata,
                    ..Namespace::default()
                },
            )
            .await?;
        Ok(namespace)
    }
}

impl Drop for TestNamespace {
    fn drop(&mut self) {
        let Some(config) = self.delete_with.take() else {
            return;
        };
        let delete = async {
            let namespaces = Api::<Namespace>::all(Client::try_from(config)?);
            namespaces
                .delete(&self.name, &DeleteParams::background())
                .await
                .map(drop)
        };
        match blocking::run(delete) {
            Ok(Ok(())) => {}
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => {}
            Ok(Err(error)) => say(&format!(
                "namespace {} is left behind: {}",
                self.name,
                report::chain(&error)
            )),
            Err(error) => say(&format!("namespace {} is left behind: {error}", self.name)),
        }
    }
}
