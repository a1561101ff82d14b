//! Connections of the engine itself, never the user's pool.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::TryStreamExt;
use sqlx::postgres::{PgArguments, PgConnectOptions, PgRow};
use sqlx::{ConnectOptions, Connection, Either, Executor, PgConnection, PgPool, Postgres};
use tokio::runtime::{Handle, Id};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::failure::{classify, is_about_connection, overdue};
use super::statements::Statement;
use crate::store::{StoreError, StoreResult};

/// A statement with its parameters so far.
pub(super) type Query = sqlx::query::Query<'static, Postgres, PgArguments>;

/// How long opening a connection may take.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);

/// How a session plans our statements. The generic plan is the one that is known to hold; a custom one is no better and
/// is made anew for each call: 0.3 ms for a flush of one row (PostgreSQL 15). Compiling a plan costs more than any of our
/// statements takes, and is decided by estimates that a large table drives up.
///
/// Not for sessions that a pooler lends, which are others' too, and where no plan lives longer than its call.
const PLANNING: &str = "set plan_cache_mode = force_generic_plan; set jit = off";

/// What connections are opened with: the options of the user's pool, read again each time, as passwords rotate.
#[derive(Debug, Clone)]
pub(super) struct Source {
    pool: PgPool,
    route: Route,
}

/// What is between us and the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    /// Nothing that matters: a connection is a session.
    Direct,
    /// A pooler that lends a session of the server for one transaction at a time.
    TransactionPooler,
}

impl Source {
    pub(super) fn new(pool: PgPool, route: Route) -> Self {
        Self { pool, route }
    }

    pub(super) fn options(&self) -> Arc<PgConnectOptions> {
        self.pool.connect_options()
    }

    /// The user's pool.
    pub(super) fn pool(&self) -> PgPool {
        self.pool.clone()
    }

    pub(super) fn route(&self) -> Route {
        self.route
    }

    async fn open(&self) -> StoreResult<PgConnection> {
        // The driver's log would call subscribers of `tracing` amid our statements, and most of them are of no interest.
        let mut options = (*self.options()).clone().disable_statement_logging();
        if self.route == Route::TransactionPooler {
            // PgBouncer refuses a connection that asks for it, unless told otherwise; our statements read no floats.
            options = options.extra_float_digits(None);
        }
        // The handshake can hang, too: a server behind a dead network, or a frozen one.
        let open = async {
            let mut connection = options.connect().await?;
            if self.route == Route::Direct {
                connection.execute(PLANNING).await?;
            }
            Ok(connection)
        };
        match timeout(CONNECT_PATIENCE, open).await {
            Ok(opened) => opened.map_err(|error| classify("connect", error)),
            Err(_) => Err(overdue("connect", CONNECT_PATIENCE)),
        }
    }
}

/// A few connections for one kind of work, opened when first needed.
///
/// A connection goes back only after its call ended well. Whatever else happened (an error, a timeout, a future
/// dropped in the middle), it is closed: so none is ever left inside a transaction, or with an answer under way
/// that the next call would take for its own.
#[derive(Debug)]
pub(super) struct Lane {
    source: Source,
    slots: Semaphore,
    idle: Mutex<Vec<Idle>>,
    patience: Duration,
    /// Whether a call runs once more when its connection turns out to be broken.
    repeats: bool,
}

/// A connection that waits for its next use.
#[derive(Debug)]
struct Idle {
    connection: PgConnection,
    /// The runtime that drives its socket. On another one it would hang as soon as that one stops.
    runtime: Id,
}

impl Lane {
    /// A lane of at most `slots` connections, whose calls are given up after `patience`.
    pub(super) fn new(source: Source, slots: usize, patience: Duration) -> Self {
        let idle = Mutex::new(Vec::new());
        Self { source, slots: Semaphore::new(slots), idle, patience, repeats: true }
    }

    /// The same lane, whose callers are always told when the answer was lost.
    pub(super) fn without_repeats(self) -> Self {
        Self { repeats: false, ..self }
    }

    /// Runs a statement, and returns its rows.
    pub(super) async fn rows(
        &self,
        statement: &Statement,
        bind: impl Fn(Query) -> Query + Send + Sync,
    ) -> StoreResult<Vec<PgRow>> {
        self.run(statement, 1, |_, query| bind(query)).await.map(|answer| answer.rows)
    }

