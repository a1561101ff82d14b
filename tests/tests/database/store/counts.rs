//! How many statements an operation takes, whatever the number of its rows.

use std::future::Future;
use std::time::Duration;

use gen_durable::store::{DonePolicy, Poke, Store};
use sqlx::Connection;

use super::setup::{Fixture, READY, done, next, next_after};
use crate::support::{Log, logged_database};

/// Runs something, and says which statements that took, without what sets a new connection up.
pub(super) async fn taken<T>(log: &Log, what: impl Future<Output = T>) -> (T, Vec<String>) {
    let before = log.all().len();
    let result = what.await;
    let named = |text: String| match text.rsplit_once("-- gen-durable: ") {
        Some((_, name)) => name.to_owned(),
        None => text,
    };
    let is_set_up = |text: &String| text.starts_with("set plan_cache_mode");
    (result, log.all().into_iter().skip(before).filter(|text| !is_set_up(text)).map(named).collect())
}

async fn every_operation_counted(count: usize) {
    let (database, log) = logged_database().await;
    let f = Fixture::on(database).await;
    let limit = 1_000;

    let (ids, statements) = taken(&log, f.insert(count)).await;
    assert_eq!(statements, ["insert"], "{count} rows");
    let (rows, statements) = taken(&log, f.claim(limit)).await;
    assert_eq!((rows.len(), &statements[..]), (count, &["claim".to_owned()][..]));

    let commits: Vec<_> = rows.iter().map(next).collect();
    let (fates, statements) = taken(&log, f.flush(&commits)).await;
    assert_eq!((fates, &statements[..]), (vec![READY; count], &["flush".to_owned()][..]));
    // Outcomes that come too late are looked at all at once.
    let (_, statements) = taken(&log, f.flush(&commits)).await;
    assert_eq!(statements, ["flush", "settle"], "{count} rows");

    let held: Vec<_> = f.claim(limit).await.iter().map(|row| row.held()).collect();
    let (released, statements) = taken(&log, f.store.release(f.worker, &held)).await;
    assert_eq!((released.unwrap(), &statements[..]), (count as u64, &["release".to_owned()][..]));

    let rows = f.claim(limit).await;
    let commits: Vec<_> = rows.iter().map(|row| next_after(row, Duration::from_micros(1))).collect();
    f.flush(&commits).await;
    let (promoted, statements) = taken(&log, f.store.promote(limit)).await;
    assert_eq!((promoted.unwrap().count, &statements[..]), (count as u64, &["promote".to_owned()][..]));

    // Others hold the rows.
    let rows = f.claim(limit).await;
    let mut other = f.pool.acquire().await.unwrap();
    let mut holding = other.begin().await.unwrap();
    sqlx::query("select from gen_durable.instances for update").execute(&mut *holding).await.unwrap();
    let commits: Vec<_> = rows.iter().map(done).collect();
    let (_, statements) = taken(&log, f.flush(&commits)).await;
    assert_eq!(statements, ["flush", "settle"], "{count} rows");
    holding.rollback().await.unwrap();

    f.bury(f.worker).await;
    let (reclaimed, statements) = taken(&log, f.store.reclaim(limit)).await;
    assert_eq!(reclaimed.unwrap().iter().map(|of| of.count).sum::<u64>(), count as u64);
    assert_eq!(statements, ["reclaim"], "{count} rows");

    let (seen, statements) = taken(&log, f.store.probe(&ids, false)).await;
    assert_eq!((seen.unwrap().len(), &statements[..]), (count, &["probe".to_owned()][..]));
    let (seen, statements) = taken(&log, f.store.probe(&ids, true)).await;
    assert_eq!(seen.unwrap().len(), count);
    assert_eq!(statements, ["watch", "probe"], "{count} rows");

    let worker = f.store.register_worker("engine", "other").await.unwrap();
    let rows = f.claim_as(worker, 1, limit).await;
    let (held, statements) = taken(&log, f.store.held(worker)).await;
    assert_eq!((held.unwrap().len(), &statements[..]), (count, &["held".to_owned()][..]));
    let (_, statements) = taken(&log, f.store.beat(worker)).await;
    assert_eq!(statements, ["beat"], "{count} rows");
    let commits: Vec<_> = rows.iter().map(done).collect();
    let (ended, statements) = taken(&log, f.store.flush(worker, &commits, DonePolicy::Keep)).await;
    assert_eq!((ended.unwrap().fates.len(), &statements[..]), (count, &["flush".to_owned()][..]));
    let (swept, statements) = taken(&log, f.store.sweep(Duration::ZERO, limit)).await;
    assert_eq!(swept.unwrap().instances, count as u64);
    assert_eq!(statements, ["sweep_instances", "sweep_workers"], "{count} rows");

    let pokes: Vec<_> = (0..count).map(|n| Poke::Queue(format!("queue {n}"))).collect();
    let (told, statements) = taken(&log, f.store.notify(&pokes)).await;
    told.unwrap();
    assert_eq!(statements, ["notify"], "{count} rows");
}

#[tokio::test]
async fn an_operation_takes_as_many_statements_for_300_rows_as_for_3() {
    every_operation_counted(3).await;
    every_operation_counted(300).await;
}
