//! The build, with a `go` that writes a word instead of Kubernetes and waits where a test wants it to.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use common::{Place, Running, wait_until};

/// Notes what it is asked to build, writes half of it, waits for the word to go on, writes the whole.
const GO: &str = r#"#!/bin/sh
[ "$1" = version ] && exit 0
while [ "$1" != -o ]; do shift; done
name=$(basename "$2"); name=${name%%.*}
printf half > "$2"
echo "$name" >> "$PLACE/calls"
while [ ! -e "$PLACE/go-on-$name" ] && [ ! -e "$PLACE/go-on" ]; do sleep 0.02; done
[ ! -e "$PLACE/fail" ] || { echo "$name: undefined: Frobnicate" >&2; exit 1; }
printf whole > "$2"; chmod +x "$2"
"#;

const DEFAULT: [&str; 4] = ["etcd", "kube-apiserver", "kube-controller-manager", "kubectl"];

struct Builds(Place);

impl Builds {
    fn new() -> Self {
        let place = Place::new();
        let bin = place.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        std::fs::write(bin.join("go"), GO).unwrap();
        std::fs::set_permissions(bin.join("go"), PermissionsExt::from_mode(0o755)).unwrap();
        Self(place)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.0.controlplane(arguments);
        let path = format!("{}:/usr/bin:/bin", self.0.path().join("bin").display());
        command
            .env("PATH", path)
            .env("PLACE", self.0.path())
            .env("LEASEWARDEN_CACHE", self.0.path().join("cache"));
        without_assets(&mut command);
        command
    }

    fn calls(&self) -> Vec<String> {
        let calls = std::fs::read_to_string(self.0.path().join("calls")).unwrap_or_default();
        calls.lines().map(str::to_owned).collect()
    }

    fn touch(&self, name: &str) {
        std::fs::write(self.0.path().join(name), "").unwrap();
    }

    /// The cache's one folder.
    fn folder(&self) -> PathBuf {
        let mut folders = std::fs::read_dir(self.0.path().join("cache/controlplane")).unwrap();
        folders.next().unwrap().unwrap().path()
    }

    fn built(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.folder().join(name)).ok()
    }
}

fn without_assets(command: &mut Command) {
    for name in [
        "KUBEBUILDER_ASSETS",
        "TEST_ASSET_ETCD",
        "TEST_ASSET_KUBE_APISERVER",
        "TEST_ASSET_KUBECTL",
        "TEST_ASSET_CLIENTGO_ELECTOR",
    ] {
        command.env_remove(name);
    }
}

#[test]
fn by_two_builders_at_once_which_take_turns() {
    let builds = Builds::new();
    let mut first = Running::start(builds.command(&["build"]).stderr(Stdio::null()));
    wait_until("the first builds", || builds.calls().len() == 1);
    let mut second = Running::start(builds.command(&["build"]).stderr(Stdio::piped()));
    let mut said = String::new();
    BufReader::new(second.child.stderr.as_mut().unwrap())
        .read_line(&mut said)
        .unwrap();
    assert_eq!(
        said.trim(),
        format!("waiting for another build (pid {})", first.child.id())
    );
    builds.touch("go-on");
    assert!(first.child.wait().unwrap().success());
    assert!(second.child.wait().unwrap().success());
    assert_eq!(builds.calls(), DEFAULT);
    assert!(
        DEFAULT
            .iter()
            .all(|name| builds.built(name).as_deref() == Some("whole"))
    );
}

