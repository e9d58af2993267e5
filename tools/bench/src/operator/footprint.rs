//! What the operator costs: memory and CPU of its process, and the status writes that it makes, while very many Leases are
//! held and renewed. The holders are requests of this program; the operator does not know the difference.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::{StreamExt, TryStreamExt, stream};
use http::Request;
use kube::{
    Api, Client,
    api::{ListParams, WatchEvent, WatchParams},
};
use leasewarden::{crd::ChangeStreamLeader, lease::LABELS};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    Error, Options, say,
    stage::{Stage, wait},
};

const NAMESPACE: &str = "footprint";
/// Requests at a time: more only wait in the server.
const AT_ONCE: usize = 24;

/// A process over a while.
#[derive(Debug, Serialize)]
pub(crate) struct Footprint {
    pub(crate) leases: usize,
    /// Resident, at the end.
    rss_mib: f64,
    /// Resident, at most since it was started.
    peak_mib: f64,
    /// Seconds of CPU per second.
    cpu: f64,
    renewals_per_second: Option<f64>,
    status_writes_per_second: Option<f64>,
    /// How many statuses show an expirationTime.
    with_expiration: Option<usize>,
}

impl fmt::Display for Footprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = format!(
            "| memory, CPU | {} | {:.0} MiB (at most {:.0} MiB), {:.2} cores |",
            self.leases, self.rss_mib, self.peak_mib, self.cpu
        );
        f.write_str(&row)?;
        if let (Some(renewals), Some(writes), Some(with)) = (
            self.renewals_per_second,
            self.status_writes_per_second,
            self.with_expiration,
        ) {
            write!(
                f,
                "\n| renewals seen, statuses written | {} | {renewals:.0}/s, {writes:.1}/s; {with} show an expirationTime |",
                self.leases
            )?;
        }
        Ok(())
    }
}

/// Measures a process from now on.
pub(crate) struct Meter {
    pid: u32,
    begun: Instant,
    ticks: u64,
    ticks_per_second: f64,
}

impl Meter {
    pub(crate) fn start(pid: u32) -> Result<Self, Error> {
        let asked = std::process::Command::new("getconf").arg("CLK_TCK").output()?;
        let text = String::from_utf8_lossy(&asked.stdout).trim().to_owned();
        let ticks_per_second = text
            .parse()
            .map_err(|_| Error::Failed(format!("getconf CLK_TCK says {text:?}")))?;
        Ok(Self {
            pid,
            begun: Instant::now(),
            ticks: ticks(pid)?,
            ticks_per_second,
        })
    }

    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn stop(self) -> Result<Footprint, Error> {
        let used = (ticks(self.pid)? - self.ticks) as f64 / self.ticks_per_second;
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid))?;
        let mib = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name));
            let kib = line.and_then(|l| l.split_whitespace().nth(1)?.parse::<f64>().ok());
            kib.map(|kib| kib / 1024.0)
                .ok_or_else(|| Error::Failed(format!("/proc has no {name}")))
        };
        Ok(Footprint {
            leases: 0,
            rss_mib: mib("VmRSS:")?,
            peak_mib: mib("VmHWM:")?,
            cpu: used / self.begun.elapsed().as_secs_f64(),
            renewals_per_second: None,
            status_writes_per_second: None,
            with_expiration: None,
        })
    }
}

/// User and system time of a process, in clock ticks.
fn ticks(pid: u32) -> Result<u64, Error> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name in parentheses may have anything in it.
    let rest = stat.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default();
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let field = |n: usize| fields.get(n).and_then(|f| f.parse::<u64>().ok());
    match (field(11), field(12)) {
        (Some(user), Some(system)) => Ok(user + system),
        _ => Err(Error::Failed(format!("/proc/{pid}/stat is not understood"))),
    }
}

#[allow(clippy::cast_precision_loss)]
pub(crate) async fn measure(stage: &Stage, options: &Options) -> Result<Footprint, Error> {
    stage.namespace(NAMESPACE).await?;
    say(&format!("{} Leases are created", options.leases));
    let created = AtomicUsize::new(0);
    stream::iter(0..options.leases)
        .map(|n| {
            let created = &created;
            async move {
                create(&stage.client, n, options.ttl).await?;
                let so_far = created.fetch_add(1, Ordering::SeqCst) + 1;
                if so_far.is_multiple_of(2000) {
                    say(&format!("{so_far} are"));
                }
                Ok::<_, Error>(())
            }
        })
        .buffer_unordered(AT_ONCE)
        .try_collect::<()>()
        .await?;
    let renewals = Arc::new(AtomicU64::new(0));
    let renewing = tokio::spawn(renew(
        stage.client.clone(),
        options.clone(),
        Arc::clone(&renewals),
    ));
    let operator = stage.operator(NAMESPACE)?;
    let objects = Api::<ChangeStreamLeader>::namespaced(stage.client.clone(), NAMESPACE);
    say("the operator discovers them");
    wait("every leader is shown", || async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        statuses(&objects)
            .await
            .is_ok_and(|(shown, _)| shown == options.leases)
    })
    .await?;
    // A TTL, until what was discovered at once is spread.
    tokio::time::sleep(options.ttl()).await;
    say(&format!("measuring for {} s", options.seconds));
    let writes = Arc::new(AtomicU64::new(0));
    let counting = tokio::spawn(count(objects.clone(), Arc::clone(&writes)));
    let meter = Meter::start(operator.pid())?;
    let (renewed, begun) = (renewals.load(Ordering::SeqCst), Instant::now());
    tokio::time::sleep(options.window()).await;
    let mut footprint = meter.stop()?;
    let seconds = begun.elapsed().as_secs_f64();
    footprint.leases = options.leases;
    footprint.renewals_per_second = Some((renewals.load(Ordering::SeqCst) - renewed) as f64 / seconds);
    footprint.status_writes_per_second = Some(writes.load(Ordering::SeqCst) as f64 / seconds);
    counting.abort();
    footprint.with_expiration = Some(statuses(&objects).await?.1);
    renewing.abort();
    Ok(footprint)
}

