//! Two connections, commits in the bad order.

use std::sync::Arc;
use std::time::Duration;

use gen_durable::Status;
use gen_durable::store::{ClaimRequest, Claims, DonePolicy, Flushed, NewInstance, Start, Store};
use sqlx::{Executor, PgPool, Postgres};
use uuid::Uuid;

use super::setup::{DONE, Fixture, QUEUE, READY, done, next, store};
use crate::snapshots::DEAR;

/// A user's transaction that holds a row.
async fn hold(pool: &PgPool, id: gen_durable::InstanceId) -> sqlx::Transaction<'static, Postgres> {
    let mut transaction = pool.begin().await.expect("it begins");
    let locked = sqlx::query("select from gen_durable.instances where id = $1 for update")
        .bind(Uuid::from(id))
        .execute(&mut *transaction)
        .await
        .expect("it is locked");
    assert_eq!(locked.rows_affected(), 1);
    transaction
}

/// R02: the reaper has seen the row executing, and the outcome commits before it writes.
#[tokio::test]
async fn outcome_that_commits_while_the_reaper_looks_is_kept() {
    let f = Fixture::new().await;
    let row = f.claimed().await;
    f.bury(f.worker).await;
    // The flush is under way: it holds the row, uncommitted.
    let flushing = hold(&f.pool, row.id).await;
    assert!(f.store.reclaim(10).await.expect("it reclaims").is_empty(), "it waits for nobody");
    drop(flushing);
    assert_eq!(f.flush(&[next(&row)]).await, [READY]);
    assert!(f.store.reclaim(10).await.expect("it reclaims").is_empty(), "nothing executes");
    let seen = f.look(row.id).await;
    assert_eq!((seen.step.as_str(), seen.attempt, seen.crashes, seen.revision), ("second", 0, 0, 1));
}

/// Nobody's lock stalls a batch.
#[tokio::test]
async fn row_that_a_user_holds_is_reported_and_its_neighbours_commit() {
    let f = Fixture::new().await;
    f.insert(3).await;
    let rows = f.claim(3).await;
    let holding = hold(&f.pool, rows[1].id).await;
    let commits = [done(&rows[0]), done(&rows[1]), done(&rows[2])];
    let flush = tokio::time::timeout(Duration::from_secs(5), f.flush(&commits));
    assert_eq!(flush.await.expect("it does not wait"), [DONE, Flushed::Locked, DONE]);
    holding.rollback().await.expect("it lets go");
    assert_eq!(f.flush(&commits[1..2]).await, [DONE]);
}

/// A row changed by somebody else between a flush's snapshot and its lock stays owned, and goes with the next.
#[tokio::test]
async fn row_that_was_marked_in_between_is_tried_again() {
    let f = Fixture::new().await;
    let row = f.claimed().await;
    let commits = [next(&row)];
    for _ in 0..20 {
        let (flushed, seen) = tokio::join!(f.flush(&commits), async { f.store.probe(&[row.id], true).await });
        assert_eq!(seen.expect("it probes").len(), 1);
        if flushed == [Flushed::Locked] {
            continue;
        }
        assert!(matches!(flushed[..], [Flushed::Committed { .. }]));
        return;
    }
    panic!("the row never committed");
}

#[tokio::test]
async fn claim_passes_over_rows_that_somebody_holds() {
    let f = Fixture::new().await;
    let ids = [f.insert(1).await, f.insert(1).await].concat();
    let holding = hold(&f.pool, ids[0]).await;
    assert_eq!(f.claim(10).await.iter().map(|row| row.id).collect::<Vec<_>>(), ids[1..]);
    drop(holding);
}

