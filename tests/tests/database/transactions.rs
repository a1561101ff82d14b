//! Transactions of steps and callers on PostgreSQL: notifications, pools, lost claims.

use std::sync::Arc;
use std::time::Duration;

use gen_durable::prelude::*;
use gen_durable::{Cancelled, EngineBuilder, Error, InstanceId, InstanceResult, Status};
use gen_durable_tests::{Bed, Proxy, SqliteBed, until};
use sqlx::postgres::PgPoolOptions;
use sqlx::{Connection, PgPool, Postgres};

use crate::desk::{Act, Clerks, Desk, Paid, Saw, desk, look, stands};
use crate::fleet::{self, number};
use crate::support::{Logged, NEVER, SOON};
use crate::work::{Foreman, Rest, Work, Workers, site};

/// Moves money, in ways that go wrong.
#[durable_fsm(name = "teller", queue = "teller", output = u32)]
#[derive(Debug)]
pub enum Teller {
    /// Pays, and waits for the foreman before it finishes.
    #[state(initial, finishes)]
    Pay {},
    /// Pays, and asks the database something that takes too long.
    #[state(initial, finishes, timeout = "150ms")]
    Slow {},
    /// Pays twice, and takes one payment back with the driver's own savepoint.
    #[state(initial, finishes)]
    Twice {},
}

#[derive(Clone)]
struct Tellers(Workers);

const PAY: &str = "insert into payments (cents) values (1)";

impl TellerSteps for Tellers {
    async fn pay(&self, _: Pay, cx: &mut Context<Pay>) -> StepResult<Pay> {
        let mut tx = cx.begin::<Postgres>().await?;
        sqlx::query(PAY).execute(&mut *tx).await?;
        self.0.wait(cx.id()).await?;
        tx.finish(cx.done(1)).await
    }

    async fn slow(&self, _: Slow, cx: &mut Context<Slow>) -> StepResult<Slow> {
        let mut tx = cx.begin::<Postgres>().await?;
        sqlx::query(PAY).execute(&mut *tx).await?;
        sqlx::query("select pg_sleep(600)").execute(&mut *tx).await?;
        tx.finish(cx.done(1)).await
    }

    async fn twice(&self, _: Twice, cx: &mut Context<Twice>) -> StepResult<Twice> {
        let mut tx = cx.begin::<Postgres>().await?;
        sqlx::query(PAY).execute(&mut *tx).await?;
        let mut inner = tx.begin().await?;
        sqlx::query(PAY).execute(&mut *inner).await?;
        inner.rollback().await?;
        let mut inner = tx.begin().await?;
        let refused = sqlx::query("select 1 / 0").execute(&mut *inner).await;
        drop(inner);
        assert!(refused.is_err());
        tx.finish(cx.done(1)).await
    }
}

async fn bank() -> (Bed, Tellers, Foreman) {
    let bed = fleet::bed().await;
    sqlx::query("create table payments (cents int)").execute(&bed.pool).await.unwrap();
    let (workers, foreman) = site();
    (bed, Tellers(workers), foreman)
}

async fn payments(bed: &Bed) -> i64 {
    number(&bed.pool, "select count(*) from payments").await
}

fn quiet(engine: EngineBuilder) -> EngineBuilder {
    engine.poll_interval(NEVER).max_poll_interval(NEVER)
}

/// The row is read back: the step was applied, and once.
#[tokio::test]
async fn a_lost_commit_answer_of_a_steps_transaction_is_settled() {
    let (bed, tellers, _) = bank().await;
    let proxy = Proxy::start(&bed.database.options()).await.unwrap();
    let engine = Bed::engine_on(PgPool::connect_lazy_with(proxy.options())).queue("teller", 4);
    let engine = engine.register(Teller::machine(tellers)).start().await.unwrap();
    proxy.lose_answer_of("COMMIT");
    let handle = engine.insert(Twice {}).await.unwrap();
    assert_eq!(handle.result().within(SOON).await.unwrap().done().unwrap(), 1);
    assert_eq!((proxy.lost_answers(), payments(&bed).await), (1, 1));
    let snapshot = engine.get(handle.id()).await.unwrap().unwrap();
    assert_eq!((snapshot.revision, snapshot.attempt, snapshot.error), (1, 0, None));
    engine.shutdown().await;
}

