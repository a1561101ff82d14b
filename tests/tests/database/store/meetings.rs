//! Signals, timeouts, ends, children and cancelling that meet at one row, with explicit commits, in both orders.
//!
//! Whoever writes second finds what the first has written: here the first has written and not committed when the second
//! comes. The engine's own statements wait for nobody: they come back, as the engine does.

use std::time::Duration;

use futures_util::future::join_all;
use gen_durable::store::postgres::{PostgresStore, Schema};
use gen_durable::store::{
    Cancelling, Claimed, Commit, Delivered, DonePolicy, Flushed, Joined, KeyScope, NewInstance, NewKey,
    Retrying, Store, Target, UserTransaction,
};
use gen_durable::{InstanceId, Status, WorkerId};
use sqlx::{Postgres, Transaction};

use super::gate::Gate;
use crate::conformance::postgres::setup::{
    CANCELLED, DONE, FAILED, Fixture, JOINING, QUEUE, READY, STORED, WAITING, done, fan_out, next, signal,
    stop, wait, woke,
};
use crate::support::soon;

/// The store of another node.
fn another(f: &Fixture) -> PostgresStore {
    PostgresStore::new(f.bed.pool.clone(), Schema::default(), None)
}

async fn begin(f: &Fixture) -> Transaction<'static, Postgres> {
    f.bed.pool.begin().await.expect("it begins")
}

/// Sends a signal in a transaction.
async fn send_in(
    f: &Fixture,
    transaction: &mut Transaction<'static, Postgres>,
    target: impl Into<Target>,
) -> Delivered {
    let transaction = &mut UserTransaction::from(transaction);
    f.store.signal_in(transaction, &[signal(target, "a")]).await.expect("it sends").remove(0)
}

/// Flushes from another node while the gate is closed.
async fn flush_at(gate: Gate, f: &Fixture, commit: Commit, meanwhile: impl AsyncFnOnce()) -> Flushed {
    let other = another(f);
    let commits = [commit];
    let flushing = other.flush(f.worker, &commits, DonePolicy::Keep);
    let meanwhile = async {
        gate.is_reached().await;
        meanwhile().await;
        gate.open().await;
    };
    let (flush, ()) = soon(async { tokio::join!(flushing, meanwhile) }).await;
    flush.expect("it flushes").fates[0]
}

async fn parent(f: &Fixture, count: usize) -> (InstanceId, Vec<InstanceId>) {
    let row = f.claimed().await;
    let children: Vec<_> = (0..count).map(|_| f.instance()).collect();
    let ids = children.iter().map(|child| child.id).collect();
    assert_eq!(f.flush(&[fan_out(&row, children)]).await, [JOINING]);
    (row.id, ids)
}

/// Tells parents until nobody is left to be told.
async fn join(f: &Fixture) {
    while f.store.join(100).await.expect("it joins").left {}
}

async fn awaited(f: &Fixture) -> (bool, usize, usize) {
    let row = f.claim(1).await.remove(0);
    let mail = row.mail.expect("there is mail");
    (mail.timed_out, mail.awaited().count(), mail.inbox.len())
}

/// R23
#[tokio::test]
async fn a_wait_finds_the_signal_whose_transaction_was_open_when_it_came() {
    let f = Fixture::new().await;
    let row = f.claimed().await;
    let mut sending = begin(&f).await;
    assert_eq!(send_in(&f, &mut sending, row.id).await, STORED);
    let parking = [wait(&row, &["a"], None)];
    assert_eq!(f.flush(&parking).await, [Flushed::Locked]);
    sending.commit().await.expect("it is sent");
    assert_eq!(f.flush(&parking).await, [READY]);
    assert_eq!(awaited(&f).await, (false, 1, 1));
}

/// R23
#[tokio::test]
async fn a_wait_goes_on_after_a_signal_that_is_taken_back() {
    let f = Fixture::new().await;
    let row = f.claimed().await;
    let mut sending = begin(&f).await;
    assert_eq!(send_in(&f, &mut sending, row.id).await, STORED);
    let parking = [wait(&row, &["a"], None)];
    assert_eq!(f.flush(&parking).await, [Flushed::Locked]);
    sending.rollback().await.expect("it is taken back");
    assert_eq!(f.flush(&parking).await, [WAITING]);
    assert_eq!(f.look(row.id).await.inbox, 0);
}

