//! SQLite: the embedded store, for one process that runs queues, in a file or in memory.
//!
//! One statement a file in `sql/`. Every method is one transaction that takes the write lock at its beginning, so what
//! PostgreSQL's store does with row locks needs none here. What keeps a lost claim's outcome out is the same: claimed_by,
//! claim and revision must match.
//!
//! There are no leases. Whoever runs queues holds a lock on the file `<database>.lock`, which the operating system
//! drops with its process; so all that executes under earlier workers when it starts is theirs no longer.
//!
//! The file is migrated when it is opened: there is nobody else to do it.

mod batch;
mod cancel;
mod connection;
mod failure;
mod flush;
mod join;
mod keys;
mod leash;
mod lock;
mod read;
mod retry;
mod signals;
mod statements;
mod transaction;

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::Row;
use tokio::sync::OnceCell;

pub use self::connection::Synchronous;
use self::connection::{Connections, Durability, Location, Query};
use self::failure::classify;
use self::statements::Statement;
pub use self::transaction::StepSession;
use crate::id::{InstanceId, MachineId, WorkerId};
use crate::migrate;
#[cfg(feature = "postgres")]
use crate::store::foreign;
use crate::store::{
    Beaten, Cancelling, Cascaded, ChildRecord, ClaimRequest, Claims, Clock, Commit, Count, Delivered,
    DonePolicy, Flush, Held, Inserted, Joined, Listener, NewInstance, NewSignal, Parent, Poke, Promoted,
    Reclaimed, Retrying, SOLO_CRASHES, Snapshot, SortedOut, StepConnection, Store, StoreError, StoreResult,
    Swept, Tenure, UserTransaction, WorkerBeat, delay_micros,
};

/// For how long a dead worker's row stays, for people who look.
const WORKER_RETENTION: Duration = Duration::from_secs(60 * 60);

/// For how long a step may keep its transaction: all other writers wait for it.
const STEP_PATIENCE: Duration = Duration::from_secs(5);

/// Instances in SQLite.
#[derive(Debug)]
pub struct SqliteStore {
    connections: Connections,
    clock: Clock,
    migrated: OnceCell<()>,
}

impl SqliteStore {
    /// A store in a file, which is made if it is not there; opens it when first used.
    #[must_use]
    pub fn file(path: impl AsRef<Path>, synchronous: Synchronous) -> Self {
        Self::at(Location::File(path.as_ref().to_owned()), synchronous, Clock::system())
    }

    /// A store in memory, gone when this is dropped, whose time `clock` tells.
    #[must_use]
    pub fn in_memory(clock: Clock) -> Self {
        Self::at(Location::Memory, Synchronous::Normal, clock)
    }

    fn at(location: Location, synchronous: Synchronous, clock: Clock) -> Self {
        let connections = Connections::new(location, synchronous);
        Self { connections, clock, migrated: OnceCell::new() }
    }

    /// Time until the next delayed row is due, not counting waits. For tests, where delays collapse.
    pub(crate) async fn next_start(&self) -> StoreResult<Option<Duration>> {
        let statement = statements::NEXT_START;
        let rows = self.connections.read(statement, query(statement)).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let next: Option<i64> = decode(statement, row.try_get(0))?;
        let left = |next: i64| u64::try_from(next.saturating_sub(self.clock.micros())).unwrap_or(0);
        Ok(next.map(|next| Duration::from_micros(left(next))))
    }

    /// Name and text of every statement, for tests.
    #[must_use]
    pub fn statements() -> Vec<(&'static str, &'static str)> {
        statements::ALL.iter().map(|statement| (statement.name, statement.text)).collect()
    }

    async fn change(&self, statement: Statement, query: Query) -> StoreResult<u64> {
        let answer = self.connections.write_one(Durability::Durable, statement, query).await?;
        Ok(answer.affected)
    }
}

/// The statement and its query, without parameters yet.
fn query(statement: Statement) -> Query {
    sqlx::query(statement.text)
}