    /// Runs a statement that returns exactly one row.
    pub(super) async fn row(
        &self,
        statement: &Statement,
        bind: impl Fn(Query) -> Query + Send + Sync,
    ) -> StoreResult<PgRow> {
        let rows = self.rows(statement, bind).await?;
        rows.into_iter().next().ok_or_else(|| classify(statement.name, sqlx::Error::RowNotFound))
    }

    /// Runs a statement, and returns how many rows it changed.
    pub(super) async fn execute(
        &self,
        statement: &Statement,
        bind: impl Fn(Query) -> Query + Send + Sync,
    ) -> StoreResult<u64> {
        self.run(statement, 1, |_, query| bind(query)).await.map(|answer| answer.affected)
    }

    /// Runs a statement several times in one transaction, with the parameters of each time.
    pub(super) async fn repeat(
        &self,
        statement: &Statement,
        times: usize,
        bind: impl Fn(usize, Query) -> Query + Send + Sync,
    ) -> StoreResult<()> {
        self.run(statement, times, bind).await.map(drop)
    }

    /// When a connection had been idle and turns out to be broken (the database was restarted meanwhile), the
    /// call runs once more on a fresh one, unless the lane says otherwise: every call of a store may be repeated.
    async fn run(
        &self,
        statement: &Statement,
        times: usize,
        bind: impl Fn(usize, Query) -> Query + Send + Sync,
    ) -> StoreResult<Answer> {
        let mut lease = self.acquire().await?;
        loop {
            match timeout(
                self.patience,
                call(&mut lease.connection, self.source.route, statement, times, &bind),
            )
            .await
            {
                Ok(Ok(answer)) => {
                    lease.give_back();
                    return Ok(answer);
                }
                Ok(Err(error)) if self.repeats && lease.reused && is_about_connection(&error) => {
                    lease.renew().await?
                }
                Ok(Err(error)) => return Err(classify(statement.name, error)),
                Err(_) => return Err(overdue(statement.name, self.patience)),
            }
        }
    }

    /// Begins a transaction of several statements. One that is not committed ends with its connection.
    pub(super) async fn begin(&self) -> StoreResult<Session<'_>> {
        let lease = self.acquire().await?;
        let (reused, route, patience) = (lease.reused, self.source.route, self.patience);
        let mut session = Session { connection: Owned::Leased(lease), route, patience };
        match session.order("begin").await {
            Err(Fault { cause, .. }) if reused && is_about_connection(&cause) => {
                let Owned::Leased(lease) = &mut session.connection else { unreachable!("made above") };
                lease.renew().await?;
                session.order("begin").await.map_err(Fault::classified)?;
            }
            begun => begun.map_err(Fault::classified)?,
        }
        Ok(session)
    }

    async fn acquire(&self) -> StoreResult<Lease<'_>> {
        let permit = self.slots.acquire().await.map_err(|error| StoreError::Unavailable(error.into()))?;
        let (connection, reused) = match self.take_idle() {
            Some(connection) => (connection, true),
            None => (self.source.open().await?, false),
        };
        Ok(Lease { lane: self, connection, reused, _permit: permit })
    }

    /// An idle connection of this runtime; those of other runtimes are closed.
    fn take_idle(&self) -> Option<PgConnection> {
        let runtime = Handle::current().id();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(next) = idle.pop() {
            if next.runtime == runtime {
                return Some(next.connection);
            }
        }
        None
    }
}

/// A connection inside a transaction: one of a lane, or a user's.
pub(super) struct Session<'a> {
    connection: Owned<'a>,
    route: Route,
    patience: Duration,
}