/// R23
#[tokio::test]
async fn a_signal_finds_the_wait_whose_transaction_was_open_when_it_came() {
    let f = Fixture::new().await;
    let row = f.claimed().await;
    let gate = Gate::close(&f.bed, "new.status = 'waiting'").await;
    let (other, commits) = (another(&f), [wait(&row, &["a"], None)]);
    let parking = other.flush(f.worker, &commits, DonePolicy::Keep);
    let (parked, sent) = soon(async { tokio::join!(parking, send_at(gate, &f, row.id)) }).await;
    assert_eq!((parked.expect("it parks").fates, sent), (vec![WAITING], woke()));
    assert_eq!(awaited(&f).await, (false, 1, 1));
}

/// Sends a signal while somebody at the gate has the row: the engine comes back, and a user's transaction waits.
async fn send_at(gate: Gate, f: &Fixture, id: InstanceId) -> Delivered {
    gate.is_reached().await;
    assert_eq!(f.send(id, "a").await, Delivered::Locked);
    let mut sending = begin(f).await;
    let opening = async {
        gate.has_followers().await;
        gate.open().await;
    };
    let (sent, ()) = tokio::join!(send_in(f, &mut sending, id), opening);
    sending.commit().await.expect("it is sent");
    sent
}

/// R23: without any order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_one_stays_parked_while_its_signal_waits() {
    let f = Fixture::new().await;
    let other = another(&f);
    for round in 0..100 {
        let row = f.claimed().await;
        let commits = [wait(&row, &["a"], None)];
        let parking = async {
            loop {
                match f.flush(&commits).await[0] {
                    Flushed::Locked => {}
                    fate => return fate,
                }
            }
        };
        let sending = async {
            loop {
                match other.signal(&[signal(row.id, "a")]).await.expect("it sends").remove(0) {
                    Delivered::Locked => {}
                    delivered => return delivered,
                }
            }
        };
        let (parked, sent) = tokio::join!(parking, sending);
        let seen = f.look(row.id).await;
        assert_eq!((seen.status, seen.inbox), (Status::Ready, 1), "round {round}: {parked:?}, {sent:?}");
        assert_eq!(parked == WAITING, sent == woke(), "round {round}");
        let row = f.claim(1).await.remove(0);
        assert_eq!(f.flush(&[done(&row)]).await, [DONE]);
    }
}

#[tokio::test]
async fn an_end_takes_with_it_the_signal_whose_transaction_was_open_when_it_came() {
    let f = Fixture::new().await;
    let row = f.claimed().await;
    let mut sending = begin(&f).await;
    assert_eq!(send_in(&f, &mut sending, row.id).await, STORED);
    assert_eq!(f.flush(&[done(&row)]).await, [Flushed::Locked]);
    sending.commit().await.expect("it is sent");
    assert_eq!(f.flush(&[done(&row)]).await, [DONE]);
    assert_eq!(f.look(row.id).await.inbox, 0);
    let left = "select count(*) from gen_durable.signals";
    assert_eq!(crate::fleet::number(&f.bed.pool, left).await, 0);
}

#[tokio::test]
async fn a_signal_that_comes_while_an_end_is_committed_has_no_target() {
    let f = Fixture::new().await;
    let row = f.claimed().await;
    let gate = Gate::close(&f.bed, "new.status = 'done'").await;
    let (other, ended) = (another(&f), [done(&row)]);
    let ending = other.flush(f.worker, &ended, DonePolicy::Keep);
    let (flush, sent) = soon(async { tokio::join!(ending, send_at(gate, &f, row.id)) }).await;
    assert_eq!((flush.expect("it ends").fates, sent), (vec![DONE], Delivered::NoTarget));
    assert_eq!(f.send(row.id, "a").await, Delivered::NoTarget);
    assert_eq!(f.flush(&ended).await, [DONE]);
    assert_eq!(crate::fleet::number(&f.bed.pool, "select count(*) from gen_durable.signals").await, 0);
}

