//! The API server of the model: one Lease, its compare-and-set, and every version that there was.

use std::{
    fmt::Debug,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use serde_json::json;

use super::super::{Duration, Lease, Record};
use crate::lease::time::micro_time;

/// A value by its `Debug` text: production types need no `Hash` of their own for that, and it leaves nothing out.
pub(super) fn digest(value: &impl Debug) -> u64 {
    struct Text(DefaultHasher);
    impl std::fmt::Write for Text {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            self.0.write(text.as_bytes());
            Ok(())
        }
    }
    let mut text = Text(DefaultHasher::new());
    std::fmt::write(&mut text, format_args!("{value:?}")).unwrap();
    text.0.finish()
}

/// One stored version, and what it says.
#[derive(Debug)]
pub(super) struct Version {
    pub(super) lease: Lease,
    pub(super) record: Record,
    digest: u64,
}

impl Version {
    /// The term that holds by this version.
    pub(super) fn term(&self) -> Option<&str> {
        let mark = self.record.believed()?;
        (!mark.released).then_some(mark.id.as_str())
    }
}

#[derive(Debug, Clone)]
pub(super) enum Request {
    Get,
    Create(Arc<Lease>),
    Put(Arc<Lease>),
}

#[derive(Debug, Clone)]
pub(super) enum Reply {
    Lease(Arc<Version>, SystemTime),
    Missing,
    Conflict,
}

#[derive(Debug, Clone)]
pub(super) struct Server {
    pub(super) version: u64,
    pub(super) uids: u64,
    pub(super) lease: Option<Arc<Version>>,
    /// Every version that there was, for watches that are late.
    pub(super) history: Vec<Arc<Version>>,
    /// The latest acquisition that was stored, and its token.
    term: String,
    token: i64,
    /// An acquisition was stored with a token that is not above every earlier one's.
    pub(super) token_fell: bool,
}

pub(super) fn wall(time: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_700_000_000 + time)
}

impl Server {
    pub(super) fn new() -> Self {
        Self {
            version: 10,
            uids: 0,
            lease: None,
            history: Vec::new(),
            term: String::new(),
            token: 0,
            token_fell: false,
        }
    }

    pub(super) fn store(&mut self, time: u64, mut lease: Lease) -> Arc<Version> {
        if let Some(old) = &self.lease
            && old.lease == lease
        {
            return old.clone();
        }
        let old = self.lease.as_ref().map(|old| &old.lease.spec);
        if old != Some(&lease.spec) {
            let at = micro_time(wall(time)).unwrap();
            lease.metadata.managed_fields =
                serde_json::from_value(json!([{"time": at, "fieldsV1": {"f:spec": {}}}])).unwrap();
        }
        self.version += 1;
        lease.metadata.resource_version = Some(self.version.to_string());
        let record = Record::read(&lease).unwrap();
        let digest = digest(&lease);
        let version = Arc::new(Version {
            lease,
            record,
            digest,
        });
        self.history.push(version.clone());
        self.lease = Some(version.clone());
        version
    }

    /// `skew`: by how much the clock of the API server that answers is ahead of the one that stores.
    pub(super) fn handle(&mut self, time: u64, skew: u64, request: &Request) -> Reply {
        let date = wall(time + skew);
        match (request, self.lease.clone()) {
            (Request::Get, Some(found)) => Reply::Lease(found, date),
            (Request::Get, None) => Reply::Missing,
            (Request::Create(lease), None) => self.create(time, lease, date),
            // A PUT that names no uid creates what is not there.
            (Request::Put(lease), None) if lease.metadata.uid.is_none() => self.create(time, lease, date),
            (Request::Create(_), Some(_)) | (Request::Put(_), None) => Reply::Conflict,
            (Request::Put(lease), Some(found)) => {
                let (sent, kept) = (&lease.metadata, &found.lease.metadata);
                let same = |sent: &Option<String>, kept: &Option<String>| sent.is_none() || sent == kept;
                if !same(&sent.uid, &kept.uid) || !same(&sent.resource_version, &kept.resource_version) {
                    return Reply::Conflict;
                }
                let mut lease = Lease::clone(lease);
                lease.metadata.uid.clone_from(&kept.uid);
                lease.metadata.resource_version.clone_from(&kept.resource_version);
                let stored = self.store(time, lease);
                self.check_token(&stored);
                Reply::Lease(stored, date)
            }
        }
    }

    fn create(&mut self, time: u64, lease: &Lease, date: SystemTime) -> Reply {
        let mut lease = lease.clone();
        self.uids += 1;
        lease.metadata.uid = Some(format!("uid-{}", self.uids));
        let stored = self.store(time, lease);
        self.check_token(&stored);
        Reply::Lease(stored, date)
    }

    fn check_token(&mut self, stored: &Version) {
        let (Some(term), Some(token)) = (stored.term(), stored.record.shown_token()) else {
            return;
        };
        if term == self.term {
            self.token_fell |= token.get() < self.token;
        } else {
            self.token_fell |= token.get() <= self.token;
        }
        term.clone_into(&mut self.term);
        self.token = token.get();
    }
}

impl Hash for Server {
    fn hash<H: Hasher>(&self, to: &mut H) {
        self.lease.is_some().hash(to);
        for version in &self.history {
            to.write_u64(version.digest);
        }
        (self.version, self.uids, &self.term, self.token, self.token_fell).hash(to);
    }
}