/// R10
#[tokio::test]
async fn a_step_that_is_dropped_amid_a_statement_leaves_its_pool_usable_and_outside_of_transactions() {
    let (bed, tellers, _) = bank().await;
    let options = bed.database.options().application_name("of the user");
    let pool = PgPoolOptions::new().max_connections(2).connect_lazy_with(options);
    let engine = Bed::engine_on(pool.clone()).queue("teller", 4).register(Teller::machine(tellers));
    let engine = engine.start().await.unwrap();
    let slow: Vec<_> = engine.insert_all((0..6).map(|_| Slow {})).await.unwrap();
    for id in slow {
        let result = engine.result::<Teller>(id).within(SOON).await.unwrap();
        let InstanceResult::Failed { reason, .. } = result else { panic!("{result:?}") };
        assert!(reason.contains("within its timeout"), "{reason}");
    }
    let mut all = Vec::new();
    for _ in 0..2 {
        let mut connection = tokio::time::timeout(SOON, pool.acquire()).await.expect("none is lost").unwrap();
        let inside = "select pg_current_xact_id_if_assigned() is not null";
        let inside: bool = sqlx::query_scalar(inside).fetch_one(&mut *connection).await.unwrap();
        assert!(!inside, "nobody meets an open transaction");
        all.push(connection);
    }
    drop(all);
    let twice = engine.insert(Twice {}).await.unwrap();
    assert_eq!(twice.result().within(SOON).await.unwrap().done().unwrap(), 1);
    assert_eq!(payments(&bed).await, 1, "what the others paid is taken back");
    engine.shutdown().await;
}

/// R03: the effects of a step whose row another node has taken over are taken back.
#[tokio::test]
async fn a_step_that_lost_its_claim_takes_its_writes_back() {
    let (bed, tellers, mut foreman) = bank().await;
    // Does not notice that it is declared dead: as if it had been frozen.
    let frozen = bed.engine().heartbeat(Duration::from_secs(3_600)).lease_ttl(Duration::from_secs(12_000));
    let frozen = frozen.queue("teller", 1).without_reaper().register(Teller::machine(tellers.clone()));
    let frozen = frozen.start().await.unwrap();
    let mut events = frozen.events();
    let paying = frozen.insert(Pay {}).await.unwrap();
    assert_eq!(foreman.started().await, paying.id());
    sqlx::query("update gen_durable.workers set dead = true").execute(&bed.pool).await.unwrap();
    let other = bed.engine().queue("teller", 1).register(Teller::machine(tellers)).start().await.unwrap();
    assert_eq!(foreman.started().await, paying.id(), "another node runs it by now");
    // The frozen one first.
    foreman.allow(1);
    crate::support::told(&mut events, |event| {
        matches!(event, gen_durable::Event::OutcomeStale { .. }).then_some(())
    })
    .await;
    assert_eq!((payments(&bed).await, look(&other, paying.id()).await.status), (0, Status::Executing));
    foreman.allow(1);
    assert_eq!(other.result::<Teller>(paying.id()).within(SOON).await.unwrap().done().unwrap(), 1);
    assert_eq!(payments(&bed).await, 1, "it was paid once");
    other.shutdown().await;
    drop(frozen);
}

/// The row is read for somebody, or a signal is on its way to it: the step's commit waits for a moment.
#[tokio::test]
async fn a_steps_commit_waits_for_who_holds_its_row() {
    let (bed, tellers, mut foreman) = bank().await;
    let engine = bed.engine().queue("teller", 1).register(Teller::machine(tellers)).start().await.unwrap();
    let paying = engine.insert(Pay {}).await.unwrap();
    foreman.started().await;
    let mut tx = bed.pool.begin().await.unwrap();
    let lock = "select from gen_durable.instances where id = $1 for update";
    sqlx::query(lock).bind(paying.id().as_uuid()).execute(&mut *tx).await.unwrap();
    foreman.allow(1);
    let tries = "select count(*) from pg_stat_activity where datname = current_database() and query like '%-- gen-durable: await_row%'";
    until("it has tried", || async { number(&bed.pool, tries).await > 0 }).await;
    assert_eq!(payments(&bed).await, 0);
    tx.rollback().await.unwrap();
    assert_eq!(paying.result().within(SOON).await.unwrap().done().unwrap(), 1);
    assert_eq!(payments(&bed).await, 1);
    engine.shutdown().await;
}

/// Nothing here comes by polling.
#[tokio::test]
async fn other_nodes_hear_of_a_callers_transaction_at_its_commit() {
    let bed = Bed::create().await;
    let (workers, mut foreman) = site();
    let node = quiet(bed.engine()).queue("work", 4).queue("desk", 4);
    let node = node.register(Desk::machine(Clerks::of(&workers))).register(Work::machine(workers));
    let node = node.start().await.unwrap();
    let web = quiet(bed.engine()).without_queues().without_reaper().start().await.unwrap();
    let waiting = web.insert(desk([Act::Wait(None), Act::Done])).await.unwrap();
    stands(&web, waiting.id(), Status::Waiting).await;
    let running = web.insert(desk([Act::Hold, Act::Done])).await.unwrap();
    assert_eq!(foreman.started().await, running.id());

    let mut tx = bed.pool.begin().await.unwrap();
    let inserted = web.insert(Rest { n: 1 }).in_tx(&mut tx).await.unwrap();
    let later = web.insert(Rest { n: 2 }).delay(Duration::from_millis(20)).in_tx(&mut tx).await.unwrap();
    web.signal::<Desk>(waiting.id(), Paid { cents: 1 }).in_tx(&mut tx).await.unwrap();
    assert_eq!(web.cancel(running.id()).in_tx(&mut tx).await.unwrap(), Cancelled::Soon);
    tx.commit().await.unwrap();
    assert_eq!(foreman.stopped().await, running.id());
    for (handle, n) in [(inserted, 1), (later, 2)] {
        assert_eq!(handle.result().within(SOON).await.unwrap().done().unwrap(), n);
    }
    assert_eq!(waiting.result().within(SOON).await.unwrap().done().unwrap()[1], Saw::paid(&[1]));
    let result = running.result().within(SOON).await.unwrap();
    assert_eq!(result, InstanceResult::Cancelled { id: running.id() });
    node.shutdown().await;
    web.shutdown().await;
}

