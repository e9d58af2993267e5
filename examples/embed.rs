//! The lock in ten lines: lead the stream that the first argument names, for as long as there is work.
//!
//! ```text
//! KUBECONFIG=… cargo run --example embed -- orders
//! ```
//!
//! The loop that a service would run, with every outcome told apart, is in `worker.rs`.

use std::time::Duration;

use leasewarden::{InstanceId, LockServiceExt, StreamName, Ttl, lease::LeaseLockService};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The shortcuts below answer with a bool; why it is false (a missing permission, say) they log.
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let stream = StreamName::new(std::env::args().nth(1).ok_or("usage: embed STREAM")?)?;
    let me = InstanceId::unique("embed")?;
    let ttl = Ttl::from_secs(15)?;
    let locks = LeaseLockService::builder(kube::Config::infer().await?).build()?;

    while !locks.try_acquire(&stream, &me, ttl).await {
        println!("{stream} is led by {:?}", locks.current_leader(&stream).await);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    println!("{me} leads {stream}");
    for piece in 1..=3 {
        // False: lost, so stop at once.
        if !locks.renew(&stream, &me, ttl).await {
            return Err("the lock was lost".into());
        }
        println!("piece {piece} of the work");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    locks.try_release(&stream, &me).await;
    Ok(())
}
