//! What a user's transaction that stays open holds up: the rows and keys that it touches, and nothing else.

use std::future::IntoFuture;
use std::time::{Duration, Instant};

use futures_util::future::{join_all, try_join_all};
use gen_durable::{Cancelled, Delivery, Engine, Error, InstanceId, InstanceResult, KeyScope, Status};
use gen_durable_tests::Bed;
use sqlx::{PgPool, Postgres, Transaction};

use crate::desk::{Act, Clerks, Desk, Paid, Saw, desk, look, stands};
use crate::family::{Mother, Plan, mother, mothers};
use crate::fleet::number;
use crate::support::{SOON, soon};
use crate::work::{Foreman, Rest, Work};

/// Far less than a user's transaction may stay open, and far more than anything takes.
const UNHINDERED: Duration = Duration::from_secs(20);

async fn open(bed: &Bed) -> (Engine, Foreman) {
    let (mothers, foreman) = mothers();
    let engine = bed
        .engine()
        .queue("family", 8)
        .queue("work", 8)
        .queue("desk", 16)
        .register(Desk::machine(Clerks::of(&mothers.workers)))
        .register(Work::machine(mothers.workers.clone()))
        .register(Mother::machine(mothers));
    (engine.start().await.unwrap(), foreman)
}

async fn waiters(engine: &Engine, count: usize) -> Vec<InstanceId> {
    let ids = engine.insert_all((0..count).map(|_| desk([Act::Wait(None), Act::Done]))).await.unwrap();
    for id in &ids {
        stands(engine, *id, Status::Waiting).await;
    }
    ids
}

async fn outcome(engine: &Engine, id: InstanceId) -> Vec<Saw> {
    engine.result::<Desk>(id).within(UNHINDERED).await.unwrap().done().unwrap()
}

/// Signals, outcomes and claims of others go on.
async fn others_go_on(engine: &Engine) {
    let began = Instant::now();
    let others = waiters(engine, 20).await;
    try_join_all(others.iter().map(|id| engine.signal::<Desk>(*id, Paid { cents: 2 }).into_future()))
        .await
        .unwrap();
    for id in &others {
        assert_eq!(outcome(engine, *id).await[1], Saw::paid(&[2]));
    }
    let id = waiters(engine, 1).await[0];
    assert_eq!(engine.cancel(id).await.unwrap(), Cancelled::Now);
    assert!(began.elapsed() < UNHINDERED, "{:?}", began.elapsed());
}

/// R13
#[tokio::test]
async fn an_open_transaction_that_sent_a_signal_delays_that_instance_only() {
    let bed = Bed::create().await;
    let (engine, _) = open(&bed).await;
    let id = waiters(&engine, 1).await[0];
    let mut tx = bed.pool.begin().await.unwrap();
    let sent = engine.signal::<Desk>(id, Paid { cents: 1 }).in_tx(&mut tx).await.unwrap();
    assert_eq!(sent, Delivery::Delivered);
    let another = tokio::spawn(engine.signal::<Desk>(id, Paid { cents: 3 }).into_future());
    others_go_on(&engine).await;
    assert_eq!(look(&engine, id).await.status, Status::Waiting);
    assert!(!another.is_finished(), "it waits for the instance");
    tx.commit().await.unwrap();
    let seen = outcome(&engine, id).await;
    assert_eq!(seen[1].paid[0], 1, "{seen:?}");
    // It came in time, or too late.
    let another = soon(another).await.unwrap();
    assert!(matches!(another, Ok(Delivery::Delivered) | Err(Error::NoTarget { .. })), "{another:?}");
    engine.shutdown().await;
}

/// R13: the step has decided, and its outcome waits for the row.
#[tokio::test]
async fn an_open_transaction_that_cancels_delays_that_instance_only() {
    let bed = Bed::create().await;
    let (engine, mut foreman) = open(&bed).await;
    let ids =
        engine.insert_all([Act::Done, Act::Next].map(|act| desk([Act::Hold, act, Act::Done]))).await.unwrap();
    for _ in &ids {
        foreman.started().await;
    }
    let mut tx = bed.pool.begin().await.unwrap();
    for id in &ids {
        assert_eq!(engine.cancel(*id).in_tx(&mut tx).await.unwrap(), Cancelled::Soon);
    }
    foreman.allow(2);
    others_go_on(&engine).await;
    for id in &ids {
        assert_eq!(look(&engine, *id).await.status, Status::Executing);
    }
    tx.commit().await.unwrap();
    // The end that was decided before wins, and the other does not go on.
    assert_eq!(outcome(&engine, ids[0]).await, [Saw::default()]);
    let result = engine.result::<Desk>(ids[1]).within(SOON).await.unwrap();
    assert_eq!(result, InstanceResult::Cancelled { id: ids[1] });
    engine.shutdown().await;
}

/// R29
#[tokio::test]
async fn an_open_transaction_on_a_parent_delays_that_parent_and_not_its_children() {
    let bed = Bed::create().await;
    let (engine, mut foreman) = open(&bed).await;
    let plan = || Plan { digs: 3, ..Plan::default() };
    let held = engine.insert(mother([plan()])).await.unwrap();
    let mut children = Vec::new();
    for _ in 0..3 {
        children.push(foreman.started().await);
    }
    let mut tx = bed.pool.begin().await.unwrap();
    lock(&mut tx, held.id()).await;
    foreman.allow(3);
    for child in &children {
        engine.result::<Work>(*child).within(UNHINDERED).await.unwrap().done().expect("it does not wait");
    }
    let free = engine.insert(mother([plan()])).await.unwrap();
    foreman.allow(3);
    assert_eq!(free.result().within(UNHINDERED).await.unwrap().done().unwrap()[0].sum, 6);
    let waiting = look(&engine, held.id()).await;
    assert_eq!((waiting.status, waiting.children_pending), (Status::Joining, 3));
    tx.rollback().await.unwrap();
    assert_eq!(held.result().within(SOON).await.unwrap().done().unwrap()[0].sum, 6);
    engine.shutdown().await;
}

