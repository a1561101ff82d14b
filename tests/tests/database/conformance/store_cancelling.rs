//! Cancelling, at the seam: what stands still is cancelled, what runs is asked, and children follow when they should.

use std::time::Duration;

use gen_durable::store::{Cancelling, Cascaded, Claimed, Delivered, DonePolicy, Joined, Start, Transition};
use gen_durable::{InstanceId, Status};

use super::setup::{
    CANCELLED, DONE, FAILED, Fixture, JOINING, QUEUE, STORED, WAITING, commit, done, fan_out, next, retry,
    stop, wait,
};

async fn cancel(f: &Fixture, id: InstanceId, cascade: bool) -> (Cancelling, Joined) {
    f.store.cancel(id, cascade).await.expect("it answers")
}

fn cancelled() -> (Cancelling, Joined) {
    (Cancelling::Cancelled { watched: false }, Joined::default())
}

fn asked() -> (Cancelling, Joined) {
    (Cancelling::Asked, Joined::default())
}

/// A parent that waits for children that are ready.
async fn family(f: &Fixture, count: usize) -> (InstanceId, Vec<InstanceId>) {
    let row = f.claimed().await;
    let children = parent(f, &row, count).await;
    (row.id, children)
}

async fn parent(f: &Fixture, row: &Claimed, count: usize) -> Vec<InstanceId> {
    let children: Vec<_> = (0..count).map(|_| f.instance()).collect();
    let ids = children.iter().map(|child| child.id).collect();
    assert_eq!(f.flush(&[fan_out(row, children)]).await, [JOINING]);
    ids
}

async fn cascade(f: &Fixture, limit: u32) -> Cascaded {
    let mut cascaded = f.store.cascade(limit).await.expect("it cascades");
    cascaded.cancelled.sort_unstable();
    cascaded.asked.sort_unstable();
    cascaded
}

async fn statuses(f: &Fixture, ids: &[InstanceId]) -> Vec<Status> {
    let mut seen = f.store.probe(ids, false).await.expect("it reads");
    seen.sort_unstable_by_key(|seen| ids.iter().position(|id| *id == seen.id));
    seen.iter().map(|seen| seen.status).collect()
}

#[tokio::test]
async fn what_stands_still_is_cancelled_at_once() {
    let f = Fixture::new().await;
    let ready = f.insert(1).await[0];
    assert_eq!(f.send(ready, "a").await, STORED);
    let mut later = f.instance();
    later.start = Start::After(Duration::from_secs(60));
    f.store.insert(std::slice::from_ref(&later)).await.expect("it is inserted");
    assert_eq!(cancel(&f, ready, false).await, cancelled());
    assert_eq!(cancel(&f, later.id, false).await, cancelled());
    let waiting = f.claimed().await;
    assert_eq!(f.flush(&[wait(&waiting, &["a"], Some(Duration::ZERO))]).await, [WAITING]);
    assert_eq!(cancel(&f, waiting.id, false).await, cancelled());
    let (joining, _) = family(&f, 1).await;
    assert_eq!(cancel(&f, joining, false).await, cancelled());

    let seen = f.look(ready).await;
    assert_eq!((seen.status, seen.inbox, seen.cancel_requested), (Status::Cancelled, 0, false));
    assert!(seen.finished_at.is_some());
    assert_eq!(f.look(joining).await.children_pending, 0);
    let promoted = f.store.promote(10).await.expect("it promotes");
    assert_eq!((promoted.count, promoted.next_due), (0, None), "no timer is left");
    assert_eq!(f.send(waiting.id, "a").await, Delivered::NoTarget);
    assert_eq!(cancel(&f, ready, false).await.0, Cancelling::Ended(Status::Cancelled));
    assert_eq!(cancel(&f, f.instance().id, false).await.0, Cancelling::NotFound);
    assert_eq!(f.claim(10).await.len(), 1, "the child is left alone");
}

