//! The database of the shop: a SQLite file, which needs no set-up, or PostgreSQL.
//!
//! The library's tables and the shop's own ones share it: only so can they change in one transaction.

use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gen_durable::prelude::*;
use gen_durable::{BoxError, Engine, EngineBuilder, State, migrate};
use sqlx::postgres::PgPoolOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};
use sqlx::{PgConnection, PgPool, Postgres, Sqlite, SqliteConnection, SqlitePool};

/// The file, where nothing else is said.
const DEFAULT_FILE: &str = "checkout.db";
/// How often to look for what was committed to the file.
const LOOK: Duration = Duration::from_millis(100);

/// Connections for the requests' transactions; the engine opens others for its own.
#[derive(Debug, Clone)]
pub(crate) enum Database {
    Sqlite { pool: SqlitePool, path: PathBuf },
    Postgres { pool: PgPool },
}

/// A connection to the shop's tables, inside of somebody's transaction.
pub(crate) enum Connection<'t> {
    Sqlite(&'t mut SqliteConnection),
    Postgres(&'t mut PgConnection),
}

/// Does the same with either connection: the statements are written so that both databases understand them.
macro_rules! on {
    ($connection:expr, $either:ident => $work:expr) => {
        match $connection {
            $crate::database::Connection::Sqlite($either) => $work,
            $crate::database::Connection::Postgres($either) => $work,
        }
    };
}
pub(crate) use on;

impl Database {
    /// Opens the given file, else the database of `DATABASE_URL`, else a file in the current directory.
    pub(crate) async fn open(file: Option<&Path>) -> Result<Self, BoxError> {
        let url = env::var("DATABASE_URL").ok().filter(|url| !url.is_empty());
        match (file, url) {
            (Some(file), _) => Self::open_file(file).await,
            (None, None) => Self::open_file(Path::new(DEFAULT_FILE)).await,
            (None, Some(url)) => Self::connect(&url).await,
        }
    }

    async fn open_file(file: &Path) -> Result<Self, BoxError> {
        let options = SqliteConnectOptions::new()
            .filename(file)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal);
        // One writes at a time: with one connection the requests wait for each other here, in turn.
        let pool = SqlitePoolOptions::new().max_connections(1).connect_with(options).await;
        let pool = pool.map_err(|error| format!("cannot open the database {}: {error}", file.display()))?;
        Ok(Self::Sqlite { pool, path: file.canonicalize()? })
    }

    async fn connect(url: &str) -> Result<Self, BoxError> {
        let pool = PgPoolOptions::new().max_connections(10).connect(url).await;
        let pool =
            pool.map_err(|error| format!("cannot connect to the database of DATABASE_URL: {error}"))?;
        // A SQLite file is migrated by the engine when it starts. Here, nodes of several versions may be at work.
        migrate::up(&pool).await?;
        Ok(Self::Postgres { pool })
    }

    /// An engine on this database.
    pub(crate) fn engine(&self) -> EngineBuilder {
        match self {
            // PostgreSQL tells an engine what a request's transaction commits. On SQLite it looks for that.
            Self::Sqlite { path, .. } => Engine::sqlite(path).poll_interval(LOOK).max_poll_interval(LOOK),
            Self::Postgres { pool } => Engine::postgres(pool.clone()),
        }
    }

    /// Where it is, for people.
    pub(crate) fn place(&self) -> String {
        match self {
            Self::Sqlite { path, .. } => path.display().to_string(),
            Self::Postgres { .. } => "the database of DATABASE_URL".into(),
        }
    }

    /// Begins a transaction of a request.
    pub(crate) async fn begin(&self) -> sqlx::Result<Transaction> {
        Ok(match self {
            // Takes the write lock at once: a transaction that first reads may be refused to write later.
            Self::Sqlite { pool, .. } => Transaction::Sqlite(pool.begin_with("begin immediate").await?),
            Self::Postgres { pool } => Transaction::Postgres(pool.begin().await?),
        })
    }

    /// Begins a transaction that sees one state of the tables, and changes nothing.
    pub(crate) async fn begin_reading(&self) -> sqlx::Result<Transaction> {
        Ok(match self {
            Self::Sqlite { pool, .. } => Transaction::Sqlite(pool.begin().await?),
            Self::Postgres { pool } => {
                let begin = "begin isolation level repeatable read read only";
                Transaction::Postgres(pool.begin_with(begin).await?)
            }
        })
    }

    /// Begins a transaction of a step.
    pub(crate) async fn begin_step<'c, S: State>(
        &self,
        cx: &'c Context<S>,
    ) -> Result<StepTransaction<'c>, StepError> {
        Ok(match self {
            Self::Sqlite { .. } => StepTransaction::Sqlite(cx.begin::<Sqlite>().await?),
            Self::Postgres { .. } => StepTransaction::Postgres(cx.begin::<Postgres>().await?),
        })
    }
}

/// A transaction of a request; rolled back when dropped.
pub(crate) enum Transaction {
    Sqlite(sqlx::Transaction<'static, Sqlite>),
    Postgres(sqlx::Transaction<'static, Postgres>),
}

impl Transaction {
    pub(crate) fn connection(&mut self) -> Connection<'_> {
        match self {
            Self::Sqlite(transaction) => Connection::Sqlite(transaction),
            Self::Postgres(transaction) => Connection::Postgres(transaction),
        }
    }

    pub(crate) async fn commit(self) -> sqlx::Result<()> {
        match self {
            Self::Sqlite(transaction) => transaction.commit().await,
            Self::Postgres(transaction) => transaction.commit().await,
        }
    }
}

/// A transaction of a step: what it writes and the step's outcome are committed together, or not at all.
pub(crate) enum StepTransaction<'c> {
    Sqlite(gen_durable::StepTransaction<'c, Sqlite>),
    Postgres(gen_durable::StepTransaction<'c, Postgres>),
}

impl StepTransaction<'_> {
    pub(crate) fn connection(&mut self) -> Connection<'_> {
        match self {
            Self::Sqlite(transaction) => Connection::Sqlite(transaction),
            Self::Postgres(transaction) => Connection::Postgres(transaction),
        }
    }

    /// Commits what was written, and the outcome with it.
    pub(crate) async fn finish<S: State>(self, outcome: impl Into<Outcome<S>>) -> StepResult<S> {
        let outcome = outcome.into();
        match self {
            Self::Sqlite(transaction) => transaction.finish(outcome).await,
            Self::Postgres(transaction) => transaction.finish(outcome).await,
        }
    }
}
