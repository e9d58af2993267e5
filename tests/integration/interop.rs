//! Beside others on the same Lease: client-go's elector, which many controllers are elected by, and people with kubectl.
//!
//! What is asked here is whether two ever lead at once, by what each says of itself, against one clock. client-go's
//! elector is a program of its own (`clientgo-elector`, client-go's documentation followed to the letter). It looks at no
//! clock while it works, so its leading lasts from `OnStartedLeading` until its work has ended, or until its process was
//! stopped; ours lasts from the guard's first to its last moment of being valid.

mod client_go;
mod handovers;
mod kubectl;
mod late_release;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use leasewarden::{
    election::{
        DeploymentMode, ElectionSettings, LeaderElectionCoordinator, Leadership, StreamSpec, StreamState,
        StreamStatus,
    },
    lease::LeaseLockService,
};
use leasewarden_electors::{Overlap, Span, now, overlaps};

use crate::support::{eventually, instance, secs, stream};

/// A leadership as the work saw it.
#[derive(Debug, Clone)]
struct Term {
    stream: String,
    token: i64,
    span: Span,
}

/// All leaderships of ours, in the order in which the work began.
#[derive(Debug, Clone, Default)]
struct Log(Arc<Mutex<Vec<Term>>>);

impl Log {
    fn terms(&self) -> Vec<Term> {
        self.0.lock().unwrap().clone()
    }

    fn spans(&self, stream: &str) -> Vec<Span> {
        let terms = self.terms().into_iter().filter(|term| term.stream == stream);
        terms.map(|term| term.span).collect()
    }

    fn tokens(&self, stream: &str) -> Vec<i64> {
        let mut terms = self.terms();
        terms.retain(|term| term.stream == stream);
        terms.iter().map(|term| term.token).collect()
    }

    /// How often this one has led.
    fn led(&self, id: &str) -> usize {
        self.terms().iter().filter(|term| term.span.who == id).count()
    }

    /// Asks the guard over and over, and notes when it was valid: a reading of the clock that comes before the guard's
    /// answer is a moment up to which it was valid.
    async fn work(self, id: String, leadership: Leadership) {
        let from = now();
        if !leadership.is_valid() {
            return;
        }
        let term = Term {
            stream: leadership.stream().to_string(),
            token: leadership.token().unwrap().get(),
            span: Span {
                who: id,
                from,
                to: from,
            },
        };
        let nth = {
            let mut terms = self.0.lock().unwrap();
            terms.push(term);
            terms.len() - 1
        };
        let mut stopping = false;
        loop {
            let to = now();
            if leadership.is_valid() {
                self.0.lock().unwrap()[nth].span.to = to;
            }
            if stopping {
                return;
            }
            tokio::select! {
                _ = leadership.stop_requested() => stopping = true,
                () = tokio::time::sleep(Duration::from_millis(2)) => {}
            }
        }
    }
}

/// An instance of a program of ours that contends for some streams.
struct Ours {
    id: String,
    coordinator: LeaderElectionCoordinator,
}

impl Ours {
    fn start(locks: LeaseLockService, id: &str, ttl: u64, streams: &[&str], log: &Log) -> Self {
        let coordinator = LeaderElectionCoordinator::builder(Arc::new(locks))
            .instance_id(instance(id))
            .settings(ElectionSettings::with_ttl(secs(ttl)).unwrap())
            .build()
            .unwrap();
        for name in streams {
            let (log, id) = (log.clone(), id.to_owned());
            let work = move |leadership| log.clone().work(id.clone(), leadership);
            let spec = StreamSpec::new(stream(name), DeploymentMode::SingleLeader, work);
            coordinator.register(spec).unwrap();
        }
        coordinator.start_all();
        let id = id.to_owned();
        Self { id, coordinator }
    }

    fn status(&self, name: &str) -> StreamStatus {
        self.coordinator.status(&stream(name)).unwrap()
    }

    async fn leads(&self, name: &str) {
        eventually((&self.id, "leads", name), || async {
            (self.status(name).state == StreamState::Working).then_some(())
        })
        .await;
    }

    /// Until it stands by, and knows that this one leads.
    async fn stands_by(&self, name: &str, leader: &str) {
        eventually((&self.id, "stands by for", leader, "on", name), || async {
            let status = self.status(name);
            let holder = status.holder?.holder?;
            (status.state == StreamState::Contending && holder == leader).then_some(())
        })
        .await;
    }

    async fn stop(&self, name: &str) {
        self.coordinator.stop(&stream(name)).unwrap().finished().await;
    }
}

fn assert_never_two_at_once(spans: &[Span]) {
    let found: Vec<Overlap> = overlaps(spans);
    assert!(found.is_empty(), "two led at once: {found:#?}");
}

fn assert_tokens_rise(log: &Log, stream: &str) {
    let tokens = log.tokens(stream);
    assert!(tokens.is_sorted_by(|a, b| a < b), "{stream}: {tokens:?}");
}