#[tokio::test]
async fn a_signal_by_key_goes_to_the_successor_of_one_that_ended_meanwhile() {
    let f = Fixture::new().await;
    let keyed = || NewInstance {
        key: Some(NewKey { family: "machine", key: "k".into(), scope: KeyScope::Live }),
        ..f.instance()
    };
    f.store.insert_keyed(&[keyed()]).await.expect("it is inserted");
    let row = f.claim(1).await.remove(0);
    let gate = Gate::close(&f.bed, "new.status = 'done'").await;
    let fates = flush_at(gate, &f, done(&row), async || {
        assert_eq!(f.send("k", "a").await, Delivered::Locked);
    });
    assert_eq!(fates.await, DONE);
    assert_eq!(f.send("k", "a").await, Delivered::NoTarget);
    let successor = keyed();
    f.store.insert_keyed(std::slice::from_ref(&successor)).await.expect("it is inserted");
    assert_eq!(f.send("k", "a").await, STORED);
    assert_eq!(f.look(successor.id).await.inbox, 1);
}

async fn waiting(f: &Fixture, timeout: Duration) -> InstanceId {
    let row = f.claimed().await;
    assert_eq!(f.flush(&[wait(&row, &["a"], Some(timeout))]).await, [WAITING]);
    row.id
}

/// R26
#[tokio::test]
async fn a_signal_that_comes_while_the_timeout_is_committed_stays_for_later() {
    let f = Fixture::new().await;
    let id = waiting(&f, Duration::ZERO).await;
    let gate = Gate::close(&f.bed, "new.timed_out").await;
    let other = another(&f);
    let (promoted, sent) = soon(async { tokio::join!(other.promote(10), send_at(gate, &f, id)) }).await;
    assert_eq!((promoted.expect("it promotes").count, sent), (1, STORED), "it wakes nobody");
    assert_eq!(awaited(&f).await, (true, 0, 1));
}

/// R26
#[tokio::test]
async fn a_timeout_that_comes_while_a_signal_is_committed_does_nothing() {
    let f = Fixture::new().await;
    let id = waiting(&f, Duration::ZERO).await;
    let mut sending = begin(&f).await;
    assert_eq!(send_in(&f, &mut sending, id).await, woke());
    assert_eq!(f.store.promote(10).await.expect("it promotes").count, 0);
    sending.commit().await.expect("it is sent");
    assert_eq!(f.store.promote(10).await.expect("it promotes").count, 0);
    assert_eq!(awaited(&f).await, (false, 1, 1));
}

/// R26: without any order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn either_the_signal_or_the_timeout_decides() {
    let f = Fixture::new().await;
    let other = another(&f);
    for round in 0..100 {
        let id = waiting(&f, Duration::ZERO).await;
        let sending = async {
            loop {
                match other.signal(&[signal(id, "a")]).await.expect("it sends").remove(0) {
                    Delivered::Locked => {}
                    delivered => return delivered == woke(),
                }
            }
        };
        let firing = async { f.store.promote(10).await.expect("it promotes").count == 1 };
        let (woken, fired) = tokio::join!(sending, firing);
        assert!(woken != fired, "round {round}: woken {woken}, fired {fired}");
        let row = f.claim(1).await.remove(0);
        let mail = row.mail.as_deref().expect("there is mail");
        assert_eq!(
            (mail.timed_out, mail.awaited().count(), mail.inbox.len()),
            (fired, usize::from(woken), 1)
        );
        assert_eq!(f.flush(&[done(&row)]).await, [DONE]);
    }
}

/// R29
#[tokio::test]
async fn the_last_two_children_on_two_nodes_wake_their_parent_once() {
    let f = Fixture::new().await;
    let (mother, _) = parent(&f, 2).await;
    let node = f.store.register_worker("engine", "other").await.expect("a worker");
    let (one, other) = (f.claim(1).await.remove(0), f.claim_as(node, 1, 1).await.remove(0));
    // The first has told her, and is not committed.
    let gate = Gate::close(&f.bed, "old.status = 'joining'").await;
    let mut second = None;
    let first = flush_at(gate, &f, done(&one), async || {
        second = Some(f.store.flush(node, &[done(&other)], DonePolicy::Keep).await.expect("it flushes"));
    });
    assert_eq!(first.await, DONE);
    let second = second.expect("it was flushed meanwhile");
    assert_eq!((second.fates, second.joined), (vec![DONE], Joined { queues: vec![], left: true }));
    let seen = f.look(mother).await;
    assert_eq!((seen.status, seen.children_pending), (Status::Joining, 1));
    let told = f.store.join(10).await.expect("it joins");
    assert_eq!(told, Joined { queues: vec![QUEUE.into()], left: false });
    assert_eq!(f.store.join(10).await.expect("it joins"), Joined::default(), "once");
    let row = f.claim(10).await;
    assert_eq!((row.len(), row[0].id, row[0].round), (1, mother, Some(1)));
}

