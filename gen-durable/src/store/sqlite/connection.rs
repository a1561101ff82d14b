//! Connections: one that writes, a few that read.
//!
//! SQLite admits one writer at a time. With a single connection for it, writers of this process queue up in
//! memory, fairly, instead of polling the file's lock; that lock only keeps other processes apart. A future
//! that is dropped in the middle leaves nothing behind: the driver's thread finishes the statement or rolls the
//! transaction back.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use sqlx::sqlite::{
    SqliteArguments, SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteRow, SqliteSynchronous,
};
use sqlx::{ConnectOptions, Connection, Either, Executor, Sqlite};
use tokio::sync::{OwnedMutexGuard, Semaphore};

use super::failure::{classify, is_busy};
use super::leash::{Holder, Leash};
use super::statements::Statement;
use crate::store::{StoreError, StoreResult};

/// A statement with its parameters.
pub(super) type Query = sqlx::query::Query<'static, Sqlite, SqliteArguments>;

/// How long to wait for another process that writes to the file.
const BUSY_PATIENCE: Duration = Duration::from_secs(10);
/// How long to wait before opening a file again that another process sets up.
const OPEN_PAUSE: Duration = Duration::from_millis(10);
/// How many reads may run at once.
const READERS: usize = 2;
/// How many rows the driver's thread may be ahead of us.
const ROW_BUFFER: usize = 1_000;

/// When a commit is safe from a power loss. A crash of the process loses nothing either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Synchronous {
    /// At once: each commit waits for the disk.
    #[default]
    Full,
    /// Some time later: a power loss, or a crash of the operating system, may take back the commits of the last
    /// moments, all of those after some point. The file stays intact.
    Normal,
}

/// Where the database is.
#[derive(Debug, Clone)]
pub(super) enum Location {
    File(PathBuf),
    /// On the one connection and nowhere else.
    Memory,
}

/// How soon a write must be on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Durability {
    /// As the store was told.
    Durable,
    /// With the next durable write: for what a power loss may take back.
    Relaxed,
}

/// The database's connections, opened when first needed.
#[derive(Debug)]
pub(super) struct Connections {
    location: Location,
    synchronous: Synchronous,
    writer: Arc<tokio::sync::Mutex<Option<Writer>>>,
    reading: Semaphore,
    readers: Mutex<Vec<SqliteConnection>>,
}

/// The connection that writes.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) connection: SqliteConnection,
    /// How soon its commits are on disk at present.
    durability: Durability,
    /// Whether a step has it, or had it and left its transaction open.
    pub(super) is_lent: bool,
    pub(super) leash: Leash,
}

/// The connection that writes, once it is open, while nobody else has it.
pub(super) type Slot = OwnedMutexGuard<Option<Writer>>;

/// What a statement returned.
#[derive(Default)]
pub(super) struct Answer {
    pub(super) rows: Vec<SqliteRow>,
    pub(super) affected: u64,
}

impl Connections {
    pub(super) fn new(location: Location, synchronous: Synchronous) -> Self {
        Self {
            location,
            synchronous,
            writer: Arc::default(),
            reading: Semaphore::new(READERS),
            readers: Mutex::new(Vec::new()),
        }
    }

    /// The file, unless the database is in memory.
    pub(super) fn path(&self) -> Option<&Path> {
        match &self.location {
            Location::File(path) => Some(path),
            Location::Memory => None,
        }
    }

    /// Runs statements in one transaction; returns what each returned.
    pub(super) async fn write(
        &self,
        durability: Durability,
        statements: Vec<(Statement, Query)>,
    ) -> StoreResult<Vec<Answer>> {
        let mut turn = self.turn(durability).await?;
        let mut answers = Vec::with_capacity(statements.len());
        if statements.len() == 1 {
            for (statement, query) in statements {
                answers.push(turn.run(statement, query).await?);
            }
            return Ok(answers);
        }
        let mut transaction = turn.begin().await?;
        for (statement, query) in statements {
            answers.push(transaction.run(statement, query).await?);
        }
        transaction.commit().await?;
        Ok(answers)
    }

    /// Runs one statement that writes.
    pub(super) async fn write_one(
        &self,
        durability: Durability,
        statement: Statement,
        query: Query,
    ) -> StoreResult<Answer> {
        let answers = self.write(durability, vec![(statement, query)]).await?;
        Ok(answers.into_iter().next().unwrap_or_default())
    }

