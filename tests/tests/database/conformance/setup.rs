//! A store with one machine and one worker, and short ways to say what tests do with it.

use std::sync::Arc;
use std::time::Duration;

use gen_durable::store::{
    Child, ClaimRequest, Claimed, Commit, Delivered, DonePolicy, Flushed, MachineId, NewInstance, NewSignal,
    Parent, Snapshot, Start, Store, Target, Transition,
};
use gen_durable::{InstanceId, Status, WorkerId};
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
        Self::on(Bed::create().await).await
    }

    pub(crate) async fn on(bed: Bed) -> Self {
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
            key: None,
            parent: None,
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
        self.store.flush(self.worker, commits, DonePolicy::Keep).await.expect("it flushes").fates
    }

    /// Sends a signal to an instance of the fixture's machine.
    pub(crate) async fn send(&self, target: impl Into<Target>, name: &str) -> Delivered {
        self.store.signal(&[signal(target, name)]).await.expect("it sends").remove(0)
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
    Commit {
        held: row.held(),
        transition,
        keeps_claim: false,
        consumed: Vec::new(),
        is_involved: row.mail.is_some() || row.round.is_some(),
        is_child: row.is_child,
    }
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
    commit(row, Transition::Stop { reason: reason.into(), cascade: false })
}

/// Waits for signals with what the step was handed in mind, as a context does.
pub(crate) fn wait(row: &Claimed, signals: &[&'static str], timeout: Option<Duration>) -> Commit {
    let seen = row.mail.as_ref().map_or(0, |mail| mail.handed());
    let transition = Transition::Wait {
        step: "second",
        state: r#"{"n":2}"#.into(),
        signals: signals.to_vec(),
        timeout,
        seen,
    };
    commit(row, transition)
}

pub(crate) fn fan_out(row: &Claimed, children: Vec<NewInstance>) -> Commit {
    let parent = Some(Parent { id: row.id, round: row.revision + 1 });
    let child =
        |instance| Child { machine: "machine", version: 1, instance: NewInstance { parent, ..instance } };
    let children = children.into_iter().map(child).collect();
    commit(row, Transition::FanOut { step: "second", state: r#"{"n":2}"#.into(), children })
}

/// A signal to an instance of the fixture's machine.
pub(crate) fn signal(target: impl Into<Target>, name: &str) -> NewSignal {
    NewSignal {
        machine: "machine".into(),
        target: target.into(),
        name: name.into(),
        payload: format!("\"{name}\""),
        dedup_key: None,
    }
}

/// What became of a signal that nobody waits for.
pub(crate) const STORED: Delivered = Delivered::Stored { woke: None };

/// What became of a signal that ended a wait.
pub(crate) fn woke() -> Delivered {
    Delivered::Stored { woke: Some(QUEUE.into()) }
}

/// An outcome that is committed, and where its instance stands then.
pub(crate) const READY: Flushed = committed(Status::Ready);
pub(crate) const SCHEDULED: Flushed = committed(Status::Scheduled);
pub(crate) const AHEAD: Flushed = committed(Status::Executing);
pub(crate) const WAITING: Flushed = committed(Status::Waiting);
pub(crate) const JOINING: Flushed = committed(Status::Joining);
pub(crate) const DONE: Flushed = committed(Status::Done);
pub(crate) const FAILED: Flushed = committed(Status::Failed);
pub(crate) const CANCELLED: Flushed = committed(Status::Cancelled);

const fn committed(status: Status) -> Flushed {
    Flushed::Committed { status, watched: false }
}
