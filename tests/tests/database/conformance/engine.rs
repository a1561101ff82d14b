//! Instances run to their end: outcomes, order, delays, results.

use std::future::IntoFuture;
use std::time::Duration;

use futures_util::FutureExt;
use gen_durable::prelude::*;
use gen_durable::{Engine, Event, Gc, InstanceResult, Notice, Status};

use super::Bed;

/// Counts down, one step a number.
#[durable_fsm(output = u32, queue = "countdown")]
#[derive(Debug, PartialEq)]
pub enum Countdown {
    /// Counts.
    #[state(initial, next(Count, Rest))]
    Count {
        /// How many are left.
        left: u32,
        /// How many were counted.
        counted: u32,
    },
    /// Ends.
    #[state(finishes)]
    Rest {
        /// How many were counted.
        counted: u32,
    },
}

struct Steps;

impl CountdownSteps for Steps {
    async fn count(&self, s: Count, cx: &mut Context<Count>) -> StepResult<Count> {
        Ok(match s.left {
            0 => cx.next(Rest { counted: s.counted }),
            left => cx.next(Count { left: left - 1, counted: s.counted + 1 }),
        })
    }

    async fn rest(&self, s: Rest, cx: &mut Context<Rest>) -> StepResult<Rest> {
        Ok(cx.done(s.counted))
    }
}

const SOON: Duration = Duration::from_secs(20);

/// How many instances there are.
async fn rows(engine: &Engine) -> u64 {
    engine.counts().await.expect("it counts").iter().map(|count| count.count).sum()
}

#[tokio::test]
async fn an_instance_runs_through_its_states_to_its_output() {
    let bed = Bed::create().await;
    let engine =
        bed.engine().queue("countdown", 4).register(Countdown::machine(Steps)).start().await.unwrap();
    let handle = engine.insert(Count { left: 5, counted: 0 }).await.unwrap();
    assert_eq!(handle.result().within(SOON).await.unwrap().done().unwrap(), 5);

    let snapshot = engine.get(handle.id()).await.unwrap().expect("kept for a day");
    assert_eq!((snapshot.status, snapshot.revision), (Status::Done, 7));
    assert_eq!(snapshot.decode::<Countdown>().unwrap(), Countdown::Rest { counted: 5 });
    engine.shutdown().await;
}

#[tokio::test]
async fn with_retention_zero_a_done_row_is_gone_and_its_waiter_still_gets_the_result() {
    let bed = Bed::create().await;
    let engine = bed
        .engine()
        .queue("countdown", 4)
        .gc(Gc::default().keep(Duration::ZERO))
        .register(Countdown::machine(Steps))
        .start()
        .await
        .unwrap();
    let handle = engine.insert(Count { left: 1, counted: 0 }).await.unwrap();
    let waiting = handle.result().within(SOON);
    let result = waiting.await.unwrap();
    if let InstanceResult::Done(counted) = result {
        assert_eq!(counted, 1);
    } else {
        // It may have ended before the first look.
        assert!(matches!(result, InstanceResult::NotFound { .. }), "{result:?}");
    }
    engine.shutdown().await;
}

/// Goes through two states on one claim, as its outcomes ask.
#[durable_fsm(output = u32, queue = "relay")]
enum Relay {
    #[state(next(Run))]
    Ready { laps: u32 },
    #[state(next(Run), finishes)]
    Run { left: u32, laps: u32 },
}

struct Runners;

impl RelaySteps for Runners {
    async fn ready(&self, s: Ready, cx: &mut Context<Ready>) -> StepResult<Ready> {
        Ok(cx.next_with(Run { left: s.laps, laps: s.laps }).inline(true).into())
    }

    async fn run(&self, s: Run, cx: &mut Context<Run>) -> StepResult<Run> {
        if s.left == 0 {
            return Ok(cx.done(s.laps));
        }
        Ok(cx.next_with(Run { left: s.left - 1, laps: s.laps }).inline(true).into())
    }
}

