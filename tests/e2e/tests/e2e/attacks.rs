//! What takes root to do to instances: wall clocks that are wrong, a network that is cut, an API server that lags. Each is shown
//! to have happened, and never do two lead.
//!
//! The instances are processes on the node: `examples/coordinator.rs`, which says when it leads `orders` and when it stops.

use std::{
    fs::File,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::atomic::Ordering,
};

use leasewarden_e2e::eventually;

use crate::{
    second::{Link, SecondServer},
    support::{Namespace, node},
};

/// A process that contends for `orders` and `payments`. Killed when dropped.
struct Instance {
    child: Child,
    log: PathBuf,
}

impl Instance {
    /// By this command, which is followed by the program.
    fn start(namespace: &Namespace, name: &str, before: &[String]) -> Self {
        Self::start_at(namespace, name, before, port())
    }

    /// At the API server that listens on this port.
    fn start_at(namespace: &Namespace, name: &str, before: &[String], at: u16) -> Self {
        let log = node().folder().join(format!("{}-{name}.log", namespace.0));
        let kubeconfig = node().folder().join(format!("{}-{name}.kubeconfig", namespace.0));
        // The namespace of a context is the one that the lock works in.
        let text = std::fs::read_to_string(node().plane().kubeconfig_path()).unwrap();
        std::fs::write(
            &kubeconfig,
            text.replace(&format!(":{}", port()), &format!(":{at}")),
        )
        .unwrap();
        let mut kubectl = node().plane().kubectl();
        kubectl.env("KUBECONFIG", &kubeconfig);
        let set = kubectl
            .args(["config", "set-context", "--current", "--namespace", &namespace.0])
            .output()
            .unwrap();
        assert!(set.status.success(), "{set:?}");
        let program = std::env::var("LEASEWARDEN_E2E_COORDINATOR").unwrap();
        let words: Vec<&str> = before
            .iter()
            .map(String::as_str)
            .chain([program.as_str()])
            .collect();
        let out = File::create(&log).unwrap();
        let child = Command::new(words[0])
            .args(&words[1..])
            .env("KUBECONFIG", kubeconfig)
            .env("POD_NAME", name)
            .env("POD_UID", "1")
            .stdin(Stdio::null())
            .stdout(out.try_clone().unwrap())
            .stderr(out)
            .spawn()
            .unwrap();
        Self { child, log }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn leads(&self) {
        eventually(format!("{} leads", self.log.display()), || {
            self.log().contains("leading orders").then_some(())
        });
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sets the wall clock of a command that follows. Not by `faketime`, which would stay its parent and die in its stead.
fn shifted(by: &str) -> [String; 3] {
    let folders = std::fs::read_dir("/usr/lib").unwrap().filter_map(Result::ok);
    let library = folders
        .map(|folder| folder.path().join("faketime/libfaketime.so.1"))
        .find(|library| library.is_file())
        .expect("libfaketime");
    [
        "env".to_owned(),
        format!("LD_PRELOAD={}", library.display()),
        format!("FAKETIME={by}"),
    ]
}

fn port() -> u16 {
    node().plane().kube_config().cluster_url.port_u16().unwrap()
}

fn holder(namespace: &Namespace) -> String {
    let lease = namespace.lease("orders");
    lease["spec"]["holderIdentity"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

fn token(namespace: &Namespace) -> String {
    namespace.lease("orders")["metadata"]["annotations"].to_string()
}

#[test]
fn an_instance_whose_wall_clock_is_hours_ahead_takes_nothing_over_and_one_that_is_behind_keeps_its_lock() {
    let namespace = Namespace::new("clocks");
    let behind = Instance::start(&namespace, "behind", &shifted("-3h"));
    behind.leads();
    let renewed = |text: &str| namespace.lease("orders")["spec"]["renewTime"].as_str() != Some(text);
    let first = namespace.lease("orders")["spec"]["renewTime"]
        .as_str()
        .unwrap()
        .to_owned();
    let now = String::from_utf8(
        Command::new("date")
            .args(["-u", "+%Y-%m-%dT%H"])
            .output()
            .unwrap()
            .stdout,
    )
    .unwrap();
    assert!(!first.starts_with(now.trim()), "its clock is not behind: {first}");
    let ahead = Instance::start(&namespace, "ahead", &shifted("+3h"));
    let mut seen = first;
    for _ in 0..4 {
        eventually("the leader renews", || renewed(&seen).then_some(()));
        seen = namespace.lease("orders")["spec"]["renewTime"]
            .as_str()
            .unwrap()
            .to_owned();
        assert_eq!(holder(&namespace), "behind_1");
    }
    assert!(!ahead.log().contains("leading orders"), "{}", ahead.log());
    assert_eq!(
        behind.log().matches("leading orders").count(),
        1,
        "{}",
        behind.log()
    );
    // And it takes over when there is something to take over.
    drop(behind);
    ahead.leads();
}

#[test]
fn a_leader_whose_network_is_cut_stops_before_another_begins() {
    let namespace = Namespace::new("cut");
    let ip = |args: &[&str]| {
        let done = Command::new("ip").args(args).output().unwrap();
        assert!(done.status.success(), "{args:?}: {done:?}");
    };
    // A network namespace of its own, with a cable to the bridge that the API server is behind.
    ip(&["netns", "add", "far"]);
    ip(&[
        "link", "add", "cable", "type", "veth", "peer", "name", "eth0", "netns", "far",
    ]);
    ip(&["link", "set", "cable", "master", "cni0", "up"]);
    ip(&[
        "netns",
        "exec",
        "far",
        "ip",
        "address",
        "add",
        "10.88.200.1/16",
        "dev",
        "eth0",
    ]);
    ip(&["netns", "exec", "far", "ip", "link", "set", "eth0", "up"]);
    let port = port().to_string();
    let to = format!("10.88.0.1:{port}");
    // Its kubeconfig names the loopback address; there it leads over the cable.
    ip(&["netns", "exec", "far", "ip", "link", "set", "lo", "up"]);
    ip(&[
        "netns",
        "exec",
        "far",
        "sysctl",
        "-q",
        "-w",
        "net.ipv4.conf.all.route_localnet=1",
    ]);
    let nat = |chain: &str, rest: &[&str]| {
        let rule = ["netns", "exec", "far", "iptables", "-t", "nat", "-A", chain];
        ip(&[&rule[..], rest].concat());
    };
    nat(
        "OUTPUT",
        &[
            "-d",
            "127.0.0.1",
            "-p",
            "tcp",
            "--dport",
            &port,
            "-j",
            "DNAT",
            "--to",
            &to,
        ],
    );
    nat(
        "POSTROUTING",
        &["-o", "eth0", "-j", "SNAT", "--to", "10.88.200.1"],
    );

    let far = Instance::start(
        &namespace,
        "far",
        &["ip", "netns", "exec", "far"].map(str::to_owned),
    );
    far.leads();
    let near = Instance::start(&namespace, "near", &["env".to_owned()]);
    let before = token(&namespace);
    ip(&["link", "set", "cable", "down"]);
    near.leads();
    // By the time that the other leads, this one has stopped: it says so itself, and goes by its own clock.
    let log = far.log();
    assert!(
        log.contains("no longer leading") || log.contains("cannot be kept"),
        "{log}"
    );
    assert_ne!(token(&namespace), before);
    ip(&["link", "set", "cable", "up"]);
    assert_eq!(holder(&namespace), "near_1");
    assert_eq!(far.log().matches("leading orders").count(), 1, "{}", far.log());
    // It is back, and stands by: it follows when there is something to take over.
    drop(near);
    eventually("it leads once more", || {
        (far.log().matches("leading orders").count() == 2).then_some(())
    });
    drop(far);
    ip(&["netns", "delete", "far"]);
}

#[test]
fn a_standby_at_an_api_server_that_lags_takes_nothing_over_until_there_is_something_to_take() {
    let namespace = Namespace::new("lag");
    let etcd = node()
        .plane()
        .etcd_url()
        .unwrap()
        .trim_start_matches("http://")
        .parse()
        .unwrap();
    let link = Link::to(etcd);
    let second = SecondServer::start(&link);
    let plain = ["env".to_owned()];
    let leader = Instance::start(&namespace, "leader", &plain);
    leader.leads();
    let standby = Instance::start_at(&namespace, "standby", &plain, second.port);
    eventually("it stands by", || {
        standby.log().contains("watching the leases").then_some(())
    });
    let renewed = || {
        namespace.lease("orders")["spec"]["renewTime"]
            .as_str()
            .map(str::to_owned)
    };
    eventually("the second server has caught up", || {
        (second.renewed(&namespace)? == renewed()?).then_some(())
    });

    link.stands_still.store(true, Ordering::Relaxed);
    // For longer than a TTL: what the standby is told is that nobody renews.
    let mut seen = renewed().unwrap();
    for _ in 0..5 {
        eventually("the leader renews", || (renewed()? != seen).then_some(()));
        seen = renewed().unwrap();
        assert_eq!(holder(&namespace), "leader_1");
    }
    let stale = second.renewed(&namespace).unwrap();
    assert!(stale < seen, "it does not lag: {stale}, {seen}");
    assert!(!standby.log().contains("leading orders"), "{}", standby.log());

    link.stands_still.store(false, Ordering::Relaxed);
    eventually("the second server has caught up", || {
        (second.renewed(&namespace)? >= seen).then_some(())
    });
    assert!(!standby.log().contains("leading orders"), "{}", standby.log());
    assert_eq!(
        leader.log().matches("leading orders").count(),
        1,
        "{}",
        leader.log()
    );
    drop(leader);
    standby.leads();
}