#[tokio::test]
async fn a_cancelled_instance_that_somebody_watches_is_told_of() {
    let f = Fixture::new().await;
    let id = f.insert(1).await[0];
    f.store.probe(&[id], true).await.expect("somebody watches");
    assert_eq!(cancel(&f, id, false).await.0, Cancelling::Cancelled { watched: true });
}

#[tokio::test]
async fn what_executes_is_asked_and_does_not_go_on() {
    let f = Fixture::new().await;
    f.insert(7).await;
    let mut rows = f.claim(7).await;
    rows.sort_unstable_by_key(|row| row.id);
    for row in &rows {
        assert_eq!(cancel(&f, row.id, false).await, asked());
    }
    assert!(f.look(rows[0].id).await.cancel_requested);
    let mut told = f.store.beat(f.worker).await.expect("it beats");
    told.cancel.sort_unstable();
    assert_eq!((told.alive, told.cancel), (true, rows.iter().map(|row| row.id).collect()));
    let other = f.store.register_worker("engine", "node").await.expect("a worker");
    assert!(f.store.beat(other).await.expect("it beats").cancel.is_empty(), "of others it hears nothing");

    let commits = [
        next(&rows[0]),
        retry(&rows[1], "again"),
        wait(&rows[2], &["a"], None),
        fan_out(&rows[3], vec![f.instance()]),
        commit(&rows[4], Transition::Cancel),
        done(&rows[5]),
        stop(&rows[6], "no use"),
    ];
    let fates = f.flush(&commits).await;
    let ends = [CANCELLED, CANCELLED, CANCELLED, CANCELLED, CANCELLED, DONE, FAILED];
    assert_eq!(fates, ends, "an end is an end");
    assert_eq!(f.flush(&commits).await, fates, "asked again");
    let seen = f.look(rows[0].id).await;
    assert_eq!((seen.status, seen.step.as_str(), seen.revision), (Status::Cancelled, "first", 1));
    assert!(seen.finished_at.is_some());
    assert!(f.claim(10).await.is_empty(), "no child was inserted");
    assert!(f.store.beat(f.worker).await.expect("it beats").cancel.is_empty());
}

#[tokio::test]
async fn what_was_asked_is_cancelled_when_its_worker_dies_or_lets_go() {
    let f = Fixture::new().await;
    let (mother, children) = family(&f, 2).await;
    let rows = f.claim(2).await;
    for row in &rows {
        assert_eq!(f.send(row.id, "a").await, STORED);
        assert_eq!(cancel(&f, row.id, false).await, asked());
    }
    assert_eq!(f.store.release(f.worker, &[rows[0].held()]).await.expect("it releases"), 1);
    f.bury(f.worker).await;
    f.store.reclaim(10).await.expect("it reclaims");
    assert_eq!(statuses(&f, &children).await, [Status::Cancelled; 2]);
    assert_eq!(f.look(children[0]).await.inbox, 0);
    f.store.join(10).await.expect("it joins");
    assert_eq!(f.look(mother).await.status, Status::Ready);
}

#[tokio::test]
async fn a_cancelled_child_counts_as_ended() {
    let f = Fixture::new().await;
    let (mother, children) = family(&f, 2).await;
    assert_eq!(cancel(&f, children[0], false).await, cancelled());
    let woken = Joined { queues: vec![QUEUE.into()], left: false };
    assert_eq!(cancel(&f, children[1], false).await.1, woken);
    assert_eq!(f.look(mother).await.status, Status::Ready);
}

#[tokio::test]
async fn children_are_left_alone_unless_asked_to_follow() {
    let f = Fixture::new().await;
    let (mother, children) = family(&f, 2).await;
    assert_eq!(cancel(&f, mother, false).await, cancelled());
    assert_eq!(cascade(&f, 10).await, Cascaded::default());
    assert_eq!(statuses(&f, &children).await, [Status::Ready; 2]);
    // It is not too late.
    assert_eq!(cancel(&f, mother, true).await.0, Cancelling::Ended(Status::Cancelled));
    assert_eq!(cascade(&f, 10).await.cancelled, children);
    while cascade(&f, 10).await.left {}
    assert_eq!(statuses(&f, &children).await, [Status::Cancelled; 2]);
}

