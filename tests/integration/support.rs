//! What the tests share: a namespace with a lock service in it, and waiting for a condition.

use std::{
    fmt::Debug,
    future::Future,
    time::{Duration, Instant},
};

use leasewarden::{
    AcquireRequest, Grant, InstanceId, LockService, Outcome, Refusal, StreamName, Ttl,
    lease::LeaseLockService,
};
use leasewarden_controlplane::{ControlPlane, TestNamespace};
use serde_json::{Value, json};

/// Generous on purpose: a loaded machine is slow, and a limit that is never reached costs nothing.
pub const LIMIT: Duration = Duration::from_secs(60);

pub struct World {
    pub plane: &'static ControlPlane,
    pub namespace: TestNamespace,
    pub client: kube::Client,
}

impl World {
    pub async fn new(prefix: &str) -> Self {
        let plane = ControlPlane::shared().await;
        let namespace = plane.namespace(prefix).await.unwrap();
        Self {
            plane,
            namespace,
            client: plane.client().unwrap(),
        }
    }

    pub fn ns(&self) -> &str {
        self.namespace.name()
    }

    /// A lock service of its own: another "process".
    pub fn locks(&self) -> LeaseLockService {
        self.locks_with(self.plane.kube_config())
    }

    pub fn locks_with(&self, config: kube::Config) -> LeaseLockService {
        LeaseLockService::builder(config)
            .namespace(self.ns())
            .build()
            .unwrap()
    }

    fn path(&self, name: &str) -> String {
        format!(
            "/apis/coordination.k8s.io/v1/namespaces/{}/leases/{name}",
            self.ns()
        )
    }

    /// The Lease as it is, with all its fields.
    pub async fn lease(&self, name: &str) -> Value {
        let request = http::Request::get(self.path(name)).body(Vec::new()).unwrap();
        self.client.request(request).await.unwrap()
    }

    /// The same, `None` where there is none.
    pub async fn lease_if_any(&self, name: &str) -> Option<Value> {
        let request = http::Request::get(self.path(name)).body(Vec::new()).unwrap();
        match self.client.request(request).await {
            Ok(lease) => Some(lease),
            Err(kube::Error::Api(status)) if status.code == 404 => None,
            Err(error) => panic!("{error}"),
        }
    }

    pub async fn create(&self, name: &str, annotations: Value, spec: Value) -> Value {
        let body = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": name, "annotations": annotations}, "spec": spec,
        });
        let uri = self.path("").trim_end_matches('/').to_owned();
        let request = http::Request::post(uri).header("content-type", "application/json");
        self.client
            .request(request.body(serde_json::to_vec(&body).unwrap()).unwrap())
            .await
            .unwrap()
    }

    /// A JSON merge patch, as `kubectl patch` or another tool would send it: no compare-and-set.
    pub async fn patch(&self, name: &str, patch: Value) -> Value {
        let request =
            http::Request::patch(self.path(name)).header("content-type", "application/merge-patch+json");
        self.client
            .request(request.body(serde_json::to_vec(&patch).unwrap()).unwrap())
            .await
            .unwrap()
    }

    pub async fn delete(&self, name: &str) {
        let request = http::Request::delete(self.path(name)).body(Vec::new()).unwrap();
        self.client.request::<Value>(request).await.unwrap();
    }
}

/// A user with just these verbs on leases of the namespace.
pub async fn user(world: &World, name: &str, verbs: &[&str]) -> kube::Config {
    user_of(world, name, verbs, &[]).await
}

/// The same on the leases of these names; on all for none.
pub async fn user_of(world: &World, name: &str, verbs: &[&str], leases: &[&str]) -> kube::Config {
    let yaml = format!(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {{name: {name}, namespace: {ns}}}\nrules:\n\
         - apiGroups: [coordination.k8s.io]\n  resources: [leases]\n  resourceNames: [{leases}]\n  verbs: [{verbs}]\n---\n\
         apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {{name: {name}, namespace: {ns}}}\n\
         roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: {name}}}\n\
         subjects: [{{kind: User, apiGroup: rbac.authorization.k8s.io, name: {name}}}]\n",
        ns = world.ns(),
        verbs = verbs.join(", "),
        leases = leases.join(", "),
    );
    world.plane.apply_yaml(&yaml).await.unwrap();
    world.plane.config_for_user(name, &[]).unwrap()
}

pub fn stream(name: &str) -> StreamName {
    StreamName::new(name).unwrap()
}

pub fn instance(id: &str) -> InstanceId {
    InstanceId::new(id).unwrap()
}

pub fn secs(secs: u64) -> Ttl {
    Ttl::from_secs(secs).unwrap()
}

pub async fn acquire(locks: &LeaseLockService, name: &str, id: &str, ttl: Ttl) -> Outcome {
    locks
        .acquire(AcquireRequest::new(&stream(name), &instance(id), ttl))
        .await
        .unwrap()
}

pub async fn granted(locks: &LeaseLockService, name: &str, id: &str, ttl: Ttl) -> Grant {
    match acquire(locks, name, id, ttl).await {
        Outcome::Granted(grant) => grant,
        other => panic!("{id} should have been granted {name}: {other:?}"),
    }
}

pub async fn refused_by(locks: &LeaseLockService, name: &str, id: &str, ttl: Ttl) -> String {
    match acquire(locks, name, id, ttl).await {
        Outcome::Refused(Refusal::HeldBy { holder, .. }) => holder,
        other => panic!("{id} should have been refused {name}: {other:?}"),
    }
}

/// Asks until granted, and says how long that took.
pub async fn granted_at_last(locks: &LeaseLockService, name: &str, id: &str, ttl: Ttl) -> (Grant, Duration) {
    let begun = Instant::now();
    let grant = eventually((id, "is granted", name), || async {
        acquire(locks, name, id, ttl).await.granted()
    })
    .await;
    (grant, begun.elapsed())
}

/// Waits for a condition, looking every 20 ms.
pub async fn eventually<T, F: Future<Output = Option<T>>>(
    what: impl Debug,
    mut look: impl FnMut() -> F,
) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(begun.elapsed() < LIMIT, "not within {LIMIT:?}: {what:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Removes from etcd what was before this revision.
pub async fn compact(plane: &ControlPlane, revision: &str) {
    let etcd = kube::Config::new(plane.etcd_url().unwrap().parse().unwrap());
    let order = json!({"revision": revision, "physical": true});
    let request = http::Request::post("/v3/kv/compaction").header("content-type", "application/json");
    let request = request.body(serde_json::to_vec(&order).unwrap()).unwrap();
    let done = kube::Client::try_from(etcd)
        .unwrap()
        .request::<Value>(request)
        .await;
    assert!(done.unwrap()["header"]["revision"].is_string());
}
