//! Cancelling, as callers see it.

use std::time::Duration;

use gen_durable::{Cancelled, Engine, EngineBuilder, Error, InstanceId, InstanceResult, Status};
use uuid::Uuid;

use super::Bed;
use crate::desk::{Act, Clerks, Desk, Paid, desk, look, stands};
use crate::family::{Mother, Plan, mother, mothers};
use crate::support::{NEVER, SOON};
use crate::work::{Foreman, Work};

async fn open_with(engine: EngineBuilder) -> (Engine, Foreman) {
    let (mothers, foreman) = mothers();
    let engine = engine
        .queue("family", 8)
        .queue("work", 8)
        .queue("desk", 8)
        .register(Desk::machine(Clerks::of(&mothers.workers)))
        .register(Work::machine(mothers.workers.clone()))
        .register(Mother::machine(mothers));
    (engine.start().await.unwrap(), foreman)
}

async fn open(bed: &Bed) -> (Engine, Foreman) {
    open_with(bed.engine()).await
}

async fn insert(engine: &Engine, script: impl IntoIterator<Item = Act>) -> InstanceId {
    engine.insert(desk(script)).await.unwrap().id()
}

async fn is_cancelled(engine: &Engine, id: InstanceId) {
    let result = engine.result::<Desk>(id).within(SOON).await.unwrap();
    assert_eq!(result, InstanceResult::Cancelled { id });
}

#[tokio::test]
async fn what_does_not_run_is_cancelled_at_once_and_for_good() {
    let bed = Bed::create().await;
    let web = bed.engine().without_queues().start().await.unwrap();
    let ready = insert(&web, [Act::Done]).await;
    let delayed = web.insert(desk([Act::Done])).delay(NEVER).await.unwrap().id();
    for id in [ready, delayed] {
        assert_eq!(web.cancel(id).await.unwrap(), Cancelled::Now);
        is_cancelled(&web, id).await;
    }
    let (engine, _) = open(&bed).await;
    let waiting = insert(&engine, [Act::Wait(Some(3_600_000)), Act::Done]).await;
    let joining = insert(&engine, [Act::FanOut(2, vec![Act::Wait(None)]), Act::Done]).await;
    stands(&engine, waiting, Status::Waiting).await;
    stands(&engine, joining, Status::Joining).await;
    for id in [waiting, joining] {
        assert_eq!(engine.cancel(id).await.unwrap(), Cancelled::Now);
        is_cancelled(&engine, id).await;
        let seen = look(&engine, id).await;
        assert!(seen.finished_at.is_some() && seen.children_pending == 0);
    }
    for id in [ready, delayed, waiting, joining] {
        assert_eq!(engine.cancel(id).await.unwrap(), Cancelled::Ended(Status::Cancelled));
    }
    assert!(matches!(engine.signal::<Desk>(waiting, Paid { cents: 1 }).await, Err(Error::NoTarget { .. })));
    let error = engine.retry(waiting).await.unwrap_err();
    assert!(matches!(error, Error::NotFailed { status: Status::Cancelled, .. }), "{error}");
    engine.shutdown().await;
    web.shutdown().await;
}

#[tokio::test]
async fn who_has_ended_stays_as_it_is_and_who_is_unknown_is_not_found() {
    let bed = Bed::create().await;
    let (engine, _) = open(&bed).await;
    let done = insert(&engine, [Act::Done]).await;
    let failed = insert(&engine, [Act::Stop]).await;
    for (id, status) in [(done, Status::Done), (failed, Status::Failed)] {
        stands(&engine, id, status).await;
        assert_eq!(engine.cancel(id).await.unwrap(), Cancelled::Ended(status));
        assert_eq!(engine.cancel(id).with_children().await.unwrap(), Cancelled::Ended(status));
        assert_eq!(look(&engine, id).await.status, status);
    }
    let unknown = InstanceId::from(Uuid::now_v7());
    let error = engine.cancel(unknown).await.unwrap_err();
    assert!(matches!(error, Error::NotFound { id } if id == unknown), "{error}");
    engine.shutdown().await;
}