/// R29: without any order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn children_that_end_at_once_on_many_nodes_are_each_counted_once() {
    let f = Fixture::new().await;
    let (mother, children) = parent(&f, 60).await;
    let nodes = join_all((0..3).map(|n| {
        let (f, store) = (&f, another(&f));
        async move {
            let node = store.register_worker("engine", &format!("node {n}")).await.expect("a worker");
            let mut told = 0;
            loop {
                let rows = f.claim_with(&store, node, 1, 2).await;
                if rows.is_empty() {
                    return told;
                }
                let mut ends: Vec<_> = rows.iter().map(done).collect();
                ends.sort_unstable_by_key(|commit| commit.held.id);
                told += end(&store, node, ends).await;
            }
        }
    }));
    let told: usize = nodes.await.into_iter().sum();
    let mut later = 0;
    loop {
        let joined = f.store.join(100).await.expect("it joins");
        later += joined.queues.len();
        if !joined.left {
            break;
        }
    }
    assert_eq!(told + later, 1, "she was woken once");
    let seen = f.look(mother).await;
    assert_eq!((seen.status, seen.children_pending, children.len()), (Status::Ready, 0, 60));
}

/// Flushes until all is committed; returns how often a parent was woken.
async fn end(store: &PostgresStore, node: WorkerId, mut ends: Vec<Commit>) -> usize {
    let mut told = 0;
    while !ends.is_empty() {
        let flush = store.flush(node, &ends, DonePolicy::Keep).await.expect("it flushes");
        told += flush.joined.queues.len();
        let mut fates = flush.fates.into_iter();
        ends.retain(|_| fates.next() == Some(Flushed::Locked));
    }
    told
}

/// R28
#[tokio::test]
async fn children_are_there_when_their_parent_waits_for_them_and_not_before() {
    let f = Fixture::new().await;
    let row = f.claimed().await;
    let gate = Gate::close(&f.bed, "new.status = 'joining'").await;
    let fates = flush_at(gate, &f, fan_out(&row, vec![f.instance()]), async || {
        assert!(f.claim(10).await.is_empty(), "no child runs before its parent waits");
    });
    assert_eq!(fates.await, JOINING);
    let child = f.claim(10).await.remove(0);
    assert_eq!(f.flush(&[done(&child)]).await, [DONE]);
    assert_eq!(f.look(row.id).await.status, Status::Ready);
}

/// A child of an earlier fan-out that ran again ends while its parent waits for others.
#[tokio::test]
async fn the_end_of_an_old_child_does_not_count_for_a_new_fan_out() {
    for ends_first in [true, false] {
        let f = Fixture::new().await;
        let (mother, children) = parent(&f, 1).await;
        assert_eq!(f.flush(&[stop(&f.claim(1).await[0], "no use")]).await, [FAILED]);
        let row = f.claim(1).await.remove(0);
        assert_eq!(row.id, mother);
        assert!(matches!(f.store.retry(children[0]).await.expect("it runs"), Retrying::Ready(_)));
        let old = f.claim(1).await.remove(0);
        let anew = [fan_out(&row, vec![f.instance()])];
        if ends_first {
            let gate = Gate::close(&f.bed, "new.status = 'done'").await;
            let ended = flush_at(gate, &f, done(&old), async || {
                assert_eq!(f.flush(&anew).await, [JOINING]);
            });
            assert_eq!(ended.await, DONE);
        } else {
            let gate = Gate::close(&f.bed, "new.status = 'joining'").await;
            let parked = flush_at(gate, &f, anew[0].clone(), async || {
                assert_eq!(f.flush(&[done(&old)]).await, [DONE]);
            });
            assert_eq!(parked.await, JOINING);
        }
        join(&f).await;
        let seen = f.look(mother).await;
        assert_eq!((seen.status, seen.children_pending), (Status::Joining, 1), "ends first: {ends_first}");
        let new = f.claim(1).await.remove(0);
        assert_eq!(f.flush(&[done(&new)]).await, [DONE]);
        assert_eq!(f.look(mother).await.status, Status::Ready);
    }
}

