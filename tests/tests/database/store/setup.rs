//! A migrated database, a store on it, and short ways to say what tests do with it.

use std::sync::Arc;
use std::time::Duration;

use gen_durable::store::postgres::{PostgresStore, Schema};
use gen_durable::store::{
    ClaimRequest, Claimed, Commit, DonePolicy, Flushed, MachineId, NewInstance, Snapshot, Start, Store,
    Transition,
};
use gen_durable::{InstanceId, Status, WorkerId};
use gen_durable_tests::Database;
use sqlx::PgPool;
use uuid::Uuid;

pub(crate) const QUEUE: &str = "default";

/// A store on a database of its own, with one machine and one worker.
pub(crate) struct Fixture {
    pub(crate) store: PostgresStore,
    pub(crate) pool: PgPool,
    pub(crate) machine: MachineId,
    pub(crate) worker: WorkerId,
    pub(crate) database: Arc<Database>,
}

impl Fixture {
    pub(crate) async fn new() -> Self {
        Self::on(Database::create().await).await
    }

    pub(crate) async fn on(database: Database) -> Self {
        let database = Arc::new(database);
        gen_durable::migrate::up(&database.pool()).await.expect("it migrates");
        Self::with(store(&database), &database).await
    }

    /// On a schema that is migrated.
    pub(crate) async fn with(store: PostgresStore, database: &Arc<Database>) -> Self {
        let machine = store.register_machines(&[("machine", 1)]).await.expect("a machine")[0];
        let worker = store.register_worker("engine", "node").await.expect("a worker");
        Self { store, pool: database.pool(), machine, worker, database: Arc::clone(database) }
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
        self.claim_with(&self.store, worker, claim, limit).await
    }

    /// On another node.
    pub(crate) async fn claim_with(
        &self,
        store: &PostgresStore,
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

pub(crate) fn store(database: &Database) -> PostgresStore {
    PostgresStore::new(database.pool(), Schema::default(), None)
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

/// An outcome that is committed, and where its instance stands then.
pub(crate) const READY: Flushed = committed(Status::Ready);
pub(crate) const AHEAD: Flushed = committed(Status::Executing);
pub(crate) const DONE: Flushed = committed(Status::Done);

const fn committed(status: Status) -> Flushed {
    Flushed::Committed { status, watched: false }
}