/// Nothing here comes by polling.
#[tokio::test]
async fn a_step_that_runs_is_told_to_stop_and_its_instance_is_cancelled() {
    let bed = Bed::create().await;
    let (engine, mut foreman) = open_with(bed.engine().poll_interval(NEVER).max_poll_interval(NEVER)).await;
    let id = insert(&engine, [Act::Hold, Act::Done]).await;
    assert_eq!(foreman.started().await, id);
    let waiting = tokio::spawn({
        let result = engine.result::<Desk>(id);
        async move { result.await }
    });
    assert_eq!(engine.cancel(id).await.unwrap(), Cancelled::Soon);
    assert_eq!(foreman.stopped().await, id);
    assert_eq!(waiting.await.unwrap().unwrap(), InstanceResult::Cancelled { id });
    assert_eq!(look(&engine, id).await.step, "left");
    // Its slot is free again.
    let next = insert(&engine, [Act::Done]).await;
    engine.result::<Desk>(next).within(SOON).await.unwrap().done().unwrap();
    engine.shutdown().await;
}

/// It is asked while it waits for a slot.
#[tokio::test]
async fn one_that_is_claimed_and_has_not_started_never_starts() {
    let bed = Bed::create().await;
    let (mothers, mut foreman) = mothers();
    let clerks = Clerks::of(&mothers.workers);
    let engine = bed.engine().queue("desk", 1).register(Desk::machine(clerks.clone()));
    let web = bed.engine().without_queues().start().await.unwrap();
    let holds = insert(&web, [Act::Hold, Act::Done]).await;
    let behind = insert(&web, [Act::Done]).await;
    let engine = engine.start().await.unwrap();
    assert_eq!(foreman.started().await, holds);
    // Ready, or claimed ahead: in either case it has not started.
    engine.cancel(behind).await.unwrap();
    foreman.allow(1);
    is_cancelled(&engine, behind).await;
    assert_eq!(clerks.starts.of(behind), 0);
    engine.result::<Desk>(holds).within(SOON).await.unwrap().done().unwrap();
    engine.shutdown().await;
    web.shutdown().await;
}

/// R30
#[tokio::test]
async fn children_go_on_unless_they_are_to_follow() {
    let bed = Bed::create().await;
    let (engine, mut foreman) = open(&bed).await;
    let family = || Plan { desks: vec![vec![Act::Hold, Act::Wait(None), Act::Done]], ..Plan::default() };
    let inner = || Plan { mothers: vec![family()], ..family() };
    let ids = async |foreman: &mut Foreman| {
        let parent = engine.insert(mother([inner()])).await.unwrap().id();
        let children = [foreman.started().await, foreman.started().await];
        foreman.allow(2);
        for child in children {
            stands(&engine, child, Status::Waiting).await;
        }
        (parent, children)
    };
    let (left, children) = ids(&mut foreman).await;
    assert_eq!(engine.cancel(left).await.unwrap(), Cancelled::Now);
    for child in children {
        engine.signal::<Desk>(child, Paid { cents: 1 }).await.expect("it lives");
        engine.result::<Desk>(child).within(SOON).await.unwrap().done().unwrap();
    }
    let (parent, children) = ids(&mut foreman).await;
    assert_eq!(engine.cancel(parent).with_children().await.unwrap(), Cancelled::Now);
    for child in children {
        is_cancelled(&engine, child).await;
    }
    let counts = engine.counts().await.unwrap();
    let live = counts.iter().filter(|count| !count.status.is_terminal());
    assert_eq!(live.count(), 0, "{counts:?}");
    engine.shutdown().await;
}

#[tokio::test]
async fn children_whose_steps_run_are_told_to_stop_with_their_parent() {
    let bed = Bed::create().await;
    let (engine, mut foreman) = open_with(bed.engine().poll_interval(NEVER).max_poll_interval(NEVER)).await;
    let parent = engine.insert(mother([Plan { digs: 3, ..Plan::default() }])).await.unwrap().id();
    for _ in 0..3 {
        foreman.started().await;
    }
    assert_eq!(engine.cancel(parent).with_children().await.unwrap(), Cancelled::Now);
    for _ in 0..3 {
        let child = foreman.stopped().await;
        let result = engine.result::<Work>(child).within(SOON).await.unwrap();
        assert_eq!(result, InstanceResult::Cancelled { id: child });
    }
    engine.shutdown().await;
}

