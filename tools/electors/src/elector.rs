//! An elector's process, and the lines that it prints.

use std::io::{self, BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;

use crate::now;

/// What a line is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    /// The process contends.
    Ready,
    /// It leads: the work begins.
    Elected,
    /// Its leadership was renewed. Ours tells; client-go does not.
    Renewed,
    /// The work did something.
    Effect,
    /// The work has ended.
    Ended,
    /// Leading is over, the release included.
    Stopped,
    /// It has learned who leads.
    Leader,
}

/// A line.
#[derive(Debug, Clone, Deserialize)]
pub struct Event {
    /// When, as [`now`].
    pub at: u64,
    /// What.
    pub event: What,
    /// The Lease; empty where it is about the whole process.
    #[serde(default)]
    pub lease: String,
    /// Who says so.
    pub id: String,
    /// With [`What::Leader`]: who leads, empty for nobody.
    #[serde(default)]
    pub leader: String,
}

#[derive(Debug, Default)]
struct Heard {
    events: Mutex<Events>,
    more: Condvar,
}

#[derive(Debug, Default)]
struct Events {
    all: Vec<Event>,
    /// Nothing follows: the process has closed its output.
    end: bool,
}

impl Heard {
    fn lock(&self) -> MutexGuard<'_, Events> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A process that contends. Killed when this is dropped; it ends by itself when we die, since its standard input ends.
#[derive(Debug)]
pub struct Elector {
    child: Child,
    heard: Arc<Heard>,
    reader: Option<JoinHandle<()>>,
    ended: Option<ExitStatus>,
}

impl Elector {
    /// Starts a program that speaks these lines. What it says on its standard error comes out on ours when `loud`.
    pub fn start<A: AsRef<str>>(program: &Path, arguments: &[A], loud: bool) -> io::Result<Self> {
        let mut child = Command::new(program)
            .args(arguments.iter().map(AsRef::as_ref))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(if loud { Stdio::inherit() } else { Stdio::null() })
            .spawn()?;
        let heard = Arc::new(Heard::default());
        let listener = Arc::clone(&heard);
        let stdout = child
            .stdout
            .take()
            .ok_or_else(|| io::Error::other("no output to read"))?;
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                match serde_json::from_str(&line) {
                    Ok(event) => listener.lock().all.push(event),
                    Err(error) => eprintln!("not a line of an elector ({error}): {line}"),
                }
                listener.more.notify_all();
            }
            listener.lock().end = true;
            listener.more.notify_all();
        });
        Ok(Self {
            child,
            heard,
            reader: Some(reader),
            ended: None,
        })
    }

    /// All lines so far.
    pub fn events(&self) -> Vec<Event> {
        self.heard.lock().all.clone()
    }

    /// The first line that is such; waits for it, at most so long. `None` when it did not come.
    pub fn wait_for(&self, such: impl Fn(&Event) -> bool, limit: Duration) -> Option<Event> {
        self.wait_until(|events| events.iter().find(|event| such(event)).cloned(), limit)
    }

    /// Waits until the lines so far show something, at most so long.
    pub fn wait_until<T>(&self, look: impl Fn(&[Event]) -> Option<T>, limit: Duration) -> Option<T> {
        let begun = Instant::now();
        let mut events = self.heard.lock();
        loop {
            if let Some(found) = look(&events.all) {
                return Some(found);
            }
            let left = limit.checked_sub(begun.elapsed())?;
            if events.end {
                return None;
            }
            let woken = self.heard.more.wait_timeout(events, left);
            events = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether it has told of a leadership that it has not told the end of.
    pub fn leads(&self, lease: &str) -> bool {
        let heard = self.heard.lock();
        let mut events = heard.all.iter().rev().filter(|event| event.lease == lease);
        events.find_map(|event| match event.event {
            What::Elected => Some(true),
            What::Ended => Some(false),
            _ => None,
        }) == Some(true)
    }

    /// SIGTERM: it ends its work, releases, and exits.
    pub fn terminate(&self) -> io::Result<()> {
        self.signal(Signal::TERM)
    }

    /// SIGSTOP: it stands still. Returns a moment before that.
    pub fn pause(&self) -> io::Result<u64> {
        let before = now();
        self.signal(Signal::STOP)?;
        Ok(before)
    }

    /// SIGCONT.
    pub fn resume(&self) -> io::Result<()> {
        self.signal(Signal::CONT)
    }

    /// SIGKILL. Returns a moment before that; once it returns, the process is gone and all it said has been read.
    pub fn kill(&mut self) -> io::Result<u64> {
        let before = now();
        self.child.kill()?;
        self.wait()?;
        Ok(before)
    }

    /// Whether it has exited.
    pub fn has_ended(&mut self) -> io::Result<bool> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait()?;
        }
        Ok(self.ended.is_some())
    }

    /// Waits until it has exited and all that it said has been read.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        // Not `Child::wait`: it closes the standard input, which would end it another way.
        let status = loop {
            if let (true, Some(status)) = (self.has_ended()?, self.ended) {
                break status;
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
        Ok(status)
    }

    /// Waits until it has exited after [`terminate`](Self::terminate), and tells whether it did so in order.
    pub fn wait_ended_well(&mut self) -> io::Result<()> {
        let status = self.wait()?;
        if status.success() {
            return Ok(());
        }
        let signal = status.signal();
        Err(io::Error::other(format!(
            "the elector ended with {status} (signal {signal:?})"
        )))
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        match Pid::from_raw(self.child.id().cast_signed()) {
            // Not waited for yet, so its id is still its own.
            Some(pid) if self.ended.is_none() => Ok(kill_process(pid, signal)?),
            _ => Err(io::Error::other("the elector has ended")),
        }
    }
}

impl Drop for Elector {
    fn drop(&mut self) {
        if self.ended.is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}
