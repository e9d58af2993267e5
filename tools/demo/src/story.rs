//! The story: what happens in which order, and what is said about it. Every number in it was measured.

use std::collections::BTreeMap;

use crate::clock::{self, Millis, seconds};
use crate::error::Error;
use crate::programs::Programs;
use crate::say::{Narrator, list};
use crate::scene::{Led, STREAMS, Scene, TTL, WORKERS};
use crate::serve;
use crate::stage::protocol::Signal;
use crate::summary::{StreamSummary, summarize, table};

/// So many events of each stream are to be seen before something is done to its leader.
const SOME_EVENTS: u64 = 50;

/// Tells it. With `keep`, everything is left up at the end.
pub(crate) async fn tell(keep: bool) -> Result<(), Error> {
    let say = Narrator::new();
    say.print(&format!(
        "{} workers, {} streams of events, one leader per stream. A lock outlives its last renewal by {} s.\n\n",
        WORKERS.len(),
        STREAMS.len(),
        TTL.as_secs()
    ));
    let programs = if let Some(programs) = Programs::named() {
        programs
    } else {
        say.step("building leasewarden, the worker and the control plane's supervisor");
        Programs::find().await?
    };
    say.step("starting etcd, kube-apiserver and kube-controller-manager");
    let mut story = Story {
        scene: Scene::set(programs).await?,
        say,
    };
    match story.run(keep).await {
        Ok(()) if keep => story.leave(),
        Ok(()) => story.end(),
        Err(error) => Err(story.scene.explain(error)),
    }
}

struct Story {
    scene: Scene,
    say: Narrator,
}

impl Story {
    async fn run(&mut self, keep: bool) -> Result<(), Error> {
        self.install().await?;
        self.start().await?;
        self.show(&["get", "csl"]).await?;

        let first = self.leader(STREAMS[0])?;
        self.crash(&first.worker).await?;
        self.late_write(&first).await?;
        self.show(&["get", "csl"]).await?;

        let second = self.leader(STREAMS[0])?;
        self.stop(&second.worker).await?;
        self.show(&["get", "csl", "-o", "wide"]).await?;

        self.no_more_events().await?;
        if !keep {
            self.scene.end_all().await?;
            self.say.step("workers and operator have stopped");
        }
        self.judge()
    }

    async fn install(&mut self) -> Result<(), Error> {
        self.say
            .step(&format!("the API server is ready: {}", self.scene.url()));
        let crd = self.scene.crd().await?;
        self.scene
            .kubectl(&["apply", "--server-side", "-f", "-"], &crd)
            .await?;
        let name = "crd/changestreamleaders.leasewarden.dev";
        self.scene
            .kubectl(
                &["wait", "--for=condition=Established", "--timeout=60s", name],
                "",
            )
            .await?;
        self.say
            .step("installed the CRD: leasewarden crd | kubectl apply --server-side -f -");
        Ok(())
    }

    async fn start(&mut self) -> Result<(), Error> {
        self.scene.start_operator()?;
        for nth in 0..WORKERS.len() {
            self.scene.start_worker(nth)?;
        }
        self.say.step(&format!(
            "started the operator, and {}, each of which asks for {}",
            list(&WORKERS.map(str::to_owned)),
            list(&STREAMS.map(str::to_owned))
        ));
        self.scene
            .until("every stream is led, shown and processed", |scene, shown| {
                STREAMS.iter().all(|stream| scene.is_shown(stream, shown))
                    && scene
                        .sight()
                        .totals
                        .iter()
                        .all(|total| total.processed >= SOME_EVENTS)
            })
            .await?;
        self.say
            .step("every stream has a leader that processes its events, and the operator shows it");
        Ok(())
    }

    async fn crash(&mut self, worker: &str) -> Result<(), Error> {
        let led = self.scene.led_by(worker);
        let at = self.scene.signal(worker, Signal::Kill)?;
        self.say
            .step(&format!("killed {worker} (SIGKILL), which led {}", names(&led)));
        self.succession(&led, at).await
    }

    async fn stop(&mut self, worker: &str) -> Result<(), Error> {
        let led = self.scene.led_by(worker);
        let at = self.scene.signal(worker, Signal::Terminate)?;
        self.say.step(&format!(
            "asked {worker} to stop (SIGTERM), which led {}",
            names(&led)
        ));
        self.succession(&led, at).await?;
        self.scene.until_ended(worker).await
    }

