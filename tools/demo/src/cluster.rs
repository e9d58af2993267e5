//! The cluster as the reader of the demo sees it: what programs print, and what the operator has written.

use std::process::Stdio;
use std::sync::LazyLock;

use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::error::Error;

/// What a `ChangeStreamLeader` shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) stream: String,
    pub(crate) holder: String,
    pub(crate) token: i64,
}

static LEADERS: LazyLock<ApiResource> = LazyLock::new(|| {
    let kind = GroupVersionKind::gvk("leasewarden.dev", "v1beta1", "ChangeStreamLeader");
    ApiResource::from_gvk_with_plural(&kind, "changestreamleaders")
});

/// All streams whose status shows a leader. Read as plain JSON, as any other program would.
pub(crate) async fn shown(client: &Client) -> Result<Vec<Shown>, Error> {
    let leaders = Api::<DynamicObject>::default_namespaced_with(client.clone(), &LEADERS);
    let leaders = leaders.list(&ListParams::default()).await?;
    let read = |object: &DynamicObject| {
        Some(Shown {
            stream: object.data["spec"]["streamName"].as_str()?.to_owned(),
            holder: object.data["status"]["holderIdentity"].as_str()?.to_owned(),
            token: object.data["status"]["fencingToken"].as_i64()?,
        })
    };
    Ok(leaders.items.iter().filter_map(read).collect())
}

/// What a program prints.
pub(crate) async fn run(mut command: Command, name: &str, input: &str) -> Result<String, Error> {
    let failed = |reason: String| Error::Command {
        command: name.to_owned(),
        reason,
    };
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| failed(error.to_string()))?;
    if let Some(mut stdin) = child.stdin.take() {
        // One that does not read on tells why in its output.
        let _ = stdin.write_all(input.as_bytes()).await;
    }
    let output = child.wait_with_output().await?;
    if !output.status.success() {
        return Err(failed(
            String::from_utf8_lossy(&output.stderr).trim_end().to_owned(),
        ));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
