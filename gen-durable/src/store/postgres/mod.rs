//! PostgreSQL: the store for many nodes.
//!
//! One statement a file in `sql/`, each with its locks, its races and its plan explained. A statement is a
//! transaction by itself, needs no session state, and takes row locks only with `skip locked`, except a worker's own
//! row: so statements of the engine never wait for each other's or for a user's rows, and cannot deadlock.
//!
//! | lane | connections | methods |
//! |---|---|---|
//! | claim | 1 | `claim` |
//! | flush | 1 | `flush` |
//! | signal | 1 | `signal` |
//! | pulse | 1 | `beat`, `held` |
//! | common | 4 | all others |
//!
//! A lane's connection lives on the runtime that opened it; called from another one, the lane opens a new one. So
//! the heartbeat's thread may have a runtime of its own, and the others may call the same methods.

mod connection;
mod coordination;
mod failure;
mod flush;
mod insert;
mod listener;
mod looks;
mod read;
mod schema;
mod statements;
mod transaction;

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use sqlx::postgres::{PgConnectOptions, PgPool};
use sqlx::{ConnectOptions, Row};
use uuid::Uuid;

use self::connection::{Lane, Query, Route, Source};
use self::failure::classify;
use self::flush::HeldColumns;
use self::listener::PostgresListener;
use self::looks::Looks;
pub use self::schema::{DEFAULT_SCHEMA, Schema};
use self::statements::{Statement, Statements};
pub use self::transaction::StepSession;
use crate::id::{InstanceId, MachineId, WorkerId};
use crate::migrate;
use crate::store::{
    Beaten, Cancelling, Cascaded, ChildRecord, ClaimRequest, Claims, Commit, Count, Delivered, DonePolicy,
    Flush, Held, INBOX_LIMIT, Inserted, Joined, Listener, Mail, NewInstance, NewSignal, Parent, Poke,
    Promoted, Reclaimed, Retrying, SOLO_CRASHES, Snapshot, SortedOut, StepConnection, Store, StoreError,
    StoreResult, Swept, UserTransaction, WorkerBeat, delay_micros,
};

/// How long claims and flushes may take; after that the connection counts as dead.
const WORK_PATIENCE: Duration = Duration::from_secs(30);

/// How long heartbeats may take: a second try must fit into the lease.
const PULSE_PATIENCE: Duration = Duration::from_secs(5);

/// How long anything else may take, reading the whole table included.
const COMMON_PATIENCE: Duration = Duration::from_secs(120);

/// How often a probe tries to mark a row that somebody holds, and how long it waits in between.
const WATCH_TRIES: u32 = 3;
const WATCH_PAUSE: Duration = Duration::from_millis(5);

/// Instances in PostgreSQL.
#[derive(Debug)]
pub struct PostgresStore {
    schema: Schema,
    statements: Statements,
    source: Source,
    listen: Option<PgConnectOptions>,
    claim: Lane,
    flush: Lane,
    signal: Lane,
    pulse: Lane,
    common: Lane,
    looks: Looks,
}

impl PostgresStore {
    /// A store in `schema`, with connections of its own made from the pool's options; connects when first used.
    ///
    /// `listen` is the server's direct address for when the pool's leads to a pooler, which cannot listen.
    #[must_use]
    pub fn new(pool: PgPool, schema: Schema, listen: Option<PgConnectOptions>) -> Self {
        Self::over(Source::new(pool, Route::Direct), schema, listen)
    }

    /// The same through a pooler that lends a session of the server for one transaction at a time: no statement
    /// has a name, each is a transaction with `begin` and `commit`. Without `listen`, nobody listens.
    #[must_use]
    pub fn through_pooler(pool: PgPool, schema: Schema, listen: Option<PgConnectOptions>) -> Self {
        Self::over(Source::new(pool, Route::TransactionPooler), schema, listen)
    }