    /// Waits until others lead what was led, and tells how long that took.
    async fn succession(&mut self, led: &[Led], since: Millis) -> Result<(), Error> {
        let mut shown_at = BTreeMap::new();
        self.scene
            .until("others lead", |scene, shown| {
                for led in led {
                    if scene.successor(led).is_some() && scene.is_shown(&led.stream, shown) {
                        shown_at.entry(led.stream.clone()).or_insert_with(clock::now);
                    }
                }
                shown_at.len() == led.len()
            })
            .await?;
        for led in led {
            if let (Some((worker, at)), Some(shown)) = (self.scene.successor(led), shown_at.get(&led.stream))
            {
                self.say.step(&format!(
                    "  {}: {worker} processed its first event {} later, and was shown {} later",
                    led.stream,
                    seconds(since, at),
                    seconds(since, *shown)
                ));
            }
        }
        Ok(())
    }

    /// A write of the dead leader, as if the network had held it back. Nothing but the token tells it from a good one.
    async fn late_write(&mut self, led: &Led) -> Result<(), Error> {
        let Led {
            stream,
            worker,
            token,
        } = led;
        let totals = &self.scene.sight().totals;
        let last = totals
            .iter()
            .find(|t| t.stream == *stream)
            .map_or(0, |t| t.processed);
        let request = format!("DONE {} {token} 0 {worker} {stream}", last + 1);
        let store = self.scene.crew().store();
        let answer = serve::ask(store, &request).await?;
        let Some(fence) = answer.strip_prefix("STALE ") else {
            let found = format!("  the store answered {answer} to a write under the old token {token}");
            return Err(Error::DoesNotHold(vec![found]));
        };
        self.say.step(&format!(
            "  {stream}: a late write in {worker}'s name, under token {token}: refused, the store has seen {fence}"
        ));
        Ok(())
    }

    async fn no_more_events(&mut self) -> Result<(), Error> {
        self.scene.crew().produce(false)?;
        self.scene
            .until("all events are processed", |scene, _| {
                scene
                    .sight()
                    .totals
                    .iter()
                    .all(|total| total.processed == total.produced)
            })
            .await?;
        self.say
            .step("no more events come, and all that came are processed");
        Ok(())
    }

    /// What the store's log says.
    fn judge(&self) -> Result<(), Error> {
        let sight = self.scene.sight();
        let summaries = summarize(&sight.log, &sight.totals);
        self.say.print(&format!("\n{}\n", table(&summaries)));
        let problems = |s: &StreamSummary| -> Vec<_> {
            s.problems
                .iter()
                .map(|problem| format!("  {}: {problem}", s.stream))
                .collect()
        };
        let problems: Vec<_> = summaries.iter().flat_map(problems).collect();
        if !problems.is_empty() {
            return Err(Error::DoesNotHold(problems));
        }
        self.say.print(
            "All of it held: each event processed once and in order, each leader under a higher token.\n",
        );
        Ok(())
    }

    async fn show(&self, arguments: &[&str]) -> Result<(), Error> {
        let output = self.scene.kubectl(arguments, "").await?;
        self.say
            .show(&format!("kubectl {}", arguments.join(" ")), &output);
        Ok(())
    }

    fn leader(&self, stream: &str) -> Result<Led, Error> {
        let nobody = || Error::DoesNotHold(vec![format!("  nobody leads {stream}")]);
        self.scene.leader(stream).ok_or_else(nobody)
    }

    fn end(self) -> Result<(), Error> {
        self.scene.strike()
    }

    /// Three workers and events again, and nobody watching.
    fn leave(mut self) -> Result<(), Error> {
        for (nth, worker) in WORKERS.iter().enumerate() {
            if self.scene.was_ended(worker) {
                self.scene.start_worker(nth)?;
            }
        }
        self.scene.crew().produce(true)?;
        let kills = self.kills();
        let left = self.scene.leave()?;
        let this = std::env::current_exe()?;
        self.say.print(&format!(
            "\nIt is all up, with {} at work again.\n\n  export KUBECONFIG={}\n  {} get csl -w\n  ls {}\n\nTo kill a leader: after {} s or so another leads what it led. The killed one is not started again.\n\n{kills}\nTo stop it:\n\n  {} down {}\n",
            list(&WORKERS.map(str::to_owned)),
            left.kubeconfig.display(),
            left.kubectl.display(),
            left.folder.join("logs").display(),
            TTL.as_secs(),
            this.display(),
            left.folder.display()
        ));
        Ok(())
    }

    /// A line for each worker that leads, to be pasted.
    fn kills(&self) -> String {
        let line = |worker: &&str| {
            let led = self.scene.led_by(worker);
            let pid = self.scene.pid(worker).filter(|_| !led.is_empty())?;
            Some(format!(
                "  kill -9 {pid}   # {worker}, which leads {}\n",
                names(&led)
            ))
        };
        WORKERS.iter().filter_map(line).collect()
    }
}

fn names(led: &[Led]) -> String {
    let names: Vec<_> = led.iter().map(|led| led.stream.clone()).collect();
    list(&names)
}
