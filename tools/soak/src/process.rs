//! One of the processes from outside: started, killed, listened to, and asked to end.

use std::{
    collections::BTreeSet,
    os::unix::process::ExitStatusExt,
    process::Stdio,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use leasewarden_faultproxy::FaultProxy;
use rustix::process::{Pid, Signal};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, ChildStdout, Command},
    task::JoinSet,
};

use crate::{
    Error,
    checker::Checker,
    node::{Line, Part},
};

/// What the processes said.
#[derive(Debug, Clone, Default)]
pub(crate) struct Heard(Arc<Mutex<Said>>);

#[derive(Debug, Default)]
struct Said {
    checker: Checker,
    /// Lines that nobody can read.
    unreadable: Vec<String>,
    /// Whose last line ends in the middle, and who was killed: only those may.
    cut_short: BTreeSet<usize>,
    killed: BTreeSet<usize>,
}

impl Heard {
    fn said(&self) -> MutexGuard<'_, Said> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at what was heard so far.
    pub(crate) fn checker<T>(&self, look: impl FnOnce(&Checker) -> T) -> T {
        look(&self.said().checker)
    }

    /// What was said and cannot be taken into account.
    pub(crate) fn unreadable(&self) -> Vec<String> {
        let said = self.said();
        let mut all = said.unreadable.clone();
        let without_reason = said.cut_short.difference(&said.killed);
        all.extend(without_reason.map(|life| format!("half a line of process {life}, which nobody killed")));
        all
    }

    fn hear(&self, who: usize, line: &[u8]) {
        match serde_json::from_slice::<Line>(line) {
            Ok(line) => self.said().checker.hear(who, &line),
            Err(_) if !line.ends_with(b"\n") => {
                self.said().cut_short.insert(who);
            }
            Err(error) => {
                let line = String::from_utf8_lossy(line).into_owned();
                self.said()
                    .unreadable
                    .push(format!("process {who}: {error}: {line}"));
            }
        }
    }
}

/// A process, and its way to the server. Killed when dropped, and by the kernel when the driver is.
pub(crate) struct Node {
    number: usize,
    /// How often it was started.
    lives: usize,
    pub(crate) proxy: FaultProxy,
    part: Part,
    seed: u64,
    child: Option<Child>,
    heard: Heard,
    listening: JoinSet<()>,
}

impl Node {
    pub(crate) fn new(number: usize, proxy: FaultProxy, part: Part, heard: Heard) -> Self {
        let seed = part.seed;
        Self {
            number,
            lives: 0,
            proxy,
            part,
            seed,
            child: None,
            heard,
            listening: JoinSet::new(),
        }
    }

    /// What the process is called by the checker: one that is started again is another.
    pub(crate) fn life(&self) -> usize {
        self.number + 1000 * self.lives
    }

    pub(crate) fn id(&self) -> &str {
        &self.part.id
    }

    /// Call it on the main thread: the kernel ends the process when the thread does that started it.
    pub(crate) fn start(&mut self) -> Result<(), Error> {
        self.lives += 1;
        let life = self.life();
        let part = &self.part;
        let seed = self.seed.wrapping_add(u64::try_from(life)?);
        let mut child = Command::new(std::env::current_exe()?)
            .arg("node")
            .arg("--kubeconfig")
            .arg(&part.kubeconfig)
            .args(["--id", &part.id])
            .args(["--namespace", &part.namespace])
            .args(["--store", &part.store])
            .args(["--streams", &part.streams.to_string()])
            .args(["--ttl", &part.ttl.to_string()])
            .args(["--term-ms", &part.term_ms.to_string()])
            .args(["--seed", &seed.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let stdout = child.stdout.take().ok_or("the process has no output")?;
        self.listening.spawn(listen(stdout, self.heard.clone(), life));
        self.child = Some(child);
        Ok(())
    }

    pub(crate) fn pid(&self) -> Result<Pid, Error> {
        let id = self
            .child
            .as_ref()
            .and_then(Child::id)
            .ok_or_else(|| format!("{} ended by itself", self.part.id))?;
        Pid::from_raw(i32::try_from(id)?).ok_or_else(|| "no process".into())
    }

    /// Nobody but this program ends the processes.
    fn is_alive(&mut self) -> Result<(), Error> {
        match self.child.as_mut().map(Child::try_wait) {
            Some(Ok(None)) => Ok(()),
            ended => Err(format!("{} ended by itself: {ended:?}", self.part.id).into()),
        }
    }

    /// Whether the kernel says that it died of it.
    pub(crate) async fn kill(&mut self) -> Result<bool, Error> {
        self.is_alive()?;
        self.heard.said().killed.insert(self.life());
        let Some(mut child) = self.child.take() else {
            return Ok(false);
        };
        child.start_kill()?;
        Ok(child.wait().await?.signal() == Some(Signal::KILL.as_raw()))
    }

    /// Asks it to end, and waits until all that it said is heard.
    pub(crate) async fn end(&mut self) -> Result<(), Error> {
        let Some(mut child) = self.child.take() else {
            return Ok(());
        };
        drop(child.stdin.take());
        match tokio::time::timeout(Duration::from_secs(30), child.wait()).await {
            Ok(status) => {
                let status = status?;
                if !status.success() {
                    return Err(format!("{} ended with {status}", self.part.id).into());
                }
            }
            Err(_) => {
                child.kill().await?;
                return Err(format!("{} did not end when it was asked to", self.part.id).into());
            }
        }
        while self.listening.join_next().await.is_some() {}
        Ok(())
    }
}

async fn listen(stdout: ChildStdout, heard: Heard, who: usize) {
    let mut stdout = BufReader::new(stdout);
    let mut line = Vec::new();
    while stdout
        .read_until(b'\n', &mut line)
        .await
        .is_ok_and(|read| read > 0)
    {
        heard.hear(who, &line);
        line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_line_of_a_process_that_was_killed_may_end_in_the_middle() {
        let heard = Heard::default();
        heard.said().killed.insert(1);
        heard.hear(1, br#"{"stream":"a","tok"#);
        assert_eq!(heard.unreadable(), Vec::<String>::new());
        heard.hear(2, br#"{"stream":"a","tok"#);
        heard.hear(1, b"{\"stream\":\"a\",\"tok\n");
        assert_eq!(heard.unreadable().len(), 2);
    }
}