    fn over(source: Source, schema: Schema, listen: Option<PgConnectOptions>) -> Self {
        let lane = |slots, patience| Lane::new(source.clone(), slots, patience);
        Self {
            statements: Statements::new(&schema),
            // What a claim took whose answer was lost must be looked for.
            claim: lane(1, WORK_PATIENCE).without_repeats(),
            flush: lane(1, WORK_PATIENCE),
            signal: lane(1, WORK_PATIENCE),
            pulse: lane(1, PULSE_PATIENCE),
            common: lane(4, COMMON_PATIENCE),
            looks: Looks::default(),
            schema,
            source,
            listen,
        }
    }

    /// The schema that holds the tables.
    #[must_use]
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Makes the delayed row that is due next ready before its time; false if there is none. For tests.
    pub(crate) async fn hasten(&self, queues: &[String], machines: &[MachineId]) -> StoreResult<bool> {
        let machines: Vec<i32> = machines.iter().map(|machine| machine.0).collect();
        let bind = |query: Query| query.bind(queues.to_vec()).bind(machines.clone());
        self.common.execute(&self.statements.hasten, bind).await.map(|rows| rows > 0)
    }

    /// Time until the next delayed row is due, not counting waits. For tests, where delays collapse.
    pub(crate) async fn next_start(&self) -> StoreResult<Option<Duration>> {
        let rows = self.common.rows(&self.statements.next_start, |query| query).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let micros: i64 = decode(&self.statements.next_start, || row.try_get(0))?;
        Ok(Some(Duration::from_micros(micros.max(0).unsigned_abs())))
    }

    /// Name and text of every statement, for tests.
    #[must_use]
    pub fn statements(&self) -> Vec<(&'static str, sqlx::SqlStr)> {
        self.statements.all().into_iter().map(|statement| (statement.name, statement.text())).collect()
    }

    /// Adds what they were sent to claimed rows.
    async fn add_letters(&self, claims: &mut Claims, recipients: Vec<Uuid>) -> StoreResult<()> {
        let statement = &self.statements.inbox;
        let bind = |query: Query| query.bind(&recipients).bind(i64::from(INBOX_LIMIT));
        let rows = self.claim.rows(statement, bind).await?;
        let mut inboxes = decode(statement, || read::letters(&rows))?;
        for row in &mut claims.rows {
            if let (Some(mail), Some((inbox, latest))) = (&row.mail, inboxes.remove(&row.id)) {
                row.mail = Some(Arc::new(Mail { inbox, latest, ..(**mail).clone() }));
            }
        }
        Ok(())
    }

