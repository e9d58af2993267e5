//! Starting the node, and the programs that tests use on it.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Mutex,
    thread::sleep,
    time::{Duration, Instant},
};

use leasewarden_controlplane::{ControlPlane, locate};
use serde_json::{Value, json};

use crate::wait::LIMIT;

/// The node's address, and that of the bridge that its Pods are behind.
const ADDRESS: &str = "10.88.0.1";
const PODS: &str = "10.88.0.0/16";
/// The `kubernetes` Service.
const SERVICE: &str = "10.0.0.1";
const NAME: &str = "e2e-node";
const PAUSE: &str = "leasewarden.local/pause:1";

/// Why there is no node.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The control plane.
    #[error(transparent)]
    ControlPlane(#[from] leasewarden_controlplane::Error),
    /// A program that cannot be built.
    #[error(transparent)]
    Program(#[from] leasewarden_controlplane::ProgramError),
    /// A file or a program of the system.
    #[error("{what}: {source}")]
    Io {
        /// What was done.
        what: String,
        /// Why it failed.
        source: io::Error,
    },
    /// A command that failed.
    #[error("{0}")]
    Failed(String),
    /// The tests were not started by `hack/e2e.sh`.
    #[error("{0} is not set: run `make e2e`, which makes the namespaces that this needs")]
    NotInside(&'static str),
    /// Something is not ready.
    #[error("{what} was not ready within {LIMIT:?}; its log ends with\n{tail}")]
    Late {
        /// What.
        what: &'static str,
        /// The end of its log.
        tail: String,
    },
}

fn io_error(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
    let what = what.into();
    move |source| Error::Io { what, source }
}

/// The cluster.
#[derive(Debug)]
pub struct Node {
    plane: ControlPlane,
    folder: PathBuf,
    containerd: Mutex<Child>,
    /// Held, so that they are not waited for by nobody.
    _others: Vec<Child>,
}

impl Node {
    /// Starts everything, and waits until the node is ready.
    ///
    /// # Errors
    /// What is missing, or which program did not start, with the end of its log.
    pub fn start() -> Result<Self, Error> {
        let folder = variable("LEASEWARDEN_E2E_FOLDER")?;
        let images = variable("LEASEWARDEN_E2E_IMAGES")?;
        network()?;
        let plane = ControlPlane::builder()
            .apiserver_arg("--bind-address=0.0.0.0")
            .apiserver_arg(format!("--advertise-address={ADDRESS}"))
            .apiserver_arg("--authorization-mode=Node")
            .apiserver_arg("--enable-admission-plugins=NodeRestriction")
            .apiserver_arg("--kubelet-preferred-address-types=InternalIP")
            .start_blocking()?;
        let port = plane.kube_config().cluster_url.port_u16().unwrap_or(443);
        for chain in ["PREROUTING", "OUTPUT"] {
            let to = format!("{ADDRESS}:{port}");
            let rule = [
                "-t", "nat", "-A", chain, "-d", SERVICE, "-p", "tcp", "--dport", "443",
            ];
            run(Command::new("iptables")
                .args(rule)
                .args(["-j", "DNAT", "--to", &to]))?;
        }
        let containerd = start_containerd(&folder)?;
        for image in fs::read_dir(&images).map_err(io_error(images.display().to_string()))? {
            let image = image.map_err(io_error("images"))?.path();
            run(ctr(&folder).args(["images", "import"]).arg(image))?;
        }
        let scheduler = start_scheduler(&folder, &plane)?;
        let kubelet = start_kubelet(&folder, &plane)?;
        let node = Self {
            plane,
            folder,
            containerd: Mutex::new(containerd),
            _others: vec![scheduler, kubelet],
        };
        let log = node.folder.join("kubelet.log");
        ready("kubelet", &log, || {
            let args = [
                "get",
                "node",
                NAME,
                "-o",
                "jsonpath={.status.conditions[?(@.type=='Ready')].status}",
            ];
            node.kubectl(&args).is_ok_and(|status| status == "True")
        })?;
        Ok(node)
    }

    /// The control plane.
    pub fn plane(&self) -> &ControlPlane {
        &self.plane
    }

    /// What kubectl prints.
    ///
    /// # Errors
    /// What it says.
    pub fn kubectl(&self, args: &[&str]) -> Result<String, Error> {
        run(self.plane.kubectl().args(args))
    }

    /// What `kubectl … -o json` prints.
    ///
    /// # Errors
    /// What it says.
    pub fn json(&self, args: &[&str]) -> Result<Value, Error> {
        let text = run(self.plane.kubectl().args(args).args(["-o", "json"]))?;
        serde_json::from_str(&text).map_err(|e| Error::Failed(format!("{args:?}: {e}")))
    }

    /// Has kubectl apply this.
    ///
    /// # Errors
    /// What it says.
    pub fn apply(&self, manifest: &Value) -> Result<(), Error> {
        let file = self.folder.join("manifest.json");
        fs::write(&file, manifest.to_string()).map_err(io_error(file.display().to_string()))?;
        self.kubectl(&["apply", "--filename", &file.to_string_lossy()])
            .map(drop)
    }

    /// What helm prints.
    ///
    /// # Errors
    /// What it says.
    pub fn helm(&self, args: &[&str]) -> Result<String, Error> {
        let mut helm = Command::new(locate("helm")?);
        helm.env("KUBECONFIG", self.plane.kubeconfig_path());
        for variable in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            helm.env(variable, self.folder.join(variable));
        }
        run(helm.args(args))
    }

    /// Kills containerd and starts it again. Pods go on meanwhile.
    ///
    /// # Errors
    /// When it does not start.
    pub fn restart_containerd(&self) -> Result<(), Error> {
        let mut containerd = self
            .containerd
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        containerd.kill().map_err(io_error("killing containerd"))?;
        containerd.wait().map_err(io_error("containerd"))?;
        *containerd = start_containerd(&self.folder)?;
        Ok(())
    }

    /// The process of the only container of a Pod, as the node sees it.
    ///
    /// # Errors
    /// What containerd says.
    pub fn process_of(&self, namespace: &str, pod: &str) -> Result<u32, Error> {
        let pod = self.json(&["get", "pod", "-n", namespace, pod])?;
        let id = pod["status"]["containerStatuses"][0]["containerID"]
            .as_str()
            .unwrap_or_default();
        let id = id.trim_start_matches("containerd://");
        let tasks = run(ctr(&self.folder).args(["tasks", "ls"]))?;
        let line = tasks.lines().find(|line| line.starts_with(id) && !id.is_empty());
        line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok())
            .ok_or_else(|| Error::Failed(format!("no task of {id:?} in\n{tasks}")))
    }

    /// Where tests may put files.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

fn variable(name: &'static str) -> Result<PathBuf, Error> {
    std::env::var_os(name)
        .map(PathBuf::from)
        .ok_or(Error::NotInside(name))
}

/// What a command printed.
fn run(command: &mut Command) -> Result<String, Error> {
    let output = command.output().map_err(io_error(format!("{command:?}")))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        Err(Error::Failed(format!(
            "{command:?}: {}\n{stdout}\n{stderr}",
            output.status
        )))
    }
}

