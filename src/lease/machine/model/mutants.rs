//! What a machine does that breaks a rule, where that is more than leaving something out.

use super::super::{Acquire, Grant, Machine, Now, Outcome, Record, Seen, Sighting, Step, write};
use crate::{
    lock::{LockError, Ttl},
    rules::Rule,
};

impl Machine {
    /// Without [`Rule::GrantIsWrite`]: a read that shows our valid term grants it for another TTL.
    pub(in super::super) fn already_mine(&mut self, now: Now, ttl: Ttl) -> Option<Grant> {
        if self.rules.keeps(Rule::GrantIsWrite) {
            return None;
        }
        let own = self.own.as_ref()?;
        let mut grant = own.grant()?;
        grant.valid_until = grant.valid_until.max(now.at + ttl.holder_share());
        Some(grant)
    }
}

impl Acquire {
    /// Without [`Rule::CreatedFree`]: a missing Lease is created with its holder, under the only token that there can be.
    pub(in super::super) fn create_held(
        &mut self,
        machine: &mut Machine,
        now: Now,
    ) -> Step<Result<Outcome, LockError>> {
        let mut lease = write::free(&machine.name, &machine.namespace, &machine.stream);
        lease.metadata.uid = Some("none yet".to_owned());
        lease.metadata.resource_version = Some("0".to_owned());
        let record = Record::read(&lease).unwrap();
        let sighting = Sighting::new(now.at, &record);
        machine.seen = Some(Seen {
            lease,
            record,
            sighting,
        });
        match self.write(machine, now, write::Holder::Changes) {
            Step::Put(mut lease) => {
                machine.seen = None;
                lease.metadata.uid = None;
                lease.metadata.resource_version = None;
                Step::Create(lease)
            }
            other => other,
        }
    }
}
