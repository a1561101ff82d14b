//! Waiting for results.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use gen_durable::prelude::*;
use gen_durable::{Error, InstanceId, InstanceResult, Status};
use gen_durable_tests::Bed;

use crate::support::{Changes, LATE, Logged, NEVER, SOON, soon};
use crate::work::{Dig, Rest, Work, site};

#[tokio::test]
async fn a_result_of_the_same_node_is_pushed() {
    let bed = Bed::create().await;
    let (workers, mut foreman) = site();
    // Nothing else could bring it: no look in time, and notifications are not heard.
    let engine = bed.engine().queue("work", 1).poll_interval(NEVER).max_poll_interval(NEVER);
    let engine = engine.listen_url("postgres://nobody@127.0.0.1:1/nowhere");
    let engine = engine.register(Work::machine(workers)).start().await.unwrap();
    let mut changes = Changes::watch(&bed).await;
    let work = engine.insert(Dig { n: 4 }).await.unwrap();
    let waiting = tokio::spawn(async move { work.result().await });
    let id = foreman.started().await;
    changes.watched(id).await;
    foreman.allow(1);
    assert_eq!(soon(waiting).await.unwrap().unwrap(), InstanceResult::Done(4));
}

#[tokio::test]
async fn a_result_of_another_node_is_told_promptly() {
    let bed = Bed::create().await;
    let (workers, mut foreman) = site();
    let quiet = || bed.engine().poll_interval(NEVER).max_poll_interval(NEVER);
    let node = quiet().queue("work", 4).register(Work::machine(workers)).start().await.unwrap();
    let web = quiet().without_queues().start().await.unwrap();
    let mut changes = Changes::watch(&bed).await;
    for n in 0..3 {
        let work = web.insert(Dig { n }).await.unwrap();
        let id = work.id();
        let waiting = tokio::spawn(async move { (work.result().await, Instant::now()) });
        // The node hears of it although it does not poll.
        assert_eq!(foreman.started().await, id);
        changes.watched(id).await;
        let ended = Instant::now();
        foreman.allow(1);
        let (result, heard) = soon(waiting).await.unwrap();
        assert_eq!(result.unwrap(), InstanceResult::Done(n));
        assert!(heard - ended < LATE, "{:?} after its end", heard - ended);
    }
    drop(node);
}

#[tokio::test]
async fn busy_is_the_answer_at_the_deadline_and_asking_again_works() {
    let bed = Bed::create().await;
    let (workers, mut foreman) = site();
    let engine = bed.engine().queue("work", 1).register(Work::machine(workers)).start().await.unwrap();
    let work = engine.insert(Dig { n: 1 }).await.unwrap();
    foreman.started().await;
    for limit in [Duration::ZERO, Duration::from_millis(60)] {
        let start = Instant::now();
        let InstanceResult::Busy(snapshot) = work.result().within(limit).await.unwrap() else {
            panic!("it is not allowed to end");
        };
        assert!(start.elapsed() >= limit && start.elapsed() < limit + LATE);
        assert_eq!((snapshot.status, snapshot.step.as_str()), (Status::Executing, "dig"));
        assert_eq!(snapshot.decode::<Work>().unwrap(), Work::Dig { n: 1 });
    }
    let waiting = work.result().within(Duration::MAX);
    foreman.allow(1);
    assert_eq!(soon(waiting.into_future()).await.unwrap().done().unwrap(), 1);
    assert_eq!(work.result().await.unwrap().done().unwrap(), 1);
    assert_eq!(engine.result::<Work>(work.id()).within(Duration::ZERO).await.unwrap().done().unwrap(), 1);
}

#[tokio::test]
async fn an_instance_that_is_not_there_is_not_found() {
    let bed = Bed::create().await;
    let engine = bed.engine().without_queues().start().await.unwrap();
    let id: InstanceId = "01890000-0000-7000-8000-000000000000".parse().unwrap();
    assert_eq!(engine.result::<Work>(id).await.unwrap(), InstanceResult::NotFound { id });
    assert_eq!(
        engine.handle::<Work>(id).result().within(SOON).await.unwrap(),
        InstanceResult::NotFound { id }
    );
    assert!(engine.get(id).await.unwrap().is_none());
    let error = engine.result::<Work>(id).await.unwrap().done().unwrap_err();
    assert!(matches!(error, Error::NotDone { .. }), "{error}");
}

#[durable_fsm(name = "verdict", output = String)]
#[derive(Debug)]
pub enum Other {
    #[state(finishes)]
    Judge {},
}

#[tokio::test]
async fn an_output_of_another_type_is_an_error_that_says_so() {
    let bed = Bed::create().await;
    let (workers, _foreman) = site();
    let engine = bed.engine().queue("work", 1).register(Work::machine(workers)).start().await.unwrap();
    let work = engine.insert(Rest { n: 1 }).await.unwrap();
    work.result().within(SOON).await.unwrap();
    let error = engine.result::<Other>(work.id()).within(SOON).await.unwrap_err();
    assert!(matches!(error, Error::Undecodable { .. }), "{error}");
    let error = engine.get(work.id()).await.unwrap().unwrap().decode::<Other>().unwrap_err();
    assert!(error.to_string().contains("machine `work` version 1, not `verdict`"), "{error}");
}

#[tokio::test]
async fn a_thousand_who_wait_share_their_statements() {
    let logged = Logged::create().await;
    let (workers, foreman) = site();
    let engine = logged.bed.engine().queue("work", 100).register(Work::machine(workers));
    let engine = engine.poll_interval(NEVER).max_poll_interval(NEVER).start().await.unwrap();
    let ids = engine.insert_all((0..1000).map(|n| Dig { n })).await.unwrap();
    let waiting = ids.iter().map(|id| engine.result::<Work>(*id).within(SOON).into_future());
    let waiting = join_all(waiting);
    foreman.allow(1000);
    for (n, result) in waiting.await.into_iter().enumerate() {
        assert_eq!(result.unwrap().done().unwrap() as usize, n);
    }
    let (probes, marks) = (logged.count("probe"), logged.count("watch"));
    assert!(probes < 40 && marks < 40, "{probes} looks and {marks} marks for 1000 who wait");
    assert!(probes > 0, "statements are counted");
}

#[tokio::test]
async fn who_waits_on_an_engine_that_stops_is_told_at_once() {
    let bed = Bed::create().await;
    let engine = bed.engine().without_queues().start().await.unwrap();
    let work = engine.insert(Dig { n: 1 }).await.unwrap();
    let (bounded, endless) = (work.result().within(NEVER), work.result());
    let waiting = tokio::spawn(async move { tokio::join!(bounded.into_future(), endless.into_future()) });
    let mut changes = Changes::watch(&bed).await;
    changes.watched(work.id()).await;
    engine.shutdown().await;
    let (bounded, endless) = soon(waiting).await.unwrap();
    assert!(matches!(bounded, Err(Error::Stopped)), "{bounded:?}");
    assert!(matches!(endless, Err(Error::Stopped)), "{endless:?}");
    assert!(matches!(soon(work.result().within(NEVER).into_future()).await, Err(Error::Stopped)));
}