async fn lock(tx: &mut Transaction<'static, Postgres>, id: InstanceId) {
    let text = "select from gen_durable.instances where id = $1 for no key update";
    sqlx::query(text).bind(id.as_uuid()).execute(&mut **tx).await.unwrap();
}

#[tokio::test]
async fn a_key_that_an_open_transaction_inserts_delays_inserts_of_that_key_only() {
    const HELD: u32 = 50;
    let bed = Bed::create().await;
    let (engine, _) = open(&bed).await;
    let insert =
        |key: String| engine.insert(Rest { n: 1 }).correlation_key(key).correlation_scope(KeyScope::Row);
    for commits in [true, false] {
        let key = |n: u32| format!("held {commits} {n}");
        let mut tx = bed.pool.begin().await.unwrap();
        let mut first = Vec::new();
        for n in 0..HELD {
            first.push(insert(key(n)).in_tx(&mut tx).await.unwrap().id());
        }
        let rivals: Vec<_> =
            (0..HELD).map(|n| tokio::spawn(insert(key(n)).or_existing().into_future())).collect();
        let mut slowest = Duration::ZERO;
        for n in 0..40 {
            let began = Instant::now();
            let other = insert(format!("free {commits} {n}")).await.unwrap();
            slowest = slowest.max(began.elapsed());
            other.result().within(UNHINDERED).await.unwrap().done().unwrap();
        }
        println!("the slowest of 40 inserts of other keys, one after the other, took {slowest:?}");
        assert!(slowest < Duration::from_secs(5), "{slowest:?} for an insert of a key that nobody holds");
        others_go_on(&engine).await;
        assert!(rivals.iter().all(|rival| !rival.is_finished()), "nobody knows yet who has the keys");
        if commits {
            tx.commit().await.unwrap()
        } else {
            tx.rollback().await.unwrap()
        }
        for (rival, first) in soon(join_all(rivals)).await.into_iter().zip(first) {
            let rival = rival.unwrap().unwrap();
            assert_eq!((rival.created, rival.handle.id() == first), (!commits, commits));
            rival.handle.result().within(SOON).await.unwrap().done().expect("it is there");
        }
    }
    engine.shutdown().await;
}

/// R36
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_that_insert_a_key_at_once_with_rollbacks_each_is_told_of_a_row_that_is_there() {
    const KEYS: u32 = 20;
    let bed = Bed::create().await;
    let mut engines = Vec::new();
    for _ in 0..3 {
        engines.push(bed.engine().without_queues().start().await.unwrap());
    }
    let tasks = (0..240u32).map(|task| {
        let (engine, pool) = (engines[task as usize % 3].clone(), bed.pool.clone());
        tokio::spawn(async move { race(&engine, &pool, task, format!("key {}", task % KEYS)).await })
    });
    let mut told = std::collections::HashMap::<String, Vec<(InstanceId, bool)>>::new();
    for answer in soon(join_all(tasks)).await {
        if let Some((key, id, created)) = answer.unwrap() {
            told.entry(key).or_default().push((id, created));
        }
    }
    for n in 0..KEYS {
        let key = format!("key {n}");
        let answers = &told[&key];
        let created: Vec<_> = answers.iter().filter(|(_, created)| *created).collect();
        assert_eq!(created.len(), 1, "{key}: {answers:?}");
        assert!(answers.iter().all(|(id, _)| *id == created[0].0), "{key}: {answers:?}");
        assert_eq!(look(&engines[0], created[0].0).await.correlation_key, Some(key));
    }
    let rows = number(&bed.pool, "select count(*) from gen_durable.instances").await;
    assert_eq!(rows, i64::from(KEYS));
    for engine in engines {
        engine.shutdown().await;
    }
}

/// Inserts a key alone, or in a transaction that is then committed or rolled back; what it was told, if that counts.
async fn race(engine: &Engine, pool: &PgPool, task: u32, key: String) -> Option<(String, InstanceId, bool)> {
    let insert = engine.insert(Rest { n: task }).correlation_key(key.clone());
    match task / 20 % 4 {
        0 => {
            let inserted = insert.or_existing().await.unwrap();
            Some((key, inserted.handle.id(), inserted.created))
        }
        1 => match insert.await {
            Ok(handle) => Some((key, handle.id(), true)),
            Err(Error::Duplicate { existing }) => Some((key, existing, false)),
            Err(error) => panic!("{error}"),
        },
        how => {
            let mut tx = pool.begin().await.unwrap();
            let inserted = insert.or_existing().in_tx(&mut tx).await.unwrap();
            // Long enough for others to come upon it.
            sqlx::query("select pg_sleep(0.02)").execute(&mut *tx).await.unwrap();
            if how == 2 {
                tx.rollback().await.unwrap();
                return None;
            }
            tx.commit().await.unwrap();
            Some((key, inserted.handle.id(), inserted.created))
        }
    }
}
