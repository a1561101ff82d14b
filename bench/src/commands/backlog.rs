//! What rows that cannot run cost a claim.

use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use gen_durable::store::postgres::{PostgresStore, Schema};
use gen_durable::store::{ClaimRequest, Store};
use gen_durable_tests::Server;
use sqlx::PgPool;

use crate::measure::Samples;
use crate::report::{Report, progress};
use crate::work::{Failure, engine, five, migrated};

/// Time claims beside 10,000 to 1,000,000 ended, future and foreign rows.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// How many rows that cannot run.
    #[arg(long, value_delimiter = ',', default_values_t = [10_000, 100_000, 1_000_000])]
    rows: Vec<i32>,
    /// How many claims to time.
    #[arg(long, default_value_t = 200)]
    claims: u32,
    /// How many rows a claim takes.
    #[arg(long, default_value_t = 100)]
    batch: u32,
}

/// Rows that cannot run, older and so more urgent than those that can. `$1` how many, `$2` status, `$3` when
/// they are due from now, `$4` their machine.
const USELESS: &str = "insert into gen_durable.instances \
     (id, machine_id, step, state, queue, status, eligible_at, finished_at) \
     select gen_random_uuid(), $4, 'first', '{\"n\":1}', 'default', $2::gen_durable.status, now() + $3::interval, \
         case when $2 = 'done' then now() end \
     from generate_series(1, $1)";

/// Rows that can run.
const USEFUL: &str = "insert into gen_durable.instances (id, machine_id, step, state, queue, status) \
     select gen_random_uuid(), $2, 'first', '{\"n\":1}', 'default', 'ready' from generate_series(1, $1)";

pub(crate) async fn run(arguments: &Arguments, server: &Server) -> Result<Report, Failure> {
    let (_database, pool) = migrated(server).await?;
    let mut report = Report::of("backlog", &pool).await?;
    report.fact("claims", arguments.claims);
    report.fact("batch", arguments.batch);
    let mut alone = f64::NAN;
    let mut worst: f64 = 0.0;
    let kinds =
        [("ended", "done", "-1 day"), ("future", "scheduled", "1 day"), ("foreign", "ready", "-1 day")];
    let cases = kinds.iter().flat_map(|kind| arguments.rows.iter().map(move |rows| (*kind, *rows)));
    for (kind, rows) in std::iter::once((("none", "done", ""), 0)).chain(cases) {
        progress(&format!("{} {rows}", kind.0));
        let times = claims(arguments, server, kind, rows).await?;
        if rows == 0 {
            alone = times.median();
        }
        let ratio = times.median() / alone;
        worst = worst.max(ratio);
        report.row(
            "a claim in ms",
            [
                ("useless rows", kind.0.into()),
                ("how many", rows.into()),
                ("median", times.median().into()),
                ("p99", times.percentile(99.0).into()),
                ("ratio to none", ratio.into()),
            ],
        );
    }
    report.figure("worst_ratio", worst);
    Ok(report)
}

/// Times claims right after the rows were loaded, without an ANALYZE.
async fn claims(
    arguments: &Arguments,
    server: &Server,
    (_, status, due): (&str, &str, &str),
    rows: i32,
) -> Result<Samples, Failure> {
    let (_database, pool) = migrated(server).await?;
    let store = PostgresStore::new(pool.clone(), Schema::default(), None);
    let machines = store.register_machines(&[("mine", 1), ("foreign", 1)]).await?;
    if rows > 0 {
        let machine = if status == "ready" { machines[1] } else { machines[0] };
        let load = sqlx::query(USELESS).bind(rows).bind(status).bind(due).bind(machine.0);
        load.execute(&pool).await?;
        if status == "ready" {
            set_aside(&pool).await?;
        }
    }
    let useful = i32::try_from(arguments.claims * arguments.batch)?;
    sqlx::query(USEFUL).bind(useful).bind(machines[0].0).execute(&pool).await?;
    let worker = store.register_worker("bench", "bench").await?;
    let queue: Arc<str> = "default".into();
    let mut times = Samples::default();
    for claim in 0..arguments.claims {
        let request = ClaimRequest {
            worker,
            claim: i64::from(claim),
            queue: &queue,
            machines: &machines[..1],
            limit: arguments.batch,
            alone: false,
        };
        let begin = Instant::now();
        let claimed = store.claim(&request).await?.rows;
        times.push_milliseconds(begin.elapsed());
        assert_eq!(claimed.len(), arguments.batch as usize, "there are enough rows that can run");
    }
    Ok(times)
}

/// Lets a node with another machine run until the rows that no node can run are out of the way.
async fn set_aside(pool: &PgPool) -> Result<(), Failure> {
    // Rows are set aside after two leases in which no node had their machine, and only while some node has any.
    let brief = engine(pool).lease_ttl(Duration::from_millis(1_500)).heartbeat(Duration::from_millis(300));
    let other = brief.register(five(&Arc::default(), false)).queue("elsewhere", 1);
    let engine = other.reaper(Duration::from_millis(200)).start().await?;
    let left = "select exists (select from gen_durable.instances where status = 'ready')";
    while sqlx::query_scalar::<_, bool>(left).fetch_one(pool).await? {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    engine.shutdown().await;
    Ok(())
}
