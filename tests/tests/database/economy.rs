//! What an engine asks of its database: little when idle, a share of a statement for each step when busy.

use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use gen_durable::{EngineBuilder, Gc};
use gen_durable_tests::{Bed, until};
use sqlx::postgres::PgPoolOptions;

use crate::fleet::{number, unfinished};
use crate::support::{Logged, NEVER, SOON, soon};
use crate::work::{Rest, Work, site};

#[tokio::test]
async fn a_drain_takes_less_than_a_tenth_of_a_statement_for_each_instance() {
    let logged = Logged::create().await;
    let engine = logged.bed.engine().without_queues().start().await.unwrap();
    engine.insert_all((0..3_000).map(|n| Rest { n })).await.unwrap();
    engine.shutdown().await;
    let before = logged.total();
    let worker = logged.bed.engine().queue("work", 10).register(Work::machine(site().0));
    let worker = worker.start().await.unwrap();
    until("all are done", || async { unfinished(&logged.bed.pool).await == 0 }).await;
    let statements = logged.total() - before;
    assert!(statements < 300, "{statements} statements for 3,000 instances");
    worker.shutdown().await;
}

/// The default intervals, a tenth of each.
fn ten_times_faster(engine: EngineBuilder) -> EngineBuilder {
    engine
        .lease_ttl(Duration::from_secs(3))
        .heartbeat(Duration::from_millis(500))
        .reaper(Duration::from_millis(500))
        .poll_interval(Duration::from_millis(100))
        .max_poll_interval(Duration::from_millis(500))
        .gc(Gc::default().every(Duration::from_secs(6)))
}

/// R09: a statement a second and queue; here, where all intervals are a tenth, ten.
#[tokio::test]
async fn an_idle_engine_runs_at_most_a_statement_a_second_and_queue() {
    for queues in [1, 10] {
        let logged = Logged::create().await;
        let engine = ten_times_faster(logged.bed.engine());
        let engine = (0..queues).fold(engine, |engine, n| engine.queue(format!("queue {n}"), 10));
        let engine = engine.start().await.unwrap();
        // Polls have backed off by then.
        until("it has been idle for a while", || async { logged.count("beat") >= 3 }).await;
        let (start, before, beats) = (Instant::now(), logged.total(), logged.count("beat"));
        until("it beats", || async { logged.count("beat") >= beats + 6 }).await;
        let statements = (logged.total() - before) as f64;
        let rate = statements / start.elapsed().as_secs_f64() / f64::from(queues);
        assert!(
            rate <= 10.0,
            "{queues} queues: {rate:.1} statements a second and queue at a tenth of the intervals"
        );
        engine.shutdown().await;
    }
}

/// R09
#[tokio::test]
async fn an_insert_makes_only_nodes_with_its_queue_query_the_database() {
    const ROUNDS: usize = 20;
    let logged = Logged::create().await;
    let mut others = Vec::new();
    for n in 0..3 {
        let node = logged.bed.engine().queue(format!("other {n}"), 10).register(Work::machine(site().0));
        others.push(node.poll_interval(NEVER).max_poll_interval(NEVER).start().await.unwrap());
    }
    let listening = "select count(*) from pg_stat_activity \
                     where datname = current_database() and query ilike 'listen%'";
    until("all listen", || async { number(&logged.bed.pool, listening).await == 3 }).await;
    let web = logged.bed.engine().without_queues().start().await.unwrap();
    for round in 1..=ROUNDS {
        web.insert(Rest { n: 0 }).await.unwrap();
        until("it is told", || async { logged.count("notify") >= round }).await;
    }
    // Notifications arrive in order: who hears of this one has heard all others.
    for n in 0..3 {
        let told = web.insert(Rest { n: 7 }).queue(format!("other {n}")).await.unwrap();
        assert_eq!(told.result().within(SOON).await.unwrap().done().unwrap(), 7);
    }
    // At its start, once it listens, and when it was told of a row, each may look and look again.
    let claims = logged.count("claim");
    assert!(claims < ROUNDS, "{claims} claims of three nodes that had three rows to claim");
    assert_eq!(unfinished(&logged.bed.pool).await, ROUNDS as i64);
}

/// R08: the right to notify is taken away, as a full queue of notifications would.
#[tokio::test]
async fn inserts_and_outcomes_commit_while_notifications_fail() {
    let logged = Logged::create().await;
    let role = logged.bed.database.options().get_database().unwrap().to_owned();
    let setup = format!(
        "revoke execute on function pg_catalog.pg_notify(text, text) from public;
         create role {role} login;
         grant all on schema gen_durable to {role};
         grant all on all tables in schema gen_durable to {role};
         grant all on all sequences in schema gen_durable to {role};"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(setup)).execute(&logged.bed.pool).await.unwrap();
    let options = logged.bed.database.options().username(&role);
    let pool = PgPoolOptions::new().connect_lazy_with(options);
    let refused = sqlx::query("select pg_notify('a', 'b')").execute(&pool).await.unwrap_err();
    assert!(refused.to_string().contains("permission denied"), "{refused}");

    let web = Bed::engine_on(pool.clone()).without_queues().start().await.unwrap();
    let worker = Bed::engine_on(pool.clone()).queue("work", 10).register(Work::machine(site().0));
    let worker = worker.start().await.unwrap();
    let insert = async |writer: u32| {
        for n in 0..50 {
            web.insert(Rest { n: writer * 50 + n }).await?;
        }
        Ok::<_, gen_durable::Error>(())
    };
    soon(try_join_all((0..8).map(insert))).await.unwrap();
    until("all are done", || async { unfinished(&logged.bed.pool).await == 0 }).await;
    // Refused before they run, so not among the statements that ran; the first was ours.
    let notifications = logged.refusals("permission denied for function pg_notify") - 1;
    assert!((1..100).contains(&notifications), "{notifications} notifications of 400 inserts");
    soon(worker.shutdown()).await;
    soon(web.shutdown()).await;
}

/// R08
#[tokio::test]
async fn notifications_of_many_writers_are_sent_together() {
    let logged = Logged::create().await;
    let web = logged.bed.engine().without_queues().start().await.unwrap();
    let insert = async |writer: u32| {
        for n in 0..100 {
            web.insert(Rest { n: writer * 100 + n }).await?;
        }
        Ok::<_, gen_durable::Error>(())
    };
    let start = Instant::now();
    soon(try_join_all((0..8).map(insert))).await.unwrap();
    // One in 20 ms at most, and one at once.
    let most = start.elapsed().as_millis() as usize / 20 + 1;
    let notifications = logged.count("notify");
    assert!(
        (1..=most).contains(&notifications),
        "{notifications} notifications of 800 inserts, {most} at most"
    );
    web.shutdown().await;
}
