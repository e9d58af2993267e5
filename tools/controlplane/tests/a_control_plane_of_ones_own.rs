//! What a test can do to a control plane that nobody else uses.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use leasewarden_controlplane::ControlPlane;
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::timeout;

#[tokio::test]
async fn stops_crashes_and_starts_again_where_it_was() {
    let control_plane = ControlPlane::builder().start().await.unwrap();
    let namespace = control_plane.namespace("kept").await.unwrap();
    for kill in [false, true] {
        if kill {
            control_plane.kill_apiserver().await.unwrap();
        } else {
            control_plane.stop_apiserver().await.unwrap();
        }
        let refused = control_plane.client().unwrap().apiserver_version().await;
        assert!(
            matches!(refused, Err(kube::Error::HyperError(_) | kube::Error::Service(_))),
            "{refused:?}"
        );
        assert!(control_plane.stop_apiserver().await.is_err(), "stopped twice");
        control_plane.start_apiserver().await.unwrap();
        assert!(control_plane.start_apiserver().await.is_err(), "started twice");
        // The same address and certificates, the same data.
        Api::<Namespace>::all(control_plane.client().unwrap())
            .get(namespace.name())
            .await
            .unwrap();
    }
    control_plane.stop().unwrap();
}

#[tokio::test]
async fn pauses_and_goes_on() {
    let control_plane = ControlPlane::builder()
        .without_controller_manager()
        .start()
        .await
        .unwrap();
    let client = control_plane.client().unwrap();
    let maps = Api::<ConfigMap>::namespaced(client.clone(), "default");
    let write = |name: &str| {
        let mut map = ConfigMap::default();
        map.metadata.name = Some(name.to_owned());
        let maps = maps.clone();
        async move { maps.create(&PostParams::default(), &map).await }
    };
    write("before").await.unwrap();

    control_plane.pause_etcd().await.unwrap();
    assert!(
        timeout(Duration::from_secs(2), write("etcd-paused"))
            .await
            .is_err(),
        "a write went through"
    );
    control_plane.resume_etcd().await.unwrap();
    write("after-etcd").await.unwrap();

    control_plane.pause_apiserver().await.unwrap();
    let all = ListParams::default();
    let read = maps.list(&all);
    assert!(
        timeout(Duration::from_secs(2), read).await.is_err(),
        "a read was answered"
    );
    control_plane.resume_apiserver().await.unwrap();
    write("after-apiserver").await.unwrap();
    // Stopping copes with what is still paused.
    control_plane.pause_etcd().await.unwrap();
    control_plane.stop().unwrap();
}

#[tokio::test]
async fn takes_flags_of_ones_own() {
    let control_plane = ControlPlane::builder()
        .without_controller_manager()
        .apiserver_arg("--anonymous-auth=false")
        .etcd_arg("--log-level=error")
        .start()
        .await
        .unwrap();
    let mut anonymous = control_plane.kube_config();
    anonymous.auth_info = kube::config::AuthInfo::default();
    let refused = Client::try_from(anonymous).unwrap().apiserver_version().await;
    assert!(
        matches!(refused, Err(kube::Error::Api(ref status)) if status.code == 401),
        "{refused:?}"
    );
    assert!(control_plane.etcd_url().is_some());
    control_plane.stop().unwrap();
}

#[tokio::test]
async fn owns_up_to_what_ended_by_itself() {
    let control_plane = ControlPlane::builder()
        .without_controller_manager()
        .start()
        .await
        .unwrap();
    let folder = control_plane.folder().unwrap().to_owned();
    let apiserver = || {
        std::fs::read_dir("/proc").unwrap().find_map(|entry| {
            let path = entry.ok()?.path();
            let line = std::fs::read_to_string(path.join("cmdline")).ok()?;
            let mine = line.contains("--secure-port") && line.contains(folder.to_str()?);
            mine.then(|| Pid::from_raw(path.file_name()?.to_str()?.parse().ok()?))
                .flatten()
        })
    };
    kill_process(apiserver().unwrap(), Signal::KILL).unwrap();
    common::wait_until("it is dead", || apiserver().is_none());
    let error = format!("{:?}", control_plane.stop().unwrap_err());
    assert!(
        error.contains("kube-apiserver ended when nobody had asked it to"),
        "{error}"
    );
    assert!(folder.join("logs/kube-apiserver.log").exists());
    std::fs::remove_dir_all(folder).unwrap();
}
