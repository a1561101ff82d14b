//! A step that keeps the one connection that writes.

use std::time::Duration;

use gen_durable::prelude::*;
use gen_durable_tests::SqliteBed;

/// Five seconds that a step may keep its transaction, and time to get things done on a busy machine.
const SOON: Duration = Duration::from_secs(30);

/// Begins a transaction, and forgets to end it.
#[durable_fsm(name = "hog", queue = "hogs", output = bool)]
enum Hog {
    /// Keeps it for ever.
    #[state(initial, finishes)]
    Keep {},
    /// Writes a little.
    #[state(initial, finishes)]
    Share {},
}

struct Hogs;

impl HogSteps for Hogs {
    async fn keep(&self, _: Keep, cx: &mut Context<Keep>) -> StepResult<Keep> {
        let mut tx = cx.begin::<sqlx::Sqlite>().await?;
        sqlx::query("create table kept (id integer)").execute(&mut *tx).await?;
        std::future::pending().await
    }

    async fn on_keep_error(&self, _: Keep, error: StepError, cx: &mut Context<Keep>) -> StepResult<Keep> {
        Ok(cx.done(matches!(error, StepError::TimedOut { .. })))
    }

    async fn share(&self, _: Share, cx: &mut Context<Share>) -> StepResult<Share> {
        let mut tx = cx.begin::<sqlx::Sqlite>().await?;
        // Would fail if the other step's table were there.
        sqlx::query("create table kept (id integer)").execute(&mut *tx).await?;
        tx.finish(cx.done(true)).await
    }
}

/// Its writes are undone, its error method hears of it, and others go on.
#[tokio::test]
async fn a_step_that_keeps_the_writer_is_dropped_after_five_seconds() {
    let bed = SqliteBed::create().await;
    let engine = bed.engine().queue("hogs", 2).register(Hog::machine(Hogs)).start().await.unwrap();
    let keeps = engine.insert(Keep {}).await.unwrap();
    assert!(keeps.result().within(SOON).await.unwrap().done().unwrap(), "it ran out of time");
    let shares = engine.insert(Share {}).await.unwrap();
    assert!(shares.result().within(SOON).await.unwrap().done().unwrap());
    engine.shutdown().await;
}