/// R20: never early by the database's clock.
#[tokio::test]
async fn delayed_rows_are_never_taken_early() {
    let f = Fixture::new().await;
    let delay = |ms| NewInstance { start: Start::After(Duration::from_millis(ms)), ..f.instance() };
    let rows: Vec<_> = (1..=20).map(|n| delay(n * 20)).collect();
    f.store.insert(&rows).await.expect("they are inserted");
    let mut taken = 0;
    let early = "select count(*) from gen_durable.instances
        where status <> 'scheduled' and eligible_at > clock_timestamp()";
    while taken < rows.len() {
        let promoted = f.store.promote(100).await.expect("it promotes");
        taken += f.claim(100).await.len();
        let count: i64 = sqlx::query_scalar(early).fetch_one(&f.pool).await.expect("the count");
        assert_eq!(count, 0);
        if let Some(next_due) = promoted.next_due {
            tokio::time::sleep(next_due).await;
        }
    }
}

#[tokio::test]
async fn promotion_is_bounded_and_says_when_to_come_back() {
    let f = Fixture::new().await;
    let soon = NewInstance { start: Start::After(Duration::from_millis(1)), ..f.instance() };
    let rows: Vec<_> = (0..5)
        .map(|n| NewInstance { id: f.instance().id, queue: format!("q{}", n % 2).into(), ..soon.clone() })
        .collect();
    let far = NewInstance { start: Start::After(Duration::from_secs(60)), ..f.instance() };
    f.store.insert(&[rows.clone(), vec![far]].concat()).await.expect("they are inserted");
    tokio::time::sleep(Duration::from_millis(5)).await;

    let holding = hold(&f.pool, rows[0].id).await;
    let first = f.store.promote(2).await.expect("it promotes");
    assert_eq!((first.count, first.next_due), (2, Some(Duration::ZERO)), "there is more");
    let second = f.store.promote(100).await.expect("it promotes");
    assert_eq!(second.count, 2);
    let back = second.next_due.expect("one is held");
    assert!(back > Duration::ZERO && back < Duration::from_secs(1), "{back:?}");
    drop(holding);
    tokio::time::sleep(back).await;
    let third = f.store.promote(100).await.expect("it promotes");
    assert_eq!((third.count, third.queues.as_slice()), (1, &["q0".to_owned()][..]));
    let back = third.next_due.expect("the far one");
    assert!(back > Duration::from_secs(50) && back <= Duration::from_secs(60), "{back:?}");
}

/// R01, R49: rows of dead and of missing workers come back, a bounded batch at a time; those of the living stay.
#[tokio::test]
async fn rows_of_dead_and_missing_workers_are_reclaimed_in_batches() {
    let f = Fixture::new().await;
    f.insert(9).await;
    let (dead, missing) = (f.worker, f.store.register_worker("engine", "gone").await.expect("a worker"));
    let alive = f.store.register_worker("engine", "alive").await.expect("a worker");
    for worker in [alive, dead, missing] {
        assert_eq!(f.claim_as(worker, 1, 3).await.len(), 3);
    }
    f.bury(dead).await;
    sqlx::query("delete from gen_durable.workers where id = $1")
        .bind(missing.0)
        .execute(&f.pool)
        .await
        .expect("it is gone");
    let mut counts = Vec::new();
    for _ in 0..3 {
        let reclaimed = f.store.reclaim(4).await.expect("it reclaims");
        counts.extend(reclaimed.iter().map(|r| (r.worker, r.queue.clone(), r.count)));
    }
    let of = |worker| counts.iter().filter(|c| c.0 == worker).map(|c| c.2).sum::<u64>();
    assert_eq!((of(dead), of(missing), of(alive)), (3, 3, 0), "{counts:?}");
    assert_eq!(f.store.held(alive).await.expect("held").len(), 3);
    assert_eq!(f.claim_as(alive, 2, 10).await.len(), 6);
}

