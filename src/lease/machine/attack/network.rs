//! The network: requests and replies are lost, delayed, held, doubled, and time out.

use super::{
    process::{Op, Running},
    server::Request,
    world::World,
    *,
};

pub(super) struct Flight {
    pub(super) process: usize,
    pub(super) running: u64,
    pub(super) request: Request,
    pub(super) reply: Option<Input>,
}

impl World {
    pub(super) fn begin(&mut self, process: usize, op: Op, caller: Option<usize>) {
        self.ids += 1;
        let running = Running {
            id: self.ids,
            op,
            caller,
            until: Moment::NEVER,
            waiting: false,
            clean: true,
            requests: 0,
        };
        let id = running.id;
        self.processes[process].running.push(running);
        self.step(process, id, Input::Continue);
    }

    fn step(&mut self, process: usize, id: u64, input: Input) {
        let p = &mut self.processes[process];
        let Some(at) = p.running.iter().position(|r| r.id == id) else {
            return;
        };
        let now = p.now(&self.server);
        let mut running = p.running.swap_remove(at);
        let step = running.op.step(&mut p.machine, now, input);
        running.until = now.at + running.op.timeout();
        running.waiting = false;
        let request = match step {
            Step::Get => Request::Get,
            Step::Create(lease) => Request::Create(lease),
            Step::Put(lease) => Request::Put(lease),
            Step::Wait(pause) => {
                (running.until, running.waiting) = (now.at + pause, true);
                p.running.push(running);
                return;
            }
            Step::Done(answer) => return self.answered(process, &running, answer),
        };
        running.requests += 1;
        p.running.push(running);
        self.flights.push(Flight {
            process,
            running: id,
            request,
            reply: None,
        });
    }

    pub(super) fn network(&mut self) {
        if self.flights.is_empty() {
            return self.ask();
        }
        let at = self.rng.index(self.flights.len());
        let fate = self.rng.below(100);
        let flight = &mut self.flights[at];
        let (process, id) = (flight.process, flight.running);
        if flight.reply.is_none() {
            match fate {
                0..3 => drop(self.flights.swap_remove(at)),
                3..5 => {
                    self.flights.swap_remove(at);
                    self.fail(process, id);
                }
                // Applied twice: the reply is the second one's.
                5..8 => {
                    self.server.handle(&flight.request);
                    flight.reply = Some(self.server.handle(&flight.request));
                    self.disturbed(process, id);
                }
                8..80 => flight.reply = Some(self.server.handle(&flight.request)),
                _ => {}
            }
        } else if fate < 90 {
            let flight = self.flights.swap_remove(at);
            match fate {
                0..4 => {}
                4..8 => self.fail(process, id),
                _ => self.reply(flight),
            }
        }
    }

    fn disturbed(&mut self, process: usize, id: u64) {
        for running in &mut self.processes[process].running {
            running.clean &= running.id != id;
        }
    }

    fn fail(&mut self, process: usize, id: u64) {
        self.disturbed(process, id);
        let waiting = |r: &Running| r.id == id && !r.waiting;
        if self.processes[process].running.iter().any(waiting) && !self.newer(process, id) {
            self.step(process, id, Input::Unknown(Unknown::new("broken")));
        }
    }

    /// Whether the operation has another request under way: then this one is one that it has given up.
    fn newer(&self, process: usize, id: u64) -> bool {
        self.flights
            .iter()
            .any(|f| f.process == process && f.running == id)
    }

    pub(super) fn reply(&mut self, flight: Flight) {
        let Flight {
            process,
            running,
            reply,
            ..
        } = flight;
        let waits = |r: &Running| r.id == running && !r.waiting;
        // A reply to an attempt that timed out reaches nobody.
        let timed_out = self.processes[process]
            .running
            .iter()
            .any(|r| r.id == running && r.requests > 1)
            && self.newer(process, running);
        if self.processes[process].running.iter().any(waits) && !timed_out {
            self.step(process, running, reply.unwrap());
        }
    }

    /// Time-outs, and waits that are over.
    pub(super) fn clocks(&mut self) {
        for process in 0..self.processes.len() {
            let p = &self.processes[process];
            let now = p.now(&self.server).at;
            let due: Vec<_> = p
                .running
                .iter()
                .filter(|r| now >= r.until)
                .map(|r| (r.id, r.waiting))
                .collect();
            for (id, waiting) in due {
                self.disturbed(process, id);
                let input = if waiting {
                    Input::Continue
                } else {
                    Input::Unknown(Unknown::new("timed out"))
                };
                // What timed out may reach the server yet, but its reply reaches nobody.
                for flight in &mut self.flights {
                    if flight.process == process && flight.running == id {
                        flight.running = 0;
                    }
                }
                self.step(process, id, input);
            }
        }
    }
}
