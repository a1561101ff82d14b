//! What happens to instances of the model, but for the outcomes of their steps.

use std::collections::{BTreeMap, BTreeSet};

use gen_durable::store::{Cancelling, Cascaded, Delivered, Held, KeyScope, NewSignal, Retrying, Target};
use gen_durable::{InstanceId, Status, WorkerId};

use super::model::{Instance, Letter, Model};
use super::operations::Delay;
use super::play::QUEUE;

impl Model {
    /// Sends a signal; says whether it ends a wait.
    pub(crate) fn signal(&mut self, signal: &NewSignal) -> (Delivered, bool) {
        let mut targets = self.instances.iter_mut().filter(|row| match &signal.target {
            Target::Id(id) => row.is_live() && row.new.id == *id && row.family == signal.machine,
            Target::Key(key) => row.is_live() && row.has_key(&signal.machine, key),
        });
        let (Some(target), others) = (targets.next(), targets.count()) else {
            return (Delivered::NoTarget, false);
        };
        if others > 0 {
            return (Delivered::Ambiguous, false);
        }
        if signal.dedup_key.as_ref().is_some_and(|key| !target.used.insert(key.clone())) {
            return (Delivered::Repeated, false);
        }
        self.letters += 1;
        let letter =
            Letter { number: self.letters, name: signal.name.clone(), payload: signal.payload.clone() };
        target.inbox.push(letter);
        let wakes = target.status == Status::Waiting && target.awaits.contains(&&*signal.name);
        if wakes {
            target.wake();
        }
        (Delivered::Stored { woke: wakes.then(|| QUEUE.to_owned()) }, wakes)
    }

    /// Makes what is due ready; says how many that were.
    pub(crate) fn promote(&mut self) -> u64 {
        let mut count = 0;
        for row in self.instances.iter_mut().filter(|row| row.is_due(&[Delay::Now, Delay::Soon])) {
            row.timed_out |= row.status == Status::Waiting;
            row.wake();
            count += 1;
        }
        count
    }

    /// Whether something will be due later.
    pub(crate) fn is_anything_due_later(&self) -> bool {
        self.instances.iter().any(|row| row.is_due(&[Delay::Later]))
    }

    /// Tells parents of all children that have ended; says whether one is ready now.
    pub(crate) fn tell_parents(&mut self) -> bool {
        let mut ended = Vec::new();
        for child in self.instances.iter_mut().filter(|row| row.has_ended() && !row.is_told) {
            if let Some(parent) = child.new.parent {
                child.is_told = true;
                ended.push(parent);
            }
        }
        let mut is_ready = false;
        for parent in ended {
            let Some(row) = self.get_mut(parent.id) else { continue };
            if row.status == Status::Joining && row.round == Some(parent.round) {
                row.pending -= 1;
                if row.pending == 0 {
                    row.wake();
                    is_ready = true;
                }
            }
        }
        is_ready
    }

    /// Returns rows of dead workers; says from whom how many.
    pub(crate) fn reclaim(&mut self) -> BTreeMap<WorkerId, u64> {
        let mut counts = BTreeMap::new();
        for row in self.instances.iter_mut().filter(|row| row.is_live() && row.status == Status::Executing) {
            let Some((worker, _)) = row.holder.filter(|(worker, _)| self.dead.contains(worker)) else {
                continue;
            };
            row.attempt += 1;
            row.failures += 1;
            row.crashes += 1;
            row.let_go();
            *counts.entry(worker).or_default() += 1;
        }
        counts
    }

    /// Hands rows back; says how many.
    pub(crate) fn release(&mut self, worker: WorkerId, held: &[Held]) -> u64 {
        let mut count = 0;
        for held in held {
            let Some(row) = self.get_mut(held.id).filter(|row| row.held() == Some((worker, *held))) else {
                continue;
            };
            row.let_go();
            count += 1;
        }
        count
    }

    /// The rows of a worker.
    pub(crate) fn held(&self, worker: WorkerId) -> Vec<&Instance> {
        self.instances.iter().filter(|row| row.held().is_some_and(|(holder, _)| holder == worker)).collect()
    }

    pub(crate) fn cancel(&mut self, id: InstanceId, cascade: bool) -> Cancelling {
        let Some(row) = self.get_mut(id) else { return Cancelling::NotFound };
        row.cascades |= cascade;
        if row.has_ended() {
            Cancelling::Ended(row.status)
        } else if row.status == Status::Executing {
            row.is_asked = true;
            Cancelling::Asked
        } else {
            row.end(Status::Cancelled);
            Cancelling::Cancelled { watched: row.is_watched }
        }
    }

    /// Live children of instances that took them with them, and that are not on their way already.
    fn orphans(&self) -> BTreeSet<InstanceId> {
        let takes = |row: &Instance| row.has_ended() && row.cascades;
        let is_orphan = |row: &&Instance| {
            row.is_live()
                && !(row.is_asked && row.cascades)
                && row.new.parent.is_some_and(|parent| self.get(parent.id).is_some_and(takes))
        };
        self.instances.iter().filter(is_orphan).map(|row| row.new.id).collect()
    }

