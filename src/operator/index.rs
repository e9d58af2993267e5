//! What the watches have told: the facts of every Lease of ours, every `ChangeStreamLeader`, and which belong together.
//!
//! Between two looks of the controller a Lease may change hands more than once. Each change is kept as a step until it
//! is written, so that a leadership of a few milliseconds is in the history too.

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    sync::Arc,
};

use kube::ResourceExt;

use super::view::{LeaseView, is_older};
use crate::crd::ChangeStreamLeader;

/// How many unwritten changes of one Lease are kept. The oldest goes first, and the history then says that there is a gap.
const STEPS_MAX: usize = 32;

/// A Lease's namespace and name: what is reconciled.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) namespace: String,
    pub(crate) lease: String,
}

/// A change of leadership that is not in a status yet.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    /// The Lease right before, if the watch saw it.
    pub(crate) before: Option<Arc<LeaseView>>,
    pub(crate) view: Arc<LeaseView>,
}

#[derive(Debug, Default)]
struct Entry {
    latest: Option<Arc<LeaseView>>,
    steps: VecDeque<Step>,
}

/// What there is to one key.
#[derive(Debug, Default, Clone)]
pub(crate) struct Snapshot {
    pub(crate) latest: Option<Arc<LeaseView>>,
    pub(crate) steps: Vec<Step>,
    pub(crate) objects: Vec<Arc<ChangeStreamLeader>>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Index {
    leases: HashMap<Key, Entry>,
    objects: HashMap<(String, String), (Key, Arc<ChangeStreamLeader>)>,
    names: HashMap<Key, BTreeSet<String>>,
}

impl Index {
    /// Takes in a Lease. `followed` when it came as an event of a watch that has missed nothing, rather than by a list.
    pub(crate) fn lease(&mut self, view: LeaseView, followed: bool) -> Key {
        let key = Key {
            namespace: view.namespace.clone(),
            lease: view.name.clone(),
        };
        let entry = self.leases.entry(key.clone()).or_default();
        let view = Arc::new(view);
        match &entry.latest {
            Some(latest)
                if latest.uid == view.uid && is_older(&view.resource_version, &latest.resource_version) =>
            {
                return key;
            }
            // The same version again, by a list: keep when it was first seen.
            Some(latest) if latest.uid == view.uid && latest.resource_version == view.resource_version => {
                return key;
            }
            Some(latest) if !latest.same_tenure(&view) => {
                let before = Some(Arc::clone(latest)).filter(|_| followed);
                entry.steps.push_back(Step {
                    before,
                    view: Arc::clone(&view),
                });
                if entry.steps.len() > STEPS_MAX {
                    entry.steps.pop_front();
                    if let Some(first) = entry.steps.front_mut() {
                        first.before = None;
                    }
                }
            }
            _ => {}
        }
        entry.latest = Some(view);
        key
    }

    /// The watch shows a Lease no more: deleted, or without our labels. Only a read can tell.
    pub(crate) fn lease_out_of_sight(&mut self, key: &Key) {
        if let Some(entry) = self.leases.get_mut(key) {
            entry.latest = None;
        }
    }

    /// The end of a list: what it did not name is out of sight. Answers which those are.
    pub(crate) fn leases_listed(&mut self, namespace: Option<&str>, listed: &HashSet<Key>) -> Vec<Key> {
        let gone: Vec<Key> = self
            .leases
            .iter()
            .filter(|(key, entry)| entry.latest.is_some() && !listed.contains(key))
            .filter(|(key, _)| namespace.is_none_or(|n| n == key.namespace))
            .map(|(key, _)| key.clone())
            .collect();
        for key in &gone {
            self.lease_out_of_sight(key);
        }
        gone
    }

    /// Takes in an object under the key of its Lease, unless a newer one is known.
    pub(crate) fn object(&mut self, key: Key, object: ChangeStreamLeader) {
        let id = (key.namespace.clone(), object.name_any());
        if let Some((_, known)) = self.objects.get(&id) {
            // Of another uid too: versions rise over all objects of a kind, and a late reply may tell of one that is gone.
            let version = |o: &ChangeStreamLeader| o.resource_version().unwrap_or_default();
            if is_older(&version(&object), &version(known)) {
                return;
            }
        }
        self.remove_object(&id.0, &id.1);
        self.names.entry(key.clone()).or_default().insert(id.1.clone());
        self.objects.insert(id, (key, Arc::new(object)));
    }

