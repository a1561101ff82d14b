//! Many nodes on one database: recovery, namesakes, contention, and locks of strangers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gen_durable::{Engine, Gc, migrate};
use gen_durable_tests::{Bed, Database, until};
use sqlx::Connection;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::fleet::errand::{Does, Errand, Run};
use crate::fleet::{self, First, Node, SOON, noted, number, random, row, starts};

const HOUR: Duration = Duration::from_secs(3600);

async fn web(bed: &Bed) -> Engine {
    bed.engine().without_queues().without_reaper().start().await.unwrap()
}

/// R01.
#[tokio::test]
async fn rows_of_a_dead_node_run_again_after_its_lease_and_survivors_use_every_slot() {
    let bed = fleet::bed().await;
    let web = web(&bed).await;
    let (lease, beat) = (Duration::from_secs(2), Duration::from_millis(200));
    web.insert_all((0..8).map(|_| Run { does: Does::Hold })).await.unwrap();
    let mut process = Node::named("victim").slots(8).lease(lease, beat).start(&bed);
    until("all run", || async { number(&bed.pool, "select count(*) from starts").await == 8 }).await;
    let gate = Arc::new(Semaphore::new(0));
    let survivor = Node::named("survivor").slots(4).lease(lease, beat);
    let engine = survivor.engine(&bed, Some(Arc::clone(&gate))).start().await.unwrap();
    process.kill();
    let died = Instant::now();
    let back = "select count(*) from gen_durable.instances where crashes = 1";
    until("all come back", || async { number(&bed.pool, back).await == 8 }).await;
    println!("rows of a dead node came back {:?} after its death; the lease is {lease:?}", died.elapsed());
    let running = "select count(*) from starts where node = 'survivor'";
    until("every slot is used", || async { number(&bed.pool, running).await == 4 }).await;
    gate.add_permits(8);
    until("all are done", || async { fleet::unfinished(&bed.pool).await == 0 }).await;
    assert_eq!(number(&bed.pool, running).await, 8);
    engine.shutdown().await;
    web.shutdown().await;
}

/// R02: the outcome commits between the reaper's look and its write.
#[tokio::test]
async fn an_outcome_that_commits_while_the_reaper_looks_is_kept() {
    let bed = fleet::bed().await;
    let web = web(&bed).await;
    let claimed = async || {
        let id = web.insert(Run { does: Does::Nothing }).await.unwrap().id();
        let claim = "update gen_durable.instances set status = 'executing', claimed_by = 1000000, claim = 1 \
                     where id = $1";
        sqlx::query(claim).bind(id.as_uuid()).execute(&bed.pool).await.unwrap();
        id
    };
    let ending = claimed().await;
    let mut connection = bed.pool.acquire().await.unwrap();
    let mut outcome = connection.begin().await.unwrap();
    let done = "update gen_durable.instances set status = 'done', revision = 1, output = '\"a\"', finished_at = now() \
                where id = $1";
    sqlx::query(done).bind(ending.as_uuid()).execute(&mut *outcome).await.unwrap();

    let engine = Node::named("a").slots(4).engine(&bed, None).start().await.unwrap();
    // Each of these is taken back by a pass of the reaper: one while the outcome is open, one after its commit.
    let during = claimed().await;
    until("a pass takes the other row", || async { row(&bed.pool, during).await.0 == "done" }).await;
    outcome.commit().await.unwrap();
    let after = claimed().await;
    until("a pass takes the next row", || async { row(&bed.pool, after).await.0 == "done" }).await;
    assert_eq!(row(&bed.pool, ending).await, ("done".into(), 0, 0));
    assert_eq!(starts(&bed.pool, ending).await, 0, "nothing runs");
    engine.shutdown().await;
    web.shutdown().await;
}