#[tokio::test]
async fn a_step_that_runs_ahead_commits_each_outcome_on_one_claim() {
    let bed = Bed::create().await;
    let engine = bed.engine().queue("relay", 1).register(Relay::machine(Runners)).start().await.unwrap();
    let mut events = engine.events();
    let first = engine.insert(Ready { laps: 50 }).await.unwrap();
    assert_eq!(first.result().within(SOON).await.unwrap().done().unwrap(), 50);
    let snapshot = engine.get(first.id()).await.unwrap().unwrap();
    assert_eq!(snapshot.revision, 52, "each outcome is a revision");
    let mut claims = 0;
    while let Some(notice) = events.next().now_or_never().flatten() {
        claims += u32::from(matches!(notice, Notice::Event(Event::ClaimRan { count: 1, .. })));
    }
    assert_eq!(claims, 1, "all steps ran on the first claim");
    engine.shutdown().await;
}

#[tokio::test]
async fn an_instance_that_runs_ahead_for_long_lets_others_run() {
    let bed = Bed::create().await;
    let engine = bed.engine().queue("relay", 1).register(Relay::machine(Runners)).start().await.unwrap();
    let long = engine.insert(Ready { laps: 1_000_000 }).await.unwrap();
    let short = engine.insert(Ready { laps: 1 }).await.unwrap();
    assert_eq!(short.result().within(SOON).await.unwrap().done().unwrap(), 1);
    assert!(!engine.get(long.id()).await.unwrap().unwrap().status.is_terminal());
    engine.shutdown().await;
    let snapshot = engine.get(long.id()).await.unwrap().unwrap();
    assert_eq!((snapshot.status, snapshot.crashes), (Status::Ready, 0), "handed back uncharged");
}

#[tokio::test]
async fn single_inserts_at_once_each_get_their_own_row() {
    let bed = Bed::create().await;
    let engine = bed.engine().without_queues().start().await.unwrap();
    let inserts = (0..500).map(|n| engine.insert(Count { left: n, counted: 0 }).into_future());
    let handles = futures_util::future::try_join_all(inserts).await.unwrap();
    let ids: std::collections::HashSet<_> = handles.iter().map(gen_durable::Handle::id).collect();
    assert_eq!((ids.len(), rows(&engine).await), (500, 500));
    engine.shutdown().await;
}

#[tokio::test]
async fn detached_inserts_are_written_by_a_shutdown_at_the_latest() {
    let bed = Bed::create().await;
    let engine = bed.engine().without_queues().start().await.unwrap();
    let refused = engine.insert(Count { left: 1, counted: 0 }).detached();
    assert!(matches!(refused, Err(gen_durable::Error::Unregistered { .. })), "{refused:?}");
    engine.insert(Count { left: 1, counted: 0 }).await.unwrap();
    let ids: Vec<_> =
        (0..1_000).map(|n| engine.insert(Count { left: n, counted: 0 }).detached().unwrap()).collect();
    engine.shutdown().await;
    assert_eq!(rows(&engine).await, 1_001);
    assert!(engine.get(ids[999]).await.unwrap().is_some());
    assert!(matches!(
        engine.insert(Count { left: 1, counted: 0 }).detached(),
        Err(gen_durable::Error::Stopped)
    ));
}

/// R52: who stops hands everything back, and the next one goes on at once.
#[tokio::test]
async fn what_a_shutdown_leaves_the_next_engine_finishes() {
    let bed = Bed::create().await;
    let build = || bed.engine().queue("countdown", 2).register(Countdown::machine(Steps));
    let first = build().start().await.unwrap();
    let ids = first.insert_all((0..200).map(|_| Count { left: 3, counted: 0 })).await.unwrap();
    first.shutdown().await;
    let second = build().start().await.unwrap();
    for id in ids {
        assert_eq!(second.result::<Countdown>(id).within(SOON).await.unwrap().done().unwrap(), 3);
        assert_eq!(second.get(id).await.unwrap().unwrap().crashes, 0);
    }
    second.shutdown().await;
}

/// What one engine inserts another one runs, and both see the result.
#[tokio::test]
async fn an_engine_without_queues_inserts_and_waits_for_results() {
    let bed = Bed::create().await;
    let worker =
        bed.engine().queue("countdown", 2).register(Countdown::machine(Steps)).start().await.unwrap();
    let web = bed.engine().without_queues().start().await.unwrap();
    let handle = web.insert(Count { left: 2, counted: 0 }).await.unwrap();
    assert_eq!(handle.result().within(SOON).await.unwrap().done().unwrap(), 2);
    assert_eq!(worker.result::<Countdown>(handle.id()).await.unwrap().done().unwrap(), 2);
    web.shutdown().await;
    worker.shutdown().await;
}
