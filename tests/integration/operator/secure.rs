//! Metrics for those alone whom the API server permits to read them.

use http::Request;

use super::*;

impl Program {
    /// What a client with this bearer token gets, over TLS.
    async fn get_as(&self, path: &str, token: Option<&str>) -> Result<String, u16> {
        let address = self.address("/metrics").await;
        let mut config = Config::new(format!("https://{address}").parse().unwrap());
        config.accept_invalid_certs = true;
        config.default_retry = false;
        config.auth_info.token = token.map(|token| token.to_owned().into());
        let client = Client::try_from(config).unwrap();
        let request = Request::get(path).body(Vec::new()).unwrap();
        client.request_text(request).await.map_err(|error| match error {
            kube::Error::Api(status) => status.code,
            other => panic!("{other}"),
        })
    }
}

fn kubectl(plane: &ControlPlane, args: &[&str]) -> String {
    let output = plane.kubectl().args(args).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

#[tokio::test]
async fn secure_metrics_are_for_those_whom_the_api_server_permits() {
    // Of its own: an operator of all namespaces would look after those of other tests.
    let plane = ControlPlane::builder().start().await.unwrap();
    install_crd(&plane.client().unwrap()).await;
    for who in ["prometheus", "nobody"] {
        kubectl(&plane, &["create", "serviceaccount", who]);
    }
    kubectl(
        &plane,
        &[
            "create",
            "clusterrole",
            "reader",
            "--verb=get",
            "--non-resource-url=/metrics",
        ],
    );
    let binding = ["--clusterrole=reader", "--serviceaccount=default:prometheus"];
    kubectl(
        &plane,
        &[&["create", "clusterrolebinding", "reader"][..], &binding].concat(),
    );
    let token = |who: &str| kubectl(&plane, &["create", "token", who]);
    let (prometheus, nobody) = (token("prometheus"), token("nobody"));

    let mut args = super::serving::SERVES.to_vec();
    args.push("--metrics-secure");
    let operator = Program::operator(plane.kubeconfig_path(), &args);
    // The authorizer learns of a new binding through a watch of its own, and a no is kept for some seconds.
    until("prometheus may", || async {
        operator
            .get_as("/metrics", Some(&prometheus))
            .await
            .ok()
            .filter(|page| page.contains("leasewarden_build_info"))
    })
    .await;
    assert_eq!(
        operator.get_as("/debug/leases", Some(&prometheus)).await,
        Err(403)
    );
    assert_eq!(operator.get_as("/metrics", Some(&nobody)).await, Err(403));
    assert_eq!(operator.get_as("/metrics", Some("made-up")).await, Err(401));
    assert_eq!(operator.get_as("/metrics", None).await, Err(401));
    assert_eq!(operator.get("/healthz").await.0, 200, "probes are for everybody");
    drop(operator);
    plane.stop().unwrap();
}

#[tokio::test]
async fn secure_metrics_are_refused_together_with_single_namespaces() {
    let said = std::process::Command::new(env!("CARGO_BIN_EXE_leasewarden"))
        .args(["operator", "--namespace", "some", "--metrics-secure"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&said.stderr);
    assert_eq!(said.status.code(), Some(1));
    assert!(
        text.contains("--metrics-secure cannot be had together with --namespace"),
        "{text}"
    );
}

#[tokio::test]
async fn a_certificate_that_cannot_be_read_is_named() {
    let stage = Stage::empty("certificate").await;
    let folder = tempfile::tempdir().unwrap();
    let option = format!("--metrics-cert-dir={}", folder.path().display());
    let mut args = super::serving::SERVES.to_vec();
    args.extend(["--metrics-secure", &option]);
    let said = Program::operator(stage.control_plane.kubeconfig_path(), &args)
        .refuses()
        .await;
    assert!(
        said.contains("metrics cannot be served securely: ") && said.contains("tls.crt"),
        "{said}"
    );
}
