//! What comes from outside: edits by third parties, news of a watch, memory that is lost.

use super::{process::Op, world::World, *};

/// What third parties do in a run. None of it deletes or rewrites a held Lease in a way that the lock does not promise
/// to survive, unless it is [`Anything`](Self::Anything).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meddler {
    Nobody,
    Labels,
    Annotations,
    WipedHolders,
    Durations,
    RenewTimes,
    Anything,
}

impl World {
    pub(super) fn meddle(&mut self) {
        let Some(mut lease) = self.server.lease.clone() else {
            return;
        };
        let spec = lease.spec.get_or_insert_default();
        let mut kind = self.meddler;
        if kind == Meddler::Anything {
            use Meddler::{Annotations, Anything, Durations, Labels, RenewTimes, WipedHolders};
            let kinds = [Labels, Annotations, WipedHolders, Durations, RenewTimes, Anything];
            kind = kinds[self.rng.index(kinds.len())];
            self.excused = self.server.micros + 18_000_000;
        }
        match kind {
            Meddler::Nobody => return,
            Meddler::Labels => {
                let n = self.rng.below(100).to_string();
                lease.metadata.labels = self.rng.chance(50).then(|| [("n".to_owned(), n)].into());
            }
            Meddler::Annotations => lease.metadata.annotations = None,
            Meddler::WipedHolders => {
                spec.holder_identity = self.rng.chance(50).then(String::new);
                if self.rng.chance(50) {
                    spec.lease_duration_seconds = Some(1);
                    spec.renew_time = crate::lease::time::micro_time(self.server.wall());
                }
            }
            Meddler::Durations => {
                spec.lease_duration_seconds = Some(i64::try_from(self.rng.below(20)).unwrap() - 1);
            }
            Meddler::RenewTimes => {
                let at = self.server.wall() + Duration::from_secs(self.rng.below(10_000));
                // Never back to what was there before: who puts an old renewTime back hides a renewal from everybody, and
                // no lock survives that. So it is taken away at most once.
                let before = |l: &Lease| {
                    l.spec
                        .as_ref()
                        .is_some_and(|s| s.renew_time.is_none() && s.holder_identity.is_some())
                };
                let away = !self.rng.chance(80) && !self.server.history.iter().any(before);
                spec.renew_time = (!away).then(|| crate::lease::time::micro_time(at).unwrap());
            }
            Meddler::Anything => match self.rng.below(4) {
                0 | 1 => return self.server.lease = None,
                2 => spec.holder_identity = Some("foreign".into()),
                _ => spec.lease_transitions = Some(i64::try_from(self.rng.below(9)).unwrap()),
            },
        }
        self.server.store(lease);
    }

    /// A watch brings some version, new or old, or says that there is none.
    pub(super) fn news(&mut self) {
        let process = self.rng.index(self.processes.len());
        let len = self.server.history.len();
        if self.server.lease.is_none() && self.rng.chance(50) {
            return self.begin(process, Op::Read(Read::default()), None);
        }
        if len == 0 {
            return;
        }
        let back = self.rng.index(len.min(6));
        let lease = self.server.history[len - 1 - back].clone();
        let p = &mut self.processes[process];
        let now = p.now(&self.server).at;
        p.machine.observe(now, lease).unwrap();
    }

    /// A watch that is quick.
    pub(super) fn tell_all(&mut self) {
        for p in &mut self.processes {
            if let Some(lease) = &self.server.lease {
                let now = p.now(&self.server).at;
                p.machine.observe(now, lease.clone()).unwrap();
            }
        }
    }

    pub(super) fn forget(&mut self) {
        let process = self.rng.index(self.processes.len());
        let p = &mut self.processes[process];
        let now = p.now(&self.server).at;
        if p.running.is_empty() && p.machine.may_be_forgotten(now) {
            let allowance = p.machine.allowance;
            p.machine = Machine::new(
                StreamName::new(STREAM).unwrap(),
                STREAM.into(),
                "ns".into(),
                allowance,
            );
        }
    }
}
