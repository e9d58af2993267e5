//! What must hold after every turn, and at the end.

use super::{
    callers::TTLS,
    meddler::Meddler,
    process::{Caller, Process},
    server::Request,
    world::World,
    *,
};

impl World {
    pub(super) fn check(&mut self) {
        let mut valid: Vec<(usize, &Caller, &Grant)> = Vec::new();
        for (index, p) in self.processes.iter().enumerate() {
            let now = p.now(&self.server).at;
            for caller in &p.callers {
                if let Some(grant) = caller.grant.as_ref().filter(|grant| now < grant.valid_until) {
                    valid.push((index, caller, grant));
                }
            }
        }
        // A term that an edit by others shortens is over for its machine before its caller is told. Then the same
        // instance may have a new one; nobody else may.
        let excused = |a: &(usize, &Caller, &Grant), b: &(usize, &Caller, &Grant)| {
            self.meddler != Meddler::Nobody && a.0 == b.0 && a.1.instance == b.1.instance
        };
        let clash = valid
            .iter()
            .any(|a| valid.iter().any(|b| a.2.term != b.2.term && !excused(a, b)));
        if clash && self.server.micros >= self.excused {
            for (process, caller, grant) in &valid {
                eprintln!(
                    "process {process}, {} {:?}: {grant:?}",
                    caller.instance, caller.claim
                );
            }
            panic!(
                "two valid terms at once at {:?}",
                Duration::from_micros(self.server.micros)
            );
        }
    }

    /// Everybody stops; whoever polls gets the lock within the longest TTL, by its own eyes alone.
    pub(super) fn ends_free(&mut self) {
        for flight in std::mem::take(&mut self.flights) {
            self.server.handle(&flight.request);
        }
        let stream = StreamName::new(STREAM).unwrap();
        let longest = match self.meddler {
            Meddler::Durations | Meddler::Anything => 20_000,
            _ => TTLS[TTLS.len() - 1],
        };
        let begun = self.server.micros;
        let mut machine = Machine::new(stream.clone(), STREAM.into(), "ns".into(), None);
        let id = InstanceId::new("probe").unwrap();
        loop {
            let now = Process {
                machine: machine.clone(),
                rate: 1000,
                origin: Duration::ZERO,
                wall: 0,
                running: Vec::new(),
                callers: Vec::new(),
            }
            .now(&self.server);
            let mut acquire = Acquire::new(AcquireRequest::new(&stream, &id, ttl(1000)));
            let mut step = acquire.step(&mut machine, now, Input::Continue);
            let outcome = loop {
                let request = match step {
                    Step::Get => Request::Get,
                    Step::Create(lease) => Request::Create(lease),
                    Step::Put(lease) => Request::Put(lease),
                    Step::Done(answer) => break answer.unwrap(),
                    Step::Wait(_) => panic!("nothing fails here"),
                };
                let reply = self.server.handle(&request);
                step = acquire.step(&mut machine, now, reply);
            };
            if outcome.is_granted() {
                return;
            }
            let waited = (self.server.micros - begun) / 1000;
            assert!(
                waited <= longest + 100,
                "still not free after {waited} ms: {outcome:?}"
            );
            self.server.micros += 100_000;
        }
    }
}
