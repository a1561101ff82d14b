//! The database of a run: a SQLite file, which needs no set-up, or PostgreSQL.
//!
//! The library's tables and the example's own ones share it, so that nothing else has to be kept safe.

use std::env;
use std::path::{Path, PathBuf};

use gen_durable::{BoxError, Engine, EngineBuilder, migrate};
use sqlx::pool::PoolConnection;
use sqlx::postgres::PgPoolOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{PgPool, Postgres, SqlitePool};

/// The file, where nothing else is said.
const DEFAULT_FILE: &str = "ingest.db";

/// Connections for the example's own statements; the engine opens others for its own.
#[derive(Debug, Clone)]
pub(crate) enum Database {
    Sqlite { pool: SqlitePool, path: PathBuf },
    Postgres { pool: PgPool },
}

/// Does the same with either pool: the statements are written so that both databases understand them.
macro_rules! with_pool {
    ($database:expr, $pool:ident => $work:expr) => {
        match $database {
            $crate::database::Database::Sqlite { pool: $pool, .. } => $work,
            $crate::database::Database::Postgres { pool: $pool } => $work,
        }
    };
}
pub(crate) use with_pool;

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
            .journal_mode(SqliteJournalMode::Wal)
            // A row of ours comes before its step's outcome in the one log, and the engine's commit of that outcome
            // waits for the disk: no row is missed, even after a power loss.
            .synchronous(SqliteSynchronous::Normal);
        // One writes at a time: with one connection our writers wait for each other here, in turn.
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
            Self::Sqlite { path, .. } => Engine::sqlite(path),
            Self::Postgres { pool } => Engine::postgres(pool.clone()),
        }
    }

    /// The library's view for people.
    pub(crate) fn overview(&self) -> &'static str {
        match self {
            Self::Sqlite { .. } => "gen_durable_overview",
            Self::Postgres { .. } => "gen_durable.overview",
        }
    }

    /// Where it is, for people.
    pub(crate) fn place(&self) -> String {
        match self {
            Self::Sqlite { path, .. } => path.display().to_string(),
            Self::Postgres { .. } => "the database of DATABASE_URL".into(),
        }
    }

    /// Whether a file belongs to this database, with its log and its lock: it changes while it is read.
    pub(crate) fn is_made_of(&self, file: &Path) -> bool {
        let Self::Sqlite { path, .. } = self else { return false };
        let bytes = |path: &Path| path.as_os_str().as_encoded_bytes().to_owned();
        let rest = bytes(file).strip_prefix(&*bytes(path)).map(<[u8]>::to_owned);
        rest.is_some_and(|rest| matches!(&*rest, b"" | b"-wal" | b"-shm" | b".lock"))
    }

    /// Keeps other processes away from the directory until this one ends, in whatever way.
    ///
    /// On SQLite the engine does: one at a time may run a file's queues.
    pub(crate) async fn lock(&self, directory: &str) -> Result<Option<PoolConnection<Postgres>>, BoxError> {
        let Self::Postgres { pool } = self else { return Ok(None) };
        let mut lock = pool.acquire().await?;
        // A process that was killed a moment ago may still hold it.
        sqlx::query("set lock_timeout = '10s'").execute(&mut *lock).await?;
        let locked = sqlx::query("select pg_advisory_lock(hashtextextended($1, 0))")
            .bind(directory)
            .execute(&mut *lock)
            .await;
        match locked.as_ref().err().and_then(|error| error.as_database_error()?.code()) {
            Some(code) if code == "55P03" => {
                Err("another process works on this directory: wait for it or stop it".into())
            }
            _ => Ok(locked.map(|_| Some(lock))?),
        }
    }
}
