//! The model's server and a real kube-apiserver do the same on the same script.

use http::{Method, Request as HttpRequest};
use leasewarden_controlplane::ControlPlane;
use proptest::{
    collection::vec,
    prelude::{Strategy, prop_oneof},
    sample::select,
    strategy::ValueTree,
    test_runner::TestRunner,
};
use serde_json::{Value, json};

use super::{
    super::{Lease, StreamName},
    server::{Reply, Request, Server},
};
use crate::lease::write;

pub(super) const NAME: &str = "orders";

/// A version or a uid as a write names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Named {
    Present,
    /// An earlier one, or one that never was.
    Other,
    Not,
}

/// One operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    Get,
    Create,
    /// A full update: what it names as version and uid, and what it changes.
    Put(Named, Named, Change),
    Delete,
    /// Another tool's patch, which names nothing.
    Patch(Change),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Nothing,
    Spec,
    Label,
}

/// What came of it, in words that both servers share.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    /// What is stored now: whether the version rose by this, which object it is (counted from 1), the holder, the label, and
    /// whether the time of the spec's managers is that of this very operation.
    Stored {
        rose: bool,
        object: usize,
        holder: Option<String>,
        label: Option<String>,
    },
    Missing,
    Conflict,
    /// Refused as it names no version.
    Invalid,
    Deleted,
}

fn change(lease: &mut Lease, change: Change, nth: usize) {
    match change {
        Change::Nothing => {}
        Change::Spec => {
            lease.spec.get_or_insert_default().holder_identity = Some(format!("holder-{nth}"));
        }
        Change::Label => {
            let labels = lease.metadata.labels.get_or_insert_default();
            labels.insert("visit".to_owned(), nth.to_string());
        }
    }
}

/// What a script's writes start from: what was last seen, and what an earlier version was.
#[derive(Debug, Default)]
struct Seen {
    present: Option<Lease>,
    version: u64,
    objects: Vec<String>,
}

impl Seen {
    fn takes(&mut self, lease: Lease) -> Outcome {
        let version = lease.metadata.resource_version.as_deref();
        let version: u64 = version.and_then(|version| version.parse().ok()).unwrap();
        let rose = version > self.version;
        assert!(version >= self.version, "a version went back");
        self.version = version;
        let uid = lease.metadata.uid.clone().unwrap();
        if !self.objects.contains(&uid) {
            self.objects.push(uid.clone());
        }
        let object = 1 + self.objects.iter().position(|known| *known == uid).unwrap();
        let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone());
        let label = lease
            .metadata
            .labels
            .as_ref()
            .and_then(|labels| labels.get("visit").cloned());
        self.present = Some(lease);
        Outcome::Stored {
            rose,
            object,
            holder,
            label,
        }
    }

    /// The body of a write. What is not there any more is written as it was.
    fn body(&self, version: Named, uid: Named, what: Change, nth: usize) -> Lease {
        let mut lease = self.present.clone().unwrap_or_else(|| free(""));
        change(&mut lease, what, nth);
        let other = |kept: &Option<String>, other: &str| kept.as_ref().map(|_| other.to_owned());
        match version {
            Named::Present => {}
            Named::Other => lease.metadata.resource_version = Some("1".to_owned()),
            Named::Not => lease.metadata.resource_version = None,
        }
        match uid {
            Named::Present => {}
            Named::Other => {
                lease.metadata.uid = other(&lease.metadata.uid, "11111111-2222-3333-4444-555555555555");
            }
            Named::Not => lease.metadata.uid = None,
        }
        lease
    }
}

pub(super) fn free(namespace: &str) -> Lease {
    write::free(NAME, namespace, &StreamName::new(NAME).unwrap())
}

/// Runs a script on the model's server.
fn simulated(script: &[Op]) -> Vec<Outcome> {
    let (mut server, mut seen) = (Server::new(), Seen::default());
    let mut outcomes = Vec::new();
    for (nth, op) in script.iter().enumerate() {
        let time = nth as u64;
        let request = match op {
            Op::Get => Request::Get,
            Op::Create => Request::Create(free("").into()),
            Op::Put(version, uid, what) => Request::Put(seen.body(*version, *uid, *what, nth).into()),
            Op::Delete => {
                outcomes.push(if server.lease.take().is_some() {
                    server.version += 1;
                    Outcome::Deleted
                } else {
                    Outcome::Missing
                });
                continue;
            }
            Op::Patch(what) => {
                let Some(found) = server.lease.clone() else {
                    outcomes.push(Outcome::Missing);
                    continue;
                };
                let mut lease = found.lease.clone();
                change(&mut lease, *what, nth);
                let stored = server.store(time, lease);
                outcomes.push(seen.takes(stored.lease.clone()));
                continue;
            }
        };
        // The real one refuses a write to what is there that names no version, once the uid is right. The model applies it:
        // that is what a patch does, and how it shows what a write without a version would cost.
        if let (Op::Put(Named::Not, ..), Request::Put(sent), Some(found)) = (op, &request, &server.lease)
            && (sent.metadata.uid.is_none() || sent.metadata.uid == found.lease.metadata.uid)
        {
            outcomes.push(Outcome::Invalid);
            continue;
        }
        outcomes.push(match server.handle(time, 0, &request) {
            Reply::Lease(version, _) => seen.takes(version.lease.clone()),
            Reply::Missing => Outcome::Missing,
            Reply::Conflict => Outcome::Conflict,
        });
    }
    outcomes
}

/// A namespace on the real server.
pub(super) struct Real {
    pub(super) client: kube::Client,
    pub(super) leases: String,
    pub(super) namespace: String,
}