/// A parent that waits for two, of which one has failed.
async fn half_failed(f: &Fixture) -> (InstanceId, InstanceId, Claimed) {
    let (mother, _) = parent(f, 2).await;
    let (bad, other) = (f.claim(1).await.remove(0), f.claim(1).await.remove(0));
    assert_eq!(f.flush(&[stop(&bad, "no use")]).await, [FAILED]);
    assert_eq!(f.look(mother).await.children_pending, 1);
    (mother, bad.id, other)
}

#[tokio::test]
async fn a_child_that_runs_again_while_the_join_is_released_is_not_waited_for() {
    let f = Fixture::new().await;
    let (mother, failed, other) = half_failed(&f).await;
    let gate = Gate::close(&f.bed, "old.status = 'joining'").await;
    let fates = flush_at(gate, &f, done(&other), async || {
        assert_eq!(f.store.retry(failed).await.expect("it answers"), Retrying::Locked);
    });
    assert_eq!(fates.await, DONE);
    assert_eq!(f.store.retry(failed).await.expect("it runs again"), Retrying::Ready(QUEUE.into()));
    let seen = f.look(mother).await;
    assert_eq!((seen.status, seen.children_pending), (Status::Ready, 0));
    for row in f.claim(10).await {
        f.flush(&[done(&row)]).await;
    }
    join(&f).await;
    assert_eq!(f.look(mother).await.children_pending, 0);
}

#[tokio::test]
async fn a_join_is_not_released_while_a_child_is_made_to_run_again() {
    let f = Fixture::new().await;
    let (mother, failed, other) = half_failed(&f).await;
    let gate = Gate::close(&f.bed, "new.children_pending > old.children_pending").await;
    let second = another(&f);
    let meanwhile = async {
        gate.is_reached().await;
        let flush = f.store.flush(f.worker, &[done(&other)], DonePolicy::Keep).await.expect("it flushes");
        assert_eq!((flush.fates, flush.joined.left), (vec![DONE], true));
        gate.open().await;
    };
    let (retrying, ()) = soon(async { tokio::join!(second.retry(failed), meanwhile) }).await;
    assert_eq!(retrying.expect("it runs again"), Retrying::Ready(QUEUE.into()));
    join(&f).await;
    let seen = f.look(mother).await;
    assert_eq!((seen.status, seen.children_pending), (Status::Joining, 1));
    let again = f.claim(10).await;
    assert_eq!((again.len(), again[0].id), (1, failed));
    assert_eq!(f.flush(&[done(&again[0])]).await, [DONE]);
    assert_eq!(f.look(mother).await.status, Status::Ready);
}

#[tokio::test]
async fn an_outcome_finds_that_somebody_cancels_its_instance() {
    let f = Fixture::new().await;
    f.insert(2).await;
    let mut rows = f.claim(2).await;
    rows.sort_unstable_by_key(|row| row.id);
    let mut cancelling = begin(&f).await;
    for row in &rows {
        let cancelled = f.store.cancel_in(&mut UserTransaction::from(&mut cancelling), row.id, false).await;
        assert_eq!(cancelled.expect("it asks").0, Cancelling::Asked);
    }
    let outcomes = [next(&rows[0]), done(&rows[1])];
    assert_eq!(f.flush(&outcomes).await, [Flushed::Locked; 2]);
    cancelling.commit().await.expect("it is asked");
    assert_eq!(f.flush(&outcomes).await, [CANCELLED, DONE]);
}

#[tokio::test]
async fn who_cancels_finds_the_outcome_that_is_committed_meanwhile() {
    type Outcome = fn(&Claimed) -> Commit;
    let cases: [(&str, Outcome, Flushed, Cancelling); 3] = [
        ("new.status = 'done'", done, DONE, Cancelling::Ended(Status::Done)),
        ("new.status = 'ready'", next, READY, Cancelling::Cancelled { watched: false }),
        (
            "new.status = 'waiting'",
            |row| wait(row, &["a"], None),
            WAITING,
            Cancelling::Cancelled { watched: false },
        ),
    ];
    for (when, outcome, fate, cancelled) in cases {
        let f = Fixture::new().await;
        let row = f.claimed().await;
        let gate = Gate::close(&f.bed, when).await;
        let fates = flush_at(gate, &f, outcome(&row), async || {
            assert_eq!(f.store.cancel(row.id, false).await.expect("it answers").0, Cancelling::Locked);
        });
        assert_eq!(fates.await, fate);
        assert_eq!(f.store.cancel(row.id, false).await.expect("it answers").0, cancelled, "{when}");
    }
}

