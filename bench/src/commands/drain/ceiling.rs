//! The ceiling: claiming and completing rows with nothing around it.
//!
//! The tables, indexes, driver and durability are the engine's: a claim commits asynchronously, a completion
//! reaches the disk. Left out is everything that makes an engine of it: tasks, steps, leases, the check
//! of who owns what beyond the claim's number, retries, and plans that hold for any batch and any statistics.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use gen_durable_tests::Server;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, PgConnection, SqlSafeStr, SqlStr};
use tokio::task::JoinSet;
use uuid::Uuid;

use super::{Arguments, Failure, loaded};

/// How the work is cut.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Shape {
    pub(super) batch: u32,
    pub(super) connections: u32,
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "batches of {}, {} connections", self.batch, self.connections)
    }
}

pub(super) const SHAPES: [Shape; 9] = {
    let (batches, connections) = ([100, 500, 1_000], [1, 2, 4]);
    let mut shapes = [Shape { batch: 0, connections: 0 }; 9];
    let mut n = 0;
    while n < 9 {
        shapes[n] = Shape { batch: batches[n / 3], connections: connections[n % 3] };
        n += 1;
    }
    shapes
};

/// The limit is written out: the best plan is the one for this very batch.
fn claim(batch: u32) -> SqlStr {
    AssertSqlSafe(format!(
        "with relaxed as materialized (
            select set_config('synchronous_commit', 'off', true) as setting
        ),
        picked as materialized (
            select found.address
            from relaxed
            cross join lateral (
                select i.ctid as address
                from gen_durable.instances i
                where relaxed.setting = 'off' and i.status = 'ready' and i.queue = 'default'
                order by i.queue, i.priority, i.eligible_at
                limit {batch}
                for no key update skip locked
            ) found
        )
        update gen_durable.instances i
        set status = 'executing', claimed_by = 0, claim = $1
        from picked
        where i.ctid = picked.address
        returning i.id, i.machine_id, i.step, i.state::text, i.revision"
    ))
    .into_sql_str()
}

const COMPLETE: &str = "update gen_durable.instances i
    set status = 'done', revision = i.revision + 1, output = 'null', finished_at = now()
    from unnest($1::uuid[]) as b(id)
    where i.id = b.id and i.claim = $2";

/// A claimed row: what any engine has to read.
type Row = (Uuid, i32, String, String, i64);

/// Instances per second.
pub(super) async fn rate(arguments: &Arguments, shape: Shape, server: &Server) -> Result<f64, Failure> {
    let database = loaded(arguments.instances, server).await?;
    // Rows are to be found by address and by key, whatever the planner knows of a table that was just filled.
    let options = database.options().options([
        ("enable_seqscan", "off"),
        ("enable_hashjoin", "off"),
        ("enable_mergejoin", "off"),
        ("jit", "off"),
    ]);
    let claims = Arc::new(AtomicI64::new(1));
    let mut connections = Vec::new();
    for _ in 0..shape.connections {
        connections.push(connect(&options).await?);
    }
    let limit = Duration::from_secs(arguments.ceiling_seconds);
    let begun = Instant::now();
    let mut workers = JoinSet::new();
    for connection in connections {
        workers.spawn(work(connection, shape.batch, Arc::clone(&claims), begun + limit));
    }
    let mut completed = 0;
    while let Some(worker) = workers.join_next().await {
        completed += worker??;
    }
    let rate = completed as f64 / begun.elapsed().as_secs_f64();
    if completed == 0 {
        return Err("the ceiling completed nothing".into());
    }
    Ok(rate)
}

async fn connect(options: &PgConnectOptions) -> sqlx::Result<PgConnection> {
    options.connect().await
}

async fn work(
    mut connection: PgConnection,
    batch: u32,
    claims: Arc<AtomicI64>,
    end: Instant,
) -> sqlx::Result<u64> {
    let claim = claim(batch);
    let mut completed = 0;
    while Instant::now() < end {
        let number = claims.fetch_add(1, Ordering::Relaxed);
        let rows: Vec<Row> = sqlx::query_as(claim.clone()).bind(number).fetch_all(&mut connection).await?;
        if rows.is_empty() {
            break;
        }
        // In the order of the index that finds them.
        let mut ids: Vec<Uuid> = rows.into_iter().map(|row| row.0).collect();
        ids.sort_unstable();
        let done = sqlx::query(COMPLETE).bind(ids).bind(number).execute(&mut connection).await?;
        completed += done.rows_affected();
    }
    Ok(completed)
}
