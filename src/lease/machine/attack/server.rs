//! The server: the compare-and-set of the real one, a clock, and every version there ever was.

use std::time::UNIX_EPOCH;

use serde_json::json;

use super::*;

#[derive(Default)]
pub(super) struct Server {
    /// True time, in microseconds.
    pub(super) micros: u64,
    pub(super) version: u64,
    pub(super) uids: u64,
    pub(super) lease: Option<Lease>,
    /// Every version there ever was, for watches that are late.
    pub(super) history: Vec<Lease>,
    /// The highest token that a write of ours has stored, and its term.
    pub(super) token: i64,
    pub(super) term: String,
}

impl Server {
    pub(super) fn wall(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_700_000_000) + Duration::from_micros(self.micros)
    }

    fn date(&self) -> SystemTime {
        let since = self.wall().duration_since(UNIX_EPOCH).unwrap();
        UNIX_EPOCH + Duration::from_secs(since.as_secs())
    }

    pub(super) fn store(&mut self, mut lease: Lease) -> Lease {
        let changed = self.lease.as_ref().is_none_or(|old| old.spec != lease.spec);
        if self.lease.as_ref() == Some(&lease) {
            return lease;
        }
        self.version += 1;
        lease.metadata.resource_version = Some(self.version.to_string());
        if changed {
            let time = crate::lease::time::micro_time(self.date()).unwrap();
            lease.metadata.managed_fields =
                serde_json::from_value(json!([{"time": time, "fieldsV1": {"f:spec": {}}}])).unwrap();
        }
        self.history.push(lease.clone());
        self.lease = Some(lease.clone());
        lease
    }

    pub(super) fn handle(&mut self, request: &Request) -> Input {
        let date = Some(self.date());
        let reply = |lease| Input::Lease(Box::new(lease), date);
        match (request, &self.lease) {
            (Request::Get, Some(lease)) => reply(lease.clone()),
            (Request::Get, None) => Input::Missing,
            (Request::Create(_), Some(_)) | (Request::Put(_), None) => Input::Conflict,
            (Request::Create(lease), None) => {
                let mut lease = lease.clone();
                self.uids += 1;
                lease.metadata.uid = Some(format!("uid-{}", self.uids));
                reply(self.store(lease))
            }
            (Request::Put(lease), Some(found)) => {
                let (sent, found) = (&lease.metadata, &found.metadata);
                if sent.uid != found.uid || sent.resource_version != found.resource_version {
                    return Input::Conflict;
                }
                let stored = self.store(lease.clone());
                self.check_token(&stored);
                reply(stored)
            }
        }
    }

    fn check_token(&mut self, stored: &Lease) {
        let record = Record::read(stored).unwrap();
        let (Some(mark), Some(token)) = (record.believed(), record.shown_token()) else {
            return;
        };
        if mark.id == self.term {
            assert!(token.get() >= self.token, "the token of a term fell");
        } else {
            assert!(token.get() > self.token, "a new term without a higher token");
        }
        (self.term, self.token) = (mark.id.clone(), token.get());
    }
}

#[derive(Debug, Clone)]
pub(super) enum Request {
    Get,
    Create(Lease),
    Put(Lease),
}