#[tokio::test]
async fn without_a_poke_a_transaction_notifies_nobody_and_is_found_by_polling() {
    let logged = Logged::create().await;
    let (workers, _) = site();
    let node = logged.bed.engine().queue("work", 4).register(Work::machine(workers)).start().await.unwrap();
    let mut tx = logged.bed.pool.begin().await.unwrap();
    let silent = node.insert(Rest { n: 1 }).in_tx(&mut tx).without_poke().await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(silent.result().within(SOON).await.unwrap().done().unwrap(), 1);
    assert_eq!(logged.count("notify_in_transaction"), 0);
    let mut tx = logged.bed.pool.begin().await.unwrap();
    node.insert(Rest { n: 2 }).in_tx(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(logged.count("notify_in_transaction"), 1);
    node.shutdown().await;
}

#[tokio::test]
async fn a_transaction_of_another_kind_of_database_is_refused_with_words() {
    let bed = Bed::create().await;
    let engine = bed.engine().without_queues().start().await.unwrap();
    let file = SqliteBed::create().await;
    let other = file.engine().without_queues().start().await.unwrap();
    let lite = file.pool();
    let mut lite = lite.begin().await.unwrap();
    let mut tx = bed.pool.begin().await.unwrap();
    let errors = [
        engine.insert(Rest { n: 1 }).in_tx(&mut lite).await.unwrap_err(),
        engine.signal::<Desk>("k", Paid { cents: 1 }).in_tx(&mut lite).await.unwrap_err(),
        other.insert(Rest { n: 1 }).in_tx(&mut tx).await.unwrap_err(),
        other.cancel(unknown()).in_tx(&mut tx).await.unwrap_err(),
    ];
    for error in errors {
        let Error::Store { source, .. } = &error else { panic!("{error}") };
        let text = std::error::Error::source(source).expect("it says why").to_string();
        assert!(text.contains("the transaction is of another kind of database"), "{text}");
    }
    tx.commit().await.expect("it was not touched");
    engine.shutdown().await;
    other.shutdown().await;
}

fn unknown() -> InstanceId {
    InstanceId::from(uuid::Uuid::now_v7())
}

/// Waits for the row like any statement of the user's, and finds what was committed meanwhile.
#[tokio::test]
async fn a_callers_transaction_waits_for_another_that_has_the_instance_or_the_key() {
    let bed = Bed::create().await;
    let (workers, _) = site();
    let engine = bed.engine().queue("desk", 4).register(Desk::machine(Clerks::of(&workers)));
    let engine = Arc::new(engine.start().await.unwrap());
    let waiting = engine.insert(desk([Act::Wait(None), Act::Done])).await.unwrap();
    stands(&engine, waiting.id(), Status::Waiting).await;
    for commits in [false, true] {
        let mut first = bed.pool.begin().await.unwrap();
        let inserted = engine.insert(Rest { n: 1 }).correlation_key("k").in_tx(&mut first).await.unwrap();
        engine.cancel(waiting.id()).in_tx(&mut first).await.unwrap();
        let (id, second) = (waiting.id(), Arc::clone(&engine));
        let pool = bed.pool.clone();
        let rival = tokio::spawn(async move { rival(&second, &pool, id).await });
        let waits = "select count(*) from pg_stat_activity
            where datname = current_database() and wait_event_type = 'Lock'";
        until("the other waits", || async { number(&bed.pool, waits).await > 0 }).await;
        assert!(!rival.is_finished());
        if commits {
            first.commit().await.unwrap()
        } else {
            first.rollback().await.unwrap()
        }
        let (existing, sent) = rival.await.unwrap();
        assert_eq!(existing, commits.then(|| inserted.id()));
        assert_eq!(sent, !commits);
    }
    engine.shutdown().await;
}

/// Inserts the key and signals the instance in a transaction that is rolled back.
async fn rival(engine: &gen_durable::Engine, pool: &PgPool, id: InstanceId) -> (Option<InstanceId>, bool) {
    let mut tx = pool.begin().await.unwrap();
    let existing = match engine.insert(Rest { n: 2 }).correlation_key("k").in_tx(&mut tx).await {
        Ok(_) => None,
        Err(Error::Duplicate { existing }) => Some(existing),
        Err(error) => panic!("{error}"),
    };
    let sent = match engine.signal::<Desk>(id, Paid { cents: 1 }).in_tx(&mut tx).await {
        Ok(_) => true,
        Err(Error::NoTarget { .. }) => false,
        Err(error) => panic!("{error}"),
    };
    tx.rollback().await.unwrap();
    (existing, sent)
}