/// The statements that register machines, and then say their ids.
fn registering(machines: &[(&str, u32)], now: i64) -> [(Statement, Query); 2] {
    let batch = batch::machines(machines);
    let register = query(statements::REGISTER_MACHINES).bind(now).bind(batch.clone());
    [
        (statements::REGISTER_MACHINES, register),
        (statements::MACHINES, query(statements::MACHINES).bind(batch)),
    ]
}

#[async_trait]
impl Store for SqliteStore {
    fn has_leases(&self) -> bool {
        false
    }

    async fn check(&self) -> StoreResult<Result<(), String>> {
        if self.migrated.initialized() {
            return Ok(Ok(()));
        }
        let mut writer = self.connections.writer().await?;
        let Some(writer) = writer.as_mut() else { return Ok(Ok(())) };
        // An old file is in nobody's use while it changes: an engine of an older build runs its queues otherwise.
        let lock = || match self.connections.path() {
            Some(path) => lock::take(path, "a migration").map(|taken| taken.map(Some)),
            None => Ok(Ok(None)),
        };
        let checked = migrate::sqlite::open(&mut writer.connection, self.clock.micros(), lock).await?;
        if checked.is_ok() {
            // Whoever came first.
            let _ = self.migrated.set(());
        }
        Ok(checked)
    }

    async fn run_queues(&self, holder: &str) -> StoreResult<Result<Tenure, String>> {
        let Some(path) = self.connections.path() else { return Ok(Ok(Tenure::unlimited())) };
        let taken = lock::take(path, holder)
            .map_err(|error| StoreError::Unavailable(format!("cannot lock the queues: {error}").into()))?;
        Ok(taken.map(Tenure::new).map_err(|holder| {
            format!(
                "the queues of `{}` are run by another engine ({holder}), and one at a time may; shut that one down, \
                 or build this one `.without_queues()`: it may insert and read",
                path.display()
            )
        }))
    }

    async fn register_machines(&self, machines: &[(&str, u32)]) -> StoreResult<Vec<MachineId>> {
        let statements = registering(machines, self.clock.micros());
        let answers = self.connections.write(Durability::Durable, statements.into()).await?;
        let rows = answers.into_iter().last().unwrap_or_default().rows;
        decode(statements::MACHINES, read::machines(&rows))
    }

    async fn register_worker(&self, engine: &str, node: &str) -> StoreResult<WorkerId> {
        let statement = statements::REGISTER_WORKER;
        let query = query(statement).bind(engine.to_owned()).bind(node.to_owned()).bind(self.clock.micros());
        let answer = self.connections.write_one(Durability::Durable, statement, query).await?;
        let row = answer.rows.first().ok_or_else(|| classify(statement.name, sqlx::Error::RowNotFound))?;
        decode(statement, row.try_get(0).map(WorkerId))
    }

    async fn announce(&self, worker: WorkerId, machines: &[MachineId]) -> StoreResult<()> {
        let machines: Vec<i32> = machines.iter().map(|machine| machine.0).collect();
        let query = query(statements::ANNOUNCE).bind(worker.0).bind(batch::text(&machines));
        self.change(statements::ANNOUNCE, query).await.map(drop)
    }

    /// Without a grace: whoever runs the queues is the only one, and says what it can run.
    async fn sort_out(&self, _grace: Duration, limit: u32) -> StoreResult<SortedOut> {
        let limit = i64::from(limit);
        let statements = vec![
            (statements::MARK_UNSERVED, query(statements::MARK_UNSERVED)),
            (statements::SET_ASIDE, query(statements::SET_ASIDE).bind(limit)),
            (statements::BRING_BACK, query(statements::BRING_BACK).bind(limit)),
        ];
        let answers = self.connections.write(Durability::Relaxed, statements).await?;
        let [_, aside, back] = &answers[..] else {
            return Err(classify(statements::BRING_BACK.name, sqlx::Error::RowNotFound));
        };
        let back = decode(statements::BRING_BACK, read::queues(&back.rows))?;
        Ok(SortedOut { aside: aside.affected, back })
    }

