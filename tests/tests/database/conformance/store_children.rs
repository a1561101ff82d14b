//! Children, at the seam: a parent waits for all of its latest fan-out, and for nobody else.

use std::time::Duration;

use gen_durable::store::{
    Claimed, Commit, DonePolicy, Flush, Flushed, Joined, KeyScope, NewInstance, NewKey, Parent, Retrying,
    StoreResult,
};
use gen_durable::{InstanceId, Status};

use super::setup::{DONE, FAILED, Fixture, JOINING, QUEUE, READY, done, fan_out, next, stop};

/// A parent that waits, and its children in the order of their ids, claimed.
async fn family(f: &Fixture, count: usize) -> (InstanceId, Vec<Claimed>) {
    let parent = f.claimed().await;
    let children = (0..count).map(|_| f.instance()).collect();
    assert_eq!(f.flush(&[fan_out(&parent, children)]).await, [JOINING]);
    (parent.id, claimed(f).await)
}

async fn claimed(f: &Fixture) -> Vec<Claimed> {
    let mut rows = f.claim(1_000).await;
    rows.sort_unstable_by_key(|row| row.id);
    rows
}

async fn flush(f: &Fixture, commits: &[Commit]) -> Flush {
    f.store.flush(f.worker, commits, DonePolicy::Keep).await.expect("it flushes")
}

fn woken() -> Joined {
    Joined { queues: vec![QUEUE.into()], left: false }
}

async fn children(f: &Fixture, parent: InstanceId, round: i64) -> Vec<Status> {
    let children =
        f.store.children(Parent { id: parent, round }, "machine", None, 1_000).await.expect("children");
    children.iter().map(|child| child.status).collect()
}

