//! The machines that the measurements run, and how their runs are set up and awaited.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gen_durable::prelude::*;
use gen_durable::{Engine, EngineBuilder, MachineEntry, migrate};
use gen_durable_tests::{Database, Server};
use sqlx::pool::PoolConnection;
use sqlx::{PgPool, Postgres};

pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// Does nothing, five times.
#[durable_fsm(queue = "default")]
pub(crate) enum Five {
    #[state(next(Second))]
    First { n: u32 },
    #[state(next(Third))]
    Second { n: u32 },
    #[state(next(Fourth))]
    Third { n: u32 },
    #[state(next(Fifth))]
    Fourth { n: u32 },
    #[state(finishes)]
    Fifth { n: u32 },
}

/// Counts the ends, and runs ahead if told to.
struct Runs {
    ended: Arc<AtomicUsize>,
    ahead: bool,
}

/// The machine of five steps, counting its ends.
pub(crate) fn five(ended: &Arc<AtomicUsize>, ahead: bool) -> MachineEntry {
    Five::machine(Runs { ended: Arc::clone(ended), ahead })
}

impl FiveSteps for Runs {
    async fn first(&self, s: First, cx: &mut Context<First>) -> StepResult<First> {
        Ok(cx.next_with(Second { n: s.n }).inline(self.ahead).into())
    }

    async fn second(&self, s: Second, cx: &mut Context<Second>) -> StepResult<Second> {
        Ok(cx.next_with(Third { n: s.n }).inline(self.ahead).into())
    }

    async fn third(&self, s: Third, cx: &mut Context<Third>) -> StepResult<Third> {
        Ok(cx.next_with(Fourth { n: s.n }).inline(self.ahead).into())
    }

    async fn fourth(&self, s: Fourth, cx: &mut Context<Fourth>) -> StepResult<Fourth> {
        Ok(cx.next_with(Fifth { n: s.n }).inline(self.ahead).into())
    }

    async fn fifth(&self, _: Fifth, cx: &mut Context<Fifth>) -> StepResult<Fifth> {
        self.ended.fetch_add(1, Ordering::Relaxed);
        Ok(cx.done(()))
    }
}

/// A migrated database of its own for one run.
pub(crate) async fn migrated(server: &Server) -> Result<(Database, PgPool), Failure> {
    let database = Database::create_on(server).await?;
    let pool = database.pool();
    migrate::up(&pool).await?;
    sqlx::query("create extension if not exists pg_stat_statements").execute(&pool).await?;
    Ok((database, pool))
}

/// An engine with default settings that runs no discovered jobs.
pub(crate) fn engine(pool: &PgPool) -> EngineBuilder {
    Engine::postgres(pool.clone()).jobs([])
}

/// Whether no instance is left that could still run; three looks at small indexes.
const NOTHING_LEFT: &str = "select not exists (select from gen_durable.instances where status = 'ready')
    and not exists (select from gen_durable.instances where status = 'executing')
    and not exists (select from gen_durable.instances where status = 'scheduled')";

/// Waits until every instance has ended and its end is committed. The database is asked only once the steps
/// have counted `count` ends.
pub(crate) async fn all_ended(pool: &PgPool, ended: &AtomicUsize, count: usize) -> sqlx::Result<()> {
    while ended.load(Ordering::Relaxed) < count {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    while !sqlx::query_scalar::<_, bool>(NOTHING_LEFT).fetch_one(pool).await? {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(())
}

/// Holds a snapshot from now on, as a long report or a forgotten transaction does: until this is dropped, no row that
/// dies can be cleared away.
pub(crate) async fn hold_snapshot(pool: &PgPool) -> sqlx::Result<PoolConnection<Postgres>> {
    let mut connection = pool.acquire().await?;
    for order in
        ["begin isolation level repeatable read", "select count(*) from gen_durable.machines /* bench */"]
    {
        sqlx::query(order).execute(&mut *connection).await?;
    }
    Ok(connection)
}
