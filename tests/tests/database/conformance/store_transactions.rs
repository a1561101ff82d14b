//! Transactions of steps, at the seam: what they write and how the step ends are committed together or not at all.

use gen_durable::store::{
    Cancelling, Claimed, Commit, DonePolicy, Flush, Flushed, Inserted, NewInstance, StepConnection,
    StoreResult,
};
use gen_durable::{InstanceId, Status};

use super::setup::{DONE, Fixture, JOINING, READY, STORED, done, fan_out, next, signal, stop};

async fn begin(f: &Fixture) -> StepConnection {
    f.store.begin_step().await.expect("it begins").expect("this store has transactions")
}

async fn finish(f: &Fixture, step: StepConnection, commit: &Commit) -> StoreResult<Flush> {
    f.store.finish_step(step, f.worker, commit, DonePolicy::Keep).await
}

/// Inserts one in the step's transaction.
async fn insert(f: &Fixture, step: &mut StepConnection) -> InstanceId {
    let instance = f.instance();
    let inserted = f.store.insert_in(&mut step.as_users(), std::slice::from_ref(&instance)).await;
    assert_eq!(inserted.expect("it is inserted"), [Inserted::Created]);
    instance.id
}

async fn exists(f: &Fixture, id: InstanceId) -> bool {
    !f.store.probe(&[id], false).await.expect("it reads").is_empty()
}

async fn claimed(f: &Fixture, count: usize) -> Vec<Claimed> {
    f.insert(count).await;
    f.claim(u32::try_from(count).unwrap()).await
}

#[tokio::test]
async fn what_a_step_does_in_its_transaction_is_committed_with_its_outcome() {
    let f = Fixture::new().await;
    let row = f.claimed().await;
    let others = f.insert(2).await;
    let mut step = begin(&f).await;
    let machine = f.store.machine_in(&mut step.as_users(), "new", 7).await.expect("it is registered");
    let instance = NewInstance { machine, ..f.instance() };
    let inserted = f.store.insert_in(&mut step.as_users(), std::slice::from_ref(&instance)).await;
    assert_eq!(inserted.expect("it is inserted"), [Inserted::Created]);
    let sent = f.store.signal_in(&mut step.as_users(), &[signal(others[0], "a")]).await;
    assert_eq!(sent.expect("it is sent"), [STORED]);
    let (cancelled, _) = f.store.cancel_in(&mut step.as_users(), others[1], false).await.expect("it cancels");
    assert_eq!(cancelled, Cancelling::Cancelled { watched: false });
    assert_eq!(finish(&f, step, &done(&row)).await.expect("it is committed").fates, [DONE]);
    assert_eq!(f.look(row.id).await.output.as_deref(), Some(r#"{"ok":true}"#));
    let new = f.look(instance.id).await;
    assert_eq!((new.machine.as_str(), new.version, new.status), ("new", 7, Status::Ready));
    assert_eq!(f.look(others[0]).await.inbox, 1);
    assert_eq!(f.look(others[1]).await.status, Status::Cancelled);
}

#[tokio::test]
async fn a_step_that_lost_its_row_commits_nothing() {
    let f = Fixture::new().await;
    let row = f.claimed().await;
    let other = f.store.register_worker("engine", "other").await.expect("a worker");
    // Before it begins: on SQLite nobody takes a row back meanwhile.
    f.bury(f.worker).await;
    f.store.reclaim(10).await.expect("it is taken back");
    let mut step = begin(&f).await;
    let id = insert(&f, &mut step).await;
    assert_eq!(finish(&f, step, &done(&row)).await.expect("it answers").fates, [Flushed::Stale]);
    assert!(!exists(&f, id).await);
    assert_eq!(f.look(row.id).await.status, Status::Ready);
    assert_eq!(f.claim_as(other, 2, 10).await.len(), 1, "the store goes on");
}

#[tokio::test]
async fn what_a_step_leaves_unfinished_is_rolled_back() {
    let f = Fixture::new().await;
    let rows = claimed(&f, 3).await;
    for row in &rows {
        let mut step = begin(&f).await;
        let id = insert(&f, &mut step).await;
        drop(step);
        assert!(!exists(&f, id).await);
        assert_eq!(f.flush(&[next(row)]).await, [READY]);
    }
    assert_eq!(f.claim(10).await.len(), 3);
}

#[tokio::test]
async fn every_outcome_can_be_a_steps_own_commit() {
    let f = Fixture::new().await;
    let rows = claimed(&f, 3).await;
    let commits =
        [next(&rows[0]), stop(&rows[1], "enough"), fan_out(&rows[2], vec![f.instance(), f.instance()])];
    let fates = [READY, super::setup::FAILED, JOINING];
    for (commit, fate) in commits.iter().zip(fates) {
        let mut step = begin(&f).await;
        let id = insert(&f, &mut step).await;
        assert_eq!(finish(&f, step, commit).await.expect("it is committed").fates, [fate]);
        assert!(exists(&f, id).await);
    }
    assert_eq!(f.look(rows[2].id).await.children_pending, 2);
    // Children tell their parent in the transaction in which they end.
    let children: Vec<Claimed> = f.claim(10).await.into_iter().filter(|row| row.is_child).collect();
    assert_eq!(children.len(), 2);
    let last = finish(&f, begin(&f).await, &done(&children[0])).await.expect("it is committed");
    assert!(last.joined.queues.is_empty());
    let last = finish(&f, begin(&f).await, &done(&children[1])).await.expect("it is committed");
    assert_eq!((last.fates, last.joined.queues), (vec![DONE], vec!["default".to_owned()]));
    assert_eq!(f.look(rows[2].id).await.status, Status::Ready);
}

#[tokio::test]
async fn an_outcome_that_is_refused_takes_the_writes_with_it() {
    let f = Fixture::new().await;
    let row = f.claimed().await;
    let taken = f.insert(1).await[0];
    let mut step = begin(&f).await;
    let id = insert(&f, &mut step).await;
    let commit = fan_out(&row, vec![NewInstance { id: taken, ..f.instance() }]);
    let error = finish(&f, step, &commit).await.expect_err("the child's id is another's");
    assert!(error.is_rejection(), "{error:?}");
    assert!(!exists(&f, id).await);
    assert_eq!(f.flush(&[next(&row)]).await, [READY]);
}

#[tokio::test]
async fn a_done_row_goes_at_once_where_that_is_the_policy() {
    let f = Fixture::new().await;
    let row = f.claimed().await;
    let mut step = begin(&f).await;
    let id = insert(&f, &mut step).await;
    let flush = f.store.finish_step(step, f.worker, &done(&row), DonePolicy::Delete).await;
    assert_eq!(flush.expect("it is committed").fates, [DONE]);
    assert_eq!((exists(&f, row.id).await, exists(&f, id).await), (false, true));
}
