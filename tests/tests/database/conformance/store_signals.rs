//! Signals, at the seam: what is sent is kept, and wakes whom it should.

use std::time::Duration;

use gen_durable::store::{Claimed, Commit, Delivered, Flushed, INBOX_LIMIT, Mail, NewInstance, NewSignal};
use gen_durable::{InstanceId, Status};
use uuid::Uuid;

use super::setup::{
    DONE, FAILED, Fixture, READY, SCHEDULED, STORED, WAITING, commit, done, next, signal, stop, wait, woke,
};

fn mail(row: &Claimed) -> &Mail {
    row.mail.as_deref().expect("there is mail")
}

fn names(mail: &Mail) -> Vec<&str> {
    mail.inbox.iter().map(|letter| letter.name.as_str()).collect()
}

fn awaited(row: &Claimed) -> Vec<&str> {
    mail(row).awaited().map(|letter| letter.name.as_str()).collect()
}

/// Consumes what the step was handed as awaited, as a context does.
fn consuming(commit: Commit, row: &Claimed) -> Commit {
    Commit { consumed: mail(row).awaited().map(|letter| letter.seq).collect(), ..commit }
}

fn once(target: InstanceId, name: &str, key: &str) -> NewSignal {
    NewSignal { dedup_key: Some(key.into()), ..signal(target, name) }
}