fn path(name: &str) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases{name}")
}

fn micro_time() -> String {
    let now = jiff::Timestamp::now();
    format!("{now:.6}")
}

/// As an instance of ours writes it, in the fields that the operator reads.
async fn create(client: &Client, n: usize, ttl: u64) -> Result<(), Error> {
    let labels: Value = LABELS.iter().map(|(k, v)| ((*k).to_owned(), json!(v))).collect();
    let (name, holder, now) = (format!("stream-{n}"), format!("host-{n}:app:8080"), micro_time());
    let term = json!({"id": format!("term-{n}"), "holder": holder, "transitions": 1}).to_string();
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": name, "labels": labels, "annotations": {
            "leasewarden.dev/stream": name, "leasewarden.dev/ttl-ms": (ttl * 1000).to_string(),
            "leasewarden.dev/fencing-token": "1", "leasewarden.dev/term": term,
        }},
        "spec": {
            "holderIdentity": holder, "leaseDurationSeconds": ttl, "leaseTransitions": 1,
            "acquireTime": now, "renewTime": now,
        },
    });
    send(client, Request::post(path("")), "application/json", &lease).await
}

async fn send(
    client: &Client,
    request: http::request::Builder,
    kind: &str,
    body: &Value,
) -> Result<(), Error> {
    let request = request
        .header("content-type", kind)
        .body(body.to_string().into_bytes())
        .map_err(|e| Error::Failed(e.to_string()))?;
    client.request::<Value>(request).await?;
    Ok(())
}

/// Renews each Lease three times per TTL, as far as the server keeps up.
async fn renew(client: Client, options: Options, renewals: Arc<AtomicU64>) {
    let pause = options.ttl() / 3 / u32::try_from(options.leases).unwrap_or(u32::MAX);
    let mut ticks = tokio::time::interval(pause);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let room = Arc::new(tokio::sync::Semaphore::new(AT_ONCE));
    for n in (0..options.leases).cycle() {
        ticks.tick().await;
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else {
            return;
        };
        let (client, renewals) = (client.clone(), Arc::clone(&renewals));
        tokio::spawn(async move {
            let renewal = json!({"spec": {"renewTime": micro_time()}});
            let request = Request::patch(path(&format!("/stream-{n}")));
            match send(&client, request, "application/merge-patch+json", &renewal).await {
                Ok(()) => drop(renewals.fetch_add(1, Ordering::SeqCst)),
                Err(error) => say(&format!("a renewal failed: {error}")),
            }
            drop(permit);
        });
    }
}

/// How many statuses show a leader, and how many of these an expiry.
async fn statuses(objects: &Api<ChangeStreamLeader>) -> Result<(usize, usize), Error> {
    let (mut shown, mut with, mut next) = (0, 0, None);
    loop {
        let mut params = ListParams::default().limit(500);
        params.continue_token = next.take();
        let page = objects.list(&params).await?;
        let statuses = page.items.iter().filter_map(|o| o.status.as_ref());
        for status in statuses.filter(|s| s.holder_identity.is_some()) {
            shown += 1;
            with += usize::from(status.expiration_time.is_some());
        }
        next = page.metadata.continue_.filter(|token| !token.is_empty());
        if next.is_none() {
            return Ok((shown, with));
        }
    }
}

/// Counts the writes of statuses.
async fn count(objects: Api<ChangeStreamLeader>, writes: Arc<AtomicU64>) {
    let follow = async {
        let listed = objects.list_metadata(&ListParams::default().limit(1)).await?;
        let version = listed.metadata.resource_version.unwrap_or_default();
        let params = WatchParams::default().timeout(290);
        let mut events = objects.watch(&params, &version).await?.boxed();
        while let Some(event) = events.try_next().await? {
            if let WatchEvent::Modified(_) = event {
                writes.fetch_add(1, Ordering::SeqCst);
            }
        }
        Ok::<_, kube::Error>(())
    };
    if let Err(error) = follow.await {
        say(&format!("the watch of the statuses ended: {error}"));
    }
}
