//! A second API server that lags when it is told to: it reaches etcd by a link that can stand still.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use leasewarden_e2e::eventually;

use crate::support::{Namespace, node};

/// Between an API server and etcd: passes everything on, or nothing.
pub(crate) struct Link {
    address: SocketAddr,
    pub(crate) stands_still: Arc<AtomicBool>,
}

impl Link {
    pub(crate) fn to(etcd: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stands_still = Arc::<AtomicBool>::default();
        let still = Arc::clone(&stands_still);
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let Ok(far) = TcpStream::connect(etcd) else {
                    continue;
                };
                let (near_too, far_too) = (near.try_clone().unwrap(), far.try_clone().unwrap());
                for (from, to) in [(near, far_too), (far, near_too)] {
                    let still = Arc::clone(&still);
                    thread::spawn(move || pass_on(from, to, &still));
                }
            }
        });
        Self {
            address,
            stands_still,
        }
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, still: &AtomicBool) {
    let mut bytes = [0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        while still.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(20));
        }
        if to.write_all(&bytes[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

/// A second kube-apiserver like the first one, behind this link.
pub(crate) struct SecondServer {
    child: Child,
    pub(crate) port: u16,
}

impl SecondServer {
    pub(crate) fn start(link: &Link) -> Self {
        let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
        let first = processes
            .filter_map(|process| std::fs::read_to_string(process.path().join("cmdline")).ok())
            .find(|line| {
                line.split('\0')
                    .next()
                    .is_some_and(|program| program.ends_with("/kube-apiserver"))
            })
            .expect("the first kube-apiserver");
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        // The first's certificates and flags; what is said again counts.
        let words: Vec<String> = first
            .split_terminator('\0')
            .filter(|word| !word.starts_with("--etcd-servers") && !word.starts_with("--secure-port"))
            .map(str::to_owned)
            .chain([
                format!("--etcd-servers=http://{}", link.address),
                format!("--secure-port={port}"),
            ])
            .collect();
        let log = File::create(node().folder().join("second-apiserver.log")).unwrap();
        // Two on one host need different host names.
        let child = Command::new("unshare")
            .args(["--uts", "sh", "-c", "hostname second && exec \"$0\" \"$@\""])
            .args(words)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let second = Self { child, port };
        eventually("the second API server is ready", || second.get("/readyz"));
        second
    }

    fn get(&self, path: &str) -> Option<String> {
        let server = format!("--server=https://127.0.0.1:{}", self.port);
        node().kubectl(&[&server, "get", "--raw", path]).ok()
    }

    /// When the leader renewed last, by this server's cache.
    pub(crate) fn renewed(&self, namespace: &Namespace) -> Option<String> {
        let path = format!(
            "/apis/coordination.k8s.io/v1/namespaces/{}/leases?resourceVersion=0&fieldSelector=metadata.name%3Dorders",
            namespace.0
        );
        let list: serde_json::Value = serde_json::from_str(&self.get(&path)?).ok()?;
        list["items"][0]["spec"]["renewTime"].as_str().map(str::to_owned)
    }
}

impl Drop for SecondServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
