//! Running helm and promtool, and looking through what helm renders.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::OnceLock,
    time::Duration,
};

use leasewarden_controlplane::{ControlPlane, locate};
use serde_json::Value;

/// Generous on purpose: a loaded machine is slow, and a limit that is never reached costs nothing.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

pub(crate) const RELEASE: &str = "lw";
/// Where it is rendered for when no API server is asked.
pub(crate) const NAMESPACE: &str = "leasewarden-system";
pub(crate) const FULLNAME: &str = "lw-leasewarden";

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub(crate) fn chart() -> PathBuf {
    root().join("charts/leasewarden")
}

pub(crate) fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A program that is built when it is not there yet.
pub(crate) fn program(name: &'static str) -> Command {
    // Which helm repositories and plugins this machine has must not matter.
    static HOME: OnceLock<tempfile::TempDir> = OnceLock::new();
    let home = HOME.get_or_init(|| tempfile::tempdir().unwrap()).path();
    let mut command = Command::new(locate(name).unwrap_or_else(|error| panic!("{error}")));
    for (variable, folder) in [
        ("HELM_CACHE_HOME", "cache"),
        ("HELM_CONFIG_HOME", "config"),
        ("HELM_DATA_HOME", "data"),
    ] {
        command.env(variable, home.join(folder));
    }
    command.env_remove("KUBECONFIG");
    command
}

pub(crate) fn helm(control_plane: &ControlPlane) -> Command {
    let mut command = program("helm");
    command.env("KUBECONFIG", control_plane.kubeconfig_path());
    command
}

/// What it printed, when it went well.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&stderr);
    if status.success() {
        Ok(String::from_utf8(stdout).unwrap())
    } else {
        Err(format!("{}{stderr}", String::from_utf8_lossy(&stdout)))
    }
}

/// The values in a file, which JSON is as good for as YAML.
pub(crate) fn values_file(values: &Value) -> tempfile::NamedTempFile {
    let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    std::fs::write(file.path(), values.to_string()).unwrap();
    file
}

/// What `helm template` prints.
pub(crate) fn template(namespace: &str, values: &Value) -> Result<String, String> {
    let file = values_file(values);
    let mut helm = program("helm");
    helm.args(["template", RELEASE])
        .arg(chart())
        .args(["--namespace", namespace, "--values"])
        .arg(file.path());
    output(&mut helm)
}

pub(crate) fn objects(yaml: &str) -> Vec<Value> {
    let objects: Vec<Value> = serde_saphyr::from_multiple(yaml).unwrap_or_else(|e| panic!("{e}\n{yaml}"));
    objects.into_iter().filter(|object| !object.is_null()).collect()
}

pub(crate) fn render_in(namespace: &str, values: &Value) -> Vec<Value> {
    objects(&template(namespace, values).unwrap_or_else(|error| panic!("{values}: {error}")))
}

pub(crate) fn render(values: &Value) -> Vec<Value> {
    render_in(NAMESPACE, values)
}

pub(crate) fn kind(object: &Value) -> &str {
    object["kind"].as_str().unwrap()
}

pub(crate) fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

pub(crate) fn all<'a>(objects: &'a [Value], wanted: &str) -> Vec<&'a Value> {
    objects.iter().filter(|object| kind(object) == wanted).collect()
}

/// The one object of its kind.
pub(crate) fn one<'a>(objects: &'a [Value], wanted: &str) -> &'a Value {
    match all(objects, wanted)[..] {
        [object] => object,
        ref several => panic!("{} of kind {wanted}", several.len()),
    }
}

pub(crate) fn container(objects: &[Value]) -> &Value {
    &one(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]
}

pub(crate) fn args(objects: &[Value]) -> Vec<&str> {
    let args = container(objects)["args"].as_array().unwrap();
    args.iter().map(|arg| arg.as_str().unwrap()).collect()
}

/// Waits until it is true.
pub(crate) async fn eventually<F: Future<Output = Result<(), String>>>(mut check: impl FnMut() -> F) {
    let started = std::time::Instant::now();
    loop {
        match check().await {
            Ok(()) => return,
            Err(why) if started.elapsed() > LIMIT => panic!("not within {LIMIT:?}: {why}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}