    /// This object is gone; another of the same name stays. Answers whose it was.
    pub(crate) fn lose_object(&mut self, namespace: &str, name: &str, uid: Option<&str>) -> Option<Key> {
        let (_, known) = self.objects.get(&(namespace.to_owned(), name.to_owned()))?;
        if known.metadata.uid.as_deref() != uid {
            return None;
        }
        self.remove_object(namespace, name)
    }

    /// All Leases in sight, in the order of their names.
    pub(crate) fn views(&self) -> Vec<Arc<LeaseView>> {
        let mut views: Vec<_> = self
            .leases
            .values()
            .filter_map(|entry| entry.latest.clone())
            .collect();
        views.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        views
    }

    /// All objects, in the order of their names.
    pub(crate) fn all_objects(&self) -> Vec<Arc<ChangeStreamLeader>> {
        let mut objects: Vec<_> = self.objects.iter().collect();
        objects.sort_by_key(|(name, _)| *name);
        objects
            .into_iter()
            .map(|(_, (_, object))| Arc::clone(object))
            .collect()
    }

    fn remove_object(&mut self, namespace: &str, name: &str) -> Option<Key> {
        let (key, _) = self.objects.remove(&(namespace.to_owned(), name.to_owned()))?;
        if let Some(names) = self.names.get_mut(&key) {
            names.remove(name);
            if names.is_empty() {
                self.names.remove(&key);
            }
        }
        Some(key)
    }

    /// The end of a list of objects: what it did not name is gone. Answers whose they were, and their uids.
    pub(crate) fn objects_listed(
        &mut self,
        namespace: Option<&str>,
        listed: &HashSet<(String, String)>,
    ) -> Vec<(Key, String)> {
        let gone: Vec<(String, String)> = self
            .objects
            .keys()
            .filter(|id| !listed.contains(id) && namespace.is_none_or(|n| n == id.0))
            .cloned()
            .collect();
        gone.iter()
            .filter_map(|(n, name)| {
                let uid = self.named(n, name)?.uid().unwrap_or_default();
                Some((self.remove_object(n, name)?, uid))
            })
            .collect()
    }

    /// An object by its name.
    pub(crate) fn named(&self, namespace: &str, name: &str) -> Option<Arc<ChangeStreamLeader>> {
        self.objects
            .get(&(namespace.to_owned(), name.to_owned()))
            .map(|(_, object)| Arc::clone(object))
    }

    /// What there is to a key.
    pub(crate) fn snapshot(&self, key: &Key) -> Snapshot {
        let entry = self.leases.get(key);
        let names = self.names.get(key).into_iter().flatten();
        Snapshot {
            latest: entry.and_then(|e| e.latest.clone()),
            steps: entry
                .map(|e| e.steps.iter().cloned().collect())
                .unwrap_or_default(),
            objects: names
                .filter_map(|name| self.named(&key.namespace, name))
                .collect(),
        }
    }

    /// The steps up to this version are written.
    pub(crate) fn written(&mut self, key: &Key, steps: &[Step]) {
        let Some(entry) = self.leases.get_mut(key) else {
            return;
        };
        entry
            .steps
            .retain(|s| !steps.iter().any(|w| Arc::ptr_eq(&w.view, &s.view)));
        if entry.latest.is_none() && entry.steps.is_empty() {
            self.leases.remove(key);
        }
    }

    /// Everything that there may be something to do for.
    pub(crate) fn keys(&self) -> BTreeSet<Key> {
        self.leases.keys().chain(self.names.keys()).cloned().collect()
    }