/// A bridge for the Pods, on which the node has its address too.
fn network() -> Result<(), Error> {
    let ip = |args: &[&str]| run(Command::new("ip").args(args)).map(drop);
    ip(&["link", "set", "lo", "up"])?;
    ip(&["link", "add", "cni0", "type", "bridge"])?;
    ip(&["address", "add", &format!("{ADDRESS}/16"), "dev", "cni0"])?;
    ip(&["link", "set", "cni0", "up"])?;
    fs::write("/proc/sys/net/ipv4/ip_forward", "1").map_err(io_error("net.ipv4.ip_forward"))
}

fn start(name: &'static str, folder: &Path, command: &mut Command) -> Result<Child, Error> {
    let log = folder.join(format!("{name}.log"));
    let file = File::options()
        .create(true)
        .append(true)
        .open(&log)
        .map_err(io_error(log.display().to_string()))?;
    let also = file.try_clone().map_err(io_error("a log"))?;
    command.stdin(Stdio::null()).stdout(file).stderr(also);
    command.spawn().map_err(io_error(name))
}

fn ready(what: &'static str, log: &Path, is_ready: impl Fn() -> bool) -> Result<(), Error> {
    let begun = Instant::now();
    while !is_ready() {
        if begun.elapsed() > LIMIT {
            let text = fs::read_to_string(log).unwrap_or_default();
            let lines: Vec<_> = text.lines().collect();
            let tail = lines[lines.len().saturating_sub(20)..].join("\n");
            return Err(Error::Late { what, tail });
        }
        sleep(Duration::from_millis(100));
    }
    Ok(())
}