enum Owned<'a> {
    Leased(Lease<'a>),
    Lent(&'a mut PgConnection),
}

/// What went wrong with which statement.
pub(super) struct Fault {
    statement: &'static str,
    cause: sqlx::Error,
}

impl Fault {
    pub(super) fn classified(self) -> StoreError {
        classify(self.statement, self.cause)
    }
}

impl<'a> Session<'a> {
    /// The transaction of a user, who ends it.
    pub(super) fn of(connection: &'a mut PgConnection, route: Route) -> Self {
        Self { connection: Owned::Lent(connection), route, patience: Duration::MAX }
    }

    /// Runs a statement, and returns its rows.
    pub(super) async fn rows(
        &mut self,
        statement: &Statement,
        bind: impl FnOnce(Query) -> Query,
    ) -> StoreResult<Vec<PgRow>> {
        let query = bind(sqlx::query(statement.text())).persistent(self.route == Route::Direct);
        let mut answer = Answer::default();
        let patience = self.patience;
        match timeout(patience, collect(self.connection(), query, &mut answer)).await {
            Ok(collected) => collected.map_err(|error| classify(statement.name, error))?,
            Err(_) => return Err(overdue(statement.name, patience)),
        }
        Ok(answer.rows)
    }

    /// Runs a statement that returns exactly one row.
    pub(super) async fn row(
        &mut self,
        statement: &Statement,
        bind: impl FnOnce(Query) -> Query,
    ) -> StoreResult<PgRow> {
        let rows = self.rows(statement, bind).await?;
        rows.into_iter().next().ok_or_else(|| classify(statement.name, sqlx::Error::RowNotFound))
    }

    /// Commits; the connection goes back to its lane.
    pub(super) async fn commit(mut self) -> StoreResult<()> {
        let patience = self.patience;
        match timeout(patience, self.order("commit")).await {
            Ok(committed) => committed.map_err(Fault::classified)?,
            Err(_) => return Err(overdue("commit", patience)),
        }
        if let Owned::Leased(lease) = self.connection {
            lease.give_back();
        }
        Ok(())
    }

    /// Takes everything back; the connection goes back to its lane. When that fails it is closed, which comes to the same.
    pub(super) async fn rollback(mut self) {
        let patience = self.patience;
        let is_over = matches!(timeout(patience, self.order("rollback")).await, Ok(Ok(())));
        if let (true, Owned::Leased(lease)) = (is_over, self.connection) {
            lease.give_back();
        }
    }

    async fn order(&mut self, text: &'static str) -> Result<(), Fault> {
        let executed = sqlx::raw_sql(text).execute(self.connection()).await;
        executed.map(drop).map_err(|cause| Fault { statement: text, cause })
    }

    fn connection(&mut self) -> &mut PgConnection {
        match &mut self.connection {
            Owned::Leased(lease) => &mut lease.connection,
            Owned::Lent(connection) => connection,
        }
    }
}

/// What a statement returned, all its times together.
#[derive(Default)]
struct Answer {
    rows: Vec<PgRow>,
    affected: u64,
}

async fn call(
    connection: &mut PgConnection,
    route: Route,
    statement: &Statement,
    times: usize,
    bind: &(impl Fn(usize, Query) -> Query + Send + Sync),
) -> sqlx::Result<Answer> {
    let mut answer = Answer::default();
    if times == 1 && route == Route::Direct {
        // One statement is a transaction by itself.
        collect(connection, bind(0, sqlx::query(statement.text())), &mut answer).await?;
        return Ok(answer);
    }
    // Through a pooler always: the driver sends a statement's text and its parameters apart, and between the two a
    // session outside of a transaction may go to somebody else. The text gets no name either: that would stay with
    // a session that is not ours.
    let mut transaction = connection.begin().await?;
    for time in 0..times {
        let query = bind(time, sqlx::query(statement.text())).persistent(route == Route::Direct);
        collect(&mut transaction, query, &mut answer).await?;
    }
    transaction.commit().await?;
    Ok(answer)
}

async fn collect(connection: &mut PgConnection, query: Query, answer: &mut Answer) -> sqlx::Result<()> {
    let mut results = connection.fetch_many(query);
    while let Some(result) = results.try_next().await? {
        match result {
            Either::Left(done) => answer.affected += done.rows_affected(),
            Either::Right(row) => answer.rows.push(row),
        }
    }
    Ok(())
}

/// A connection in use. Closed when dropped, unless it is given back.
struct Lease<'a> {
    lane: &'a Lane,
    connection: PgConnection,
    reused: bool,
    _permit: SemaphorePermit<'a>,
}

impl Lease<'_> {
    async fn renew(&mut self) -> StoreResult<()> {
        // What is idle beside it broke by the same event.
        self.lane.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.connection = self.lane.source.open().await?;
        self.reused = false;
        Ok(())
    }

    fn give_back(self) {
        let idle = Idle { connection: self.connection, runtime: Handle::current().id() };
        self.lane.idle.lock().unwrap_or_else(PoisonError::into_inner).push(idle);
    }
}
