//! Steps that are dropped while they use the user's pool.

use std::time::Duration;

use gen_durable::InstanceResult;
use gen_durable::prelude::*;
use gen_durable_tests::Bed;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

use crate::support::{SOON, soon};

#[durable_fsm(name = "query", output = ())]
pub enum Query {
    #[state(finishes, retry(max_attempts = 2, backoff = "1ms"), timeout = "100ms")]
    Ask {},
}

/// Asks the database through a pool of the user's, in a transaction, and gets no answer.
struct Asks(PgPool);

impl QuerySteps for Asks {
    async fn ask(&self, _: Ask, cx: &mut Context<Ask>) -> StepResult<Ask> {
        let mut transaction = self.0.begin().await?;
        sqlx::query("create temporary table if not exists mess (n int)").execute(&mut *transaction).await?;
        sqlx::query("select pg_sleep(0.3)").execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(cx.done(()))
    }
}

/// R10
#[tokio::test]
async fn a_step_that_times_out_amid_a_query_costs_the_users_pool_no_connection() {
    let bed = Bed::create().await;
    // The pool tests a connection before it lends it, as by default.
    let pool = PgPoolOptions::new()
        .max_connections(2)
        .acquire_timeout(Duration::from_secs(20))
        .connect_with(bed.database.options())
        .await
        .unwrap();
    let engine = bed.engine().register(Query::machine(Asks(pool.clone()))).start().await.unwrap();
    let asked: Vec<_> = engine.insert_all((0..4).map(|_| Ask {})).await.unwrap();
    for id in asked {
        let InstanceResult::Failed { reason, .. } = engine.result::<Query>(id).within(SOON).await.unwrap()
        else {
            panic!("it has no answer")
        };
        assert!(reason.contains("timeout") || reason.contains("timed out"), "{reason}");
    }
    // Both connections can be had at once, and neither is inside a transaction of a step.
    let mut one = soon(pool.acquire()).await.unwrap();
    let mut two = soon(pool.acquire()).await.unwrap();
    for connection in [&mut one, &mut two] {
        let fresh: bool = sqlx::query_scalar(
            "select to_regclass('pg_temp.mess') is null and now() > clock_timestamp() - interval '10 s'",
        )
        .fetch_one(&mut **connection)
        .await
        .unwrap();
        assert!(fresh, "a connection came back inside a transaction");
    }
}
