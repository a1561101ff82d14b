//! The example's own tables: which runs there are, and what was found of each file.

use gen_durable::BoxError;
use sqlx::pool::PoolConnection;
use sqlx::{PgPool, Postgres};
use uuid::Uuid;

use crate::machine::Findings;
use crate::path::FilePath;

const TABLES: [&str; 3] = [
    // Two processes that make the tables at once would disturb each other.
    "select pg_advisory_xact_lock(hashtextextended('ingest tables', 0))",
    "create table if not exists ingest_runs (
        run uuid primary key,
        directory text not null,
        files bigint,
        finished_at timestamptz
    )",
    "create table if not exists ingest_files (
        run uuid not null,
        path bytea not null,
        name text not null,
        bytes bigint,
        sha256 text,
        lines bigint,
        words bigint,
        longest_line bigint,
        problem text,
        primary key (run, path)
    )",
];

pub(crate) async fn create(pool: &PgPool) -> sqlx::Result<()> {
    let mut transaction = pool.begin().await?;
    for statement in TABLES {
        sqlx::query(statement).execute(&mut *transaction).await?;
    }
    transaction.commit().await
}

/// One pass over a directory, however many processes it takes.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) id: Uuid,
    /// How many files it has, once their instances are inserted.
    pub(crate) files: Option<u64>,
    /// Keeps other processes away from the directory until this one ends, in whatever way.
    _lock: PoolConnection<Postgres>,
}

impl Run {
    /// The unfinished run of this directory, or else a new one.
    pub(crate) async fn of(directory: &str, pool: &PgPool) -> Result<Self, BoxError> {
        let mut lock = pool.acquire().await?;
        // A process that was killed a moment ago may still hold it.
        sqlx::query("set lock_timeout = '10s'").execute(&mut *lock).await?;
        sqlx::query("select pg_advisory_lock(hashtextextended($1, 0))")
            .bind(directory)
            .execute(&mut *lock)
            .await
            .map_err(|error| match error.as_database_error().and_then(|error| error.code()) {
                Some(code) if code == "55P03" => {
                    "another process works on this directory: wait for it or stop it".into()
                }
                _ => BoxError::from(error),
            })?;
        let unfinished = "select run, files from ingest_runs where directory = $1 and finished_at is null";
        let found: Option<(Uuid, Option<i64>)> =
            sqlx::query_as(unfinished).bind(directory).fetch_optional(pool).await?;
        let (id, files) = match found {
            Some((id, files)) => (id, files.map(i64::cast_unsigned)),
            None => {
                let id = Uuid::now_v7();
                sqlx::query("insert into ingest_runs (run, directory) values ($1, $2)")
                    .bind(id)
                    .bind(directory)
                    .execute(pool)
                    .await?;
                (id, None)
            }
        };
        Ok(Self { id, files, _lock: lock })
    }

    /// The queue of the run's instances: a queue of its own, so that runs do not mix.
    pub(crate) fn queue(&self) -> String {
        format!("ingest {}", self.id)
    }

    pub(crate) async fn set_files(&mut self, files: u64, pool: &PgPool) -> sqlx::Result<()> {
        sqlx::query("update ingest_runs set files = $2 where run = $1")
            .bind(self.id)
            .bind(files.cast_signed())
            .execute(pool)
            .await?;
        self.files = Some(files);
        Ok(())
    }

    pub(crate) async fn finish(&self, pool: &PgPool) -> sqlx::Result<()> {
        let finish = "update ingest_runs set finished_at = now() where run = $1";
        sqlx::query(finish).bind(self.id).execute(pool).await.map(drop)
    }

    /// How many files are in the table.
    pub(crate) async fn stored(&self, pool: &PgPool) -> sqlx::Result<u64> {
        count("select count(*) from ingest_files where run = $1", self.id, pool).await
    }

    /// How many instances the library holds for this run.
    pub(crate) async fn instances(&self, pool: &PgPool) -> sqlx::Result<u64> {
        count("select count(*) from gen_durable.overview where queue = $1", self.queue(), pool).await
    }

    /// How many of them have not ended.
    pub(crate) async fn live_instances(&self, pool: &PgPool) -> sqlx::Result<u64> {
        let live = "select count(*) from gen_durable.overview \
            where queue = $1 and status not in ('done', 'failed', 'cancelled')";
        count(live, self.queue(), pool).await
    }
}

async fn count<'q, V>(query: &'static str, value: V, pool: &PgPool) -> sqlx::Result<u64>
where
    V: sqlx::Encode<'q, Postgres> + sqlx::Type<Postgres> + Send + 'q,
{
    let count: i64 = sqlx::query_scalar(query).bind(value).fetch_one(pool).await?;
    Ok(count.cast_unsigned())
}

/// Writes what was found of a file: the same row however often.
pub(crate) async fn store(
    pool: &PgPool,
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
        (run, path, name, bytes, sha256, lines, words, longest_line, problem) \
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9) \
        on conflict (run, path) do update set bytes = excluded.bytes, sha256 = excluded.sha256, \
            lines = excluded.lines, words = excluded.words, longest_line = excluded.longest_line, \
            problem = excluded.problem";
    sqlx::query(upsert)
        .bind(run)
        .bind(path.bytes())
        .bind(path.shown())
        .bind(print.map(|print| print.bytes.cast_signed()))
        .bind(print.map(|print| &print.sha256))
        .bind(figures.map(|figures| figures.lines.cast_signed()))
        .bind(figures.map(|figures| figures.words.cast_signed()))
        .bind(figures.map(|figures| figures.longest_line.cast_signed()))
        .bind(problem)
        .execute(pool)
        .await
        .map(drop)
}
