//! A store with one machine and one worker, and short ways to say what tests do with it.

use std::sync::Arc;
use std::time::Duration;

use gen_durable::InstanceId;
use gen_durable::WorkerId;
use gen_durable::store::{
    ClaimRequest, Claimed, Commit, DonePolicy, Flushed, MachineId, NewInstance, Snapshot, Start, Store,
    Transition,
};
use uuid::Uuid;

use super::Bed;

pub(crate) const QUEUE: &str = "default";

/// A store on a database of its own, with one machine and one worker.
pub(crate) struct Fixture {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) machine: MachineId,
    pub(crate) worker: WorkerId,
    pub(crate) bed: Bed,
}

impl Fixture {
    pub(crate) async fn new() -> Self {
        let bed = Bed::create().await;
        let store = bed.store();
        store.check().await.expect("it answers").expect("it is migrated");
        let machine = store.register_machines(&[("machine", 1)]).await.expect("a machine")[0];
        let worker = store.register_worker("engine", "node").await.expect("a worker");
        Self { store, machine, worker, bed }
    }

    /// An instance that is due.
    pub(crate) fn instance(&self) -> NewInstance {
        NewInstance {
            id: InstanceId::from(Uuid::now_v7()),
            machine: self.machine,
            step: "first",
            state: r#"{"n":1}"#.to_owned(),
            queue: QUEUE.into(),
            priority: 0,
            start: Start::After(Duration::ZERO),
            trace_context: None,
        }
    }

    /// Inserts that many instances that are due.
    pub(crate) async fn insert(&self, count: usize) -> Vec<InstanceId> {
        let instances: Vec<_> = (0..count).map(|_| self.instance()).collect();
        self.store.insert(&instances).await.expect("they are inserted");
        instances.iter().map(|instance| instance.id).collect()
    }

    pub(crate) async fn claim(&self, limit: u32) -> Vec<Claimed> {
        self.claim_as(self.worker, 1, limit).await
    }

    pub(crate) async fn claim_as(&self, worker: WorkerId, claim: i64, limit: u32) -> Vec<Claimed> {
        self.claim_with(&*self.store, worker, claim, limit).await
    }

    pub(crate) async fn claim_for(&self, machines: &[MachineId], claim: i64, limit: u32) -> Vec<Claimed> {
        let queue: Arc<str> = QUEUE.into();
        let request =
            ClaimRequest { worker: self.worker, claim, queue: &queue, machines, limit, alone: true };
        self.store.claim(&request).await.expect("it claims").rows
    }

    /// On other connections.
    pub(crate) async fn claim_with(
        &self,
        store: &dyn Store,
        worker: WorkerId,
        claim: i64,
        limit: u32,
    ) -> Vec<Claimed> {
        let queue: Arc<str> = QUEUE.into();
        let request =
            ClaimRequest { worker, claim, queue: &queue, machines: &[self.machine], limit, alone: true };
        store.claim(&request).await.expect("it claims").rows
    }

    /// Inserts and claims one.
    pub(crate) async fn claimed(&self) -> Claimed {
        self.insert(1).await;
        self.claim(1).await.remove(0)
    }

    pub(crate) async fn flush(&self, commits: &[Commit]) -> Vec<Flushed> {
        self.store.flush(self.worker, commits, DonePolicy::Keep).await.expect("it flushes")
    }

    pub(crate) async fn look(&self, id: InstanceId) -> Snapshot {
        self.store.probe(&[id], false).await.expect("it reads").remove(0)
    }

    /// Declares a worker dead, as a reaper does.
    pub(crate) async fn bury(&self, worker: WorkerId) {
        let workers = self.store.workers().await.expect("the workers");
        let seen = workers.iter().find(|beat| beat.id == worker).expect("it lives").beat;
        assert!(self.store.bury(worker, seen).await.expect("it is buried"));
    }
}

pub(crate) fn commit(row: &Claimed, transition: Transition) -> Commit {
    Commit { held: row.held(), transition, keeps_claim: false }
}

pub(crate) fn next(row: &Claimed) -> Commit {
    next_after(row, Duration::ZERO)
}

pub(crate) fn next_after(row: &Claimed, delay: Duration) -> Commit {
    commit(row, Transition::Next { step: "second", state: r#"{"n":2}"#.into(), delay, inline: None })
}

pub(crate) fn retry(row: &Claimed, error: &str) -> Commit {
    let error = Some(error.into());
    commit(row, Transition::Retry { state: None, after: Duration::ZERO, error, counted: true })
}

pub(crate) fn done(row: &Claimed) -> Commit {
    commit(row, Transition::Done { output: r#"{"ok":true}"#.into() })
}

pub(crate) fn stop(row: &Claimed, reason: &str) -> Commit {
    commit(row, Transition::Stop { reason: reason.into() })
}

pub(crate) const COMMITTED: Flushed = Flushed::Committed { watched: false };