    /// Reads instances, and whether each is watched.
    async fn read(&self, ids: &[Uuid]) -> StoreResult<Vec<(Snapshot, bool)>> {
        let rows = self.common.rows(&self.statements.probe, |query| query.bind(ids)).await?;
        rows.iter().map(read::snapshot).collect()
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn check(&self) -> StoreResult<Result<(), String>> {
        let books =
            self.common.row(&self.statements.keeps_books, |query| query.bind(self.schema.name())).await?;
        if !decode(&self.statements.keeps_books, || books.try_get(0))? {
            return Ok(migrate::postgres::admits(0, 0));
        }
        let row = self.common.row(&self.statements.installed, |query| query).await?;
        let (version, oldest_code) =
            decode(&self.statements.installed, || Ok((row.try_get(0)?, row.try_get(1)?)))?;
        Ok(migrate::postgres::admits(version, oldest_code))
    }

    async fn register_machines(&self, machines: &[(&str, u32)]) -> StoreResult<Vec<MachineId>> {
        let names: Vec<&str> = machines.iter().map(|(name, _)| *name).collect();
        let versions: Vec<i64> = machines.iter().map(|(_, version)| i64::from(*version)).collect();
        let bind = |query: Query| query.bind(&names).bind(&versions);
        self.common.execute(&self.statements.register_machines, bind).await?;
        let rows = self.common.rows(&self.statements.machines, bind).await?;
        if rows.len() != machines.len() {
            return Err(StoreError::Unavailable("a machine vanished while it was registered".into()));
        }
        decode(&self.statements.machines, || rows.iter().map(|row| Ok(MachineId(row.try_get(0)?))).collect())
    }

    async fn register_worker(&self, engine: &str, node: &str) -> StoreResult<WorkerId> {
        let statement = &self.statements.register_worker;
        let row = self.common.row(statement, |query| query.bind(engine).bind(node)).await?;
        decode(statement, || row.try_get(0).map(WorkerId))
    }

    async fn announce(&self, worker: WorkerId, machines: &[MachineId]) -> StoreResult<()> {
        let machines: Vec<i32> = machines.iter().map(|machine| machine.0).collect();
        let bind = |query: Query| query.bind(worker.0).bind(&machines);
        self.common.execute(&self.statements.announce, bind).await.map(drop)
    }

    async fn sort_out(&self, grace: Duration, limit: u32) -> StoreResult<SortedOut> {
        let Statements { mark_unserved, set_aside, bring_back, .. } = &self.statements;
        self.common.execute(mark_unserved, |query| query.bind(delay_micros(grace))).await?;
        let limit = i64::from(limit);
        let aside = self.common.execute(set_aside, |query| query.bind(limit)).await?;
        let rows = self.common.rows(bring_back, |query| query.bind(limit)).await?;
        let back = decode(bring_back, || {
            rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get::<i64, _>(1)?.unsigned_abs()))).collect()
        })?;
        Ok(SortedOut { aside, back })
    }

    async fn insert(&self, instances: &[NewInstance]) -> StoreResult<()> {
        let chunks = insert::chunks(instances);
        if chunks.is_empty() {
            return Ok(());
        }
        let bind = |time: usize, query| insert::bind(chunks[time].iter(), query);
        let Statements { insert, insert_again, .. } = &self.statements;
        match self.common.repeat(insert, chunks.len(), bind).await {
            Err(error) if failure::is_duplicate(&error) => {
                self.common.repeat(insert_again, chunks.len(), bind).await
            }
            inserted => inserted,
        }
    }

    async fn claim(&self, request: &ClaimRequest<'_>) -> StoreResult<Claims> {
        let statement = &self.statements.claim;
        let machines: Vec<i32> = request.machines.iter().map(|machine| machine.0).collect();
        let (Some(&lowest), Some(&highest)) = (machines.iter().min(), machines.iter().max()) else {
            return Ok(Claims::default());
        };
        let look = self.looks.begin(request, Instant::now());
        let bind = |query: Query| {
            query
                .bind(request.worker.0)
                .bind(request.claim)
                .bind(&**request.queue)
                .bind(&machines)
                .bind(i64::from(request.limit))
                .bind(i64::from(SOLO_CRASHES))
                .bind(lowest)
                .bind(highest)
                .bind(request.alone)
                .bind(look.back().map(delay_micros))
        };
        let rows = self.claim.rows(statement, bind).await?;
        let mut claims = decode(statement, || read::claims(&rows, request.queue, request.claim))?;
        claims.look_again = self.looks.end(request, &look, &claims, Instant::now());
        let recipients = decode(statement, || read::recipients(&rows))?;
        if !recipients.is_empty() {
            self.add_letters(&mut claims, recipients).await?;
        }
        Ok(claims)
    }

    async fn insert_keyed(&self, instances: &[NewInstance]) -> StoreResult<Vec<Inserted>> {
        self.insert_with_keys(instances).await
    }

    async fn find(&self, family: &str, key: &str) -> StoreResult<Vec<InstanceId>> {
        self.find_by_key(family, key).await
    }

    async fn signal(&self, signals: &[NewSignal]) -> StoreResult<Vec<Delivered>> {
        self.send_signals(signals).await
    }

    async fn cancel(&self, id: InstanceId, cascade: bool) -> StoreResult<(Cancelling, Joined)> {
        let mut session = self.common.begin().await?;
        let cancelled = self.cancel_one(&mut session, &self.statements.cancel, id, cascade).await?;
        session.commit().await?;
        Ok(cancelled)
    }

    async fn cascade(&self, limit: u32) -> StoreResult<Cascaded> {
        self.cascade_some(limit).await
    }

    async fn retry(&self, id: InstanceId) -> StoreResult<Retrying> {
        self.retry_one(id).await
    }

    async fn join(&self, limit: u32) -> StoreResult<Joined> {
        self.join_some(limit).await
    }

    async fn children(
        &self,
        parent: Parent,
        machine: &str,
        after: Option<InstanceId>,
        limit: u32,
    ) -> StoreResult<Vec<ChildRecord>> {
        self.read_children(parent, machine, after, limit).await
    }

    async fn flush(&self, worker: WorkerId, commits: &[Commit], policy: DonePolicy) -> StoreResult<Flush> {
        self.commit(worker, commits, policy == DonePolicy::Delete).await
    }

    async fn release(&self, worker: WorkerId, held: &[Held]) -> StoreResult<u64> {
        let (columns, statement) = (HeldColumns::of(held.to_vec()), &self.statements.release);
        let row = self.common.row(statement, |query| columns.bind(query.bind(worker.0))).await?;
        Ok(decode(statement, || row.try_get::<i64, _>(0))?.unsigned_abs())
    }

    async fn beat(&self, worker: WorkerId) -> StoreResult<Beaten> {
        let statement = &self.statements.beat;
        let rows = self.pulse.rows(statement, |query| query.bind(worker.0)).await?;
        let Some(row) = rows.first() else { return Ok(Beaten::default()) };
        let cancel: Vec<Uuid> = decode(statement, || row.try_get(0))?;
        Ok(Beaten { alive: true, cancel: cancel.into_iter().map(InstanceId::from).collect() })
    }

    async fn held(&self, worker: WorkerId) -> StoreResult<Vec<Held>> {
        let statement = &self.statements.held;
        let rows = self.pulse.rows(statement, |query| query.bind(worker.0)).await?;
        decode(statement, || rows.iter().map(read::held).collect())
    }

    async fn retire(&self, worker: WorkerId) -> StoreResult<()> {
        self.common.execute(&self.statements.retire, |query| query.bind(worker.0)).await.map(drop)
    }

    async fn workers(&self) -> StoreResult<Vec<WorkerBeat>> {
        let statement = &self.statements.workers;
        let rows = self.common.rows(statement, |query| query).await?;
        decode(statement, || rows.iter().map(read::beat).collect())
    }

    async fn bury(&self, worker: WorkerId, seen: i64) -> StoreResult<bool> {
        let bind = |query: Query| query.bind(worker.0).bind(seen);
        self.common.execute(&self.statements.bury, bind).await.map(|rows| rows > 0)
    }

    async fn reclaim(&self, limit: u32) -> StoreResult<Vec<Reclaimed>> {
        let statement = &self.statements.reclaim;
        let rows = self.common.rows(statement, |query| query.bind(i64::from(limit))).await?;
        decode(statement, || rows.iter().map(read::reclaimed).collect())
    }

    async fn promote(&self, limit: u32) -> StoreResult<Promoted> {
        let statement = &self.statements.promote;
        let row = self.common.row(statement, |query| query.bind(i64::from(limit))).await?;
        decode(statement, || read::promoted(&row, limit))
    }

    async fn probe(&self, ids: &[InstanceId], watch: bool) -> StoreResult<Vec<Snapshot>> {
        let mut ids: Vec<Uuid> = ids.iter().map(|id| id.as_uuid()).collect();
        ids.sort_unstable();
        for _ in 0..if watch { WATCH_TRIES } else { 0 } {
            self.common.execute(&self.statements.watch, |query| query.bind(&ids)).await?;
            // Read after the mark: an end that came before the mark is seen, one that comes after is told. A row
            // that could not be marked, as somebody held it, may be one that ends just now.
            let read = self.read(&ids).await?;
            if read.iter().all(|(snapshot, watched)| *watched || snapshot.status.is_terminal()) {
                return Ok(read.into_iter().map(|(snapshot, _)| snapshot).collect());
            }
            tokio::time::sleep(WATCH_PAUSE).await;
        }
        // Somebody keeps a row locked for long: its end is found when the caller asks again.
        Ok(self.read(&ids).await?.into_iter().map(|(snapshot, _)| snapshot).collect())
    }

    async fn sweep(&self, retention: Duration, limit: u32) -> StoreResult<Swept> {
        let Statements { sweep_instances, sweep_workers, .. } = &self.statements;
        let limit = i64::from(limit);
        let bind = |query: Query| query.bind(delay_micros(retention)).bind(limit);
        let row = self.common.row(sweep_instances, bind).await?;
        let instances = decode(sweep_instances, || row.try_get::<i64, _>(0))?.unsigned_abs();
        let workers = self.common.execute(sweep_workers, |query| query.bind(limit)).await?;
        Ok(Swept { instances, workers })
    }

    async fn counts(&self) -> StoreResult<Vec<Count>> {
        let rows = self.common.rows(&self.statements.counts, |query| query).await?;
        rows.iter().map(read::counted).collect()
    }

    async fn notify(&self, pokes: &[Poke]) -> StoreResult<()> {
        let payloads = payloads(pokes);
        if payloads.is_empty() {
            return Ok(());
        }
        let bind = |query: Query| query.bind(self.schema.name()).bind(&payloads);
        self.common.rows(&self.statements.notify, bind).await.map(drop)
    }

    async fn insert_in(
        &self,
        transaction: &mut UserTransaction<'_>,
        instances: &[NewInstance],
    ) -> StoreResult<Vec<Inserted>> {
        let mut session = self.session(transaction)?;
        self.insert_keys(&mut session, &self.statements.insert_in_transaction, instances).await
    }

    async fn signal_in(
        &self,
        transaction: &mut UserTransaction<'_>,
        signals: &[NewSignal],
    ) -> StoreResult<Vec<Delivered>> {
        let mut session = self.session(transaction)?;
        self.send_signals_in(&mut session, signals).await
    }

    async fn cancel_in(
        &self,
        transaction: &mut UserTransaction<'_>,
        id: InstanceId,
        cascade: bool,
    ) -> StoreResult<(Cancelling, Joined)> {
        let mut session = self.session(transaction)?;
        self.cancel_one(&mut session, &self.statements.cancel_in_transaction, id, cascade).await
    }

    /// On a connection of the engine's own: in the transaction it would hold up whoever registers the same machine.
    async fn machine_in(
        &self,
        _: &mut UserTransaction<'_>,
        name: &str,
        version: u32,
    ) -> StoreResult<MachineId> {
        let id = self.register_machines(&[(name, version)]).await?.into_iter().next();
        id.ok_or_else(|| StoreError::Unavailable("a machine vanished while it was registered".into()))
    }

    async fn notify_in(&self, transaction: &mut UserTransaction<'_>, pokes: &[Poke]) -> StoreResult<()> {
        let payloads = payloads(pokes);
        let bind = |query: Query| query.bind(self.schema.name()).bind(&payloads);
        let mut session = self.session(transaction)?;
        session.rows(&self.statements.notify_in_transaction, bind).await.map(drop)
    }

    async fn begin_step(&self) -> StoreResult<Option<StepConnection>> {
        self.begin_for_step().await.map(Some)
    }

    async fn finish_step(
        &self,
        connection: StepConnection,
        worker: WorkerId,
        commit: &Commit,
        policy: DonePolicy,
    ) -> StoreResult<Flush> {
        self.finish_for_step(connection, worker, commit, policy == DonePolicy::Delete).await
    }

    async fn listen(&self) -> StoreResult<Option<Box<dyn Listener>>> {
        let options = match (&self.listen, self.source.route()) {
            (Some(direct), _) => direct.clone(),
            (None, Route::Direct) => (*self.source.options()).clone(),
            // A pooler would take the order, and let a session listen that is not ours.
            (None, Route::TransactionPooler) => return Ok(None),
        };
        let options = options.disable_statement_logging();
        Ok(Some(Box::new(PostgresListener::open(options, &self.schema).await?)))
    }
}

/// Pokes as texts.
fn payloads(pokes: &[Poke]) -> Vec<String> {
    pokes.iter().filter_map(|poke| serde_json::to_string(poke).ok()).collect()
}

/// Reads an answer; what does not fit our own statement is a fault of the database, not of the data sent.
fn decode<T>(statement: &Statement, read: impl FnOnce() -> sqlx::Result<T>) -> StoreResult<T> {
    read().map_err(|error| classify(statement.name, error))
}
