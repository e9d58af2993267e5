//! `leasewarden selftest`: what `helm test` runs.

use leasewarden_faultproxy::{Canned, Fault, Match, StatusCode};

use super::*;

async fn selftest(kubeconfig: &Path, namespace: &str) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_leasewarden"))
        .args(["selftest", "--namespace", namespace])
        .env("KUBECONFIG", kubeconfig)
        .output()
        .await
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[tokio::test]
async fn it_acquires_reads_and_releases_a_lock_as_often_as_it_is_run() {
    let stage = Stage::empty("selftest").await;
    for _ in 0..2 {
        let (code, out, err) = selftest(stage.control_plane.kubeconfig_path(), stage.namespace.name()).await;
        assert_eq!(code, Some(0), "{out}{err}");
        for step in ["acquired Lease ", "read it: held by ", "released it"] {
            assert!(out.contains(step), "{out}");
        }
    }
    let lease = stage.leases().get("leasewarden-selftest").await.unwrap();
    assert_eq!(lease.spec.unwrap().holder_identity.unwrap_or_default(), "");
}

#[tokio::test]
async fn without_permission_it_fails_and_names_what_is_missing() {
    let stage = Stage::empty("selftest-forbidden").await;
    let proxy = FaultProxy::start(&stage.control_plane.kube_config()).unwrap();
    let _refused = proxy.rule(
        Match::post("/leases"),
        Fault::Respond(Canned::status(StatusCode::FORBIDDEN, "Forbidden")),
    );
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("config");
    proxy.write_kubeconfig(&kubeconfig).unwrap();
    let (code, out, err) = selftest(&kubeconfig, stage.namespace.name()).await;
    assert_eq!(code, Some(1), "{out}{err}");
    assert!(err.contains("not permitted to create leases"), "{err}");
}

#[tokio::test]
async fn its_lease_is_shown_as_no_stream() {
    let stage = Stage::new("selftest-hidden").await;
    let (code, out, err) = selftest(stage.control_plane.kubeconfig_path(), stage.namespace.name()).await;
    assert_eq!(code, Some(0), "{out}{err}");
    // One after it is found, so it was seen and left alone.
    stage.instance("a").acquire("orders", LIMIT).await;
    stage.holder_is("orders", Some("a")).await;
    let shown = stage.objects().get_opt("leasewarden-selftest").await.unwrap();
    assert!(shown.is_none(), "{shown:#?}");
}