#[tokio::test]
async fn children_follow_down_the_tree_and_a_bounded_number_at_a_time() {
    let f = Fixture::new().await;
    let (mother, children) = family(&f, 3).await;
    let row = f.claim(1).await.remove(0);
    let grandchildren = parent(&f, &row, 2).await;
    assert_eq!(cancel(&f, mother, true).await, cancelled());
    let first = cascade(&f, 2).await;
    assert_eq!((first.cancelled.len(), first.left), (2, true));
    let mut rounds = 1;
    while cascade(&f, 2).await.left {
        rounds += 1;
        assert!(rounds < 10, "it ends");
    }
    assert_eq!(statuses(&f, &children).await, [Status::Cancelled; 3]);
    assert_eq!(statuses(&f, &grandchildren).await, [Status::Cancelled; 2]);
    assert_eq!(cascade(&f, 2).await, Cascaded::default());
}

#[tokio::test]
async fn children_that_execute_are_asked_once_and_their_children_follow_when_they_end() {
    let f = Fixture::new().await;
    let (mother, children) = family(&f, 1).await;
    let row = f.claim(1).await.remove(0);
    assert_eq!(cancel(&f, mother, true).await, cancelled());
    let first = cascade(&f, 10).await;
    assert_eq!((first.cancelled.len(), first.asked), (0, children.clone()));
    assert_eq!(cascade(&f, 10).await, Cascaded::default(), "nobody spins");
    assert_eq!(f.flush(&[fan_out(&row, vec![f.instance()])]).await, [CANCELLED]);
    while cascade(&f, 10).await.left {}
    assert_eq!(statuses(&f, &children).await, [Status::Cancelled]);
}

#[tokio::test]
async fn a_stop_takes_children_with_it_only_if_it_says_so() {
    for cascades in [false, true] {
        let f = Fixture::new().await;
        let (mother, children) = family(&f, 2).await;
        let rows = f.claim(2).await;
        let mut ends: Vec<_> = rows.iter().map(|row| stop(row, "no use")).collect();
        ends.sort_unstable_by_key(|commit| commit.held.id);
        f.flush(&ends).await;
        // She goes on, twice, and leaves behind what runs again.
        for _ in 0..2 {
            let row = f.claim(1).await.remove(0);
            assert_eq!(row.id, mother);
            f.flush(&[next(&row)]).await;
        }
        let row = f.claim(1).await.remove(0);
        f.store.retry(children[0]).await.expect("it runs again");
        let transition = Transition::Stop { reason: "no use".into(), cascade: cascades };
        assert_eq!(f.flush(&[commit(&row, transition)]).await, [FAILED]);
        assert_eq!(cascade(&f, 10).await.cancelled.len(), usize::from(cascades));
        let first = if cascades { Status::Cancelled } else { Status::Ready };
        assert_eq!(statuses(&f, &children).await, [first, Status::Failed]);
    }
}

#[tokio::test]
async fn an_end_that_came_first_still_takes_the_children_with_it() {
    let f = Fixture::new().await;
    let (mother, children) = family(&f, 1).await;
    f.flush(&[stop(&f.claim(1).await[0], "no use")]).await;
    let row = f.claim(1).await.remove(0);
    f.store.retry(children[0]).await.expect("it runs again");
    assert_eq!(cancel(&f, mother, true).await, asked());
    let ended = f.store.flush(f.worker, &[done(&row)], DonePolicy::Delete).await.expect("it flushes");
    assert_eq!(ended.fates, [DONE]);
    assert_eq!(
        f.store.sweep(Duration::ZERO, 10).await.expect("it sweeps").instances,
        0,
        "it has children left"
    );
    assert_eq!(cascade(&f, 10).await.cancelled, children);
}
