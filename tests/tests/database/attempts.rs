//! How often a step that never succeeds is started, and what its end leaves behind.

use std::sync::Arc;
use std::time::Duration;

use gen_durable::prelude::*;
use gen_durable::{InstanceResult, Status};
use gen_durable_tests::Bed;
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

use crate::support::{SOON, Tally, soon};

/// Why a step never succeeds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Why {
    Error,
    Panic,
    Timeout,
    Unstorable,
}

const ALL: [Why; 4] = [Why::Error, Why::Panic, Why::Timeout, Why::Unstorable];

#[durable_fsm(name = "hopeless")]
pub enum Hopeless {
    #[state(initial, next(Hold), retry(max_attempts = 4, backoff = "1ms"), timeout = "20ms")]
    Four { why: Why },
    #[state(initial, next(Hold), timeout = "20ms")]
    Once { why: Why },
    /// Never reached: what leads here cannot be stored.
    Hold { text: String },
}

#[derive(Clone, Default)]
struct Steps(Arc<Tally>);

impl HopelessSteps for Steps {
    async fn four(&self, s: Four, cx: &mut Context<Four>) -> StepResult<Four> {
        self.0.note(cx.id());
        match s.why {
            Why::Error => Err("no".into()),
            Why::Panic => panic!("no"),
            Why::Timeout => std::future::pending().await,
            Why::Unstorable => Ok(cx.next(Hold { text: "\0".into() })),
        }
    }

    async fn once(&self, s: Once, cx: &mut Context<Once>) -> StepResult<Once> {
        self.0.note(cx.id());
        match s.why {
            Why::Error => Err("no".into()),
            Why::Panic => panic!("no"),
            Why::Timeout => std::future::pending().await,
            Why::Unstorable => Ok(cx.next(Hold { text: "\0".into() })),
        }
    }

    async fn hold(&self, _: Hold, cx: &mut Context<Hold>) -> StepResult<Hold> {
        Ok(cx.stop("reached"))
    }
}

/// R18. Crashes are counted in the tests that crash.
#[tokio::test]
async fn a_limit_of_n_attempts_is_n_starts_however_they_end() {
    let bed = Bed::create().await;
    let steps = Steps::default();
    let engine = bed.engine().register(Hopeless::machine(steps.clone())).start().await.unwrap();
    let mut started = Vec::new();
    for why in ALL {
        started.push((why, 4, engine.insert(Four { why }).await.unwrap()));
        started.push((why, 1, engine.insert(Once { why }).await.unwrap()));
    }
    for (why, starts, instance) in started {
        let result = instance.result().within(SOON).await.unwrap();
        assert!(matches!(result, InstanceResult::Failed { .. }), "{why:?}: {result:?}");
        assert_eq!(steps.0.of(instance.id()), starts, "{why:?}: {result:?}");
        let end = engine.get(instance.id()).await.unwrap().unwrap();
        assert_eq!((end.status, end.crashes), (Status::Failed, 0), "{why:?}");
    }
}

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
