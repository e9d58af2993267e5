//! The run: what the user gives, and how the cases are started.
//!
//! On the machine's clock independent cases run side by side, a dozen at a time: most of them wait for an expiry. On a
//! driven clock they run one after another, since each moves the time of all.

use std::{any::Any, error::Error as StdError, fmt, future::Future, sync::Arc, time::Duration};

use tokio::{
    sync::Semaphore,
    task::{JoinError, JoinSet},
    time::Instant,
};

use crate::lock::{LockService, StreamName};

use super::{
    actor::CALL_LIMIT,
    bench::{Bench, Setup},
    case::{Case, Stop, cases},
    report::{CaseResult, Report, Verdict},
};

/// Enough to overlap the waiting; few enough that a small API server answers in time.
const SIDE_BY_SIDE: usize = 12;

/// No case takes so long by far, however slow the machine; one whose service never answers would take for ever.
const CASE_LIMIT: Duration = Duration::from_secs(600);

/// The lock contract, to be run against a service.
///
/// See the [module](super) for an example. Runs inside a Tokio runtime with its time driver enabled.
pub struct Contract {
    setup: Setup,
}

/// No case has that name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the lock contract has no case {name:?}; `leasewarden::testkit::cases()` lists them")]
pub struct UnknownCase {
    /// The name that was asked for.
    pub name: String,
}

impl Contract {
    /// The contract for the services that `factory` makes. It is called four times at the start of a run; each service stands for
    /// a process of its own, and all share one store.
    pub fn new(factory: impl Fn() -> Arc<dyn LockService> + Send + Sync + 'static) -> Self {
        Self {
            setup: Setup::new(Box::new(factory)),
        }
    }

    /// How long after an expiry the service may need to grant the lock to one who has asked since before. One second
    /// unless set. A few seconds of slack for a loaded machine are added to it; it never excuses an early grant.
    #[must_use]
    pub fn grant_within(mut self, within: Duration) -> Self {
        self.setup.grant_within = within;
        self
    }

    /// Instead of waiting, moves the services' clock: for services on a
    /// [`ManualClock`](crate::lock::ManualClock) that all of them share.
    #[must_use]
    pub fn driven_by(mut self, advance: impl Fn(Duration) + Send + Sync + 'static) -> Self {
        self.setup.advance = Some(Box::new(advance));
        self
    }

    /// How to delete a stream's record behind the services' back, as a person with `kubectl delete` or `DEL` does.
    /// Used by the case on deletion, which is skipped without it, and to leave nothing behind.
    #[must_use]
    pub fn delete<F, E>(mut self, delete: impl Fn(StreamName) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        self.setup.delete = Some(Box::new(move |stream| {
            let deleting = delete(stream);
            Box::pin(async move { deleting.await.map_err(Into::into) })
        }));
        self
    }

    /// Runs every case.
    pub async fn run(self) -> Report {
        self.run_all(cases().collect()).await
    }

    /// Runs one case by its name.
    ///
    /// # Errors
    /// [`UnknownCase`] when there is none of that name.
    pub async fn run_case(self, name: &str) -> Result<Report, UnknownCase> {
        let case = cases().find(|case| case.name == name).ok_or(UnknownCase {
            name: name.to_owned(),
        })?;
        Ok(self.run_all(vec![case]).await)
    }

    async fn run_all(self, chosen: Vec<&'static Case>) -> Report {
        let driven = self.setup.advance.is_some();
        let setup = Arc::new(self.setup.start());
        let permits = Arc::new(Semaphore::new(if driven { 1 } else { SIDE_BY_SIDE }));
        let mut running = JoinSet::new();
        for (at, case) in chosen.into_iter().enumerate() {
            let (setup, permits) = (Arc::clone(&setup), Arc::clone(&permits));
            running.spawn(async move {
                // The semaphore is never closed; if it were, the case would just not wait its turn.
                let _turn = permits.acquire_owned().await.ok();
                (at, run_one(setup, case).await)
            });
        }
        let mut results = Vec::new();
        while let Some(done) = running.join_next().await {
            match done {
                Ok(result) => results.push(result),
                // Panics of the service are caught one level below; what comes here is a defect of the kit.
                Err(error) => std::panic::resume_unwind(panic_of(error)),
            }
        }
        results.sort_by_key(|(at, _)| *at);
        Report::new(results.into_iter().map(|(_, result)| result).collect())
    }
}

async fn run_one(setup: Arc<Setup>, case: &'static Case) -> CaseResult {
    let limit = CASE_LIMIT.saturating_add(setup.grant_within.saturating_mul(20));
    let bench = Bench::new(setup);
    let started = Instant::now();
    // A task of its own: a service that panics fails the case, not the run.
    let mut running = tokio::spawn((case.run)(bench.clone()));
    let verdict = match tokio::time::timeout(limit, &mut running).await {
        Ok(Ok(Ok(()))) => Verdict::Passed,
        Ok(Ok(Err(Stop::Failed(why)))) => Verdict::Failed(why),
        Ok(Ok(Err(Stop::Skipped(why)))) => Verdict::Skipped(why),
        Ok(Err(error)) => Verdict::Failed(format!("it panicked: {}", message(&*panic_of(error)))),
        Err(_) => {
            running.abort();
            Verdict::Failed(format!(
                "the service did not answer, and it had not ended after {limit:?}"
            ))
        }
    };
    let took = started.elapsed();
    // The record of a failed case is left for who looks into it.
    let delete = !matches!(verdict, Verdict::Failed(_));
    // A service that does not answer has failed its case by now, and is not waited for again.
    let tidied =
        tokio::spawn(async move { tokio::time::timeout(CALL_LIMIT, bench.tidy(delete)).await }).await;
    match tidied {
        Ok(Ok(())) => {}
        Ok(Err(_)) => tracing::debug!(case = case.name, "tidying up after the case took too long"),
        Err(error) => tracing::debug!(case = case.name, %error, "tidying up after the case failed"),
    }
    CaseResult { case, verdict, took }
}

fn panic_of(error: JoinError) -> Box<dyn Any + Send> {
    error
        .try_into_panic()
        .unwrap_or_else(|error| Box::new(error.to_string()))
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("(no message)")
}

impl fmt::Debug for Contract {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contract")
            .field("grant_within", &self.setup.grant_within)
            .field("driven", &self.setup.advance.is_some())
            .field("can_delete", &self.setup.delete.is_some())
            .finish_non_exhaustive()
    }
}