fn ctr(folder: &Path) -> Command {
    let mut ctr = Command::new("ctr");
    ctr.arg("--address")
        .arg(folder.join("containerd.sock"))
        .args(["--namespace", "k8s.io"]);
    ctr
}

fn start_containerd(folder: &Path) -> Result<Child, Error> {
    let path = |name: &str| folder.join(name).display().to_string();
    let cni = folder.join("cni");
    fs::create_dir_all(&cni).map_err(io_error("cni"))?;
    let network = json!({
        "cniVersion": "0.4.0", "name": "pods", "plugins": [
            {"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true, "ipam": {
                "type": "host-local", "dataDir": path("ipam"), "ranges": [[{"subnet": PODS}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            }},
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ],
    });
    fs::write(cni.join("pods.conflist"), network.to_string()).map_err(io_error("cni"))?;
    // Without restrict_oom_score_adj no sandbox starts where the machine itself may not lower its own.
    let config = format!(
        "version = 2\nroot = {root:?}\nstate = {state:?}\n[grpc]\naddress = {socket:?}\n\
         [plugins.\"io.containerd.grpc.v1.cri\"]\nsandbox_image = {PAUSE:?}\nrestrict_oom_score_adj = true\n\
         [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]\nruntime_type = \"io.containerd.runc.v2\"\n\
         [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc.options]\nSystemdCgroup = false\n\
         [plugins.\"io.containerd.grpc.v1.cri\".cni]\nbin_dir = \"/usr/lib/cni\"\nconf_dir = {conf:?}\n",
        root = path("containerd"),
        state = path("containerd-state"),
        socket = path("containerd.sock"),
        conf = path("cni"),
    );
    let file = folder.join("containerd.toml");
    fs::write(&file, config).map_err(io_error("containerd.toml"))?;
    let child = start(
        "containerd",
        folder,
        Command::new("containerd").arg("--config").arg(file),
    )?;
    ready("containerd", &folder.join("containerd.log"), || {
        run(ctr(folder).arg("version")).is_ok()
    })?;
    Ok(child)
}

fn start_scheduler(folder: &Path, plane: &ControlPlane) -> Result<Child, Error> {
    let mut scheduler = Command::new(locate("kube-scheduler")?);
    scheduler.args(["--leader-elect=false", "--secure-port=0", "--kubeconfig"]);
    start("kube-scheduler", folder, scheduler.arg(plane.kubeconfig_path()))
}

fn start_kubelet(folder: &Path, plane: &ControlPlane) -> Result<Child, Error> {
    let path = |name: &str| folder.join(name).display().to_string();
    let kubeconfig = folder.join("kubelet.kubeconfig");
    plane.write_kubeconfig_for_user(&kubeconfig, &format!("system:node:{NAME}"), &["system:nodes"])?;
    let cgroup =
        std::env::var("LEASEWARDEN_E2E_CGROUP").map_err(|_| Error::NotInside("LEASEWARDEN_E2E_CGROUP"))?;
    let config = json!({
        "kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "address": ADDRESS,
        // The network is nobody's but ours.
        "authentication": {"anonymous": {"enabled": true}, "webhook": {"enabled": false}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs", "cgroupRoot": format!("/{cgroup}"), "cgroupsPerQOS": true,
        "enforceNodeAllocatable": ["pods"],
        "failCgroupV1": false, "failSwapOn": false, "oomScoreAdj": 0, "makeIPTablesUtilChains": false,
        "containerRuntimeEndpoint": format!("unix://{}", path("containerd.sock")),
        "podLogsDir": path("pod-logs"),
        "readOnlyPort": 0, "serverTLSBootstrap": false, "clusterDNS": [], "clusterDomain": "cluster.local",
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "nodeStatusUpdateFrequency": "2s", "syncFrequency": "5s",
    });
    let file = folder.join("kubelet.json");
    fs::write(&file, config.to_string()).map_err(io_error("kubelet.json"))?;
    let mut kubelet = Command::new(locate("kubelet")?);
    kubelet
        .arg("--config")
        .arg(file)
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .arg(format!("--root-dir={}", path("kubelet")))
        .arg(format!("--cert-dir={}", path("kubelet-pki")))
        .arg(format!("--hostname-override={NAME}"))
        .arg(format!("--node-ip={ADDRESS}"));
    start("kubelet", folder, &mut kubelet)
}