    /// Runs one statement that only reads.
    pub(super) async fn read(&self, statement: Statement, query: Query) -> StoreResult<Vec<SqliteRow>> {
        let Location::File(_) = &self.location else {
            return Ok(self.write_one(Durability::Relaxed, statement, query).await?.rows);
        };
        let _permit = self.reading.acquire().await.map_err(|_| closed())?;
        let idle = self.readers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut connection = match idle {
            Some(connection) => connection,
            None => self.open(true).await?,
        };
        let rows = collect(&mut connection, query).await.map_err(|error| classify(statement.name, error))?;
        self.readers.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        Ok(rows.rows)
    }

    /// Waits until nobody else writes.
    pub(super) async fn turn(&self, durability: Durability) -> StoreResult<Turn> {
        let slot = self.writer().await?;
        let mut turn = Turn { slot, is_file: self.path().is_some(), in_doubt: false };
        let set = self.set(turn.writer()?, durability).await;
        turn.note(set)?;
        Ok(turn)
    }

    /// The connection that writes, for as long as the guard lives.
    pub(super) async fn writer(&self) -> StoreResult<Slot> {
        let mut slot = Arc::clone(&self.writer).lock_owned().await;
        match slot.as_mut() {
            // Here the database would go with its connection.
            Some(writer) if writer.is_lent && self.path().is_none() => writer.take_back().await?,
            Some(writer) if !writer.is_lent => {}
            _ => {
                let mut connection = self.open(false).await?;
                let leash = Leash::on(&mut connection).await.map_err(|error| self.cannot_open(error))?;
                *slot = Some(Writer { connection, durability: Durability::Durable, is_lent: false, leash });
            }
        }
        Ok(slot)
    }

    pub(super) async fn set(&self, writer: &mut Writer, durability: Durability) -> StoreResult<()> {
        if writer.durability == durability || self.synchronous == Synchronous::Normal || self.path().is_none()
        {
            return Ok(());
        }
        let text = match durability {
            Durability::Durable => "pragma synchronous = full",
            Durability::Relaxed => "pragma synchronous = normal",
        };
        // If this is cut short, the next write sets it again.
        writer.durability = Durability::Relaxed;
        collect(&mut writer.connection, sqlx::query(text))
            .await
            .map_err(|error| classify("synchronous", error))?;
        writer.durability = durability;
        Ok(())
    }

    async fn open(&self, reads_only: bool) -> StoreResult<SqliteConnection> {
        let options = SqliteConnectOptions::new()
            .foreign_keys(false)
            .busy_timeout(BUSY_PATIENCE)
            .row_buffer_size(ROW_BUFFER)
            .thread_name(|n| format!("gen-durable-sqlite-{n}"))
            .disable_statement_logging();
        let options = match &self.location {
            Location::Memory => options.in_memory(true),
            Location::File(path) => options
                .filename(path)
                .create_if_missing(true)
                .journal_mode(SqliteJournalMode::Wal)
                .synchronous(match self.synchronous {
                    Synchronous::Full => SqliteSynchronous::Full,
                    Synchronous::Normal => SqliteSynchronous::Normal,
                })
                // On macOS only this reaches the disk itself.
                .pragma("fullfsync", "1")
                .pragma("journal_size_limit", "67108864")
                .pragma("query_only", if reads_only { "1" } else { "0" }),
        };
        let began = Instant::now();
        loop {
            match options.connect().await {
                Ok(connection) => return Ok(connection),
                // Switching a new file to write-ahead logging does not wait for others by itself.
                Err(error) if is_busy(&error) && began.elapsed() < BUSY_PATIENCE => {
                    tokio::time::sleep(OPEN_PAUSE).await;
                }
                Err(error) => return Err(self.cannot_open(error)),
            }
        }
    }

    fn cannot_open(&self, error: sqlx::Error) -> StoreError {
        let error = classify("open", error);
        let (StoreError::Unavailable(error) | StoreError::Failed(error) | StoreError::Rejected(error)) =
            error;
        match self.path() {
            Some(path) => StoreError::Unavailable(
                format!(
                    "cannot open `{}`: {error}; is it a SQLite database, does its directory exist, and may this \
                     process write there?",
                    path.display()
                )
                .into(),
            ),
            None => StoreError::Unavailable(error),
        }
    }
}