/// A node with a stable name takes its claims back after two missed beats, long before its lease ends.
#[tokio::test]
async fn a_node_that_starts_again_takes_its_claims_back_after_two_missed_beats() {
    let bed = fleet::bed().await;
    let web = web(&bed).await;
    let node = Node::named("a").slots(4).lease(HOUR, Duration::from_millis(200));
    let ids = web.insert_all((0..4).map(|_| Run { does: Does::Hold })).await.unwrap();
    let mut process = node.start(&bed);
    until("all run", || async { number(&bed.pool, "select count(*) from starts").await == 4 }).await;
    process.kill();
    let again = Instant::now();
    let process = node.start(&bed);
    for id in &ids {
        until("it runs again", || async { starts(&bed.pool, *id).await == 2 }).await;
    }
    println!(
        "claims of a node that starts again came back after {:?}; two beats are 400 ms",
        again.elapsed()
    );
    drop(process);
    web.shutdown().await;
}

/// Two processes of one name: the one that starts later leaves the claims of the living one alone.
#[tokio::test]
async fn a_living_namesake_keeps_its_claims() {
    let bed = fleet::bed().await;
    let web = web(&bed).await;
    let node = Node::named("a").slots(4).lease(Duration::from_secs(30), Duration::from_millis(200));
    let ids = web.insert_all((0..4).map(|_| Run { does: Does::Hold })).await.unwrap();
    let first = node.start(&bed);
    until("all run", || async { number(&bed.pool, "select count(*) from starts").await == 4 }).await;
    let second = node.start(&bed);
    // By then it has long watched for two beats.
    let beats = "select coalesce(min(beat), 0) from gen_durable.workers where node = 'a'";
    until("the second beats", || async {
        number(&bed.pool, "select count(*) from gen_durable.workers where node = 'a'").await == 2
            && number(&bed.pool, beats).await > 10
    })
    .await;
    for id in ids {
        assert_eq!((starts(&bed.pool, id).await, row(&bed.pool, id).await), (1, ("executing".into(), 0, 0)));
    }
    drop((first, second));
    web.shutdown().await;
}

/// R52: what a node hands back when it stops, others take at once: no lease, no poll, no charge.
#[tokio::test]
async fn rows_of_a_node_that_stops_are_taken_at_once_and_uncharged() {
    let bed = fleet::bed().await;
    let node = |name: &str, gate| {
        let node = Node::named(name).slots(4).lease(HOUR, Duration::from_millis(200));
        node.engine(&bed, Some(gate)).poll_interval(HOUR).max_poll_interval(HOUR)
    };
    let (closed, open) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(100)));
    let stopping = node("a", closed).drain_timeout(Duration::from_millis(100)).start().await.unwrap();
    let ids = stopping.insert_all((0..4).map(|_| Run { does: Does::Hold })).await.unwrap();
    until("all run", || async { number(&bed.pool, "select count(*) from starts").await == 4 }).await;
    let other = node("b", open).start().await.unwrap();
    stopping.shutdown().await;
    for id in ids {
        let result = other.result::<Errand>(id).within(SOON).await.unwrap();
        assert_eq!(result.done().unwrap(), "b");
        assert_eq!(row(&bed.pool, id).await, ("done".into(), 0, 0));
        until("its step was told to stop", || async { noted(&bed.pool, id, "a", "told to stop").await == 1 })
            .await;
    }
    other.shutdown().await;
}

/// R52: a shutdown under load returns only when nothing is claimed any longer, and nothing is charged for it.
#[tokio::test]
async fn a_shutdown_under_load_leaves_no_row_claimed() {
    let bed = fleet::bed().await;
    let outcomes = fleet::insert_legs(&bed, 1_000).await;
    let node = Node::named("a").slots(4).lease(HOUR, Duration::from_millis(200));
    for time in 1..=5 {
        let engine = node.engine(&bed, None).without_reaper().start().await.unwrap();
        until("it is under load", || async {
            number(&bed.pool, "select coalesce(max(seq), 0) from journal").await > outcomes * time / 10
        })
        .await;
        engine.shutdown().await;
        let claimed = "select count(*) from gen_durable.instances where status = 'executing'";
        assert_eq!(number(&bed.pool, claimed).await, 0);
    }
    let engine = node.engine(&bed, None).start().await.unwrap();
    until("all are done", || async { fleet::unfinished(&bed.pool).await == 0 }).await;
    fleet::check_legs(&bed.pool, outcomes).await;
    assert_eq!(number(&bed.pool, "select max(crashes)::bigint from journal").await, 0);
    engine.shutdown().await;
}

