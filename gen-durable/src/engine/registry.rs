//! The machines that an engine can run, by the ids that rows carry.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::lease::{Lease, lock};
use super::options::Options;
use crate::context::Resources;
use crate::error::Error;
use crate::id::MachineId;
use crate::machine::{MachineEntry, StateEntry};
use crate::store::{Store, StoreError, StoreResult};

/// The machines that an engine can run, and the ids of all machines that it has met.
pub(super) struct Registry {
    machines: HashMap<MachineId, MachineEntry>,
    /// Ids in the order of their numbers, as claims want them.
    ids: Vec<MachineId>,
    /// Machines that are only inserted here, too.
    known: Mutex<HashMap<(&'static str, u32), MachineId>>,
}

impl Registry {
    /// Registers the machines at the store. Those whose resources are not all there are only inserted here: their
    /// rows, if some are put on a queue that runs here, are for other nodes.
    pub(super) async fn new(
        store: &dyn Store,
        entries: Vec<MachineEntry>,
        resources: &Resources,
    ) -> Result<Self, Error> {
        let names: Vec<(&str, u32)> = entries.iter().map(|entry| (entry.name, entry.version)).collect();
        let ids = store.register_machines(&names).await.map_err(Error::store("registering machines"))?;
        let known = entries.iter().map(|entry| (entry.name, entry.version)).zip(ids.iter().copied());
        let known = Mutex::new(known.collect());
        let runs = |entry: &MachineEntry| entry.resources.iter().all(|resource| resource.is_in(resources));
        let machines: HashMap<_, _> = ids.into_iter().zip(entries).filter(|(_, entry)| runs(entry)).collect();
        let mut ids: Vec<MachineId> = machines.keys().copied().collect();
        ids.sort_unstable();
        Ok(Self { machines, ids, known })
    }

    /// Registers a worker that runs these machines, or none.
    pub(super) async fn enlist(&self, store: &dyn Store, options: &Options) -> StoreResult<Arc<Lease>> {
        let registered = Instant::now();
        let worker = store.register_worker(&options.name, &options.node).await?;
        if !options.queues.is_empty() {
            store.announce(worker, &self.ids).await?;
        }
        Ok(Lease::new(worker, registered))
    }

    /// Whether a machine runs here.
    pub(super) fn runs(&self, name: &str, version: u32) -> bool {
        self.machines.values().any(|entry| entry.name == name && entry.version == version)
    }

    /// The signals that a machine takes, in all versions that run here; `None` if none does.
    pub(super) fn signals_of(&self, name: &str) -> Option<Vec<&'static str>> {
        let mut versions = self.machines.values().filter(|entry| entry.name == name).peekable();
        versions.peek()?;
        Some(versions.flat_map(|entry| entry.signals()).copied().collect())
    }

    pub(super) fn ids(&self) -> &[MachineId] {
        &self.ids
    }

    pub(super) fn get(&self, id: MachineId) -> Option<&MachineEntry> {
        self.machines.get(&id)
    }

    /// The id of a machine that is registered here or was inserted here before.
    pub(super) fn known_id(&self, name: &'static str, version: u32) -> Option<MachineId> {
        lock(&self.known).get(&(name, version)).copied()
    }

    /// The id of a machine that is to be inserted, whether or not it runs here.
    pub(super) async fn id_of(
        &self,
        store: &dyn Store,
        name: &'static str,
        version: u32,
    ) -> Result<MachineId, StoreError> {
        if let Some(id) = self.known_id(name, version) {
            return Ok(id);
        }
        let ids = store.register_machines(&[(name, version)]).await?;
        let [id] = ids[..] else { unreachable!("one id for one machine") };
        lock(&self.known).insert((name, version), id);
        Ok(id)
    }
}

impl MachineEntry {
    /// The position of a step, by its name or one of its old names.
    pub(super) fn find(&self, step: &str) -> Option<(usize, &StateEntry)> {
        self.states.iter().enumerate().find(|(_, state)| state.step == step || state.aliases.contains(&step))
    }
}

/// Refuses two machines of one name and version.
pub(super) fn refuse_duplicates(entries: &[MachineEntry]) -> Result<(), Error> {
    let mut seen = std::collections::HashSet::new();
    for entry in entries {
        if !seen.insert((entry.name, entry.version)) {
            return Err(Error::DuplicateMachine { name: entry.name.into(), version: entry.version });
        }
    }
    Ok(())
}
