//! `leasewarden operator`: runs the controller until SIGTERM or SIGINT.

use std::{error::Error, future::Future, net::SocketAddr, path::PathBuf};

use super::log::LogFormat;
use crate::{
    InstanceId, Ttl,
    crd::StatusPolicy,
    operator::{Operator, Replica, ReplicaElection, Secure},
};

/// Show who leads each change stream in `kubectl get csl`.
///
/// Watches the Leases that Leasewarden's locks are (no others, by their labels), creates a
/// ChangeStreamLeader for each, and keeps its status true. It grants no lock, so leaders go on without
/// it. Of several replicas one keeps the statuses; they elect it by a Lease of their own, and all
/// serve /healthz, /readyz, /metrics and /debug/leases.
///
/// Permissions it needs, in each namespace it looks after (a Role), or in all (a ClusterRole):
///
///   leases.coordination.k8s.io                    get, list, watch
///   changestreamleaders.leasewarden.dev           get, list, watch, create, delete
///   changestreamleaders/status.leasewarden.dev    update
///   events.events.k8s.io                          create, patch (not with --events=false)
///
/// And in its own namespace (not with --leader-election=false):
///
///   leases.coordination.k8s.io                    get, list, watch, create, update
///
/// Where one is missing, or the CRD, or the API server, it says so and tries on.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
#[allow(clippy::struct_excessive_bools, reason = "switches of a command line")]
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

    /// When the status is written of objects that do not say it themselves (spec.statusPolicy). Full: on every change of
    /// leadership, and in between to keep expirationTime in the future. TransitionsOnly: on changes alone.
    #[arg(
        long,
        env = "LEASEWARDEN_STATUS_POLICY",
        value_enum,
        default_value_t = Policy::Full
    )]
    status_policy: Policy,

    /// How many statuses may be written a second to keep each expirationTime in the future. Where more are needed,
    /// expirationTime is left out of some; changes of leadership are written at once in any case.
    #[arg(
        long,
        env = "LEASEWARDEN_STATUS_WRITES_PER_SECOND",
        value_name = "N",
        default_value_t = 20
    )]
    status_writes_per_second: u32,

    /// Elect one of several replicas. With =false run one replica only.
    #[arg(
        long,
        env = "LEASEWARDEN_LEADER_ELECTION",
        value_name = "BOOL",
        default_value_t = true,
        action = clap::ArgAction::Set,
        num_args = 0..=1,
        default_missing_value = "true",
        require_equals = true
    )]
    leader_election: bool,

    /// Where the Lease of the election is. Default: $POD_NAMESPACE, then the kubeconfig's or the service account's.
    #[arg(long, env = "LEASEWARDEN_LEADER_ELECTION_NAMESPACE", value_name = "NAME")]
    leader_election_namespace: Option<String>,

    /// The name of that Lease, the same for all replicas.
    #[arg(
        long,
        env = "LEASEWARDEN_LEADER_ELECTION_LEASE_NAME",
        value_name = "NAME",
        default_value = "leasewarden-operator"
    )]
    leader_election_lease_name: String,

    /// How long a replica's lock outlives its last renewal: after a crash the statuses stand still for so long.
    #[arg(
        long,
        env = "LEASEWARDEN_LEADER_ELECTION_TTL",
        value_name = "DURATION",
        value_parser = ttl,
        default_value = "15s"
    )]
    leader_election_ttl: Ttl,

    /// Where /metrics and /debug/leases are served: an address with a port, or a port after a colon. Empty: nowhere.
    #[arg(
        long,
        env = "LEASEWARDEN_METRICS_BIND_ADDRESS",
        value_name = "ADDRESS",
        value_parser = bind_address,
        default_value = "0.0.0.0:8080"
    )]
    metrics_bind_address: Bind,

    /// Serve the metrics over TLS, and only to those whom the API server permits: each request's bearer token is reviewed
    /// (TokenReview), and needs the verb get on the nonResourceURL /metrics or /debug/leases (SubjectAccessReview). The
    /// operator's identity may ask for both by the ClusterRole system:auth-delegator. Not together with --namespace.
    #[arg(
        long,
        env = "LEASEWARDEN_METRICS_SECURE",
        value_name = "BOOL",
        default_value_t = false,
        action = clap::ArgAction::Set,
        num_args = 0..=1,
        default_missing_value = "true",
        require_equals = true
    )]
    metrics_secure: bool,

    /// With --metrics-secure: the folder with tls.crt and tls.key, read again when they change. Default: a certificate that
    /// the process signs itself.
    #[arg(long, env = "LEASEWARDEN_METRICS_CERT_DIR", value_name = "FOLDER")]
    metrics_cert_dir: Option<PathBuf>,

    /// Where /healthz and /readyz are served, likewise.
    #[arg(
        long,
        env = "LEASEWARDEN_HEALTH_PROBE_BIND_ADDRESS",
        value_name = "ADDRESS",
        value_parser = bind_address,
        default_value = "0.0.0.0:8081"
    )]
    health_probe_bind_address: Bind,

    /// Send Events for changes of leadership.
    #[arg(
        long,
        env = "LEASEWARDEN_EVENTS",
        value_name = "BOOL",
        default_value_t = true,
        action = clap::ArgAction::Set,
        num_args = 0..=1,
        default_missing_value = "true",
        require_equals = true
    )]
    events: bool,

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