/// R03: a reclaimed worker's outcome comes late, or while its row is taken back.
#[tokio::test]
async fn a_late_fan_out_inserts_no_child() {
    for meanwhile in [false, true] {
        let f = Fixture::new().await;
        let late = f.claimed().await;
        f.bury(f.worker).await;
        let commits = [fan_out(&late, vec![f.instance(), f.instance()])];
        if meanwhile {
            let gate = Gate::close(&f.bed, "new.crashes > old.crashes").await;
            let other = another(&f);
            let flushing = async {
                gate.is_reached().await;
                assert_eq!(f.flush(&commits).await, [Flushed::Locked]);
                gate.open().await;
            };
            let (reclaimed, ()) = soon(async { tokio::join!(other.reclaim(10), flushing) }).await;
            assert_eq!(reclaimed.expect("it reclaims")[0].count, 1);
        } else {
            assert_eq!(f.store.reclaim(10).await.expect("it reclaims")[0].count, 1);
        }
        assert_eq!(f.flush(&commits).await, [Flushed::Stale]);
        assert_eq!(crate::fleet::number(&f.bed.pool, "select count(*) from gen_durable.instances").await, 1);
        let node = f.store.register_worker("engine", "other").await.expect("a worker");
        let row = f.claim_as(node, 1, 1).await.remove(0);
        // The one that has it by now may.
        let again = f.store.flush(node, &[fan_out(&row, vec![f.instance()])], DonePolicy::Keep).await;
        assert_eq!(again.expect("it flushes").fates, [JOINING]);
        assert_eq!(f.flush(&commits).await, [Flushed::Stale]);
        assert_eq!(crate::fleet::number(&f.bed.pool, "select count(*) from gen_durable.instances").await, 2);
    }
}

/// R15, R16: everything that reaches beyond a row, at once over the same families.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn signals_ends_cancels_and_retries_at_once_do_not_deadlock() {
    let f = Fixture::new().await;
    let mut families = Vec::new();
    for _ in 0..8 {
        families.push(parent(&f, 12).await);
    }
    let all: Vec<InstanceId> =
        families.iter().flat_map(|(mother, children)| [&[*mother], &children[..]].concat()).collect();
    let strangers = (0..3).map(|n| {
        let (store, all) = (another(&f), &all);
        async move {
            for round in 0..40 {
                let some = all.iter().cycle().skip(round * 13 + n * 37).step_by(7).take(15);
                let signals: Vec<_> = some.clone().map(|id| signal(*id, "a")).collect();
                store.signal(&signals).await.expect("it sends");
                for id in some.take(3) {
                    store.cancel(*id, round % 2 == 0).await.expect("it cancels");
                    store.retry(*id).await.expect("it retries");
                }
                store.join(20).await.expect("it joins");
                store.cascade(20).await.expect("it cascades");
                store.promote(20).await.expect("it promotes");
            }
        }
    });
    let nodes = (0..3).map(|n| {
        let (f, store) = (&f, another(&f));
        async move {
            let node = store.register_worker("engine", "node").await.expect("a worker");
            for claim in 1..60 {
                let rows = f.claim_with(&store, node, claim, 10).await;
                let outcome = |(place, row): (usize, &Claimed)| match (place + n) % 4 {
                    0 => done(row),
                    1 => stop(row, "no use"),
                    2 => wait(row, &["a"], Some(Duration::from_millis(1))),
                    _ => fan_out(row, vec![f.instance()]),
                };
                let mut outcomes: Vec<_> = rows.iter().enumerate().map(outcome).collect();
                outcomes.sort_unstable_by_key(|commit| commit.held.id);
                end(&store, node, outcomes).await;
            }
        }
    });
    tokio::join!(join_all(strangers), join_all(nodes));
    assert_eq!(crate::fleet::deadlocks(&f.bed.pool).await, 0);
    let wrong = "select count(*) from gen_durable.instances p
        where p.children_pending <> (
            select count(*) from gen_durable.instances c
            where c.parent_id = p.id and c.parent_round = p.round and not c.joined
        )";
    assert_eq!(crate::fleet::number(&f.bed.pool, wrong).await, 0, "every parent counts its children right");
}