#[tokio::test]
async fn a_parent_goes_on_when_all_its_children_have_ended() {
    let f = Fixture::new().await;
    let (parent, rows) = family(&f, 3).await;
    assert_eq!(rows.len(), 3);
    assert!(rows.iter().all(|row| row.is_child));
    assert_eq!(f.look(rows[0].id).await.parent, Some(parent));
    assert_eq!(f.look(parent).await.children_pending, 3);

    let first = flush(&f, &[done(&rows[0]), next(&rows[1])]).await;
    assert_eq!((first.fates, first.joined), (vec![DONE, READY], Joined::default()));
    assert_eq!((f.look(parent).await.children_pending, f.look(parent).await.status), (2, Status::Joining));
    let again = flush(&f, &[done(&rows[0])]).await;
    assert_eq!((again.fates, f.look(parent).await.children_pending), (vec![DONE], 2), "told once");

    let second = claimed(&f).await.remove(0);
    let last = flush(&f, &[done(&second), stop(&rows[2], "no use")]).await;
    assert_eq!(
        (last.fates, last.joined),
        (vec![DONE, FAILED], woken()),
        "siblings of a batch count together"
    );
    let row = f.claim(1).await.remove(0);
    assert_eq!((row.id, row.step.as_str(), row.round), (parent, "second", Some(1)));
    assert_eq!(f.store.join(10).await.expect("it joins"), Joined::default(), "nobody is left to be told");

    let read =
        f.store.children(Parent { id: parent, round: 1 }, "machine", None, 10).await.expect("children");
    assert_eq!(
        read.iter().map(|child| child.id).collect::<Vec<_>>(),
        rows.iter().map(|row| row.id).collect::<Vec<_>>()
    );
    assert_eq!(
        read.iter().map(|child| child.status).collect::<Vec<_>>(),
        [Status::Done, Status::Done, Status::Failed]
    );
    assert_eq!(
        (read[0].output.as_deref(), read[2].error.as_deref()),
        (Some(r#"{"ok":true}"#), Some("no use"))
    );
    flush(&f, &[next(&row)]).await;
    assert_eq!(f.claim(1).await[0].round, None, "the next outcome lets go of them");
}

#[tokio::test]
async fn a_parent_without_children_goes_straight_on() {
    let f = Fixture::new().await;
    let row = f.claimed().await;
    assert_eq!(f.flush(&[fan_out(&row, vec![])]).await, [READY]);
    let row = f.claim(1).await.remove(0);
    assert_eq!((row.step.as_str(), row.round), ("second", Some(1)));
    assert!(children(&f, row.id, 1).await.is_empty());
}

#[tokio::test]
async fn children_are_read_page_by_page_and_machine_by_machine() {
    let f = Fixture::new().await;
    let other = f.store.register_machines(&[("other", 3)]).await.expect("a machine")[0];
    let row = f.claimed().await;
    let mut ours: Vec<_> = (0..5).map(|_| f.instance()).collect();
    let theirs = NewInstance { machine: other, ..f.instance() };
    let ids: Vec<_> = ours.iter().map(|child| child.id).collect();
    ours.insert(2, theirs.clone());
    assert_eq!(f.flush(&[fan_out(&row, ours)]).await, [JOINING]);
    let parent = Parent { id: row.id, round: 1 };
    let page = async |after| {
        let page = f.store.children(parent, "machine", after, 2).await.expect("children");
        page.iter().map(|child| child.id).collect::<Vec<_>>()
    };
    assert_eq!(page(None).await, ids[..2]);
    assert_eq!(page(Some(ids[1])).await, ids[2..4]);
    assert_eq!(page(Some(ids[3])).await, ids[4..]);
    let read = f.store.children(parent, "other", None, 2).await.expect("children");
    assert_eq!((read.len(), read[0].id, read[0].version), (1, theirs.id, 3));
}

/// R13: the commit went through and its acknowledgement was lost; and one that comes too late.
#[tokio::test]
async fn a_fan_out_inserts_its_children_once_and_only_with_its_commit() {
    let f = Fixture::new().await;
    let row = f.claimed().await;
    let fanned = [fan_out(&row, vec![f.instance(), f.instance()])];
    assert_eq!(f.flush(&fanned).await, [JOINING]);
    assert_eq!(f.flush(&fanned).await, [JOINING], "asked again");
    assert_eq!((children(&f, row.id, 1).await.len(), f.look(row.id).await.children_pending), (2, 2));

    let late = NewInstance { priority: -1, ..f.instance() };
    f.store.insert(std::slice::from_ref(&late)).await.expect("it is inserted");
    let late = f.claim(1).await.remove(0);
    f.bury(f.worker).await;
    f.store.reclaim(10).await.expect("it reclaims");
    assert_eq!(f.flush(&[fan_out(&late, vec![f.instance()])]).await, [Flushed::Stale]);
    assert!(children(&f, late.id, 1).await.is_empty());
}

#[tokio::test]
async fn a_child_whose_key_is_taken_is_a_rejection_that_changes_nothing() {
    let f = Fixture::new().await;
    let key = || Some(NewKey { family: "machine", key: "k".into(), scope: KeyScope::Live });
    let taken = NewInstance { key: key(), ..f.instance() };
    f.store.insert_keyed(std::slice::from_ref(&taken)).await.expect("it is inserted");
    let rows = {
        f.insert(1).await;
        claimed(&f).await
    };
    let row = rows.iter().find(|row| row.id != taken.id).expect("it is claimed");
    let fanned = [fan_out(row, vec![f.instance(), NewInstance { key: key(), ..f.instance() }])];
    let flushed: StoreResult<Flush> = f.store.flush(f.worker, &fanned, DonePolicy::Keep).await;
    assert!(flushed.expect_err("the key is taken").is_rejection());
    assert_eq!(f.look(row.id).await.status, Status::Executing);
    assert!(children(&f, row.id, 1).await.is_empty());
}

#[tokio::test]
async fn a_child_that_runs_again_is_waited_for_again() {
    let f = Fixture::new().await;
    let (parent, rows) = family(&f, 2).await;
    flush(&f, &[stop(&rows[0], "no use")]).await;
    assert_eq!(f.look(parent).await.children_pending, 1);
    assert_eq!(f.store.retry(rows[0].id).await.expect("it answers"), Retrying::Ready(QUEUE.into()));
    assert_eq!(f.look(parent).await.children_pending, 2);
    let seen = f.look(rows[0].id).await;
    assert_eq!((seen.status, seen.error, seen.finished_at), (Status::Ready, None, None));
    assert_eq!(flush(&f, &[done(&rows[1])]).await.joined, Joined::default());
    let again = claimed(&f).await.remove(0);
    assert_eq!((again.attempt, again.failures, again.crashes, again.step.as_str()), (0, 0, 0, "first"));
    assert_eq!(flush(&f, &[done(&again)]).await.joined, woken());
}

#[tokio::test]
async fn a_child_of_an_earlier_fan_out_does_not_count() {
    let f = Fixture::new().await;
    let (parent, rows) = family(&f, 1).await;
    assert_eq!(flush(&f, &[stop(&rows[0], "no use")]).await.joined, woken());
    let row = f.claim(1).await.remove(0);
    assert_eq!(f.flush(&[fan_out(&row, vec![f.instance()])]).await, [JOINING]);
    assert_eq!(f.look(parent).await.children_pending, 1);
    f.store.retry(rows[0].id).await.expect("it runs again");
    assert_eq!(f.look(parent).await.children_pending, 1, "the join is not touched");
    let (old, new): (Vec<_>, Vec<_>) = claimed(&f).await.into_iter().partition(|row| row.id == rows[0].id);
    assert_eq!(flush(&f, &[done(&old[0])]).await.joined, Joined::default());
    assert_eq!(f.look(parent).await.children_pending, 1);
    assert_eq!(flush(&f, &[done(&new[0])]).await.joined, woken());
    assert_eq!(
        (children(&f, parent, 1).await, children(&f, parent, 2).await),
        (vec![Status::Done], vec![Status::Done])
    );
}

#[tokio::test]
async fn only_failed_instances_run_again() {
    let f = Fixture::new().await;
    let row = f.claimed().await;
    assert_eq!(f.store.retry(row.id).await.expect("it answers"), Retrying::NotFailed(Status::Executing));
    f.flush(&[done(&row)]).await;
    assert_eq!(f.store.retry(row.id).await.expect("it answers"), Retrying::NotFailed(Status::Done));
    assert_eq!(f.store.retry(f.instance().id).await.expect("it answers"), Retrying::NotFound);
}

#[tokio::test]
async fn ended_children_stay_while_their_parent_may_read_them() {
    let f = Fixture::new().await;
    let (parent, rows) = family(&f, 2).await;
    let ends = [done(&rows[0]), done(&rows[1])];
    f.store.flush(f.worker, &ends, DonePolicy::Delete).await.expect("it flushes");
    let sweep = async || f.store.sweep(Duration::ZERO, 10).await.expect("it sweeps").instances;
    assert_eq!((children(&f, parent, 1).await.len(), sweep().await), (2, 0));
    let row = f.claim(1).await.remove(0);
    assert_eq!((sweep().await, children(&f, parent, 1).await.len()), (0, 2), "its step runs");
    flush(&f, &[next(&row)]).await;
    assert_eq!((sweep().await, children(&f, parent, 1).await.len()), (2, 0), "it has gone on");
}

#[tokio::test]
async fn children_of_a_parent_that_is_gone_end_in_peace() {
    let f = Fixture::new().await;
    let (parent, rows) = family(&f, 2).await;
    f.store.cancel(parent, false).await.expect("it is cancelled");
    assert_eq!(flush(&f, &[done(&rows[0])]).await.joined, Joined::default());
    assert_eq!(f.store.sweep(Duration::ZERO, 10).await.expect("it sweeps").instances, 2);
    let last = flush(&f, &[done(&rows[1])]).await;
    assert_eq!((last.fates, last.joined), (vec![DONE], Joined::default()));
    assert_eq!(f.store.join(10).await.expect("it joins"), Joined::default());
}

#[tokio::test]
async fn children_have_children() {
    let f = Fixture::new().await;
    let (parent, rows) = family(&f, 1).await;
    assert_eq!(f.flush(&[fan_out(&rows[0], vec![f.instance(), f.instance()])]).await, [JOINING]);
    let grandchildren = claimed(&f).await;
    let ends: Vec<_> = grandchildren.iter().map(done).collect();
    assert_eq!(flush(&f, &ends).await.joined, woken());
    let child = f.claim(1).await.remove(0);
    assert!(child.id == rows[0].id && child.is_child);
    assert_eq!(flush(&f, &[done(&child)]).await.joined, woken());
    assert_eq!(f.look(parent).await.status, Status::Ready);
}