#[test]
fn and_an_interrupted_build_leaves_whole_programs_only() {
    let builds = Builds::new();
    let mut build = Running::start(builds.command(&["build"]).stderr(Stdio::null()));
    builds.touch("go-on-etcd");
    wait_until("the second program is half built", || builds.calls().len() == 2);
    build.child.kill().unwrap();
    build.child.wait().unwrap();
    assert_eq!(builds.built("etcd").as_deref(), Some("whole"));
    assert_eq!(builds.built("kube-apiserver"), None);

    // The compiler has outlived its builder; it ends without harm.
    builds.touch("go-on");
    wait_until("the compiler has ended", || builds.0.running().is_empty());
    assert_eq!(builds.built("kube-apiserver"), None);

    assert!(
        builds
            .command(&["build"])
            .stderr(Stdio::null())
            .output()
            .unwrap()
            .status
            .success()
    );
    // The one that was finished is not built again.
    assert_eq!(
        builds.calls(),
        [
            "etcd",
            "kube-apiserver",
            "kube-apiserver",
            "kube-controller-manager",
            "kubectl"
        ]
    );
    let names = std::fs::read_dir(builds.folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let partial: Vec<_> = names
        .filter(|name| name.to_string_lossy().contains("partial"))
        .collect();
    assert!(partial.is_empty(), "{partial:?}");
}

#[test]
fn and_what_the_compiler_says_is_shown() {
    let builds = Builds::new();
    builds.touch("go-on");
    builds.touch("fail");
    let output = builds.command(&["path", "kubectl"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(
        said.contains("kubectl: undefined: Frobnicate") && said.contains("kubectl.log"),
        "{said}"
    );
}

#[test]
fn and_without_go_every_way_out_is_named_and_no_other() {
    let place = Place::new();
    let commands = [
        (&["run", "--", "true"][..], true),
        // What runs in an existing cluster's stead is no way out for who wants one of their own.
        (&["up"], false),
        (&["build"], false),
    ];
    for (arguments, existing) in commands {
        let mut command = place.controlplane(arguments);
        without_assets(&mut command);
        command
            .env("PATH", place.path())
            .env("LEASEWARDEN_CACHE", place.path())
            .env("CI", "true");
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success());
        for way in [
            "install Go",
            "KUBEBUILDER_ASSETS",
            "TEST_ASSET_KUBE_APISERVER",
            "TEST_ASSET_ETCD",
            "TEST_ASSET_KUBECTL",
            "LEASEWARDEN_CACHE",
        ] {
            assert!(said.contains(way), "{way} is not in: {said}");
        }
        assert_eq!(
            said.contains("USE_EXISTING_CLUSTER=true"),
            existing,
            "{arguments:?}: {said}"
        );
    }
}

#[test]
fn and_programs_of_our_own_lie_apart_so_that_they_are_built_alone() {
    let builds = Builds::new();
    builds.touch("go-on");
    let built = |name: &str| {
        let output = builds.command(&["path", name]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
    };
    let elector = built("clientgo-elector");
    assert_eq!(builds.calls(), ["clientgo-elector"]);
    let source = elector.parent().unwrap().join("modules/client-go/main.go");
    assert!(source.is_file(), "{} has its code", source.display());
    assert_ne!(built("etcd").parent(), elector.parent());
    assert_eq!(builds.calls(), ["clientgo-elector", "etcd"]);
}

#[test]
fn and_they_are_not_looked_for_among_the_programs_of_a_control_plane() {
    let place = Place::new();
    let folder = place.path().to_str().unwrap();
    std::fs::write(place.path().join("clientgo-elector"), "").unwrap();
    let path = |variable: &str, value: &str| {
        let mut command = place.controlplane(&["path", "clientgo-elector"]);
        without_assets(&mut command);
        let command = command
            .env("PATH", place.path())
            .env("LEASEWARDEN_CACHE", place.path())
            .env(variable, value);
        command.output().unwrap()
    };
    let output = path("KUBEBUILDER_ASSETS", folder);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    for way in ["install Go", "TEST_ASSET_CLIENTGO_ELECTOR", "LEASEWARDEN_CACHE"] {
        assert!(said.contains(way), "{way} is not in: {said}");
    }
    assert!(!said.contains("KUBEBUILDER_ASSETS"), "no way out of this: {said}");
    let file = format!("{folder}/clientgo-elector");
    let output = path("TEST_ASSET_CLIENTGO_ELECTOR", &file);
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), file);
}

#[test]
fn unless_variables_name_others() {
    let place = Place::new();
    let path = |program: &str, variables: &[(&str, &str)]| {
        let mut command = place.controlplane(&["path", program]);
        without_assets(&mut command);
        command
            .env("PATH", place.path())
            .envs(variables.iter().copied())
            .output()
            .unwrap()
    };
    let folder = place.path().to_str().unwrap();
    let (ours, other) = (format!("{folder}/kubectl"), format!("{folder}/other"));
    std::fs::write(&ours, "").unwrap();
    std::fs::write(&other, "").unwrap();

    let found = path("kubectl", &[("KUBEBUILDER_ASSETS", folder)]);
    assert_eq!(String::from_utf8_lossy(&found.stdout).trim(), ours);
    let found = path(
        "kubectl",
        &[("KUBEBUILDER_ASSETS", folder), ("TEST_ASSET_KUBECTL", &other)],
    );
    assert_eq!(String::from_utf8_lossy(&found.stdout).trim(), other);
    let missing = path("etcd", &[("KUBEBUILDER_ASSETS", folder)]);
    assert!(!missing.status.success());
    assert!(String::from_utf8_lossy(&missing.stderr).contains("KUBEBUILDER_ASSETS says"));
}
