//! A service with three replicas in small: it embeds the lock and processes streams of payments, one leader per stream.
//!
//! It asks for the lock of every stream; while it is refused it is a standby. Once it leads, one half
//! of [`lead`] keeps the lock and the other processes events, and asks the grant before each side effect whether it may
//! still act. The fencing token goes with every request to the store, which refuses an older one than it has seen.
//!
//! SIGTERM: it finishes the event at hand, releases its locks, and exits with 0.
//!
//! ```text
//! KUBECONFIG=… worker --id w1 --ttl-ms 5000 --store 127.0.0.1:4711 orders payments
//! ```
//!
//! The store is a program of the demo (`tools/demo`), which says what its lines mean. `make demo` shows three of these
//! workers at it, one of them killed and one stopped.

use std::{
    error::Error,
    future::pending,
    io::{self, IsTerminal},
    sync::Arc,
    time::Duration,
};

use leasewarden::{
    AcquireRequest, ExtendRequest, FencingToken, Grant, InstanceId, LockError, LockService, LockServiceExt,
    Outcome, ReleaseRequest, StreamName, Ttl, lease::LeaseLockService,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    signal::unix::{SignalKind, signal},
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};

/// How often a standby asks.
const POLL: Duration = Duration::from_millis(250);
/// A replica leaves its siblings this long before it asks for the next stream, so that none of them gets all.
const SPREAD: Duration = Duration::from_millis(500);
/// How long there is nothing to do before the store is asked again.
const IDLE: Duration = Duration::from_millis(20);
/// A store that has not answered by then will not: a worker that waited on would neither lead nor stand by.
const STORE: Duration = Duration::from_secs(5);
/// What one event takes.
const WORK: Duration = Duration::from_millis(5);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt()
        .with_writer(io::stderr)
        // A log file is no place for colours.
        .with_ansi(io::stderr().is_terminal())
        .init();
    let options = Options::from_args()?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;

    let locks = LeaseLockService::builder(kube::Config::infer().await?).build()?;
    let (stop, stopping) = watch::channel(false);
    let mut streams = JoinSet::new();
    for (nth, stream) in (0..).zip(&options.streams) {
        let replica = Replica {
            locks: Arc::new(locks.clone()),
            stream: stream.clone(),
            me: options.id.clone(),
            ttl: options.ttl,
            store: options.store.clone(),
            stopping: stopping.clone(),
        };
        streams.spawn(async move {
            sleep(SPREAD * nth).await;
            replica.run().await;
        });
    }
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    stop.send_replace(true);
    while streams.join_next().await.is_some() {}
    locks.shutdown().await;
    Ok(())
}

struct Options {
    id: InstanceId,
    ttl: Ttl,
    store: String,
    streams: Vec<StreamName>,
}

impl Options {
    fn from_args() -> Result<Self, Box<dyn Error>> {
        const USAGE: &str = "usage: worker [--id ID] [--ttl-ms MS] --store HOST:PORT STREAM...";
        let mut id = InstanceId::unique("worker")?;
        let mut ttl = Ttl::from_secs(15)?;
        let (mut store, mut streams) = (None, Vec::new());
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(USAGE);
            match argument.as_str() {
                "--id" => id = InstanceId::new(value()?)?,
                "--ttl-ms" => ttl = Ttl::new(Duration::from_millis(value()?.parse()?))?,
                "--store" => store = Some(value()?),
                _ if argument.starts_with("--") => return Err(USAGE.into()),
                _ => streams.push(StreamName::new(argument)?),
            }
        }
        let store = store.filter(|_| !streams.is_empty()).ok_or(USAGE)?;
        Ok(Self {
            id,
            ttl,
            store,
            streams,
        })
    }
}

/// One instance in its relation to one stream.
struct Replica {
    locks: Arc<dyn LockService>,
    stream: StreamName,
    me: InstanceId,
    ttl: Ttl,
    store: String,
    stopping: watch::Receiver<bool>,
}

impl Replica {
    /// Standby, leader, standby … until told to stop.
    async fn run(&self) {
        let mut stopping = self.stopping.clone();
        while !*stopping.borrow() {
            let request = AcquireRequest::new(&self.stream, &self.me, self.ttl);
            match self.locks.acquire(request).await {
                Ok(Outcome::Granted(grant)) => self.lead(grant).await,
                // Somebody else leads.
                Ok(Outcome::Refused(_)) => {}
                // Perhaps it is ours. Only a grant lets us act, so: ask again.
                Ok(outcome) => tracing::warn!(stream = %self.stream, ?outcome, "acquire"),
                Err(error) => {
                    tracing::error!(stream = %self.stream, error = with_source(&error), "acquire");
                }
            }
            tokio::select! {
                () = sleep(POLL) => {}
                _ = stopping.wait_for(|stop| *stop) => {}
            }
        }
    }