/// R15, R16, R46: everything at once over the same rows, without a deadlock or a lost row.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sweeps_reclaims_flushes_and_probes_at_once_do_not_deadlock() {
    let f = Fixture::new().await;
    let ids = f.insert(400).await;
    let f = &f;
    let maintenance = (0..4).map(|n| {
        let (store, ids) = (store(&f.database), &ids);
        async move {
            for round in 0..30 {
                store.reclaim(25).await.expect("it reclaims");
                store.sweep(Duration::ZERO, 25).await.expect("it sweeps");
                store.promote(25).await.expect("it promotes");
                let some = &ids[(round * 7 + n * 31) % 300..][..50];
                store.probe(some, true).await.expect("it probes");
            }
        }
    });
    let nodes = (0..3).map(|n| {
        let store = store(&f.database);
        async move {
            for claim in 0.. {
                let worker = store.register_worker("engine", "node").await.expect("a worker");
                let rows = f.claim_with(&store, worker, claim, 30).await;
                if rows.is_empty() && claim > 10 {
                    break;
                }
                let mut flushed: Vec<_> = rows.iter().map(done).collect();
                let dies = claim % 3 == n && claim < 9;
                if dies {
                    flushed.truncate(rows.len() / 2);
                }
                flushed.sort_unstable_by_key(|commit| commit.held.id);
                while !flushed.is_empty() {
                    let flush = store.flush(worker, &flushed, DonePolicy::Keep).await.expect("it flushes");
                    let mut fates = flush.fates.into_iter();
                    flushed.retain(|_| fates.next() == Some(Flushed::Locked));
                }
                if dies {
                    store.retire(worker).await.expect("it dies");
                }
            }
        }
    });
    let maintenance = futures_util::future::join_all(maintenance);
    tokio::join!(maintenance, futures_util::future::join_all(nodes));
    loop {
        f.store.reclaim(1000).await.expect("it reclaims");
        let rows = f.claim(1000).await;
        let mut commits: Vec<_> = rows.iter().map(done).collect();
        commits.sort_unstable_by_key(|commit| commit.held.id);
        f.flush(&commits).await;
        let swept = f.store.sweep(Duration::ZERO, 1000).await.expect("it sweeps");
        if rows.is_empty() && swept.instances == 0 {
            break;
        }
    }
    assert!(f.store.probe(&ids, false).await.expect("it probes").is_empty(), "all ended and were swept");
}

/// R07: the row is locked when the watcher wants to mark it.
#[tokio::test]
async fn watcher_of_a_row_that_just_ends_reads_again() {
    let f = Fixture::new().await;
    let row = f.claimed().await;
    let mut ending = hold(&f.pool, row.id).await;
    sqlx::query("update gen_durable.instances set status = 'done' where id = $1")
        .bind(Uuid::from(row.id))
        .execute(&mut *ending)
        .await
        .expect("it ends");
    let ids = [row.id];
    let (seen, ()) = tokio::join!(f.store.probe(&ids, true), async {
        tokio::time::sleep(Duration::from_millis(3)).await;
        ending.commit().await.expect("it commits");
    });
    assert_eq!(seen.expect("it probes")[0].status, Status::Done);
}

/// Where looks are dear, the next one goes back to the last that left nothing, and asks for one at everything.
#[tokio::test]
async fn a_look_after_dear_ones_leaves_out_what_turned_up_late_and_says_when_to_look_again() {
    let f = Fixture::new().await;
    f.pool.execute(DEAR).await.unwrap();
    for _ in 0..3 {
        assert!(f.claim(10).await.is_empty());
    }
    let [late, prompt] = f.insert(2).await[..] else { panic!("two rows") };
    let turn_up = "update gen_durable.instances set eligible_at = now() - interval '1 hour' where id = $1";
    sqlx::query(turn_up).bind(late.as_uuid()).execute(&f.pool).await.unwrap();

    let queue: Arc<str> = QUEUE.into();
    let (worker, machines) = (f.worker, &[f.machine][..]);
    let request = ClaimRequest { worker, claim: 1, queue: &queue, machines, limit: 10, alone: false };
    let mut claims = f.store.claim(&request).await.unwrap();
    let ids = |claims: &Claims| claims.rows.iter().map(|row| row.id).collect::<Vec<_>>();
    assert_eq!(ids(&claims), [prompt]);
    while let Some(rest) = claims.look_again {
        assert!(rest < Duration::from_secs(1), "{rest:?}");
        tokio::time::sleep(rest).await;
        claims = f.store.claim(&request).await.unwrap();
    }
    assert_eq!(ids(&claims), [late]);
}