    /// How many Leases and objects are known.
    pub(crate) fn sizes(&self) -> (usize, usize) {
        (self.leases.len(), self.objects.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::view::Hold;

    fn view(version: u64, holder: &str) -> LeaseView {
        let lease = serde_json::json!({
            "metadata": {"namespace": "ns", "name": "orders", "uid": "u", "resourceVersion": version.to_string()},
            "spec": {"holderIdentity": holder},
        });
        LeaseView::new(
            &serde_json::from_value(lease).unwrap(),
            jiff::Timestamp::UNIX_EPOCH,
        )
        .unwrap()
    }

    fn key() -> Key {
        Key {
            namespace: "ns".into(),
            lease: "orders".into(),
        }
    }

    fn steps(index: &Index) -> Vec<(Option<Hold>, Hold)> {
        let steps = index.snapshot(&key()).steps;
        steps
            .iter()
            .map(|s| (s.before.as_ref().map(|b| b.hold.clone()), s.view.hold.clone()))
            .collect()
    }

    fn held(holder: &str) -> Hold {
        Hold::Held(holder.into())
    }

    #[test]
    fn every_change_of_leadership_is_kept_until_it_is_written() {
        let mut index = Index::default();
        for (version, holder) in [(1, "a"), (2, "a"), (3, "b"), (4, "b"), (5, ""), (6, "a")] {
            index.lease(view(version, holder), true);
        }
        let first = [
            (Some(held("a")), held("b")),
            (Some(held("b")), Hold::Free),
            (Some(Hold::Free), held("a")),
        ];
        assert_eq!(steps(&index), first);
        let written = index.snapshot(&key()).steps;
        index.lease(view(7, "c"), true);
        index.written(&key(), &written);
        assert_eq!(steps(&index), [(Some(held("a")), held("c"))]);
    }

    #[test]
    fn a_list_tells_nothing_of_what_was_in_between() {
        let mut index = Index::default();
        index.lease(view(1, "a"), false);
        index.lease(view(9, "b"), false);
        assert_eq!(steps(&index), [(None, held("b"))]);
    }

    #[test]
    fn older_news_is_dropped() {
        let mut index = Index::default();
        index.lease(view(10, "b"), true);
        index.lease(view(9, "a"), true);
        assert_eq!(index.snapshot(&key()).latest.unwrap().hold, held("b"));
        assert!(steps(&index).is_empty());
    }

    #[test]
    fn a_lease_that_flaps_without_end_takes_no_memory_without_end() {
        let mut index = Index::default();
        for version in 0..1000 {
            index.lease(view(version + 1, if version % 2 == 0 { "a" } else { "b" }), true);
        }
        let steps = steps(&index);
        assert_eq!(steps.len(), STEPS_MAX);
        assert_eq!(steps[0].0, None, "the history says that there is a gap");
    }

    #[test]
    fn neither_a_late_reply_nor_a_late_deletion_hides_a_newer_object() {
        let object = |uid: &str, version: &str| {
            let object = serde_json::json!({
                "apiVersion": "leasewarden.dev/v1beta1", "kind": "ChangeStreamLeader",
                "metadata": {"namespace": "ns", "name": "orders", "uid": uid, "resourceVersion": version},
                "spec": {"streamName": "orders"},
            });
            serde_json::from_value::<ChangeStreamLeader>(object).unwrap()
        };
        let mut index = Index::default();
        index.object(key(), object("new", "10"));
        index.object(key(), object("old", "9"));
        assert_eq!(index.lose_object("ns", "orders", Some("old")), None);
        let known = index.named("ns", "orders").unwrap();
        assert_eq!(known.metadata.uid.as_deref(), Some("new"));
        assert_eq!(index.lose_object("ns", "orders", Some("new")), Some(key()));
        assert!(index.named("ns", "orders").is_none() && index.keys().is_empty());
    }

    #[test]
    fn what_a_list_does_not_name_is_out_of_sight() {
        let mut index = Index::default();
        index.lease(view(1, "a"), true);
        assert!(index.leases_listed(Some("other"), &HashSet::new()).is_empty());
        assert_eq!(index.leases_listed(None, &HashSet::new()), [key()]);
        assert!(index.snapshot(&key()).latest.is_none());
    }
}