    async fn lead(&self, grant: Grant) {
        tracing::info!(stream = %self.stream, token = ?grant.token, "leading");
        let (current, watched) = watch::channel(Some(grant.clone()));
        // Both at once, so that slow work never delays a renewal. The work ends when it is told to stop or the grant is
        // over; it is not cut off in the middle of an event.
        tokio::select! {
            () = self.keep(&grant, &current) => {}
            () = self.work(&watched) => {}
        }
        // After the work, never before. A release of what is no longer ours changes nothing.
        let released = self.locks.release(ReleaseRequest::of(&grant)).await;
        tracing::info!(stream = %self.stream, ?released, "no longer leading");
    }

    /// Renews at a third of the TTL. Never returns: when the lock is lost it says so in `current`, and `work` ends.
    async fn keep(&self, grant: &Grant, current: &watch::Sender<Option<Grant>>) {
        let third = self.ttl.as_duration() / 3;
        let mut wait = third;
        loop {
            sleep(wait).await;
            match self.locks.extend(ExtendRequest::of(grant, self.ttl)).await {
                Ok(Outcome::Granted(grant)) => {
                    current.send_replace(Some(grant));
                    wait = third;
                }
                Ok(Outcome::Refused(refusal)) => {
                    tracing::warn!(stream = %self.stream, %refusal, "lost");
                    current.send_replace(None);
                    pending::<()>().await;
                }
                // The grant stands until its own end, which `work` looks at. Until then it may yet be extended.
                Ok(outcome) => {
                    tracing::warn!(stream = %self.stream, ?outcome, "extend");
                    wait = POLL;
                }
                Err(error) => {
                    tracing::warn!(stream = %self.stream, error = with_source(&error), "extend");
                    wait = POLL;
                }
            }
        }
    }

    /// Processes events while the grant lasts.
    async fn work(&self, grant: &watch::Receiver<Option<Grant>>) {
        let mut store = None;
        while let Some(token) = self.may_act(grant) {
            let step = async {
                match &mut store {
                    Some(store) => self.one_event(store, token, grant).await,
                    None => {
                        store = Some(Store::connect(&self.store).await?);
                        Ok(true)
                    }
                }
            };
            let late = |_| Err(io::ErrorKind::TimedOut.into());
            match timeout(STORE, step).await.unwrap_or_else(late) {
                Ok(true) => {}
                Ok(false) => sleep(IDLE).await,
                Err(error) => {
                    tracing::warn!(stream = %self.stream, %error, "store");
                    store = None;
                    sleep(POLL).await;
                }
            }
        }
    }

    /// The token to act under; `None` when the grant is over, or when this process is to stop.
    fn may_act(&self, grant: &watch::Receiver<Option<Grant>>) -> Option<FencingToken> {
        let grant = grant.borrow();
        let grant = grant.as_ref()?;
        let may = self.locks.is_valid(grant) && !*self.stopping.borrow();
        if may { grant.token } else { None }
    }

    /// False when there was nothing to do.
    async fn one_event(
        &self,
        store: &mut Store,
        token: FencingToken,
        grant: &watch::Receiver<Option<Grant>>,
    ) -> io::Result<bool> {
        let (stream, me) = (&self.stream, &self.me);
        let reply = store.ask(&format!("NEXT {token} {me} {stream}")).await?;
        let event: Vec<_> = reply.split(' ').collect();
        let (position, amount, balance) = match event[..] {
            ["NONE"] => return Ok(false),
            ["EVENT", position, amount, balance] => (position, number(amount)?, number(balance)?),
            _ => return Err(io::Error::other(format!("NEXT: {reply}"))),
        };
        sleep(WORK).await;
        let balance = balance + amount;
        // Asked again right before the side effect: the work took time. An event at hand is finished also when this
        // process is to stop, which is why that is not asked here.
        if !grant
            .borrow()
            .as_ref()
            .is_some_and(|grant| self.locks.is_valid(grant))
        {
            return Ok(false);
        }
        match store
            .ask(&format!("DONE {position} {token} {balance} {me} {stream}"))
            .await?
            .as_str()
        {
            "OK" => Ok(true),
            reply => Err(io::Error::other(format!(
                "DONE {position} under {token}: {reply}"
            ))),
        }
    }
}

/// Logged in this form, an error brings along what caused it: `Unavailable` alone does not tell why.
fn with_source(error: &LockError) -> &(dyn Error + 'static) {
    error
}

fn number(text: &str) -> io::Result<i64> {
    text.parse().map_err(io::Error::other)
}

/// A connection to the store: a line there, a line back.
struct Store(BufReader<TcpStream>);

impl Store {
    async fn connect(address: &str) -> io::Result<Self> {
        let connection = TcpStream::connect(address).await?;
        connection.set_nodelay(true)?;
        Ok(Self(BufReader::new(connection)))
    }

    async fn ask(&mut self, request: &str) -> io::Result<String> {
        self.0
            .get_mut()
            .write_all(format!("{request}\n").as_bytes())
            .await?;
        let mut reply = String::new();
        if self.0.read_line(&mut reply).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(reply.trim_end().to_owned())
    }
}