    async fn insert(&self, instances: &[NewInstance]) -> StoreResult<()> {
        let now = self.clock.micros();
        let insert = |chunk| (statements::INSERT, query(statements::INSERT).bind(now).bind(chunk));
        let statements: Vec<_> = batch::inserts(instances, now).into_iter().map(insert).collect();
        if !statements.is_empty() {
            self.connections.write(Durability::Durable, statements).await?;
        }
        Ok(())
    }

    async fn insert_keyed(&self, instances: &[NewInstance]) -> StoreResult<Vec<Inserted>> {
        keys::insert(&self.connections, self.clock.micros(), instances).await
    }

    async fn find(&self, family: &str, key: &str) -> StoreResult<Vec<InstanceId>> {
        keys::find(&self.connections, family, key).await
    }

    async fn signal(&self, signals: &[NewSignal]) -> StoreResult<Vec<Delivered>> {
        signals::send(&self.connections, self.clock.micros(), signals).await
    }

    async fn cancel(&self, id: InstanceId, cascade: bool) -> StoreResult<(Cancelling, Joined)> {
        cancel::one(&self.connections, self.clock.micros(), id, cascade).await
    }

    async fn cascade(&self, limit: u32) -> StoreResult<Cascaded> {
        cancel::children(&self.connections, self.clock.micros(), limit).await
    }

    async fn retry(&self, id: InstanceId) -> StoreResult<Retrying> {
        retry::failed(&self.connections, self.clock.micros(), id).await
    }

    async fn join(&self, limit: u32) -> StoreResult<Joined> {
        let statement = statements::UNJOINED;
        // A look that finds nothing writes nothing; every end tells the parent in its own transaction.
        let rows = self.connections.read(statement, query(statement)).await?;
        if !decode(statement, read::is_so(&rows))? {
            return Ok(Joined::default());
        }
        let mut turn = self.connections.turn(Durability::Durable).await?;
        let mut transaction = turn.begin().await?;
        let joined = join::tell(&mut transaction, self.clock.micros(), limit).await?;
        transaction.commit().await?;
        Ok(joined)
    }

    async fn children(
        &self,
        parent: Parent,
        machine: &str,
        after: Option<InstanceId>,
        limit: u32,
    ) -> StoreResult<Vec<ChildRecord>> {
        let statement = statements::CHILDREN;
        let asking = query(statement)
            .bind(parent.id.as_uuid())
            .bind(parent.round)
            .bind(machine.to_owned())
            .bind(after.map(InstanceId::as_uuid))
            .bind(i64::from(limit));
        let rows = self.connections.read(statement, asking).await?;
        rows.iter().map(read::child).collect()
    }

    async fn claim(&self, request: &ClaimRequest<'_>) -> StoreResult<Claims> {
        let &ClaimRequest { worker, claim, queue: name, machines, limit, alone } = request;
        let machines: Vec<i32> = machines.iter().map(|machine| machine.0).collect();
        let machines = batch::text(&machines);
        let claiming = query(statements::CLAIM)
            .bind(worker.0)
            .bind(claim)
            .bind(name.to_string())
            .bind(machines.clone())
            .bind(i64::from(limit))
            .bind(i64::from(SOLO_CRASHES))
            .bind(alone);
        let answer = self.connections.write_one(Durability::Relaxed, statements::CLAIM, claiming).await?;
        let mut claims = decode(statements::CLAIM, read::claims(&answer.rows, name, claim))?;
        signals::collect(&self.connections, &mut claims.rows).await?;
        if claims.rows.is_empty() && !alone {
            // An update returns only rows that it changed.
            let statement = statements::SUSPECT_FIRST;
            let asking = query(statement).bind(name.to_string()).bind(machines).bind(i64::from(SOLO_CRASHES));
            let rows = self.connections.read(statement, asking).await?;
            claims.left_suspects = match rows.first() {
                Some(row) => decode(statement, row.try_get::<i64, _>(0))? != 0,
                None => false,
            };
        }
        Ok(claims)
    }

