//! Workers that are silent without being dead: frozen processes, and runtimes whose threads are all blocked.

use std::sync::Arc;
use std::time::Duration;

use gen_durable::{Event, Notice};
use gen_durable_tests::{Bed, until};
use sqlx::PgPool;
use tokio::sync::Semaphore;

use crate::fleet::errand::{Does, Errand, Run};
use crate::fleet::{self, Node, SOON, noted, number, starts};

const LEASE: Duration = Duration::from_millis(1500);
const HEARTBEAT: Duration = Duration::from_millis(250);

/// R03.
#[tokio::test]
async fn nothing_of_a_worker_frozen_for_three_leases_takes_effect() {
    frozen_worker("frozen", "other").await;
}

/// R03, where node and engine carry one name: the claims are taken back at the start.
#[tokio::test]
async fn nothing_of_a_frozen_worker_takes_effect_when_the_other_has_its_name() {
    frozen_worker("same", "same").await;
}

async fn frozen_worker(frozen: &str, other: &str) {
    let bed = fleet::bed().await;
    let node = |name: &str| {
        let mut node = Node::named(name).slots(4).lease(LEASE, HEARTBEAT);
        node.engine = format!("freeze {frozen} {other}");
        node
    };
    let web = bed.engine().without_queues().without_reaper().start().await.unwrap();
    // One is to be told to stop; the other one ends during the frost, and its outcome comes late.
    let held = web.insert(Run { does: Does::Hold }).await.unwrap();
    let late = web.insert(Run { does: Does::Block(1_000) }).await.unwrap();
    let process = node(frozen).start(&bed);
    for handle in [&held, &late] {
        until("it starts", || async { starts(&bed.pool, handle.id()).await == 1 }).await;
    }
    process.freeze();
    let first = number(&bed.pool, "select max(id) from gen_durable.workers").await;

    let gate = Arc::new(Semaphore::new(0));
    let name = node(other).engine;
    let engine = node(other).engine(&bed, Some(Arc::clone(&gate))).name(name).start().await.unwrap();
    tokio::time::sleep(LEASE * 3).await;
    for handle in [&held, &late] {
        until("the other takes it", || async { starts(&bed.pool, handle.id()).await == 2 }).await;
    }
    process.thaw();
    until("its step is told to stop", || async {
        noted(&bed.pool, held.id(), frozen, "told to stop").await == 1
    })
    .await;
    let again = format!(
        "select count(*) from gen_durable.workers where not dead and node = '{frozen}' and id > {first} and beat > 1"
    );
    until("both beat under new ids", || async {
        let alive: i64 =
            sqlx::query_scalar(sqlx::AssertSqlSafe(again.clone())).fetch_one(&bed.pool).await.unwrap();
        alive == if frozen == other { 2 } else { 1 }
    })
    .await;
    assert_eq!(number(&bed.pool, "select count(*) from journal").await, 0, "no late outcome was committed");
    for handle in [&held, &late] {
        let owner: i64 = sqlx::query_scalar(
            "select claimed_by from gen_durable.instances where id = $1 and status = 'executing'",
        )
        .bind(handle.id().as_uuid())
        .fetch_one(&bed.pool)
        .await
        .unwrap();
        assert!(owner > first, "no late release");
    }
    gate.add_permits(2);
    for handle in [&held, &late] {
        assert_eq!(handle.result().within(SOON).await.unwrap().done().unwrap(), other);
        assert_eq!(starts(&bed.pool, handle.id()).await, 2);
    }
    engine.shutdown().await;
    let after = web.insert(Run { does: Does::Nothing }).await.unwrap();
    assert_eq!(after.result().within(SOON).await.unwrap().done().unwrap(), frozen, "it goes on");
    web.shutdown().await;
}

/// R05.
#[tokio::test]
async fn steps_that_block_every_thread_keep_their_rows_and_it_is_told() {
    let bed = fleet::bed().await;
    let watcher = bed.engine().without_queues().lease_ttl(LEASE).heartbeat(HEARTBEAT).start().await.unwrap();
    let mut handles = Vec::new();
    for _ in 0..2 {
        handles.push(watcher.insert(Run { does: Does::Block(6_000) }).await.unwrap());
    }
    // A runtime of two threads, both of which block for four leases.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let options = bed.database.options();
    let (engine, mut events) = runtime
        .spawn(async move {
            let pool = PgPool::connect_lazy_with(options);
            let errands = fleet::errand::Errands { node: "blocked".into(), pool: pool.clone(), gate: None };
            let engine = Bed::engine_on(pool)
                .queue("errands", 2)
                .lease_ttl(LEASE)
                .heartbeat(HEARTBEAT)
                .register(Errand::machine(errands))
                .start()
                .await
                .unwrap();
            let events = engine.events();
            (engine, events)
        })
        .await
        .unwrap();
    for handle in &handles {
        assert_eq!(handle.result().within(SOON).await.unwrap().done().unwrap(), "blocked");
        assert_eq!(starts(&bed.pool, handle.id()).await, 1);
    }
    assert_eq!(number(&bed.pool, "select count(*) from journal where crashes > 0").await, 0);
    assert_eq!(number(&bed.pool, "select count(*) from gen_durable.workers where dead").await, 0);
    let stalled = async {
        while let Some(notice) = events.next().await {
            if let Notice::Event(Event::RuntimeStalled { duration, .. }) = notice {
                return duration;
            }
        }
        panic!("the engine is gone")
    };
    let stalled = tokio::time::timeout(SOON, stalled).await.expect("it is told");
    assert!(stalled >= HEARTBEAT, "{stalled:?}");
    runtime.spawn(async move { engine.shutdown().await }).await.unwrap();
    runtime.shutdown_background();
    watcher.shutdown().await;
}

/// A pause is not a death.
#[tokio::test]
async fn a_worker_frozen_for_less_than_its_lease_keeps_its_rows() {
    let bed = fleet::bed().await;
    let web = bed.engine().without_queues().without_reaper().start().await.unwrap();
    let node = Node::named("short").slots(2).lease(Duration::from_secs(8), HEARTBEAT);
    let handle = web.insert(Run { does: Does::Work(3_000) }).await.unwrap();
    let process = node.start(&bed);
    let other = Node::named("long").slots(2).lease(Duration::from_secs(8), HEARTBEAT);
    until("it starts", || async { starts(&bed.pool, handle.id()).await == 1 }).await;
    let other = other.engine(&bed, None).start().await.unwrap();
    process.freeze();
    tokio::time::sleep(Duration::from_secs(3)).await;
    process.thaw();
    assert_eq!(handle.result().within(SOON).await.unwrap().done().unwrap(), "short");
    assert_eq!(starts(&bed.pool, handle.id()).await, 1);
    assert_eq!(number(&bed.pool, "select count(*) from gen_durable.workers where dead").await, 0);
    other.shutdown().await;
    web.shutdown().await;
}
