//! `controlplane up`: a control plane for a person.

use leasewarden_controlplane::{ControlPlane, Error, locate};
use tokio::signal::unix::{SignalKind, signal};

pub(crate) fn up(keep: bool) -> Result<(), Error> {
    // A Ctrl-C before it is ready simply ends us, and the supervisor sees to the rest.
    let control_plane = ControlPlane::builder().start_blocking()?;
    println!("ready: {}", control_plane.kube_config().cluster_url);
    println!(
        "  export KUBECONFIG={}",
        control_plane.kubeconfig_path().display()
    );
    if let Ok(kubectl) = locate("kubectl") {
        println!("  {} get leases --all-namespaces", kubectl.display());
    }
    if let Some(folder) = control_plane.folder() {
        println!("  logs: {}", folder.join("logs").display());
    }
    if keep {
        let folder = control_plane.keep()?;
        println!("stop it with: controlplane down {}", folder.display());
        return Ok(());
    }
    super::runtime()?.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        // Said only now that it is true.
        println!("Ctrl-C stops it");
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        Ok::<_, std::io::Error>(())
    })?;
    control_plane.stop()
}
