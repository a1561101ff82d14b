//! What each operation does to a row when nobody interferes.

use std::time::Duration;

use gen_durable::Status;
use gen_durable::store::{DonePolicy, Flushed, Held, Transition};

use super::setup::{DONE, FAILED, Fixture, READY, SCHEDULED, commit, done, next, next_after, retry, stop};

#[tokio::test]
async fn an_instance_goes_from_insert_over_next_and_retry_to_done() {
    let f = Fixture::new().await;
    let mut new = f.instance();
    new.trace_context = Some("00-trace".into());
    f.store.insert(&[new.clone()]).await.expect("it is inserted");
    f.store.insert(&[new.clone()]).await.expect("a second try changes nothing");
    assert_eq!(f.look(new.id).await.status, Status::Ready);

    let row = f.claim(10).await.remove(0);
    assert_eq!((row.id, row.machine, row.step.as_str()), (new.id, f.machine, "first"));
    assert_eq!((row.state.as_str(), row.trace_context.as_deref()), (r#"{"n":1}"#, Some("00-trace")));
    assert_eq!((row.claim, row.revision, row.attempt, row.failures, row.crashes), (1, 0, 0, 0, 0));
    assert_eq!(f.claim(10).await.len(), 0, "it is taken");
    assert_eq!(f.store.held(f.worker).await.expect("held"), [row.held()]);

    assert_eq!(f.flush(&[retry(&row, "too early")]).await, [READY]);
    let seen = f.look(new.id).await;
    assert_eq!((seen.status, seen.attempt, seen.failures, seen.revision), (Status::Ready, 1, 1, 1));
    assert_eq!((seen.state.as_str(), seen.error.as_deref()), (r#"{"n":1}"#, Some("too early")));

    let row = f.claim(10).await.remove(0);
    assert_eq!((row.revision, row.attempt, row.failures), (1, 1, 1));
    assert_eq!(f.flush(&[next(&row)]).await, [READY]);
    let seen = f.look(new.id).await;
    assert_eq!((seen.status, seen.attempt, seen.failures, seen.revision), (Status::Ready, 0, 0, 2));
    assert_eq!((seen.step.as_str(), seen.state.as_str(), seen.error), ("second", r#"{"n":2}"#, None));

    let row = f.claim(10).await.remove(0);
    assert_eq!(f.flush(&[done(&row)]).await, [DONE]);
    let seen = f.look(new.id).await;
    assert_eq!((seen.status, seen.output.as_deref()), (Status::Done, Some(r#"{"ok":true}"#)));
    assert!(seen.finished_at.expect("it ended") >= seen.created_at);
    assert_eq!((seen.machine.as_str(), seen.version, seen.worker), ("machine", 1, Some(f.worker)));
    assert_eq!(f.store.held(f.worker).await.expect("held"), []);
}

#[tokio::test]
async fn an_insert_that_is_repeated_adds_what_is_missing_and_leaves_the_rest_alone() {
    let f = Fixture::new().await;
    let rows: Vec<_> = (0..3).map(|_| f.instance()).collect();
    f.store.insert(&rows[..2]).await.expect("the first try");
    let claimed = f.claim(1).await.remove(0);
    f.flush(&[done(&claimed)]).await;
    f.store.insert(&rows).await.expect("the second try");
    let mut seen =
        f.store.probe(&rows.iter().map(|row| row.id).collect::<Vec<_>>(), false).await.expect("it reads");
    seen.sort_unstable_by_key(|snapshot| snapshot.id);
    let statuses: Vec<_> = seen.iter().map(|snapshot| snapshot.status).collect();
    assert_eq!(statuses, [Status::Done, Status::Ready, Status::Ready]);
}

#[tokio::test]
async fn a_delayed_next_waits_until_it_is_promoted() {
    let f = Fixture::new().await;
    let row = f.claimed().await;
    assert_eq!(f.flush(&[next_after(&row, Duration::from_millis(300))]).await, [SCHEDULED]);
    assert_eq!(f.look(row.id).await.status, Status::Scheduled);
    assert_eq!(f.claim(1).await.len(), 0);
    let before = f.store.promote(10).await.expect("it promotes");
    let next_due = before.next_due.expect("there is one");
    assert!(before.count == 0 && next_due > Duration::ZERO && next_due <= Duration::from_millis(300));
    tokio::time::sleep(next_due).await;
    let after = f.store.promote(10).await.expect("it promotes");
    assert_eq!((after.count, after.queues, after.next_due), (1, vec!["default".into()], None));
    assert_eq!(f.claim(1).await[0].step, "second");
}

#[tokio::test]
async fn a_stopped_instance_keeps_its_reason_and_state() {
    let f = Fixture::new().await;
    let row = f.claimed().await;
    assert_eq!(f.flush(&[stop(&row, "no use")]).await, [FAILED]);
    let seen = f.look(row.id).await;
    assert_eq!((seen.status, seen.error.as_deref()), (Status::Failed, Some("no use")));
    assert_eq!(seen.state, r#"{"n":1}"#);
}

#[tokio::test]
async fn a_retry_may_bring_a_state_and_need_not_count() {
    let f = Fixture::new().await;
    let row = f.claimed().await;
    let again = Transition::Retry {
        state: Some(r#"{"n":7}"#.into()),
        after: Duration::from_secs(60),
        error: None,
        counted: false,
    };
    assert_eq!(f.flush(&[commit(&row, again)]).await, [SCHEDULED]);
    let seen = f.look(row.id).await;
    assert_eq!((seen.status, seen.attempt, seen.failures), (Status::Scheduled, 1, 0));
    assert_eq!((seen.state.as_str(), seen.error, seen.step.as_str()), (r#"{"n":7}"#, None, "first"));
}

#[tokio::test]
async fn done_rows_are_deleted_by_policy_unless_somebody_watches() {
    let f = Fixture::new().await;
    let ids = f.insert(3).await;
    let rows = f.claim(3).await;
    let seen = f.store.probe(&ids[..1], true).await.expect("it probes");
    assert_eq!(seen[0].status, Status::Executing);
    let commits = [done(&rows[0]), done(&rows[1]), stop(&rows[2], "failed rows stay")];
    let flushed = f.store.flush(f.worker, &commits, DonePolicy::Delete).await.expect("it flushes");
    let watched = Flushed::Committed { status: Status::Done, watched: true };
    assert_eq!(flushed.fates, [watched, DONE, FAILED]);
    let left = f.store.probe(&ids, false).await.expect("it probes");
    assert_eq!(left.iter().map(|s| s.id).collect::<Vec<_>>(), [ids[0], ids[2]]);
}

#[tokio::test]
async fn a_released_row_keeps_its_place_and_counts_no_attempt() {
    let f = Fixture::new().await;
    let first = f.claimed().await;
    f.insert(1).await;
    assert_eq!(f.store.release(f.worker, &[first.held()]).await.expect("it releases"), 1);
    assert_eq!(f.store.release(f.worker, &[first.held()]).await.expect("nothing is left"), 0);
    assert_eq!(f.flush(&[done(&first)]).await, [Flushed::Stale], "it is owned no longer");
    let again = f.claim_as(f.worker, 2, 1).await.remove(0);
    assert_eq!((again.id, again.attempt, again.revision, again.claim), (first.id, 0, 0, 2));
    assert_eq!(f.store.release(f.worker, &[first.held()]).await.expect("another claim's"), 0);
    let stranger = Held { revision: 5, ..again.held() };
    assert_eq!(f.store.release(f.worker, &[stranger]).await.expect("another revision's"), 0);
}

#[tokio::test]
async fn workers_beat_until_they_are_buried_or_retired() {
    let f = Fixture::new().await;
    assert!(f.store.beat(f.worker).await.expect("it beats").alive);
    let beats = f.store.workers().await.expect("the workers");
    assert_eq!((beats[0].engine.as_str(), beats[0].node.as_str(), beats[0].beat), ("engine", "node", 1));
    assert!(!f.store.bury(f.worker, 0).await.expect("it has beaten since"));
    f.bury(f.worker).await;
    assert!(!f.store.beat(f.worker).await.expect("it is fenced").alive);
    let other = f.store.register_worker("engine", "node").await.expect("a worker");
    assert!(other > f.worker);
    f.store.retire(other).await.expect("it retires");
    assert!(f.store.workers().await.expect("the workers").is_empty());
}

#[tokio::test]
async fn machines_keep_their_ids() {
    let f = Fixture::new().await;
    let both = [("other", u32::MAX), ("machine", 1)];
    let ids = f.store.register_machines(&both).await.expect("they register");
    assert_eq!(ids[1], f.machine);
    assert_eq!(f.store.register_machines(&both).await.expect("again"), ids);
}

#[tokio::test]
async fn counts_are_by_machine_version_step_and_status() {
    let f = Fixture::new().await;
    f.insert(3).await;
    let row = f.claim(1).await.remove(0);
    f.flush(&[done(&row)]).await;
    let counts = f.store.counts().await.expect("it counts");
    let seen: Vec<_> = counts.iter().map(|c| (c.machine.as_str(), c.version, c.status, c.count)).collect();
    assert_eq!(seen, [("machine", 1, Status::Ready, 2), ("machine", 1, Status::Done, 1)]);
}

#[tokio::test]
async fn sweeps_delete_what_ended_before_the_retention() {
    let f = Fixture::new().await;
    let ids = f.insert(3).await;
    let rows = f.claim(2).await;
    f.flush(&[done(&rows[0]), stop(&rows[1], "no")]).await;
    let kept = f.store.sweep(Duration::from_secs(3600), 10).await.expect("it sweeps");
    assert_eq!(kept.instances, 0);
    assert_eq!(f.store.sweep(Duration::ZERO, 1).await.expect("one").instances, 1);
    assert_eq!(f.store.sweep(Duration::ZERO, 10).await.expect("the rest").instances, 1);
    let left = f.store.probe(&ids, false).await.expect("it probes");
    assert_eq!(left.iter().map(|s| s.id).collect::<Vec<_>>(), [ids[2]]);
}
