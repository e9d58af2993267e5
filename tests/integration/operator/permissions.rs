//! Each verb is taken away once: the operator names it with its resource, stays up, and goes on when it is granted.

use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use leasewarden::LockServiceExt;
use leasewarden_faultproxy::{Canned, Fault, Match, Seen, StatusCode};

use super::*;

const TTL: Duration = Duration::from_secs(120);

/// What the operator is documented to need.
const RULES: [(&str, &str, &[&str]); 3] = [
    ("coordination.k8s.io", "leases", &["get", "list", "watch"]),
    (
        "leasewarden.dev",
        "changestreamleaders",
        &["get", "list", "watch", "create", "delete"],
    ),
    ("leasewarden.dev", "changestreamleaders/status", &["update"]),
];

fn role(without: Option<(&str, &str)>) -> Value {
    let rules: Vec<Value> = RULES
        .iter()
        .map(|(group, resource, verbs)| {
            let verbs: Vec<_> = verbs
                .iter()
                .filter(|verb| Some((**verb, *resource)) != without)
                .collect();
            json!({"apiGroups": [group], "resources": [resource], "verbs": verbs})
        })
        .filter(|rule| rule["verbs"].as_array().is_some_and(|v| !v.is_empty()))
        .collect();
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "operator"}, "rules": rules})
}

async fn grant(stage: &Stage, without: Option<(&str, &str)>, user: &str) {
    let (params, namespace) = (PatchParams::apply("test").force(), stage.namespace.name());
    let roles = Api::<Role>::namespaced(stage.client.clone(), namespace);
    roles
        .patch("operator", &params, &Patch::Apply(role(without)))
        .await
        .unwrap();
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "operator"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "operator"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    });
    let bindings = Api::<RoleBinding>::namespaced(stage.client.clone(), namespace);
    bindings
        .patch("operator", &params, &Patch::Apply(binding))
        .await
        .unwrap();
}

/// Takes one verb away; `says` is how the log names it.
async fn missing(verb: &str, resource: &str, says: &str) {
    let mut stage = Stage::empty("forbidden").await;
    let user = format!("operator-of-{}", stage.namespace.name());
    grant(&stage, Some((verb, resource)), &user).await;
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("config");
    stage
        .control_plane
        .write_kubeconfig_for_user(&kubeconfig, &user, &[])
        .unwrap();

    // Something to find, something written by hand for it, and something whose Lease must be looked for.
    let a = stage.instance("a");
    a.acquire("orders", TTL).await;
    stage.write_object("waiting", spec("waiting")).await;
    let mut discovered = ChangeStreamLeader::new("double", spec("orders"));
    discovered.metadata.labels = Some([("leasewarden.dev/discovered".to_owned(), "true".to_owned())].into());
    if verb == "delete" {
        stage
            .objects()
            .create(&PostParams::default(), &discovered)
            .await
            .unwrap();
        stage.write_object("orders", spec("orders")).await;
    }
    let namespace = stage.namespace.name().to_owned();
    let mut operator = Program::operator(&kubeconfig, &["--namespace", &namespace]);
    operator
        .says(&format!(
            "not permitted to {verb} {says} in namespace {namespace}"
        ))
        .await;
    assert!(operator.is_running());
    if resource == "leases" {
        // What is not seen is said to be, by its name.
        let reason = if verb == "get" {
            "ReadForbidden"
        } else {
            "WatchForbidden"
        };
        let status = stage.says("waiting", READY, reason).await;
        assert_eq!(condition(&status, READY).0, "Unknown");
        let message = &status.condition(READY).unwrap().message;
        let names = format!("not permitted to {verb} {says} in namespace {namespace}");
        assert!(message.contains(&names), "{message}");
    }

    grant(&stage, None, &user).await;
    stage.operator = Some(operator);
    stage.holder_is("orders", Some("a")).await;
    stage.holder_is("waiting", None).await;
    assert!(stage.operator().is_running());
}

#[tokio::test]
async fn leases() {
    for verb in ["get", "list", "watch"] {
        missing(verb, "leases", "leases.coordination.k8s.io").await;
    }
}

