//! Which cluster a subcommand talks to.

use std::{error::Error, path::PathBuf};

use kube::config::{Config, KubeConfigOptions, Kubeconfig};

/// By this file and context, or else by what the environment says.
pub(super) async fn config(file: Option<PathBuf>, context: Option<String>) -> Result<Config, Box<dyn Error>> {
    let options = KubeConfigOptions {
        context,
        ..KubeConfigOptions::default()
    };
    if let Some(file) = file {
        let kubeconfig =
            Kubeconfig::read_from(&file).map_err(|e| no_config(&file.display().to_string(), &e))?;
        return Config::from_custom_kubeconfig(kubeconfig, &options)
            .await
            .map_err(|e| no_config(&file.display().to_string(), &e));
    }
    let named = std::env::var_os("KUBECONFIG").is_some();
    if named || options.context.is_some() {
        let from = if named {
            "the kubeconfig in $KUBECONFIG"
        } else {
            "~/.kube/config"
        };
        return Config::from_kubeconfig(&options)
            .await
            .map_err(|e| no_config(from, &e));
    }
    Config::infer()
        .await
        .map_err(|e| no_config("~/.kube/config and the Pod's service account", &e))
}

fn no_config(from: &str, error: &dyn Error) -> Box<dyn Error> {
    let mut text = format!("no cluster can be reached with {from}: {}", first_line(error));
    let mut source = error.source();
    while let Some(inner) = source {
        let inner_text = first_line(inner);
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        source = inner.source();
    }
    text.into()
}

/// What follows the first line of a parser's error is an excerpt of the file, and a kubeconfig holds keys.
fn first_line(error: &dyn Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}