impl Writer {
    /// Ends what a step left open, also when it was cut short amid anything. Rolling back needs a transaction; the savepoint
    /// begins one if there is none.
    async fn take_back(&mut self) -> StoreResult<()> {
        // Answered when what ran has ended.
        self.connection.ping().await.map_err(|error| classify("ping", error))?;
        self.leash.hand_to(Holder::Store);
        self.tell("savepoint gen_durable_left; rollback; pragma foreign_keys = off").await?;
        self.is_lent = false;
        Ok(())
    }

    /// Runs statements without parameters, which are not kept prepared.
    pub(super) async fn tell(&mut self, text: &'static str) -> StoreResult<()> {
        let query = sqlx::query(text).persistent(false);
        collect(&mut self.connection, query).await.map(drop).map_err(|error| classify(text, error))
    }
}

/// The connection that writes, for several statements.
pub(super) struct Turn {
    slot: Slot,
    is_file: bool,
    /// Whether a statement failed such that nobody knows which state the connection is in.
    in_doubt: bool,
}

impl Turn {
    fn writer(&mut self) -> StoreResult<&mut Writer> {
        self.slot.as_mut().ok_or_else(closed)
    }

    fn note<T>(&mut self, result: StoreResult<T>) -> StoreResult<T> {
        self.in_doubt |= is_in_doubt(&result);
        result
    }

    /// Runs one statement, which is a transaction by itself and takes the write lock before it reads.
    async fn run(&mut self, statement: Statement, query: Query) -> StoreResult<Answer> {
        let answer = collect(&mut self.writer()?.connection, query).await;
        self.note(answer.map_err(|error| classify(statement.name, error)))
    }

    /// Begins a transaction, which is rolled back when it is dropped.
    pub(super) async fn begin(&mut self) -> StoreResult<Transaction<'_>> {
        let Self { slot, in_doubt, .. } = self;
        let writer = slot.as_mut().ok_or_else(closed)?;
        match writer.connection.begin_with("begin immediate").await {
            Ok(inner) => Ok(Transaction::Own(inner, in_doubt)),
            Err(error) => {
                let error = Err(classify("begin", error));
                *in_doubt |= is_in_doubt(&error);
                error
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.in_doubt && self.is_file {
            // The next one is fresh.
            *self.slot = None;
        }
    }
}

/// Several statements that take effect together, or not at all.
pub(super) enum Transaction<'t> {
    /// Rolled back when it is dropped. Notes whether the state of its connection is in doubt.
    Own(sqlx::Transaction<'t, Sqlite>, &'t mut bool),
    /// Of somebody else, who will end it.
    Lent(&'t mut SqliteConnection),
}

impl Transaction<'_> {
    pub(super) async fn run(&mut self, statement: Statement, query: Query) -> StoreResult<Answer> {
        match self {
            Self::Own(inner, in_doubt) => {
                let answer = collect(inner, query).await.map_err(|error| classify(statement.name, error));
                **in_doubt |= is_in_doubt(&answer);
                answer
            }
            Self::Lent(connection) => {
                collect(connection, query).await.map_err(|error| classify(statement.name, error))
            }
        }
    }

    /// Commits it, if it is our own.
    pub(super) async fn commit(self) -> StoreResult<()> {
        let Self::Own(inner, in_doubt) = self else { return Ok(()) };
        let committed = inner.commit().await.map_err(|error| classify("commit", error));
        *in_doubt |= is_in_doubt(&committed);
        committed
    }
}

fn is_in_doubt<T>(result: &StoreResult<T>) -> bool {
    matches!(result, Err(StoreError::Unavailable(_)))
}

fn closed() -> StoreError {
    StoreError::Unavailable("the database's connection is closed".into())
}

async fn collect(connection: &mut SqliteConnection, query: Query) -> sqlx::Result<Answer> {
    let mut answer = Answer::default();
    let mut results = connection.fetch_many(query);
    while let Some(result) = results.try_next().await? {
        match result {
            Either::Left(done) => answer.affected += done.rows_affected(),
            Either::Right(row) => answer.rows.push(row),
        }
    }
    Ok(answer)
}
