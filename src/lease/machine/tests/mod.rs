//! Schedules that a real API server does not produce on demand: replies lost, late or never, writes applied later.
//!
//! The fake has just the compare-and-set of the real one; that both agree on it is tested on the real one
//! (`tests/integration`).

#![allow(clippy::unused_self, clippy::unnecessary_wraps)]

mod acquire;
mod extend;
mod news;
mod read;
mod release;

use std::{collections::VecDeque, time::UNIX_EPOCH};

use serde_json::json;

use super::*;
use crate::lock::{FencingToken, Grant, IfExpired};

/// What happens to one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// Applied; the reply is lost after the attempt's time-out.
    DropReply,
    /// Never applied, never answered.
    Lost,
    /// Applied only when the test says so; not answered in time.
    Hold,
    /// Answered after this many milliseconds.
    Late(u64),
}

struct World {
    at: Moment,
    wall: SystemTime,
    version: u64,
    lease: Option<Lease>,
    held: Vec<Lease>,
    faults: VecDeque<Fault>,
    /// Requests that were sent, by verb.
    sent: Vec<&'static str>,
    uids: u64,
}

impl World {
    fn new() -> Self {
        Self {
            at: Moment::from_origin(Duration::from_secs(1000)),
            wall: UNIX_EPOCH + Duration::from_secs(1_700_000_000),
            version: 10,
            lease: None,
            held: Vec::new(),
            faults: VecDeque::new(),
            sent: Vec::new(),
            uids: 0,
        }
    }

    fn machine(&self) -> Machine {
        let stream = StreamName::new("orders").unwrap();
        Machine::new(stream, "orders".into(), "ns".into(), Some(Duration::from_secs(5)))
    }

    fn advance(&mut self, millis: u64) {
        self.at = self.at + Duration::from_millis(millis);
        self.wall += Duration::from_millis(millis);
    }

    fn now(&self) -> Now {
        Now {
            at: self.at,
            wall: self.wall,
        }
    }

    fn store(&mut self, mut lease: Lease, spec_changed: bool) -> Lease {
        self.version += 1;
        lease.metadata.resource_version = Some(self.version.to_string());
        if spec_changed {
            let time = httpdate_seconds(self.wall);
            lease.metadata.managed_fields =
                serde_json::from_value(json!([{"manager": "m", "time": time, "fieldsV1": {"f:spec": {}}}]))
                    .unwrap();
        }
        self.lease = Some(lease.clone());
        lease
    }

    fn put(&mut self, lease: Lease) -> Option<Lease> {
        let stored = self.lease.as_ref()?;
        let (sent, found) = (&lease.metadata, &stored.metadata);
        assert!(
            sent.uid.is_some() && sent.resource_version.is_some(),
            "every write carries both"
        );
        let same = sent.uid == found.uid && sent.resource_version == found.resource_version;
        same.then(|| self.store(lease, true))
    }

    fn create(&mut self, mut lease: Lease) -> Option<Lease> {
        if self.lease.is_some() {
            return None;
        }
        self.uids += 1;
        lease.metadata.uid = Some(format!("uid-{}", self.uids));
        Some(self.store(lease, true))
    }

    /// A write that another tool makes, with no regard for us.
    fn edit(&mut self, edit: impl FnOnce(&mut Lease)) {
        let mut lease = self.lease.clone().unwrap();
        let before = lease.spec.clone();
        edit(&mut lease);
        let changed = before != lease.spec;
        self.store(lease, changed);
    }

    /// Applies the writes that were held, as far as the compare-and-set lets them.
    fn deliver(&mut self) -> usize {
        let held = std::mem::take(&mut self.held);
        held.into_iter().filter_map(|lease| self.put(lease)).count()
    }

    fn date(&self) -> Option<SystemTime> {
        let whole = self.wall.duration_since(UNIX_EPOCH).unwrap().as_secs();
        Some(UNIX_EPOCH + Duration::from_secs(whole))
    }

    fn run<O: Operation>(&mut self, machine: &mut Machine, mut operation: O) -> O::Answer {
        let mut input = Input::Continue;
        for _ in 0..10_000 {
            let step = operation.step(machine, self.now(), input);
            let fault = match step {
                Step::Wait(_) | Step::Done(_) => Fault::None,
                _ => self.faults.pop_front().unwrap_or(Fault::None),
            };
            let timeout = u64::try_from(operation.attempt_timeout().as_millis()).unwrap();
            let date = self.date();
            let reply = |lease: Option<Lease>, none: Input| match lease {
                Some(lease) => Input::Lease(Box::new(lease), date),
                None => none,
            };
            let answer = match step {
                Step::Done(answer) => return answer,
                Step::Wait(pause) => {
                    self.advance(u64::try_from(pause.as_millis()).unwrap());
                    Input::Continue
                }
                Step::Get => {
                    self.sent.push("get");
                    reply(self.lease.clone(), Input::Missing)
                }
                Step::Create(lease) => {
                    self.sent.push("create");
                    let made = if fault == Fault::Lost {
                        None
                    } else {
                        self.create(lease)
                    };
                    reply(made, Input::Conflict)
                }
                Step::Put(lease) => {
                    self.sent.push("put");
                    match fault {
                        Fault::Lost => Input::Conflict,
                        Fault::Hold => {
                            self.held.push(lease);
                            Input::Conflict
                        }
                        _ => {
                            let put = self.put(lease);
                            reply(put, Input::Conflict)
                        }
                    }
                }
            };
            input = match fault {
                Fault::None => answer,
                Fault::Late(millis) => {
                    self.advance(millis);
                    answer
                }
                Fault::DropReply | Fault::Lost | Fault::Hold => {
                    self.advance(timeout);
                    Input::Unknown(Unknown::new("no reply"))
                }
            };
        }
        panic!("the operation does not end: {:?}", &self.sent[..20]);
    }

    fn acquire(&mut self, machine: &mut Machine, id: &str, secs: u64) -> Outcome {
        self.run(
            machine,
            Acquire::new(AcquireRequest::new(&stream(), &instance(id), ttl(secs))),
        )
        .unwrap()
    }

    fn granted(&mut self, machine: &mut Machine, id: &str, secs: u64) -> Grant {
        match self.acquire(machine, id, secs) {
            Outcome::Granted(grant) => grant,
            other => panic!("{other:?}"),
        }
    }

    fn extend(&mut self, machine: &mut Machine, id: &str, secs: u64) -> Outcome {
        self.run(
            machine,
            Extend::new(ExtendRequest::new(&stream(), &instance(id), ttl(secs))),
        )
        .unwrap()
    }

    fn release(&mut self, machine: &mut Machine, id: &str) -> Released {
        self.run(
            machine,
            Release::new(ReleaseRequest::new(&stream(), &instance(id))),
        )
        .unwrap()
    }

    fn holder(&self) -> String {
        self.lease
            .as_ref()
            .and_then(|l| l.spec.as_ref()?.holder_identity.clone())
            .unwrap_or_default()
    }
}

fn httpdate_seconds(at: SystemTime) -> String {
    let text = crate::lease::time::micro_time(at).unwrap_or("9999-12-30T00:00:00.000000Z".into());
    format!("{}Z", &text[..19])
}

fn stream() -> StreamName {
    StreamName::new("orders").unwrap()
}

fn instance(id: &str) -> InstanceId {
    InstanceId::new(id).unwrap()
}

fn ttl(secs: u64) -> Ttl {
    Ttl::from_secs(secs).unwrap()
}
