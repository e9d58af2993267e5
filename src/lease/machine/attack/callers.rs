//! Who asks, when, and what the answers must be.

use super::{
    meddler::Meddler,
    process::{Answer, Op, Running},
    world::World,
    *,
};
use crate::lock::IfExpired;

pub(super) const TTLS: [u64; 5] = [700, 1500, 3000, 6000, 15_000];

impl World {
    pub(super) fn ask(&mut self) {
        let process = self.rng.index(self.processes.len());
        let p = &mut self.processes[process];
        if self.rng.chance(10) {
            return self.begin(process, Op::Read(Read::default()), None);
        }
        if p.running.iter().any(|r| !matches!(r.op, Op::Read(_))) {
            return;
        }
        let (index, what) = (self.rng.index(p.callers.len()), self.rng.below(10));
        self.ask_as(process, index, what);
    }

    fn ask_as(&mut self, process: usize, index: usize, what: u64) {
        let p = &mut self.processes[process];
        let stream = StreamName::new(STREAM).unwrap();
        let now = p.now(&self.server).at;
        let ttl = ttl(TTLS[self.rng.index(TTLS.len())]);
        let caller = &mut p.callers[index];
        let instance = caller.instance.clone();
        let holds = caller.grant.as_ref().is_some_and(|grant| now < grant.valid_until);
        if caller.by_term && !holds && !caller.unknown {
            caller.claim = Claim::Term(Term::random());
        }
        let claim = caller.claim.clone();
        // A shorter TTL binds whoever holds the same term, from the moment it is sent.
        let bound = now + ttl.holder_share();
        let op = match what {
            0..2 => Op::Release(Release::new(
                ReleaseRequest::new(&stream, &instance).claim(claim.clone()),
            )),
            2..6 if holds || self.rng.chance(10) => {
                let request = ExtendRequest::new(&stream, &instance, ttl).claim(claim.clone());
                let again = self.rng.chance(30);
                Op::Extend(Extend::new(request.if_expired(if again {
                    IfExpired::TakeAgain
                } else {
                    IfExpired::Refuse
                })))
            }
            _ => Op::Acquire(Acquire::new(
                AcquireRequest::new(&stream, &instance, ttl).claim(claim.clone()),
            )),
        };
        let release = matches!(op, Op::Release(_));
        for other in p.callers.iter_mut().filter(|other| other.instance == instance) {
            let Some(grant) = &mut other.grant else { continue };
            if claim != Claim::Instance && claim != Claim::Term(grant.term.clone()) {
                continue;
            }
            if release {
                other.grant = None;
            } else {
                grant.valid_until = grant.valid_until.min(bound);
            }
        }
        self.begin(process, op, Some(index));
    }

    /// A contender asks at the first moment at which it may believe that the record has expired, and is answered at once.
    pub(super) fn pounce(&mut self) {
        let process = self.rng.index(self.processes.len());
        let p = &self.processes[process];
        let gated = |r: &Running| !matches!(r.op, Op::Read(_));
        let (Some(seen), false) = (&p.machine.seen, p.running.iter().any(gated)) else {
            return;
        };
        let (expires, now) = (seen.sighting.expires(Duration::ZERO), p.now(&self.server).at);
        let wait = u64::try_from(expires.since(now).as_micros()).unwrap();
        if wait > 20_000_000 {
            return;
        }
        self.server.micros += wait * 1000 / p.rate + 1000;
        let index = self.rng.index(p.callers.len());
        self.ask_as(process, index, 9);
        let id = self.ids;
        while let Some(at) = self.flights.iter().position(|f| f.running == id) {
            let mut flight = self.flights.swap_remove(at);
            flight.reply = Some(self.server.handle(&flight.request));
            self.reply(flight);
        }
    }

    pub(super) fn answered(&mut self, process: usize, running: &Running, answer: Answer) {
        let p = &mut self.processes[process];
        let now = p.now(&self.server).at;
        let Some(caller) = running.caller else { return };
        let Answer::Outcome(answer) = answer else { return };
        let strict = self.meddler == Meddler::Nobody;
        let by_extension = matches!(running.op, Op::Extend(_));
        let caller = &mut p.callers[caller];
        let valid_before = caller.grant.as_ref().is_some_and(|grant| now < grant.valid_until);
        caller.unknown = false;
        match answer {
            Ok(Outcome::Granted(grant)) => {
                assert_eq!(grant.instance, caller.instance);
                let token = grant.token.unwrap().get();
                let highest = self.granted.values().copied().max().unwrap_or(0);
                match self.granted.get(&grant.term) {
                    Some(&known) => assert!(token >= known, "the token of a term fell"),
                    // Where a Lease is deleted under its holder, two may be granted at once, and the earlier be told later. That
                    // tokens rise in the order of the writes is checked at the server.
                    None if self.meddler == Meddler::Anything => {}
                    None => assert!(token > highest, "tokens rise: {token} after {highest}"),
                }
                if strict
                    && by_extension
                    && let (true, Some(before)) = (valid_before, &caller.grant)
                {
                    assert_eq!(before.term, grant.term, "an extension of a valid term keeps it");
                }
                self.takeovers += u64::from(!self.granted.contains_key(&grant.term));
                self.granted.insert(grant.term.clone(), token);
                self.grants += 1;
                if caller.by_term {
                    // What is taken again is under another term, and that is what there is to claim from here on.
                    caller.claim = Claim::Term(grant.term.clone());
                }
                caller.grant = Some(grant);
                if self.rng.chance(50) {
                    self.tell_all();
                }
            }
            Ok(Outcome::Unknown(_)) => caller.unknown = true,
            other => {
                assert!(
                    !(by_extension && valid_before && running.clean && strict),
                    "a valid holder's undisturbed extension was refused: {other:?}"
                );
                caller.grant = None;
            }
        }
        if by_extension && running.clean && valid_before && strict {
            assert_eq!(running.requests, 1, "an extension is one PUT");
        }
    }
}
