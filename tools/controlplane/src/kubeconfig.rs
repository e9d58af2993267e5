//! Kubeconfigs: written for people, kubectl and tests, and turned into what kube connects with. They carry their
//! certificates inside, so that a copy works anywhere on the machine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use data_encoding::BASE64;
use kube::Config;
use kube::config::{
    AuthInfo, Cluster, Context, KubeConfigOptions, Kubeconfig, KubeconfigError, NamedAuthInfo, NamedCluster,
    NamedContext,
};

use crate::pki::Identity;

/// A kubeconfig could not be read, understood or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It does not say what is needed to connect.
    #[error("cannot use the kubeconfig")]
    Invalid(#[from] KubeconfigError),
    /// `KUBECONFIG` lists several files.
    #[error("KUBECONFIG lists several files; name one")]
    Several,
    /// `KUBECONFIG` is not set, and there is no home folder either.
    #[error("no kubeconfig: KUBECONFIG is not set, and there is no home folder")]
    None,
    /// The file could not be written.
    #[error("cannot write {}", file.display())]
    Write {
        /// The file.
        file: PathBuf,
        /// What went wrong.
        #[source]
        source: std::io::Error,
    },
}

const NAME: &str = "leasewarden";

/// The kubeconfig of a client of our own control plane.
pub(crate) fn for_identity(url: &str, authority: &str, identity: &Identity) -> Kubeconfig {
    let cluster = Cluster {
        server: Some(url.to_owned()),
        certificate_authority_data: Some(BASE64.encode(authority.as_bytes())),
        ..Cluster::default()
    };
    Kubeconfig {
        kind: Some("Config".to_owned()),
        api_version: Some("v1".to_owned()),
        clusters: vec![NamedCluster {
            name: NAME.to_owned(),
            cluster: Some(cluster),
            other: BTreeMap::default(),
        }],
        auth_infos: vec![named(auth_info(identity))],
        contexts: vec![NamedContext {
            name: NAME.to_owned(),
            context: Some(Context {
                cluster: NAME.to_owned(),
                user: Some(NAME.to_owned()),
                ..Context::default()
            }),
            other: BTreeMap::default(),
        }],
        current_context: Some(NAME.to_owned()),
        ..Kubeconfig::default()
    }
}

/// The same cluster for another client.
pub(crate) fn for_user(mut base: Kubeconfig, user: AuthInfo) -> Kubeconfig {
    let current = base.current_context.clone();
    for context in &mut base.contexts {
        if Some(&context.name) == current.as_ref()
            && let Some(context) = &mut context.context
        {
            context.user = Some(NAME.to_owned());
        }
    }
    base.auth_infos = vec![named(user)];
    base
}

/// How the current context's user authenticates.
pub(crate) fn current_user(kubeconfig: &Kubeconfig) -> Option<AuthInfo> {
    let current = kubeconfig.current_context.as_ref()?;
    let context = kubeconfig
        .contexts
        .iter()
        .find(|c| c.name == *current)?
        .context
        .as_ref()?;
    let user = context.user.as_ref()?;
    kubeconfig
        .auth_infos
        .iter()
        .find(|a| a.name == *user)?
        .auth_info
        .clone()
}

fn named(auth_info: AuthInfo) -> NamedAuthInfo {
    NamedAuthInfo {
        name: NAME.to_owned(),
        auth_info: Some(auth_info),
        other: BTreeMap::default(),
    }
}

/// How a client with a certificate of ours authenticates.
pub(crate) fn auth_info(identity: &Identity) -> AuthInfo {
    AuthInfo {
        client_certificate_data: Some(BASE64.encode(identity.certificate.as_bytes())),
        client_key_data: Some(BASE64.encode(identity.key.as_bytes()).into()),
        ..AuthInfo::default()
    }
}

/// Writes it as JSON, which every reader of kubeconfigs takes, being YAML as well.
pub(crate) fn write(kubeconfig: &Kubeconfig, file: &Path) -> Result<(), Error> {
    let error = |source| Error::Write {
        file: file.to_owned(),
        source,
    };
    let text = serde_json::to_string_pretty(kubeconfig).map_err(|e| error(e.into()))?;
    std::fs::write(file, text).map_err(error)
}

/// What kube connects with.
pub(crate) async fn config(kubeconfig: Kubeconfig) -> Result<Config, Error> {
    Ok(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
}