/// One that waits for signals.
async fn waiting(f: &Fixture, signals: &[&'static str], timeout: Option<Duration>) -> InstanceId {
    let row = f.claimed().await;
    assert_eq!(f.flush(&[wait(&row, signals, timeout)]).await, [WAITING]);
    row.id
}

#[tokio::test]
async fn a_signal_that_comes_before_the_wait_ends_it_at_once() {
    let f = Fixture::new().await;
    let id = f.insert(1).await[0];
    assert_eq!(f.send(id, "a").await, STORED);
    assert_eq!((f.look(id).await.status, f.look(id).await.inbox), (Status::Ready, 1));
    let row = f.claim(1).await.remove(0);
    assert_eq!((names(mail(&row)), awaited(&row).len()), (vec!["a"], 0), "it waits for nothing yet");
    assert_eq!(f.flush(&[wait(&row, &["a"], None)]).await, [READY]);
    let row = f.claim(1).await.remove(0);
    assert_eq!((row.step.as_str(), awaited(&row), mail(&row).timed_out), ("second", vec!["a"], false));
    assert_eq!(mail(&row).inbox[0].payload, "\"a\"");
    assert_eq!(f.flush(&[consuming(next(&row), &row)]).await, [READY]);
    assert_eq!((f.look(id).await.inbox, f.look(id).await.awaits.len()), (0, 0));
    assert_eq!(f.claim(1).await[0].mail, None);
}

#[tokio::test]
async fn a_signal_that_comes_while_the_step_runs_is_not_lost() {
    let f = Fixture::new().await;
    let ids = f.insert(4).await;
    let mut rows = f.claim(4).await;
    rows.sort_unstable_by_key(|row| row.id);
    for id in &ids {
        assert_eq!(f.send(*id, "a").await, STORED);
    }
    // Nothing of this was known to the worker.
    let commits =
        [next(&rows[0]), wait(&rows[1], &["a"], None), wait(&rows[2], &["b"], None), done(&rows[3])];
    assert_eq!(f.flush(&commits).await, [READY, READY, WAITING, DONE]);
    assert_eq!(f.flush(&commits).await, [READY, READY, WAITING, DONE], "asked again after a lost answer");
    let mut inboxes = Vec::new();
    for id in ids {
        inboxes.push(f.look(id).await.inbox);
    }
    assert_eq!(inboxes, [1, 1, 1, 0]);
}

#[tokio::test]
async fn a_signal_wakes_only_those_who_wait_for_its_name() {
    let f = Fixture::new().await;
    let id = waiting(&f, &["a", "b"], Some(Duration::from_secs(60))).await;
    assert_eq!(f.look(id).await.awaits, ["a", "b"]);
    assert_eq!(f.send(id, "c").await, STORED);
    assert_eq!(f.look(id).await.status, Status::Waiting);
    assert_eq!(f.send(id, "b").await, woke());
    assert_eq!(f.send(id, "a").await, STORED, "it waits no longer");
    let row = f.claim(1).await.remove(0);
    assert_eq!((names(mail(&row)), awaited(&row)), (vec!["c", "b", "a"], vec!["b", "a"]));
    assert!(!mail(&row).timed_out);
    assert_eq!(f.flush(&[consuming(done(&row), &row)]).await, [DONE]);
    assert_eq!(f.look(id).await.inbox, 0, "the end clears the inbox");
}

#[tokio::test]
async fn signals_of_one_batch_are_delivered_in_order() {
    let f = Fixture::new().await;
    let id = waiting(&f, &["a"], None).await;
    let other = waiting(&f, &["a"], None).await;
    let batch = ["c", "a", "b", "a"].map(|name| signal(id, name));
    let batch: Vec<_> = batch.into_iter().chain([signal(other, "a")]).collect();
    let answers = f.store.signal(&batch).await.expect("it sends");
    let woken = answers.iter().filter(|answer| matches!(answer, Delivered::Stored { woke: Some(_) })).count();
    assert!(
        woken >= 2 && answers[0] == STORED && answers[1] == woke() && answers[4] == woke(),
        "{answers:?}"
    );
    let rows = f.claim(2).await;
    let row = rows.iter().find(|row| row.id == id).expect("it is ready");
    assert_eq!(names(mail(row)), ["c", "a", "b", "a"]);
    assert!(mail(row).inbox.is_sorted_by(|one, other| one.seq < other.seq));
    assert_eq!(mail(row).latest, mail(row).inbox[3].seq);
}

#[tokio::test]
async fn a_wait_without_a_timeout_is_never_due() {
    let f = Fixture::new().await;
    let id = waiting(&f, &["a"], None).await;
    let seen = f.look(id).await;
    assert_eq!((seen.status, seen.eligible_at), (Status::Waiting, None));
    let promoted = f.store.promote(10).await.expect("it promotes");
    assert_eq!((promoted.count, promoted.next_due), (0, None));
}

#[tokio::test]
async fn a_timeout_wakes_the_step_and_hands_it_nothing_that_came_later() {
    let f = Fixture::new().await;
    let far = waiting(&f, &["a"], Some(Duration::from_secs(60))).await;
    assert!(f.look(far).await.eligible_at.is_some());
    let promoted = f.store.promote(10).await.expect("it promotes");
    assert_eq!(promoted.count, 0);
    assert!(promoted.next_due.is_some_and(|due| due <= Duration::from_secs(60)), "{promoted:?}");
    let id = waiting(&f, &["a"], Some(Duration::from_micros(1))).await;
    let promoted = f.store.promote(10).await.expect("it promotes");
    assert_eq!((promoted.count, promoted.queues), (1, vec!["default".into()]));
    assert_eq!(f.send(id, "a").await, STORED, "it waits no longer");
    let row = f.claim(1).await.remove(0);
    assert_eq!((mail(&row).timed_out, names(mail(&row)), awaited(&row).len()), (true, vec!["a"], 0));
    assert_eq!((row.attempt, row.step.as_str()), (0, "second"));
    // A later wait finds it.
    assert_eq!(f.flush(&[wait(&row, &["a"], None)]).await, [READY]);
    let row = f.claim(1).await.remove(0);
    assert_eq!((mail(&row).timed_out, awaited(&row)), (false, vec!["a"]));
}

#[tokio::test]
async fn a_renewed_wait_goes_on_until_something_new_comes() {
    let f = Fixture::new().await;
    let id = waiting(&f, &["a"], None).await;
    for count in 1..4 {
        assert_eq!(f.send(id, "a").await, woke());
        let row = f.claim(1).await.remove(0);
        assert_eq!(awaited(&row).len(), count, "the pack grows");
        assert_eq!(f.flush(&[wait(&row, &["a"], Some(Duration::from_millis(1)))]).await, [WAITING]);
    }
    tokio::time::sleep(Duration::from_millis(2)).await;
    assert_eq!(f.store.promote(10).await.expect("it promotes").count, 1);
    let row = f.claim(1).await.remove(0);
    assert_eq!((mail(&row).timed_out, awaited(&row).len()), (true, 3), "the partial pack");
    // Another name is another wait: what came under it was not handed as awaited.
    assert_eq!(f.send(id, "b").await, STORED);
    assert_eq!(f.flush(&[wait(&row, &["a", "b"], None)]).await, [READY]);
}

#[tokio::test]
async fn a_retry_finds_all_as_it_was() {
    let f = Fixture::new().await;
    let id = waiting(&f, &["a"], Some(Duration::from_millis(1))).await;
    tokio::time::sleep(Duration::from_millis(2)).await;
    assert_eq!(f.store.promote(10).await.expect("it promotes").count, 1);
    assert_eq!(f.send(id, "a").await, STORED);
    let row = f.claim(1).await.remove(0);
    let first = mail(&row).clone();
    let again = gen_durable::store::Transition::Retry {
        state: None,
        after: Duration::from_millis(1),
        error: None,
        counted: true,
    };
    assert_eq!(f.flush(&[commit(&row, again)]).await, [SCHEDULED]);
    tokio::time::sleep(Duration::from_millis(2)).await;
    assert_eq!(f.store.promote(10).await.expect("it promotes").count, 1);
    let row = f.claim(1).await.remove(0);
    assert_eq!((mail(&row), row.attempt), (&first, 1));
}

#[tokio::test]
async fn a_key_makes_sending_again_a_no_op_until_the_instance_ends() {
    let f = Fixture::new().await;
    let id = waiting(&f, &["a"], None).await;
    let other = f.insert(1).await[0];
    let send = async |batch: &[NewSignal]| f.store.signal(batch).await.expect("it sends");
    let answers =
        send(&[once(id, "a", "k"), once(id, "a", "k"), once(id, "b", "l"), once(other, "a", "k")]).await;
    assert_eq!(answers, [woke(), Delivered::Repeated, STORED, STORED]);
    assert_eq!(send(&[once(id, "a", "k")]).await, [Delivered::Repeated], "it is in the inbox");
    let rows = f.claim(2).await;
    let row = rows.iter().find(|row| row.id == id).expect("it is ready");
    assert_eq!(names(mail(row)), ["a", "b"]);
    assert_eq!(f.flush(&[consuming(next(row), row)]).await, [READY]);
    assert_eq!(f.look(id).await.inbox, 1);
    assert_eq!(send(&[once(id, "a", "k")]).await, [Delivered::Repeated], "it was consumed");
    let row = f.claim(1).await.remove(0);
    assert_eq!(names(mail(&row)), ["b"]);
    assert_eq!(f.flush(&[stop(&row, "no use")]).await, [FAILED]);
    f.store.retry(id).await.expect("it runs again");
    assert_eq!(send(&[once(id, "a", "k")]).await, [STORED], "it had ended");
}

#[tokio::test]
async fn a_signal_to_nobody_says_so() {
    let f = Fixture::new().await;
    let ended = f.claimed().await;
    f.flush(&[done(&ended)]).await;
    let live = f.insert(1).await[0];
    let foreign = NewSignal { machine: "other".into(), ..signal(live, "a") };
    let unknown = InstanceId::from(Uuid::now_v7());
    let batch =
        [signal(ended.id, "a"), foreign, signal(unknown, "a"), signal("no key", "a"), signal(live, "a")];
    let answers = f.store.signal(&batch).await.expect("it sends");
    let none = Delivered::NoTarget;
    assert_eq!(answers, [none.clone(), none.clone(), none.clone(), none, STORED]);
}

#[tokio::test]
async fn a_signal_goes_to_all_versions_of_a_machine() {
    let f = Fixture::new().await;
    let machine = f.store.register_machines(&[("machine", 2)]).await.expect("a machine")[0];
    let second = NewInstance { machine, ..f.instance() };
    f.store.insert(std::slice::from_ref(&second)).await.expect("it is inserted");
    assert_eq!(f.send(second.id, "a").await, STORED);
}

#[tokio::test]
async fn a_step_is_handed_a_bounded_number_of_signals_and_those_it_waits_for_first() {
    let f = Fixture::new().await;
    let id = waiting(&f, &["a"], None).await;
    let batch: Vec<_> = (0..INBOX_LIMIT + 10).map(|_| signal(id, "b")).chain([signal(id, "a")]).collect();
    f.store.signal(&batch).await.expect("it sends");
    let row = f.claim(1).await.remove(0);
    assert_eq!((mail(&row).inbox.len(), awaited(&row)), (INBOX_LIMIT as usize, vec!["a"]));
    let last = &mail(&row).inbox[INBOX_LIMIT as usize - 1];
    assert_eq!((last.name.as_str(), last.seq), ("a", mail(&row).latest));
    assert_eq!(f.flush(&[consuming(next(&row), &row)]).await, [READY]);
    assert_eq!(f.look(id).await.inbox, INBOX_LIMIT + 10);
    let row = f.claim(1).await.remove(0);
    assert!(mail(&row).latest > mail(&row).inbox[INBOX_LIMIT as usize - 1].seq, "there are more");
}

/// R02: a frozen node wakes after its row was taken away.
#[tokio::test]
async fn a_late_outcome_consumes_nothing() {
    let f = Fixture::new().await;
    let id = waiting(&f, &["a"], None).await;
    f.send(id, "a").await;
    let late = f.claim(1).await.remove(0);
    f.bury(f.worker).await;
    assert_eq!(f.store.reclaim(10).await.expect("it reclaims")[0].count, 1);
    assert_eq!(f.flush(&[consuming(next(&late), &late)]).await, [Flushed::Stale]);
    let other = f.store.register_worker("engine", "node").await.expect("a worker");
    let row = f.claim_as(other, 1, 1).await.remove(0);
    assert_eq!((mail(&row), row.crashes), (mail(&late), 1));
}

#[tokio::test]
async fn a_bad_signal_is_a_rejection_and_its_neighbours_can_be_sent() {
    let f = Fixture::new().await;
    let id = f.insert(1).await[0];
    let bad = NewSignal { payload: "{".into(), ..signal(id, "a") };
    let error = f.store.signal(&[signal(id, "a"), bad]).await.expect_err("it is no JSON");
    assert!(error.is_rejection(), "{error:?}");
    assert_eq!(f.look(id).await.inbox, 0);
}
