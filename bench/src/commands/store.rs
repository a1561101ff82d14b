//! The ceiling: claims and flushes through the bare store, with no engine above.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use gen_durable::InstanceId;
use gen_durable::migrate;
use gen_durable::store::postgres::{PostgresStore, Schema};
use gen_durable::store::{
    ClaimRequest, Commit, DonePolicy, MachineId, NewInstance, Start, Store, Transition,
};
use gen_durable_tests::{Database, Server};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::measure::{Samples, wal_position};
use crate::report::Report;

type Failure = Box<dyn Error + Send + Sync>;

/// Claim and complete one-step instances through the bare store, as fast as it goes.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// How many instances a run drains.
    #[arg(long, default_value_t = 200_000)]
    instances: usize,
    /// How many runs; the medians are reported.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// How many rows a claim takes.
    #[arg(long, value_delimiter = ',', default_values_t = [100, 500, 1000])]
    batch: Vec<u32>,
    /// How many connections claim and flush.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4])]
    connections: Vec<usize>,
    /// Delete done instances instead of keeping them.
    #[arg(long)]
    delete: bool,
}

pub(crate) async fn run(arguments: &Arguments, server: &Server) -> Result<Report, Failure> {
    let database = Database::create_on(server).await?;
    let mut report = Report::of("store", &database.pool()).await?;
    for &connections in &arguments.connections {
        for &batch in &arguments.batch {
            let mut figures: [Samples; 4] = Default::default();
            for _ in 0..arguments.runs {
                let drained = drain(arguments, server, connections, batch).await?;
                for (samples, figure) in figures.iter_mut().zip(drained) {
                    samples.push(figure);
                }
            }
            let [inserted, rate, insert_wal, wal] = figures.map(|samples| samples.median().round());
            report.row(
                "drain",
                [
                    ("connections", connections.into()),
                    ("batch", batch.into()),
                    ("inserted per s", inserted.into()),
                    ("drained per s", rate.into()),
                    ("WAL bytes per insert", insert_wal.into()),
                    ("WAL bytes per claim and flush", wal.into()),
                ],
            );
        }
    }
    Ok(report)
}

/// Rows per second inserted and drained, and bytes of log per row for both.
async fn drain(
    arguments: &Arguments,
    server: &Server,
    connections: usize,
    batch: u32,
) -> Result<[f64; 4], Failure> {
    let database = Database::create_on(server).await?;
    let pool = database.pool();
    migrate::up(&pool).await?;
    let store = || PostgresStore::new(pool.clone(), Schema::default(), None);
    let machine = store().register_machines(&[("bench", 1)]).await?[0];
    let mut connection = pool.acquire().await?;
    sqlx::query("checkpoint").execute(&mut *connection).await?;

    let start = wal_position(&mut connection).await?;
    let instances: Vec<_> = (0..arguments.instances).map(|_| instance(machine)).collect();
    let began = Instant::now();
    for chunk in instances.chunks(10_000) {
        store().insert(chunk).await?;
    }
    let inserting = began.elapsed();
    let middle = wal_position(&mut connection).await?;

    let policy = if arguments.delete { DonePolicy::Delete } else { DonePolicy::Keep };
    let began = Instant::now();
    let mut workers = JoinSet::new();
    for _ in 0..connections {
        workers.spawn(work(store(), machine, batch, policy));
    }
    let mut drained = 0;
    while let Some(worker) = workers.join_next().await {
        drained += worker??;
    }
    let draining = began.elapsed();
    assert_eq!(drained, arguments.instances, "every instance is drained once");
    let end = wal_position(&mut connection).await?;
    let count = arguments.instances as f64;
    Ok([
        count / inserting.as_secs_f64(),
        count / draining.as_secs_f64(),
        (middle - start) as f64 / count,
        (end - middle) as f64 / count,
    ])
}

fn instance(machine: MachineId) -> NewInstance {
    NewInstance {
        id: InstanceId::from(Uuid::now_v7()),
        machine,
        step: "work",
        state: r#"{"order":4711}"#.to_owned(),
        queue: "default".into(),
        priority: 0,
        start: Start::After(Duration::ZERO),
        trace_context: None,
        key: None,
        parent: None,
    }
}

async fn work(
    store: PostgresStore,
    machine: MachineId,
    batch: u32,
    policy: DonePolicy,
) -> Result<usize, Failure> {
    let worker = store.register_worker("bench", "bench").await?;
    let queue: Arc<str> = "default".into();
    let mut drained = 0;
    for claim in 0.. {
        let request =
            ClaimRequest { worker, claim, queue: &queue, machines: &[machine], limit: batch, alone: false };
        let rows = store.claim(&request).await?.rows;
        if rows.is_empty() {
            break;
        }
        let done = Transition::Done { output: "null".to_owned() };
        let mut commits: Vec<_> = rows.iter().map(|row| Commit::of(row, done.clone(), false)).collect();
        commits.sort_unstable_by_key(|commit| commit.held.id);
        store.flush(worker, &commits, policy).await?;
        drained += commits.len();
    }
    Ok(drained)
}