    async fn flush(&self, worker: WorkerId, commits: &[Commit], policy: DonePolicy) -> StoreResult<Flush> {
        flush::commit(&self.connections, self.clock.micros(), worker, commits, policy).await
    }

    async fn release(&self, worker: WorkerId, held: &[Held]) -> StoreResult<u64> {
        cancel::release(&self.connections, self.clock.micros(), worker, held).await
    }

    async fn beat(&self, worker: WorkerId) -> StoreResult<Beaten> {
        let beat = query(statements::BEAT).bind(worker.0).bind(self.clock.micros());
        let answer = self.connections.write_one(Durability::Relaxed, statements::BEAT, beat).await?;
        if answer.affected == 0 {
            return Ok(Beaten::default());
        }
        let statement = statements::TO_CANCEL;
        let rows = self.connections.read(statement, query(statement).bind(worker.0)).await?;
        Ok(Beaten { alive: true, cancel: decode(statement, read::ids(&rows))? })
    }

    async fn held(&self, worker: WorkerId) -> StoreResult<Vec<Held>> {
        let rows = self.connections.read(statements::HELD, query(statements::HELD).bind(worker.0)).await?;
        decode(statements::HELD, rows.iter().map(read::held).collect())
    }

    async fn retire(&self, worker: WorkerId) -> StoreResult<()> {
        let query = query(statements::RETIRE).bind(worker.0).bind(self.clock.micros());
        self.change(statements::RETIRE, query).await.map(drop)
    }

    async fn workers(&self) -> StoreResult<Vec<WorkerBeat>> {
        let rows = self.connections.read(statements::WORKERS, query(statements::WORKERS)).await?;
        decode(statements::WORKERS, rows.iter().map(read::beat).collect())
    }

    async fn bury(&self, worker: WorkerId, seen: i64) -> StoreResult<bool> {
        let query = query(statements::BURY).bind(worker.0).bind(seen);
        self.change(statements::BURY, query).await.map(|rows| rows > 0)
    }

    async fn reclaim(&self, limit: u32) -> StoreResult<Vec<Reclaimed>> {
        cancel::reclaim(&self.connections, self.clock.micros(), limit).await
    }

    async fn promote(&self, limit: u32) -> StoreResult<Promoted> {
        let now = self.clock.micros();
        // A look that finds nothing due writes nothing.
        let rows = self.connections.read(statements::DUE, query(statements::DUE)).await?;
        let due = |rows: &[sqlx::sqlite::SqliteRow]| match rows.first() {
            Some(row) => row.try_get::<Option<i64>, _>(0),
            None => Ok(None),
        };
        let next = decode(statements::DUE, due(&rows))?;
        if next.is_none_or(|next| next > now) {
            return decode(statements::PROMOTE, read::promoted(&[], next, now));
        }
        let promote = query(statements::PROMOTE).bind(now).bind(i64::from(limit));
        let statements = vec![(statements::PROMOTE, promote), (statements::DUE, query(statements::DUE))];
        let answers = self.connections.write(Durability::Relaxed, statements).await?;
        let [promoted, next] = &answers[..] else {
            return Err(classify(statements::PROMOTE.name, sqlx::Error::RowNotFound));
        };
        let next = decode(statements::DUE, due(&next.rows))?;
        decode(statements::PROMOTE, read::promoted(&promoted.rows, next, now))
    }

    async fn probe(&self, ids: &[InstanceId], watch: bool) -> StoreResult<Vec<Snapshot>> {
        let ids = batch::ids(ids);
        if watch {
            // Marked before the read: an end that came before the mark is seen, one that comes after is told.
            let query = query(statements::WATCH).bind(ids.clone());
            self.connections.write_one(Durability::Relaxed, statements::WATCH, query).await?;
        }
        let rows = self.connections.read(statements::PROBE, query(statements::PROBE).bind(ids)).await?;
        rows.iter().map(read::snapshot).collect()
    }

