//! What third parties do to the Lease, and what of it excuses two guards at once.

use super::{
    super::{Lease, Machine},
    bounds::Meddling,
    server::wall,
    state::State,
};
use crate::lease::time::micro_time;

impl State {
    pub(super) fn meddle(&mut self, meddling: Meddling) {
        let found = self.server.lease.clone().expect("there is a Lease");
        let term = found.term().map(str::to_owned);
        let mut lease = Lease::clone(&found.lease);
        let spec = lease.spec.get_or_insert_default();
        match meddling {
            Meddling::Labels => lease.metadata.labels = None,
            Meddling::ShorterTtl => spec.lease_duration_seconds = Some(1),
            Meddling::LongerTtl => spec.lease_duration_seconds = Some(5),
            Meddling::Wipe => {
                spec.holder_identity = Some(String::new());
                spec.lease_duration_seconds = Some(1);
                spec.renew_time = micro_time(wall(self.time));
            }
            Meddling::Delete => {
                if let Some(term) = term {
                    let knows = |machine: &Machine| {
                        machine.seen.as_ref().is_some_and(|seen| {
                            let mark = seen.record.mark.as_ref();
                            seen.record.uid == found.record.uid && mark.is_some_and(|mark| mark.id == term)
                        })
                    };
                    let mut who = 0;
                    for (at, process) in self.processes.iter().enumerate() {
                        who |= u8::from(knows(&process.machine)) << at;
                    }
                    self.deleted.push((term, who));
                }
                self.server.lease = None;
                // What is written next is a later version.
                self.server.version += 1;
                return;
            }
            Meddling::TakeOver => {
                self.rewritten.extend(term);
                spec.holder_identity = Some("foreign".to_owned());
                spec.renew_time = micro_time(wall(self.time));
                spec.lease_transitions = spec.lease_transitions.map(|n| n + 1);
                spec.lease_duration_seconds = Some(2);
            }
            Meddling::Transitions => {
                self.rewritten.extend(term);
                spec.lease_transitions = Some(0);
            }
        }
        self.server.store(self.time, lease);
    }
}
