//! Connections: one that writes, a few that read.
//!
//! SQLite admits one writer at a time. With a single connection for it, writers of this process queue up in
//! memory, fairly, instead of polling the file's lock; that lock only keeps other processes apart. A future
//! that is dropped in the middle leaves nothing behind: the driver's thread finishes the statement or rolls the
//! transaction back.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use sqlx::sqlite::{
    SqliteArguments, SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteRow, SqliteSynchronous,
};
use sqlx::{ConnectOptions, Connection, Either, Executor, Sqlite};
use tokio::sync::{MutexGuard, Semaphore};

use super::failure::{classify, is_busy};
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
    writer: tokio::sync::Mutex<Option<Writer>>,
    reading: Semaphore,
    readers: Mutex<Vec<SqliteConnection>>,
}

/// The connection that writes.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) connection: SqliteConnection,
    /// How soon its commits are on disk at present.
    durability: Durability,
}

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
            writer: tokio::sync::Mutex::new(None),
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
        let mut slot = self.writer().await?;
        let Some(writer) = slot.as_mut() else { return Err(closed()) };
        let written = match self.set(writer, durability).await {
            Ok(()) => run(&mut writer.connection, statements).await,
            Err(error) => Err(error),
        };
        if matches!(written, Err(StoreError::Unavailable(_))) && self.path().is_some() {
            // Whatever state it is in, the next one is fresh.
            *slot = None;
        }
        written
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

    /// The connection that writes, for as long as the guard lives.
    pub(super) async fn writer(&self) -> StoreResult<MutexGuard<'_, Option<Writer>>> {
        let mut slot = self.writer.lock().await;
        if slot.is_none() {
            let connection = self.open(false).await?;
            *slot = Some(Writer { connection, durability: Durability::Durable });
        }
        Ok(slot)
    }

    async fn set(&self, writer: &mut Writer, durability: Durability) -> StoreResult<()> {
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

fn closed() -> StoreError {
    StoreError::Unavailable("the database's connection is closed".into())
}

async fn run(
    connection: &mut SqliteConnection,
    statements: Vec<(Statement, Query)>,
) -> StoreResult<Vec<Answer>> {
    let mut answers = Vec::with_capacity(statements.len());
    if statements.len() == 1 {
        // One statement is a transaction by itself, and takes the write lock before it reads.
        for (statement, query) in statements {
            answers.push(collect(connection, query).await.map_err(|error| classify(statement.name, error))?);
        }
        return Ok(answers);
    }
    let mut transaction =
        connection.begin_with("begin immediate").await.map_err(|error| classify("begin", error))?;
    for (statement, query) in statements {
        let answer =
            collect(&mut transaction, query).await.map_err(|error| classify(statement.name, error))?;
        answers.push(answer);
    }
    transaction.commit().await.map_err(|error| classify("commit", error))?;
    Ok(answers)
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
