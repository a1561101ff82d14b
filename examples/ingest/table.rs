//! The example's own tables: which runs there are, and what was found of each file.

use gen_durable::BoxError;
use sqlx::pool::PoolConnection;
use sqlx::{AssertSqlSafe, Postgres};
use uuid::Uuid;

use crate::database::{Database, with_pool};
use crate::machine::Findings;
use crate::path::FilePath;

/// `{bytes}` is the one type whose name differs; SQLite keeps ids as bytes whatever their column's type.
const TABLES: &str = "
    create table if not exists ingest_runs (
        run uuid not null primary key,
        directory text not null,
        files bigint,
        finished boolean not null default false
    );
    -- Two processes that begin a run of one directory at once begin the same.
    create unique index if not exists ingest_runs_unfinished on ingest_runs (directory) where not finished;
    create table if not exists ingest_files (
        run uuid not null,
        path {bytes} not null,
        name text not null,
        kind text not null,
        bytes bigint,
        sha256 text,
        lines bigint,
        words bigint,
        longest_line bigint,
        problem text,
        primary key (run, path)
    )";

pub(crate) async fn create(database: &Database) -> sqlx::Result<()> {
    let text = match database {
        Database::Sqlite { .. } => TABLES.replace("{bytes}", "blob"),
        // One transaction: two processes that make the tables at once would disturb each other.
        Database::Postgres { .. } => {
            let lock = "select pg_advisory_xact_lock(hashtextextended('ingest tables', 0));";
            lock.to_owned() + &TABLES.replace("{bytes}", "bytea")
        }
    };
    // Safe: texts of this file.
    with_pool!(database, pool => sqlx::raw_sql(AssertSqlSafe(text)).execute(pool).await.map(drop))
}

/// One pass over a directory, however many processes it takes.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) id: Uuid,
    /// How many files it has, once their instances are inserted.
    pub(crate) files: Option<u64>,
    _lock: Option<PoolConnection<Postgres>>,
}

impl Run {
    /// The unfinished run of this directory, or else a new one.
    pub(crate) async fn of(directory: &str, database: &Database) -> Result<Self, BoxError> {
        let lock = database.lock(directory).await?;
        let begin = "insert into ingest_runs (run, directory) values ($1, $2) on conflict do nothing";
        let id = Uuid::now_v7();
        with_pool!(database, pool => sqlx::query(begin).bind(id).bind(directory).execute(pool).await.map(drop))?;
        let unfinished = "select run, files from ingest_runs where directory = $1 and not finished";
        let (id, files): (Uuid, Option<i64>) =
            with_pool!(database, pool => sqlx::query_as(unfinished).bind(directory).fetch_one(pool).await)?;
        Ok(Self { id, files: files.map(i64::cast_unsigned), _lock: lock })
    }

    /// The queue of the run's instances: a queue of its own, so that runs do not mix.
    pub(crate) fn queue(&self) -> String {
        format!("ingest {}", self.id)
    }

    pub(crate) async fn set_files(&mut self, files: u64, database: &Database) -> sqlx::Result<()> {
        let set = "update ingest_runs set files = $2 where run = $1";
        let number = files.cast_signed();
        with_pool!(database, pool => sqlx::query(set).bind(self.id).bind(number).execute(pool).await.map(drop))?;
        self.files = Some(files);
        Ok(())
    }

    pub(crate) async fn finish(&self, database: &Database) -> sqlx::Result<()> {
        let finish = "update ingest_runs set finished = true where run = $1";
        with_pool!(database, pool => sqlx::query(finish).bind(self.id).execute(pool).await.map(drop))
    }

    /// How many files are in the table.
    pub(crate) async fn stored(&self, database: &Database) -> sqlx::Result<u64> {
        let stored = "select count(*) from ingest_files where run = $1";
        let count: i64 =
            with_pool!(database, pool => sqlx::query_scalar(stored).bind(self.id).fetch_one(pool).await)?;
        Ok(count.cast_unsigned())
    }

    /// How many instances the library holds for this run.
    pub(crate) async fn instances(&self, database: &Database) -> sqlx::Result<u64> {
        self.count("true", database).await
    }

    /// How many of them have not ended.
    pub(crate) async fn live_instances(&self, database: &Database) -> sqlx::Result<u64> {
        self.count("status not in ('done', 'failed', 'cancelled')", database).await
    }

    async fn count(&self, which: &'static str, database: &Database) -> sqlx::Result<u64> {
        let overview = database.overview();
        // Safe: texts of this program.
        let count = AssertSqlSafe(format!("select count(*) from {overview} where queue = $1 and {which}"));
        let count: i64 =
            with_pool!(database, pool => sqlx::query_scalar(count).bind(self.queue()).fetch_one(pool).await)?;
        Ok(count.cast_unsigned())
    }
}

/// Writes what was found of a file: the same row however often.
pub(crate) async fn store(
    database: &Database,
    run: Uuid,
    path: &FilePath,
    findings: &Findings,
) -> sqlx::Result<()> {
    let (print, figures, problem) = match findings {
        Findings::Text(print, figures) => (Some(print), Some(figures), None),
        Findings::Binary(print) => (Some(print), None, None),
        Findings::Unreadable(problem) => (None, None, Some(problem)),
    };
    let upsert = "insert into ingest_files \
        (run, path, name, kind, bytes, sha256, lines, words, longest_line, problem) \
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) \
        on conflict (run, path) do update set bytes = excluded.bytes, sha256 = excluded.sha256, \
            lines = excluded.lines, words = excluded.words, longest_line = excluded.longest_line, \
            problem = excluded.problem";
    with_pool!(database, pool => sqlx::query(upsert)
        .bind(run)
        .bind(path.bytes())
        .bind(path.shown())
        .bind(path.kind())
        .bind(print.map(|print| print.bytes.cast_signed()))
        .bind(print.map(|print| &print.sha256))
        .bind(figures.map(|figures| figures.lines.cast_signed()))
        .bind(figures.map(|figures| figures.words.cast_signed()))
        .bind(figures.map(|figures| figures.longest_line.cast_signed()))
        .bind(problem)
        .execute(pool)
        .await
        .map(drop))
}