/// R44.
#[tokio::test]
async fn many_nodes_that_start_at_once_on_an_empty_database_all_start() {
    let database = Database::create().await;
    let mut nodes = JoinSet::new();
    for _ in 0..12 {
        let pool = database.pool();
        nodes.spawn(async move {
            migrate::up(&pool).await.unwrap();
            Bed::engine_on(pool)
                .queue("legs", 2)
                .register(fleet::FiveLegs::machine(fleet::Legs))
                .start()
                .await
        });
    }
    let engines: Vec<Engine> = nodes.join_all().await.into_iter().map(Result::unwrap).collect();
    let handle = engines[0].insert(First { run: 0 }).await.unwrap();
    assert_eq!(handle.result().within(SOON).await.unwrap().done().unwrap(), 5);
    let pool = database.pool();
    assert_eq!(number(&pool, "select count(*) from gen_durable.machines").await, 1);
    assert_eq!(number(&pool, "select count(*) from gen_durable.migrations where version = 1").await, 1);
    for engine in engines {
        engine.shutdown().await;
    }
}

/// R15, R16: everything at once over the same rows: claims, flushes, heartbeats, reapers, timers, sweeps, probes,
/// engines that vanish, and strangers who lock rows.
#[tokio::test]
async fn engines_and_strangers_on_the_same_rows_never_deadlock_and_all_ends() {
    let bed = fleet::bed().await;
    let outcomes = fleet::insert_legs(&bed, 1_500).await;
    let start = async |number: usize| {
        let sweep = Gc::default().every(Duration::from_millis(50)).keep(Duration::from_millis(200)).batch(50);
        Node::named(&format!("n{number}"))
            .slots(8)
            .lease(Duration::from_millis(800), Duration::from_millis(80))
            .engine(&bed, None)
            .reaper(Duration::from_millis(20))
            .gc(sweep)
            .start()
            .await
            .unwrap()
    };
    let mut engines = Vec::new();
    for number in 0..5 {
        engines.push(start(number).await);
    }
    let committed = async || number(&bed.pool, "select coalesce(max(seq), 0) from journal").await;
    let mut vanished = 0;
    while committed().await < outcomes {
        // A stranger locks some rows for a moment, in an order of its own.
        let mut stranger = bed.pool.begin().await.unwrap();
        sqlx::query("select from gen_durable.instances order by random() limit 20 for update skip locked")
            .execute(&mut *stranger)
            .await
            .unwrap();
        tokio::time::sleep(Duration::from_millis(random(50))).await;
        stranger.commit().await.unwrap();
        if vanished < 10 && committed().await > outcomes * (vanished + 1) / 12 {
            vanished += 1;
            let index = usize::try_from(random(5)).unwrap();
            // Dropped without a shutdown, as a crash.
            drop(std::mem::replace(
                &mut engines[index],
                start(10 + usize::try_from(vanished).unwrap()).await,
            ));
        }
    }
    until("all are swept", || async {
        number(&bed.pool, "select count(*) from gen_durable.instances").await == 0
    })
    .await;
    let (journal, distinct): (i64, i64) =
        sqlx::query_as("select count(*), count(distinct (id, revision)) from journal")
            .fetch_one(&bed.pool)
            .await
            .unwrap();
    assert_eq!((journal, distinct), (outcomes, outcomes), "each outcome is committed once");
    assert_eq!(fleet::deadlocks(&bed.pool).await, 0);
    for engine in engines {
        engine.shutdown().await;
    }
}

