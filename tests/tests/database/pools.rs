//! R10: steps that are stopped in the middle of a call to the database.

use std::sync::Arc;
use std::time::Duration;

use gen_durable::prelude::*;
use gen_durable::{Engine, InstanceResult};
use gen_durable_tests::{Bed, until};
use sqlx::PgPool;
use tokio::sync::OnceCell;

use crate::fleet::{self, SOON, number};

/// Uses the user's pool and the engine, and is stopped on the way.
#[durable_fsm(queue = "calls")]
#[derive(Debug)]
pub enum Caller {
    /// Writes in a transaction of the user's pool, and is too slow.
    #[state(initial, finishes, timeout = "60ms")]
    Write {
        /// Milliseconds before the slow statement.
        pause: u64,
    },
    /// Inserts instances for as long as it may.
    #[state(initial, finishes, timeout = "30ms")]
    Insert {
        /// Nothing to say.
        round: u64,
    },
    /// Ends.
    #[state(initial, finishes)]
    End {
        /// Nothing to say.
        round: u64,
    },
}

struct Calls {
    pool: PgPool,
    engine: Arc<OnceCell<Engine>>,
}

impl CallerSteps for Calls {
    async fn write(&self, s: Write, cx: &mut Context<Write>) -> StepResult<Write> {
        // In a task of its own, which ends even if this step is dropped: sqlx 0.9.0 forgets a transaction whose
        // `begin` is dropped on the way, and its pool lends the connection to the next one inside of it.
        let pool = self.pool.clone();
        let mut transaction = tokio::spawn(async move { pool.begin().await }).await??;
        sqlx::query("insert into written values (1)").execute(&mut *transaction).await?;
        tokio::time::sleep(Duration::from_millis(s.pause)).await;
        sqlx::query("select pg_sleep(0.3)").execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(cx.done(()))
    }

    async fn insert(&self, s: Insert, _cx: &mut Context<Insert>) -> StepResult<Insert> {
        let engine = self.engine.get().expect("it was started");
        loop {
            engine.insert(End { round: s.round }).await?;
        }
    }

    async fn end(&self, _: End, cx: &mut Context<End>) -> StepResult<End> {
        Ok(cx.done(()))
    }
}

#[tokio::test]
async fn a_step_stopped_in_a_call_to_the_database_leaves_no_connection_behind() {
    let bed = fleet::bed().await;
    sqlx::query("create table written (n int)").execute(&bed.pool).await.unwrap();
    let options = bed.database.options().application_name("of the user");
    let pool = sqlx::postgres::PgPoolOptions::new().max_connections(3).connect_lazy_with(options);
    let engine = Arc::new(OnceCell::new());
    let calls = Calls { pool: pool.clone(), engine: Arc::clone(&engine) };
    let started = Bed::engine_on(pool.clone())
        .queue("calls", 3)
        .register(Caller::machine(calls))
        .start()
        .await
        .unwrap();
    engine.set(started.clone()).unwrap();
    let mut stopped = Vec::new();
    for round in 0..10 {
        stopped.push(started.insert(Write { pause: round * 6 }).await.unwrap());
        stopped.push(started.insert(Insert { round }).await.unwrap());
    }
    for handle in &stopped {
        let result = handle.result().within(SOON).await.unwrap();
        assert!(
            matches!(&result, InstanceResult::Failed { reason, .. } if reason.contains("timeout")),
            "{result:?}"
        );
    }
    // Every connection of the pool is there, and none is inside a transaction.
    let mut all = Vec::new();
    for _ in 0..3 {
        let mut connection = tokio::time::timeout(SOON, pool.acquire()).await.expect("none is lost").unwrap();
        let inside: bool = sqlx::query_scalar("select pg_current_xact_id_if_assigned() is not null")
            .fetch_one(&mut *connection)
            .await
            .unwrap();
        assert!(!inside);
        all.push(connection);
    }
    drop(all);
    let open = "select count(*) from pg_stat_activity \
                where datname = current_database() and state like 'idle in transaction%'";
    until("no transaction is open", || async { number(&bed.pool, open).await == 0 }).await;
    assert_eq!(number(&bed.pool, "select count(*) from written").await, 0);
    // Unrelated work goes on; what was inserted on the way runs, too.
    started.insert(End { round: 100 }).await.unwrap().result().within(SOON).await.unwrap().done().unwrap();
    until("all are done", || async { fleet::unfinished(&bed.pool).await == 0 }).await;
    assert!(number(&bed.pool, "select count(*) from gen_durable.instances where step = 'end'").await > 10);
    started.shutdown().await;
}