/// Children of one that executes are those that were run again. Nothing here comes by polling or reaping.
#[tokio::test]
async fn children_of_one_that_executes_follow_when_it_has_stopped() {
    for how in ["cancelled", "stopped"] {
        let bed = Bed::create().await;
        let quiet = bed.engine().poll_interval(NEVER).max_poll_interval(NEVER).without_reaper();
        let (engine, mut foreman) = open_with(quiet).await;
        let script = [Act::FanOut(1, vec![Act::Hold, Act::Stop]), Act::Hold, Act::StopAll];
        let parent = insert(&engine, script).await;
        let child = foreman.started().await;
        foreman.allow(1);
        assert_eq!(foreman.started().await, parent);
        engine.retry(child).await.unwrap();
        assert_eq!(foreman.started().await, child);
        if how == "cancelled" {
            assert_eq!(engine.cancel(parent).with_children().await.unwrap(), Cancelled::Soon);
            is_cancelled(&engine, parent).await;
        } else {
            foreman.allow(1);
            stands(&engine, parent, Status::Failed).await;
        }
        let result = engine.result::<Desk>(child).within(Duration::from_secs(10)).await.unwrap();
        assert_eq!(result, InstanceResult::Cancelled { id: child }, "its parent is {how}");
        engine.shutdown().await;
    }
}

#[tokio::test]
async fn a_cancelled_child_lets_its_parent_go_on() {
    let bed = Bed::create().await;
    let (engine, mut foreman) = open_with(bed.engine().poll_interval(NEVER).max_poll_interval(NEVER)).await;
    let plan = Plan { digs: 1, desks: vec![vec![Act::Hold, Act::Wait(None)]], ..Plan::default() };
    let parent = engine.insert(mother([plan])).await.unwrap();
    let children = [foreman.started().await, foreman.started().await];
    for child in children {
        assert_eq!(engine.cancel(child).await.unwrap(), Cancelled::Soon);
    }
    let report = parent.result().within(SOON).await.unwrap().done().unwrap().remove(0);
    assert_eq!((report.cancelled, report.sum), (2, 0));
    engine.shutdown().await;
}

/// What was asked for is not forgotten when the node that ran it ends.
#[tokio::test]
async fn one_that_was_asked_to_end_does_not_start_again_after_a_crash() {
    let bed = Bed::create().await;
    let (engine, mut foreman) = open(&bed).await;
    let parent = engine.insert(mother([Plan { digs: 1, ..Plan::default() }])).await.unwrap().id();
    let child = foreman.started().await;
    let web = bed.engine().without_queues().start().await.unwrap();
    // The node is gone before it could hear of it.
    drop(engine);
    assert_eq!(web.cancel(child).await.unwrap(), Cancelled::Soon);
    let (engine, mut foreman) = open(&bed).await;
    let result = engine.result::<Work>(child).within(SOON).await.unwrap();
    assert_eq!(result, InstanceResult::Cancelled { id: child });
    let reports = engine.result::<Mother>(parent).within(SOON).await.unwrap().done().unwrap();
    assert_eq!(reports[0].cancelled, 1);
    // The next that starts is another one.
    let next = insert(&engine, [Act::Hold, Act::Done]).await;
    assert_eq!(foreman.started().await, next);
    foreman.allow(1);
    engine.result::<Desk>(next).within(SOON).await.unwrap().done().unwrap();
    engine.shutdown().await;
    web.shutdown().await;
}

#[tokio::test]
async fn a_child_that_is_cancelled_while_its_node_drains_ends_and_releases_the_join() {
    let bed = Bed::create().await;
    let (engine, mut foreman) = open_with(bed.engine().drain_timeout(Duration::from_millis(50))).await;
    let web = bed.engine().without_queues().without_reaper().start().await.unwrap();
    let parent = engine.insert(mother([Plan { digs: 1, ..Plan::default() }])).await.unwrap().id();
    let child = foreman.started().await;
    let (_, cancelled) = tokio::join!(engine.shutdown(), web.cancel(child));
    assert!(matches!(cancelled.unwrap(), Cancelled::Now | Cancelled::Soon));
    let result = web.result::<Work>(child).within(SOON).await.unwrap();
    assert_eq!(result, InstanceResult::Cancelled { id: child });
    stands(&web, parent, Status::Ready).await;
    web.shutdown().await;
}