#[tokio::test]
async fn objects() {
    for verb in ["list", "watch", "create", "delete"] {
        missing(verb, "changestreamleaders", "changestreamleaders.leasewarden.dev").await;
    }
}

#[tokio::test]
async fn reading_an_object_that_somebody_else_wrote_first() {
    let mut stage = Stage::empty("forbidden-get").await;
    let user = format!("operator-of-{}", stage.namespace.name());
    grant(&stage, Some(("get", "changestreamleaders")), &user).await;
    let config = stage.control_plane.config_for_user(&user, &[]).unwrap();
    let proxy = FaultProxy::start(&config).unwrap();
    let first = Match::post("/changestreamleaders").times(1);
    let exists = Canned::status(StatusCode::CONFLICT, "AlreadyExists");
    proxy.rule(first, Fault::Respond(exists));
    stage.start_behind(&proxy);
    stage.instance("a").acquire("orders", TTL).await;
    let says = format!(
        "not permitted to get changestreamleaders.leasewarden.dev in namespace {}",
        stage.namespace
    );
    stage.operator().says(&says).await;
    grant(&stage, None, &user).await;
    stage.holder_is("orders", Some("a")).await;
}

#[tokio::test]
async fn status() {
    missing(
        "update",
        "changestreamleaders/status",
        "changestreamleaders/status.leasewarden.dev",
    )
    .await;
}

#[tokio::test]
async fn the_documented_roles_are_enough() {
    let mut stage = Stage::empty("documented").await;
    let namespace = stage.namespace.name().to_owned();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/permissions.yaml");
    let applied = stage
        .control_plane
        .kubectl()
        .args(["apply", "-n", &namespace, "-f", file])
        .output()
        .unwrap();
    assert!(
        applied.status.success(),
        "{}",
        String::from_utf8_lossy(&applied.stderr)
    );
    let bindings = Api::<RoleBinding>::namespaced(stage.client.clone(), &namespace);
    let user = |role: &str| format!("{role}-of-{namespace}");
    for (role, whose) in [
        ("leasewarden-worker", "leasewarden-worker"),
        ("leasewarden-operator", "leasewarden-operator"),
        ("leasewarden-operator-election", "leasewarden-operator"),
    ] {
        let binding = json!({
            "metadata": {"name": role},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user(whose)}],
        });
        let binding = serde_json::from_value(binding).unwrap();
        bindings.create(&PostParams::default(), &binding).await.unwrap();
    }
    let worker = stage
        .control_plane
        .config_for_user(&user("leasewarden-worker"), &[])
        .unwrap();
    let proxy = FaultProxy::start(&worker).unwrap();
    let a = Instance::new(proxy.kube_config(&worker), &namespace, "a");
    let b = Instance::new(proxy.kube_config(&worker), &namespace, "b");
    // The authorizer learns of a new binding through a watch of its own.
    let (orders, ttl) = (StreamName::new("orders").unwrap(), Ttl::new(TTL).unwrap());
    until("the worker leads", || async {
        a.locks.try_acquire(&orders, &a.id, ttl).await.then_some(())
    })
    .await;
    assert!(!b.locks.try_acquire(&orders, &b.id, ttl).await);
    until("the worker watches", || async {
        let watching =
            |seen: &Seen| seen.path.contains("watch=true") && seen.status() == Some(StatusCode::OK);
        (proxy.count(watching) > 0).then_some(())
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("config");
    let operator = user("leasewarden-operator");
    stage
        .control_plane
        .write_kubeconfig_for_user(&kubeconfig, &operator, &[])
        .unwrap();
    let election = format!("--leader-election-namespace={namespace}");
    let args = ["--namespace", &namespace, "--leader-election=true", &election];
    stage.operator = Some(Program::operator(&kubeconfig, &args));
    stage.holder_is("orders", Some("a")).await;
    a.release("orders").await;
    stage.holder_is("orders", None).await;
    stage
        .event("orders", "LeaderReleased", "a released the lock.")
        .await;
    assert!(
        !stage.operator().log().contains("not permitted"),
        "{}",
        stage.operator().log()
    );
}
