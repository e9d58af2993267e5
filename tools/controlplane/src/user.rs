//! Users without any rights, for tests of what is refused. On a control plane of ours they have a certificate, as real
//! ones do; elsewhere, where there is no authority to sign one, the administrator impersonates them.

use std::path::Path;

use kube::Config;
use kube::config::{AuthInfo, Kubeconfig};

use crate::control_plane::ControlPlane;
use crate::error::Error;
use crate::pki::Authority;
use crate::{blocking, kubeconfig};

impl ControlPlane {
    /// How this user connects. Its rights are those that some RBAC binding gives to it or to its groups; at first,
    /// none.
    pub fn config_for_user(&self, name: &str, groups: &[&str]) -> Result<Config, Error> {
        let kubeconfig = self.kubeconfig_for_user(name, groups)?;
        Ok(blocking::run(kubeconfig::config(kubeconfig))??)
    }

    /// Writes this user's kubeconfig to `file`, for programs that want one.
    pub fn write_kubeconfig_for_user(&self, file: &Path, name: &str, groups: &[&str]) -> Result<(), Error> {
        Ok(kubeconfig::write(&self.kubeconfig_for_user(name, groups)?, file)?)
    }

    fn kubeconfig_for_user(&self, name: &str, groups: &[&str]) -> Result<Kubeconfig, Error> {
        let authority = self.folder().map(Authority::open).transpose()?.flatten();
        let user = match (authority, groups) {
            // A certificate of rcgen's carries one group.
            (Some(authority), [] | [_]) => {
                kubeconfig::auth_info(&authority.client(name, groups.first().copied())?)
            }
            _ => AuthInfo {
                impersonate: Some(name.to_owned()),
                impersonate_groups: Some(groups.iter().map(|&group| group.to_owned()).collect()),
                ..kubeconfig::current_user(self.kubeconfig()).unwrap_or_default()
            },
        };
        Ok(kubeconfig::for_user(self.kubeconfig().clone(), user))
    }
}
