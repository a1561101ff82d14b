//! Inserts, one by one and in bulk, beside bare inserts of the same row with the same client.

use std::future::IntoFuture;
use std::time::Instant;

use clap::Args;
use gen_durable::Engine;
use gen_durable_tests::Server;
use sqlx::{Connection, PgPool};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::measure::Samples;
use crate::report::Report;
use crate::work::{Failure, First, engine, migrated};

/// Insert one by one from several tasks, and in bulk; beside bare inserts.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// How many tasks insert one by one.
    #[arg(long, default_value_t = 8)]
    tasks: u32,
    /// How many single inserts a run makes.
    #[arg(long, default_value_t = 20_000)]
    singles: u32,
    /// How many instances a bulk insert takes.
    #[arg(long, default_value_t = 200_000)]
    bulk: u32,
    /// How many runs; medians are reported.
    #[arg(long, default_value_t = 5)]
    runs: usize,
}

/// The least that puts such a row into the table.
const BARE: &str = "insert into gen_durable.instances (id, machine_id, step, state, queue, status) \
     values ($1, 1, 'first', '{\"n\":1}', 'elsewhere', 'ready')";

/// The same, many rows at once.
const BARE_BULK: &str = "insert into gen_durable.instances (id, machine_id, step, state, queue, status) \
     select id, 1, 'first', '{\"n\":1}', 'elsewhere', 'ready' from unnest($1::uuid[]) as id";

pub(crate) async fn run(arguments: &Arguments, server: &Server) -> Result<Report, Failure> {
    let (_database, pool) = migrated(server).await?;
    let mut report = Report::of("insert", &pool).await?;
    report.fact("tasks", arguments.tasks);
    report.fact("runs", arguments.runs);
    let mut rates: [Samples; 4] = Default::default();
    for _ in 0..arguments.runs {
        let (_database, pool) = migrated(server).await?;
        let engine = engine(&pool).without_queues().without_reaper().start().await?;
        rates[0].push(bare_singles(arguments, &pool).await?);
        rates[1].push(singles(arguments, &engine).await?);
        rates[2].push(bare_bulk(arguments, &pool).await?);
        let begin = Instant::now();
        engine.insert_all((0..arguments.bulk).map(|n| First { n })).await?;
        rates[3].push(f64::from(arguments.bulk) / begin.elapsed().as_secs_f64());
        engine.shutdown().await;
    }
    let [bare_single, single, bare_bulk, bulk] = rates.map(|samples| samples.median().round());
    for (way, bare, ours) in [("single", bare_single, single), ("bulk", bare_bulk, bulk)] {
        report.row(
            "rows/s",
            [
                ("inserts", way.into()),
                ("bare", bare.into()),
                ("engine", ours.into()),
                ("ratio", (ours / bare).into()),
            ],
        );
    }
    report.figure("single_ratio_to_bare", single / bare_single);
    report.figure("bulk_per_second", bulk);
    Ok(report)
}

async fn singles(arguments: &Arguments, engine: &Engine) -> Result<f64, Failure> {
    let each = arguments.singles / arguments.tasks;
    let begin = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..arguments.tasks {
        let engine = engine.clone();
        tasks.spawn(async move {
            for n in 0..each {
                engine.insert(First { n }).queue("elsewhere").into_future().await?;
            }
            Ok::<_, gen_durable::Error>(())
        });
    }
    while let Some(task) = tasks.join_next().await {
        task??;
    }
    Ok(f64::from(each * arguments.tasks) / begin.elapsed().as_secs_f64())
}

async fn bare_singles(arguments: &Arguments, pool: &PgPool) -> Result<f64, Failure> {
    let each = arguments.singles / arguments.tasks;
    let mut connections = Vec::new();
    for _ in 0..arguments.tasks {
        connections.push(sqlx::PgConnection::connect_with(&pool.connect_options()).await?);
    }
    let begin = Instant::now();
    let mut tasks = JoinSet::new();
    for mut connection in connections {
        tasks.spawn(async move {
            for _ in 0..each {
                sqlx::query(BARE).bind(Uuid::now_v7()).execute(&mut connection).await?;
            }
            Ok::<_, sqlx::Error>(())
        });
    }
    while let Some(task) = tasks.join_next().await {
        task??;
    }
    Ok(f64::from(each * arguments.tasks) / begin.elapsed().as_secs_f64())
}

/// Ten thousand rows a statement, all in one transaction.
async fn bare_bulk(arguments: &Arguments, pool: &PgPool) -> Result<f64, Failure> {
    let begin = Instant::now();
    let mut transaction = pool.begin().await?;
    let mut left = arguments.bulk;
    while left > 0 {
        let count = left.min(10_000);
        let ids: Vec<Uuid> = (0..count).map(|_| Uuid::now_v7()).collect();
        sqlx::query(BARE_BULK).bind(ids).execute(&mut *transaction).await?;
        left -= count;
    }
    transaction.commit().await?;
    Ok(f64::from(arguments.bulk) / begin.elapsed().as_secs_f64())
}