/// R13: a stranger's open transaction on a row delays that instance, and nothing else.
#[tokio::test]
async fn a_locked_row_delays_its_own_instance_only() {
    let bed = fleet::bed().await;
    let gate = Arc::new(Semaphore::new(0));
    let engine = Node::named("a").slots(10).engine(&bed, Some(Arc::clone(&gate))).start().await.unwrap();
    let ids = engine.insert_all((0..10).map(|_| Run { does: Does::Hold })).await.unwrap();
    until("all run", || async { number(&bed.pool, "select count(*) from starts").await == 10 }).await;
    let mut stranger = bed.pool.begin().await.unwrap();
    sqlx::query("select from gen_durable.instances where id = $1 for update")
        .bind(ids[0].as_uuid())
        .execute(&mut *stranger)
        .await
        .unwrap();
    gate.add_permits(10);
    for id in &ids[1..] {
        engine.result::<Errand>(*id).within(SOON).await.unwrap().done().unwrap();
    }
    for _ in 0..20 {
        let handle = engine.insert(Run { does: Does::Nothing }).await.unwrap();
        handle.result().within(SOON).await.unwrap().done().unwrap();
    }
    assert_eq!(row(&bed.pool, ids[0]).await.0, "executing");
    stranger.rollback().await.unwrap();
    engine.result::<Errand>(ids[0]).within(SOON).await.unwrap().done().unwrap();
    assert_eq!(starts(&bed.pool, ids[0]).await, 1);
    engine.shutdown().await;
}

/// Rows that were claimed ahead of long steps do not wait for them.
#[tokio::test]
async fn rows_claimed_behind_long_steps_go_to_another_node_even_while_pokes_keep_coming() {
    let bed = fleet::bed().await;
    let web = web(&bed).await;
    let gate = Arc::new(Semaphore::new(0));
    let node = |name: &str| Node::named(name).slots(4).lease(HOUR, Duration::from_millis(200));
    // Quick steps first, so that the node claims ahead; then long ones, with more behind them.
    for (priority, count, does) in [(0, 600, Does::Nothing), (1, 4, Does::Hold), (2, 60, Does::Nothing)] {
        web.insert_all((0..count).map(move |_| Run { does })).priority(priority).await.unwrap();
    }
    let busy = node("busy").engine(&bed, Some(Arc::clone(&gate))).start().await.unwrap();
    let ahead = "select count(*) from gen_durable.instances where status = 'executing' and priority = 2";
    let held = "select count(*) from gen_durable.instances where status = 'executing' and priority = 1";
    until("every slot is held", || async { number(&bed.pool, held).await == 4 }).await;
    println!("{} rows were claimed ahead", number(&bed.pool, ahead).await);
    let other = node("other").engine(&bed, None).without_reaper().start().await.unwrap();
    let rest = "select count(*) from gen_durable.instances where status <> 'done' and priority = 2";
    until("the rest is done elsewhere", || async {
        // A poke to everybody.
        web.insert(Run { does: Does::Nothing }).await.unwrap();
        number(&bed.pool, rest).await == 0
    })
    .await;
    gate.add_permits(4);
    until("all are done", || async { fleet::unfinished(&bed.pool).await == 0 }).await;
    for engine in [busy, other, web] {
        engine.shutdown().await;
    }
}

/// Several engines of one process share the work; one that is dropped without a shutdown is as dead as one
/// whose process crashed.
#[tokio::test]
async fn rows_of_an_engine_that_was_dropped_run_on_another_of_the_same_process() {
    let bed = fleet::bed().await;
    let (closed, open) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(100)));
    let node = |name: &str| Node::named(name).slots(4);
    let dropped = node("a").engine(&bed, Some(closed)).name("twins, one").start().await.unwrap();
    let ids = dropped.insert_all((0..6).map(|_| Run { does: Does::Hold })).await.unwrap();
    until("four run", || async { number(&bed.pool, "select count(*) from starts").await == 4 }).await;
    let other = node("b").engine(&bed, Some(open)).name("twins, two").start().await.unwrap();
    let taken = node("b").engine(&bed, None).name("twins, two").start().await;
    assert!(matches!(taken, Err(gen_durable::Error::AlreadyStarted { .. })), "{taken:?}");
    drop(dropped);
    for id in &ids {
        let result = other.result::<Errand>(*id).within(SOON).await.unwrap();
        assert_eq!(result.done().unwrap(), "b");
    }
    let stopped = "select count(*) from starts where node = 'a' and what = 'told to stop'";
    until("its steps were told to stop", || async { number(&bed.pool, stopped).await == 4 }).await;
    let late = "select count(*) from gen_durable.instances where output::text = '\"a\"'";
    assert_eq!(number(&bed.pool, late).await, 0);
    // Its name is free again.
    let again = node("a").engine(&bed, None).name("twins, one").start().await.unwrap();
    again.shutdown().await;
    other.shutdown().await;
}