    async fn sweep(&self, retention: Duration, limit: u32) -> StoreResult<Swept> {
        let now = self.clock.micros();
        let before = |retention| now.saturating_sub(delay_micros(retention));
        let limit = i64::from(limit);
        let instances = query(statements::SWEEP_INSTANCES).bind(before(retention)).bind(limit);
        let workers = query(statements::SWEEP_WORKERS).bind(before(WORKER_RETENTION)).bind(limit);
        Ok(Swept {
            instances: self.change(statements::SWEEP_INSTANCES, instances).await?,
            workers: self.change(statements::SWEEP_WORKERS, workers).await?,
        })
    }

    async fn counts(&self) -> StoreResult<Vec<Count>> {
        let rows = self.connections.read(statements::COUNTS, query(statements::COUNTS)).await?;
        rows.iter().map(read::counted).collect()
    }

    async fn insert_in(
        &self,
        transaction: &mut UserTransaction<'_>,
        instances: &[NewInstance],
    ) -> StoreResult<Vec<Inserted>> {
        keys::insert_in(&mut transaction::of(transaction)?, self.clock.micros(), instances).await
    }

    async fn signal_in(
        &self,
        transaction: &mut UserTransaction<'_>,
        signals: &[NewSignal],
    ) -> StoreResult<Vec<Delivered>> {
        let mut transaction = transaction::of(transaction)?;
        transaction::take_turn(&mut transaction).await?;
        signals::send_in(&mut transaction, self.clock.micros(), signals).await
    }

    async fn cancel_in(
        &self,
        transaction: &mut UserTransaction<'_>,
        id: InstanceId,
        cascade: bool,
    ) -> StoreResult<(Cancelling, Joined)> {
        let mut transaction = transaction::of(transaction)?;
        transaction::take_turn(&mut transaction).await?;
        cancel::one_in(&mut transaction, self.clock.micros(), id, cascade).await
    }

    async fn machine_in(
        &self,
        transaction: &mut UserTransaction<'_>,
        name: &str,
        version: u32,
    ) -> StoreResult<MachineId> {
        let mut transaction = transaction::of(transaction)?;
        let [register, ask] = registering(&[(name, version)], self.clock.micros());
        transaction.run(register.0, register.1).await?;
        let rows = transaction.run(ask.0, ask.1).await?.rows;
        let machines = decode(statements::MACHINES, read::machines(&rows))?;
        machines.first().copied().ok_or_else(|| classify(statements::MACHINES.name, sqlx::Error::RowNotFound))
    }

    /// Nobody hears it: other processes find what is inserted by polling.
    async fn notify_in(&self, _transaction: &mut UserTransaction<'_>, _pokes: &[Poke]) -> StoreResult<()> {
        Ok(())
    }

    async fn begin_step(&self) -> StoreResult<Option<StepConnection>> {
        transaction::begin(&self.connections).await.map(|session| Some(StepConnection::Sqlite(session)))
    }

    fn step_patience(&self) -> Option<Duration> {
        Some(STEP_PATIENCE)
    }

    async fn finish_step(
        &self,
        connection: StepConnection,
        worker: WorkerId,
        commit: &Commit,
        policy: DonePolicy,
    ) -> StoreResult<Flush> {
        let session = match connection {
            StepConnection::Sqlite(session) => session,
            #[cfg(feature = "postgres")]
            StepConnection::Postgres(_) => return Err(foreign("SQLite")),
        };
        session.finish(&self.connections, self.clock.micros(), worker, commit, policy).await
    }

    async fn notify(&self, _pokes: &[Poke]) -> StoreResult<()> {
        Ok(())
    }

    async fn listen(&self) -> StoreResult<Option<Box<dyn Listener>>> {
        Ok(None)
    }
}

/// Reads an answer; what does not fit our own statement is a fault of the database, not of the data sent.
fn decode<T>(statement: Statement, read: sqlx::Result<T>) -> StoreResult<T> {
    read.map_err(|error| classify(statement.name, error))
}