/// As in `spec.statusPolicy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Policy {
    #[value(name = "Full")]
    Full,
    #[value(name = "TransitionsOnly")]
    TransitionsOnly,
}

/// Where to listen, if anywhere.
#[derive(Debug, Clone, Copy)]
struct Bind(Option<SocketAddr>);

fn bind_address(text: &str) -> Result<Bind, String> {
    if text.is_empty() {
        return Ok(Bind(None));
    }
    let whole = if text.starts_with(':') {
        format!("0.0.0.0{text}")
    } else {
        text.to_owned()
    };
    let address = whole.parse();
    address
        .map(|address| Bind(Some(address)))
        .map_err(|_| "not an address with a port, such as 0.0.0.0:8080, [::]:8080 or :8080".to_owned())
}

fn ttl(text: &str) -> Result<Ttl, String> {
    let duration: jiff::SignedDuration = text
        .parse()
        .map_err(|_| "not a duration, such as 15s or 1m30s".to_owned())?;
    let duration = std::time::Duration::try_from(duration).map_err(|_| "less than nothing".to_owned())?;
    Ttl::new(duration).map_err(|e| e.to_string())
}

pub(super) fn run(args: Args) -> Result<(), Box<dyn Error>> {
    if args.metrics_secure && args.namespace.iter().any(|n| !n.is_empty()) {
        return Err("--metrics-secure cannot be had together with --namespace: tokens are reviewed for the whole \
                    cluster, and an operator of single namespaces has no cluster-wide permission. Leave one of them out, \
                    or limit who gets to the port by a NetworkPolicy"
            .into());
    }
    super::log::start(args.log_format, &args.log)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        // Before anything else: a signal that comes while the API server is looked for must be heard.
        let stop = stop_signal()?;
        let config = super::config::config(args.kubeconfig, args.context).await?;
        // Outside a Pod a process is nobody in particular.
        let instance = match InstanceId::from_downward_api() {
            Ok(instance) => instance,
            Err(_) => InstanceId::unique("leasewarden-operator")?,
        };
        let election = args.leader_election.then(|| ReplicaElection {
            namespace: args
                .leader_election_namespace
                .or_else(|| std::env::var("POD_NAMESPACE").ok())
                .filter(|namespace| !namespace.is_empty())
                .unwrap_or_else(|| config.default_namespace.clone()),
            lease_name: args.leader_election_lease_name,
            ttl: args.leader_election_ttl,
            instance,
        });
        let operator = Operator::new(config)
            .namespaces(args.namespace.into_iter().filter(|n| !n.is_empty()))
            .discovery(args.discovery)
            .status_policy(match args.status_policy {
                Policy::Full => StatusPolicy::Full,
                Policy::TransitionsOnly => StatusPolicy::TransitionsOnly,
            })
            .status_writes_per_second(args.status_writes_per_second);
        Replica::new(operator)
            .election(election)
            .metrics_address(args.metrics_bind_address.0)
            .secure(args.metrics_secure.then_some(Secure {
                cert_dir: args.metrics_cert_dir,
            }))
            .probe_address(args.health_probe_bind_address.0)
            .events(args.events)
            .run(stop)
            .await?;
        Ok(())
    })
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
