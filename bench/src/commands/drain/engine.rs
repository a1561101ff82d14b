//! The drain through a real engine.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use gen_durable::prelude::*;
use gen_durable::{Engine, Gc};
use gen_durable_tests::{Pooler, Server};
use sqlx::postgres::PgPoolOptions;
use sqlx::{PgConnection, PgPool};
use tokio::sync::Notify;

use super::statements::Statements;
use super::{Failure, loaded};
use crate::measure::wal_position;
use crate::work::hold_snapshot;

/// An instance of one step, which does nothing.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct OneStep {
    pub(super) number: u32,
}

/// Steps that are still to run, and who is told of the last one.
static LEFT: AtomicU32 = AtomicU32::new(0);
static LAST: Notify = Notify::const_new();

#[durable_job]
async fn one_step(_: OneStep) -> JobResult<()> {
    if LEFT.fetch_sub(1, Ordering::Relaxed) == 1 {
        LAST.notify_one();
    }
    Ok(())
}

/// How a drain differs from one with default settings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Circumstance {
    Default,
    /// Rows are deleted as they are done.
    Deleting,
    /// PgBouncer in transaction mode stands between.
    ThroughPooler,
    /// Somebody holds a snapshot that is older than all that happens.
    UnderSnapshot,
}

impl Circumstance {
    pub(super) const ALL: [Self; 4] =
        [Self::Default, Self::Deleting, Self::ThroughPooler, Self::UnderSnapshot];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Default => "rows kept 24 h",
            Self::Deleting => "retention 0",
            Self::ThroughPooler => "through PgBouncer",
            Self::UnderSnapshot => "under an old snapshot",
        }
    }
}

/// What one drain took.
#[derive(Debug)]
pub(super) struct Drained {
    /// Instances per second.
    pub(super) rate: f64,
    /// Statements per instance.
    pub(super) statements: f64,
    /// Bytes of write-ahead log per instance.
    pub(super) wal_bytes: f64,
}

/// Drains instances from the call that starts the engine until the last outcome is committed.
pub(super) async fn drain(
    instances: u32,
    circumstance: Circumstance,
    server: &Server,
) -> Result<Drained, Failure> {
    let database = loaded(instances, server).await?;
    let pool = database.pool();
    let mut connection = pool.acquire().await?;
    let mut pooler = None;
    let mut snapshot = None;
    let engine = match circumstance {
        Circumstance::Default => Engine::postgres(pool.clone()),
        Circumstance::Deleting => Engine::postgres(pool.clone()).gc(Gc::default().keep(Duration::ZERO)),
        Circumstance::ThroughPooler => {
            let pooler = pooler.insert(Pooler::start(server, 20)?);
            let through = PgPoolOptions::new().connect_lazy_with(pooler.through(&database.options()));
            Engine::postgres(through).transaction_pooler(true)
        }
        Circumstance::UnderSnapshot => {
            snapshot = Some(hold_snapshot(&pool).await?);
            Engine::postgres(pool.clone())
        }
    };
    LEFT.store(instances, Ordering::Relaxed);
    let statements = Statements::begin(&pool).await?;
    let wal = wal_position(&mut connection).await?;
    let begun = Instant::now();
    let engine = engine.start().await?;
    tokio::time::timeout(Duration::from_secs(600), LAST.notified())
        .await
        .map_err(|_| "the engine did not start every step within ten minutes")?;
    while is_executing(&mut connection).await? {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let took = begun.elapsed();
    let wal = wal_position(&mut connection).await? - wal;
    let statements = statements.end().await?;
    engine.shutdown().await;
    drop((snapshot, pooler));
    all_done(instances, circumstance, &pool).await?;
    Ok(Drained {
        rate: f64::from(instances) / took.as_secs_f64(),
        statements: statements as f64 / f64::from(instances),
        wal_bytes: wal as f64 / f64::from(instances),
    })
}

/// Whether an outcome is still to be committed. Marked as ours, so that it is not counted as the engine's.
async fn is_executing(connection: &mut PgConnection) -> sqlx::Result<bool> {
    let executing =
        "select exists (select from gen_durable.instances where status = 'executing') /* bench */";
    sqlx::query_scalar(executing).fetch_one(connection).await
}

async fn all_done(instances: u32, circumstance: Circumstance, pool: &PgPool) -> Result<(), Failure> {
    let count = "select count(*), count(*) filter (where status = 'done') from gen_durable.instances";
    let (rows, done): (i64, i64) = sqlx::query_as(count).fetch_one(pool).await?;
    let expected = if circumstance == Circumstance::Deleting { 0 } else { i64::from(instances) };
    if (rows, done) != (expected, expected) {
        return Err(format!("{expected} rows should be done; {done} of {rows} are").into());
    }
    Ok(())
}
