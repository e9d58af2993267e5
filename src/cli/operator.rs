//! `leasewarden operator`: runs the controller until SIGTERM or SIGINT.

use std::{error::Error, path::PathBuf};

use kube::config::{Config, KubeConfigOptions, Kubeconfig};

use super::log::LogFormat;
use crate::operator::Operator;

/// Show who leads each change stream in `kubectl get csl`.
///
/// Watches the Leases that Leasewarden's locks are (no others, by their labels), creates a
/// ChangeStreamLeader for each, and keeps its status true. It only reads Leases: it holds no lock and
/// grants none, so leaders go on without it.
///
/// Permissions it needs, in each namespace it looks after (a Role), or in all (a ClusterRole):
///
///   leases.coordination.k8s.io                    get, list, watch
///   changestreamleaders.leasewarden.dev           get, list, watch, create, delete
///   changestreamleaders/status.leasewarden.dev    update
///
/// Where one is missing, or the CRD, or the API server, it says so and tries on.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// Look after this namespace; give it several times, or several separated by commas. Default: all namespaces.
    #[arg(
        long,
        short = 'n',
        env = "LEASEWARDEN_NAMESPACE",
        value_name = "NAME",
        value_delimiter = ','
    )]
    namespace: Vec<String>,

    /// Create a ChangeStreamLeader for every Lease that has none. With =false only those written by hand are kept.
    #[arg(
        long,
        env = "LEASEWARDEN_DISCOVERY",
        value_name = "BOOL",
        default_value_t = true,
        action = clap::ArgAction::Set,
        num_args = 0..=1,
        default_missing_value = "true",
        require_equals = true
    )]
    discovery: bool,

    /// The kubeconfig to use. Default: $KUBECONFIG, then ~/.kube/config, then the Pod's service account.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig. Default: its current one.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,

    /// How log lines look.
    #[arg(long, env = "LEASEWARDEN_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,

    /// What is logged: error, warn, info, debug, trace, or a filter such as leasewarden=debug,kube_client=info.
    // kube says every failed request again, whole structs at a time.
    #[arg(
        long,
        env = "LEASEWARDEN_LOG",
        value_name = "FILTER",
        default_value = "info,kube_client=off,kube_runtime=off"
    )]
    log: String,
}

pub(super) fn run(args: Args) -> Result<(), Box<dyn Error>> {
    super::log::start(args.log_format, &args.log)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        // Before anything else: a signal that comes while the API server is looked for must be heard.
        let stop = stop_signal()?;
        let config = config(args.kubeconfig, args.context).await?;
        Operator::new(config)
            .namespaces(args.namespace.into_iter().filter(|n| !n.is_empty()))
            .discovery(args.discovery)
            .run(stop)
            .await?;
        Ok(())
    })
}

async fn config(file: Option<PathBuf>, context: Option<String>) -> Result<Config, Box<dyn Error>> {
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

#[cfg(unix)]
fn stop_signal() -> std::io::Result<impl Future<Output = ()> + Send> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        let name = tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        };
        tracing::info!(signal = name, "stopping");
    })
}

#[cfg(not(unix))]
fn stop_signal() -> std::io::Result<impl Future<Output = ()> + Send> {
    Ok(async {
        let _ = tokio::signal::ctrl_c().await;
        tracing::info!("stopping");
    })
}