impl Real {
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        kind: &str,
        body: &Value,
    ) -> Result<Value, kube::Error> {
        let request = HttpRequest::builder()
            .method(method)
            .uri(format!("{}{path}", self.leases));
        let request = request
            .header("content-type", kind)
            .body(serde_json::to_vec(body).unwrap());
        self.client.request(request.unwrap()).await
    }

    pub(super) async fn json(&self, method: Method, path: &str, body: &Value) -> Result<Value, kube::Error> {
        self.send(method, path, "application/json", body).await
    }

    /// Runs a script.
    async fn runs(&self, script: &[Op]) -> Vec<Outcome> {
        let (mut seen, mut outcomes) = (Seen::default(), Vec::new());
        let one = format!("/{NAME}");
        for (nth, op) in script.iter().enumerate() {
            let reply = match op {
                Op::Get => self.json(Method::GET, &one, &Value::Null).await,
                Op::Create => {
                    let body = serde_json::to_value(free(&self.namespace)).unwrap();
                    self.json(Method::POST, "", &body).await
                }
                Op::Put(version, uid, what) => {
                    let mut lease = seen.body(*version, *uid, *what, nth);
                    lease.metadata.namespace = Some(self.namespace.clone());
                    self.json(Method::PUT, &one, &serde_json::to_value(lease).unwrap())
                        .await
                }
                Op::Delete => self.json(Method::DELETE, &one, &Value::Null).await,
                Op::Patch(what) => {
                    let mut lease = Lease::clone(&free(""));
                    lease.metadata.labels = None;
                    change(&mut lease, *what, nth);
                    let patch = match what {
                        Change::Nothing => json!({}),
                        Change::Spec => json!({ "spec": lease.spec }),
                        Change::Label => json!({"metadata": {"labels": lease.metadata.labels}}),
                    };
                    self.send(Method::PATCH, &one, "application/merge-patch+json", &patch)
                        .await
                }
            };
            outcomes.push(match reply {
                Ok(_) if *op == Op::Delete => Outcome::Deleted,
                Ok(lease) => seen.takes(serde_json::from_value(lease).unwrap()),
                Err(kube::Error::Api(status)) => match status.code {
                    404 => Outcome::Missing,
                    409 => Outcome::Conflict,
                    422 => Outcome::Invalid,
                    code => panic!("{op:?}: {code} {}", status.message),
                },
                Err(error) => panic!("{op:?}: {error}"),
            });
        }
        outcomes
    }
}

/// A namespace of the shared control plane, empty for each script.
pub(super) async fn real(run: impl AsyncFn(&Real)) {
    let plane = ControlPlane::shared().await;
    let namespace = plane.namespace("compared").await.unwrap();
    let real = Real {
        client: plane.client().unwrap(),
        leases: format!(
            "/apis/coordination.k8s.io/v1/namespaces/{}/leases",
            namespace.name()
        ),
        namespace: namespace.name().to_owned(),
    };
    run(&real).await;
}

const fn put(version: Named, uid: Named) -> Op {
    Op::Put(version, uid, Change::Spec)
}

#[tokio::test]
async fn the_models_server_does_what_the_real_one_does() {
    use Named::{Not, Other, Present};
    let scripts: &[&[Op]] = &[
        // Created once; a second creation is refused.
        &[Op::Get, Op::Create, Op::Get, Op::Create],
        // Compare and set.
        &[
            Op::Create,
            put(Present, Present),
            put(Other, Present),
            put(Not, Present),
            put(Present, Other),
            put(Present, Not),
        ],
        // A write that changes nothing stores nothing.
        &[
            Op::Create,
            Op::Put(Present, Present, Change::Nothing),
            Op::Patch(Change::Nothing),
            Op::Get,
        ],
        // After a deletion: with a uid refused, without one created, whatever version it names.
        &[
            Op::Create,
            Op::Delete,
            put(Present, Present),
            Op::Get,
            put(Present, Not),
            Op::Get,
        ],
        &[
            Op::Create,
            Op::Delete,
            put(Other, Not),
            Op::Delete,
            put(Not, Not),
            Op::Get,
        ],
        // Another tool's patch asks nobody, and outdates what was read before.
        &[
            Op::Create,
            Op::Get,
            Op::Patch(Change::Label),
            put(Other, Present),
            Op::Patch(Change::Spec),
            put(Present, Present),
        ],
        &[
            Op::Delete,
            Op::Patch(Change::Spec),
            Op::Create,
            Op::Delete,
            Op::Create,
            put(Present, Present),
        ],
    ];
    for script in scripts {
        real(async |real| {
            assert_eq!(
                simulated(script),
                real.runs(script).await,
                "{script:?}: the model, and the real server"
            );
        })
        .await;
    }
}

#[tokio::test]
async fn random_scripts_do_the_same_on_both() {
    let named = || select(vec![Named::Present, Named::Present, Named::Other, Named::Not]);
    let change = || select(vec![Change::Nothing, Change::Spec, Change::Label]);
    let op = prop_oneof![
        2 => select(vec![Op::Get]),
        2 => select(vec![Op::Create]),
        6 => (named(), named(), change()).prop_map(|(version, uid, what)| Op::Put(version, uid, what)),
        1 => select(vec![Op::Delete]),
        2 => change().prop_map(Op::Patch),
    ];
    let scripts = vec(op, 30);
    // The same scripts each time.
    let mut runner = TestRunner::deterministic();
    for _ in 0..10 {
        let script = scripts.new_tree(&mut runner).unwrap().current();
        real(async |real| {
            assert_eq!(
                simulated(&script),
                real.runs(&script).await,
                "{script:?}: the model, and the real server"
            );
        })
        .await;
    }
}