    /// Live instances that are nobody's children, or of one who has ended without them.
    pub(crate) fn roots(&self) -> Vec<InstanceId> {
        let has_live_parent = |row: &Instance| {
            row.new.parent.is_some_and(|parent| self.get(parent.id).is_some_and(Instance::is_live))
        };
        let roots = self.instances.iter().filter(|row| row.is_live() && !has_live_parent(row));
        roots.map(|row| row.new.id).collect()
    }

    /// Follows a store that says which of the orphans it cancelled.
    pub(crate) fn cascade(&mut self, cascaded: &Cascaded, limit: usize) -> Result<(), String> {
        let mut orphans = self.orphans();
        let chosen = || cascaded.cancelled.iter().chain(&cascaded.asked);
        if chosen().count() > limit {
            return Err(format!("over the limit: {cascaded:?}"));
        }
        for id in chosen() {
            if !orphans.remove(id) {
                return Err(format!("{id} was not to be cancelled: {cascaded:?}"));
            }
            let executes = cascaded.asked.contains(id);
            let Some(row) = self.get_mut(*id).filter(|row| (row.status == Status::Executing) == executes)
            else {
                return Err(format!("{id} was to be cancelled otherwise: {cascaded:?}"));
            };
            row.cascades = true;
            row.is_asked = true;
            if !executes {
                row.end(Status::Cancelled);
            }
        }
        self.tell_parents();
        if !cascaded.left {
            let orphans = self.orphans();
            if !orphans.is_empty() {
                return Err(format!("these are left, and it does not say so: {orphans:?}"));
            }
            // Who has nobody left to take along is done with that.
            self.instances.iter_mut().filter(|row| row.has_ended()).for_each(|row| row.cascades = false);
        }
        Ok(())
    }

    pub(crate) fn retry(&mut self, id: InstanceId) -> Retrying {
        let Some(row) = self.get(id) else { return Retrying::NotFound };
        if row.status != Status::Failed {
            return Retrying::NotFailed(row.status);
        }
        if let Some(key) = row.new.key.as_ref().filter(|key| key.scope == KeyScope::Live)
            && let Some(holder) = self.holder(row.family, &key.key)
        {
            return Retrying::KeyTaken(holder);
        }
        let parent = row.new.parent.filter(|_| row.is_told);
        let waits = |row: &&mut Instance| {
            row.status == Status::Joining && parent.is_some_and(|parent| row.round == Some(parent.round))
        };
        let rejoins = match parent.and_then(|parent| self.get_mut(parent.id)).filter(waits) {
            Some(parent) => {
                parent.pending += 1;
                true
            }
            None => false,
        };
        if let Some(row) = self.get_mut(id) {
            row.is_told &= !rejoins;
            row.error = None;
            row.cascades = false;
            (row.attempt, row.failures, row.crashes) = (0, 0, 0);
            row.wake();
        }
        Retrying::Ready(QUEUE.to_owned())
    }

    /// Deletes what nobody needs; says how many.
    pub(crate) fn sweep(&mut self) -> u64 {
        let is_needed = |row: &Instance| {
            row.cascades
                || row.new.parent.is_some_and(|parent| {
                    self.get(parent.id)
                        .is_some_and(|other| other.is_live() && other.round == Some(parent.round))
                })
        };
        let swept: Vec<usize> = (0..self.instances.len())
            .filter(|at| self.instances[*at].has_ended() && !is_needed(&self.instances[*at]))
            .collect();
        for at in &swept {
            self.instances[*at].is_gone = true;
        }
        swept.len() as u64
    }

    /// Marks an instance, so that its end is told.
    pub(crate) fn watch(&mut self, id: InstanceId) {
        if let Some(row) = self.get_mut(id).filter(|row| row.is_live()) {
            row.is_watched = true;
        }
    }

    /// Instances with a key, live ones before others, the latest first.
    pub(crate) fn find(&self, family: &str, key: &str) -> Vec<InstanceId> {
        let mut found: Vec<_> = self.instances.iter().filter(|row| row.has_key(family, key)).collect();
        found.sort_by_key(|row| (row.has_ended(), std::cmp::Reverse(row.new.id)));
        found.into_iter().map(|row| row.new.id).take(10).collect()
    }
}

impl Instance {
    fn is_due(&self, delays: &[Delay]) -> bool {
        !self.is_gone
            && matches!(self.status, Status::Scheduled | Status::Waiting)
            && self.due.is_some_and(|due| delays.contains(&due))
    }

    /// Who owns it, and what proves that.
    pub(crate) fn held(&self) -> Option<(WorkerId, Held)> {
        let (worker, claim) = self.holder.filter(|_| self.is_live() && self.status == Status::Executing)?;
        Some((worker, Held { id: self.new.id, claim, revision: self.revision }))
    }
}
