//! Transactions of steps and of others that wait for each other, on PostgreSQL.

use std::time::Duration;

use gen_durable::prelude::*;
use gen_durable_tests::{Bed, until, until_within};
use sqlx::{PgPool, Postgres};
use tokio::sync::watch;

#[derive(Signal, Serialize, Deserialize)]
struct Cleaned {}

#[durable_fsm(signals(Cleaned), retry(max_attempts = 5, backoff = "10ms"))]
enum Booking {
    #[state(finishes)]
    Book,
}

/// Books the one room, and keeps its row until it may go on.
struct Steps {
    has_row: watch::Sender<bool>,
    may_go_on: watch::Receiver<bool>,
}

impl BookingSteps for Steps {
    async fn book(&self, _: Book, cx: &mut Context<Book>) -> StepResult<Book> {
        let mut tx = cx.begin::<Postgres>().await?;
        sqlx::query("update rooms set bookings = bookings + 1").execute(&mut *tx).await?;
        self.has_row.send_replace(true);
        self.may_go_on.clone().wait_for(|may| *may).await?;
        tx.finish(cx.done(())).await
    }
}

async fn number(pool: &PgPool, query: &'static str) -> i64 {
    sqlx::query_scalar(query).fetch_one(pool).await.expect(query)
}

#[tokio::test]
async fn a_step_and_a_sender_that_wait_for_each_others_rows_are_parted_by_the_database() {
    let bed = Bed::create().await;
    let rooms =
        "create table rooms (bookings int not null, cleanings int not null); insert into rooms values (0, 0)";
    sqlx::raw_sql(rooms).execute(&bed.pool).await.expect("a room");
    let (has_row, mut step_has_row) = watch::channel(false);
    let (let_go_on, may_go_on) = watch::channel(false);
    let engine = bed.engine().register(Booking::machine(Steps { has_row, may_go_on })).start().await;
    let engine = engine.expect("it starts");
    let booking = engine.insert(Book).await.expect("inserted");
    step_has_row.wait_for(|has| *has).await.expect("the step runs");

    let sender = tokio::spawn({
        let (engine, pool, id) = (engine.clone(), bed.pool.clone(), booking.id());
        async move {
            let mut tx = pool.begin().await?;
            let sent = engine.signal::<Booking>(id, Cleaned {}).in_tx(&mut tx).await;
            sent.expect("the instance lives");
            sqlx::query("update rooms set cleanings = cleanings + 1").execute(&mut *tx).await?;
            tx.commit().await
        }
    });
    let waits = "select count(*) from pg_locks where not granted";
    until("the sender waits for the step", async || number(&bed.pool, waits).await > 0).await;
    let_go_on.send_replace(true);

    until_within(Duration::from_secs(6), "one of them gives way", async || sender.is_finished()).await;
    let has_sent = sender.await.expect("no panic").is_ok();
    booking.result().await.expect("it ends").done().expect("the booking is made");
    assert_eq!(number(&bed.pool, "select bookings::bigint from rooms").await, 1, "once");
    assert_eq!(number(&bed.pool, "select cleanings::bigint from rooms").await, i64::from(has_sent));
    engine.shutdown().await;
}
