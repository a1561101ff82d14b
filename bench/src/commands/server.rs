//! What the numbers of this machine should be read against.

use std::error::Error;
use std::time::Instant;

use clap::Args;
use gen_durable_tests::{Database, Server};
use sqlx::PgPool;

use crate::measure::{Samples, wal_position};
use crate::report::Report;

/// The settings that move the numbers most.
const SETTINGS: &str = "select name, current_setting(name) from pg_settings where name in ('autovacuum', \
     'fsync', 'full_page_writes', 'jit', 'max_connections', 'max_wal_size', 'shared_buffers', \
     'synchronous_commit', 'wal_compression', 'wal_level', 'wal_sync_method', 'work_mem') order by name";

/// Report the machine, the server's settings, and what one commit costs.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// How many single-row transactions to commit.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    commits: u32,
}

pub(crate) async fn run(
    arguments: &Arguments,
    server: &Server,
) -> Result<Report, Box<dyn Error + Send + Sync>> {
    let database = Database::create_on(server).await?;
    let pool = database.pool();
    let mut report = Report::of("server", &pool).await?;
    report.row("commit", commits(&pool, arguments.commits).await?);
    settings(&mut report, &pool).await?;
    Ok(report)
}

/// Adds the server's settings to a report.
pub(crate) async fn settings(report: &mut Report, pool: &PgPool) -> sqlx::Result<()> {
    for (name, value) in sqlx::query_as::<_, (String, String)>(SETTINGS).fetch_all(pool).await? {
        report.row("settings", [("name", name.into()), ("value", value.into())]);
    }
    Ok(())
}

/// Commits one row at a time over one connection: the floor under every commit of the engine.
async fn commits(pool: &PgPool, count: u32) -> sqlx::Result<[(&'static str, serde_json::Value); 4]> {
    sqlx::query("create table commits (id bigint generated always as identity)").execute(pool).await?;
    let mut connection = pool.acquire().await?;
    let before = wal_position(&mut connection).await?;
    let mut times = Samples::default();
    for _ in 0..count {
        let start = Instant::now();
        sqlx::query("insert into commits default values").execute(&mut *connection).await?;
        times.push_milliseconds(start.elapsed());
    }
    let written = wal_position(&mut connection).await? - before;
    Ok([
        ("commits", count.into()),
        ("median ms", times.median().into()),
        ("p99 ms", times.percentile(99.0).into()),
        ("WAL bytes each", (written / i64::from(count)).into()),
    ])
}
