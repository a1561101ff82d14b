//! The test engine.

use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use gen_durable::Status;
use gen_durable::prelude::*;
use gen_durable::testing::TestEngine;
use gen_durable_tests::Bed;

const DAY: Duration = Duration::from_secs(86_400);

/// Five steps, one of them after a day, some of them on one claim.
#[durable_fsm(output = u32, queue = "stairs", name = "stairs")]
#[derive(Debug, Clone, PartialEq)]
enum Stairs {
    #[state(initial, next(Second))]
    First {},
    #[state(next(Third))]
    Second {},
    #[state(next(Fourth))]
    Third {},
    #[state(next(Fifth))]
    Fourth {},
    #[state(finishes)]
    Fifth {},
}

struct Climber;

/// Steps run in the test itself and not in a task.
fn here() {
    assert!(tokio::task::try_id().is_none(), "a step got a task of its own");
}

impl StairsSteps for Climber {
    async fn first(&self, _: First, cx: &mut Context<First>) -> StepResult<First> {
        here();
        Ok(cx.next_with(Second {}).delay(DAY).into())
    }

    async fn second(&self, _: Second, cx: &mut Context<Second>) -> StepResult<Second> {
        here();
        Ok(cx.next_with(Third {}).inline(true).into())
    }

    async fn third(&self, _: Third, cx: &mut Context<Third>) -> StepResult<Third> {
        here();
        Ok(cx.next_with(Fourth {}).inline(true).into())
    }

    async fn fourth(&self, _: Fourth, cx: &mut Context<Fourth>) -> StepResult<Fourth> {
        here();
        Ok(cx.next(Fifth {}))
    }

    async fn fifth(&self, _: Fifth, cx: &mut Context<Fifth>) -> StepResult<Fifth> {
        here();
        Ok(cx.done(5))
    }
}

#[tokio::test]
async fn five_steps_and_a_day_take_milliseconds_in_the_tests_own_task() {
    let mut fastest = Duration::MAX;
    for _ in 0..5 {
        let began = Instant::now();
        let mut engine = TestEngine::in_memory().register(Stairs::machine(Climber)).start().await.unwrap();
        let stairs = engine.insert(First {}).await.unwrap();
        let tally = engine.drain().await;
        assert_eq!(engine.assert_done(&stairs).await, 5);
        assert_eq!((tally.steps, tally.nexts, tally.done, tally.passed), (5, 4, 1, DAY));
        fastest = fastest.min(began.elapsed());
    }
    println!("five steps with a delay of 24 h: {fastest:?}");
}

#[tokio::test]
async fn time_passes_only_as_told_and_everything_runs_at_its_time() {
    let mut engine = TestEngine::in_memory().register(Stairs::machine(Climber)).start().await.unwrap();
    let early = engine.insert(First {}).await.unwrap();
    let late = engine.insert(First {}).delay(DAY / 2).await.unwrap();
    assert_eq!(engine.run_ready().await.steps, 1);
    let snapshot = engine.assert_waiting(&early).await;
    assert_eq!(snapshot.step, "second");
    assert_eq!(engine.advance(DAY / 2).await.steps, 1);
    assert_eq!(engine.advance(DAY / 2).await.steps, 4);
    engine.assert_done(&early).await;
    engine.assert_waiting(&late).await;
    assert_eq!(engine.advance(DAY * 10).await.passed, DAY * 10);
    engine.assert_done(&late).await;
    let (first, second) = (engine.get(early.id()).await.unwrap(), engine.get(late.id()).await.unwrap());
    let apart = second.unwrap().finished_at.unwrap() - first.unwrap().finished_at.unwrap();
    assert_eq!(apart.to_std().unwrap(), DAY / 2, "not at the end of the ten days");
}

#[durable_fsm(name = "loops", output = ())]
enum Loop {
    #[state(next(Round), finishes, retry(max_attempts = 100, backoff = "1h"))]
    Round { fails: bool },
}

struct Turner;

impl LoopSteps for Turner {
    async fn round(&self, s: Round, cx: &mut Context<Round>) -> StepResult<Round> {
        if s.fails {
            return Err("the rope broke".into());
        }
        Ok(cx.next(Round { fails: false }))
    }
}

async fn message_of<T>(what: impl Future<Output = T>) -> String {
    let panic = AssertUnwindSafe(what).catch_unwind().await.err().expect("it panics");
    panic.downcast_ref::<String>().expect("with a text").clone()
}

#[tokio::test]
async fn a_runaway_is_stopped_and_named() {
    let builder = TestEngine::in_memory().register(Loop::machine(Turner)).max_steps(50);
    let mut engine = builder.start().await.unwrap();
    engine.insert(Round { fails: false }).await.unwrap();
    let message = message_of(engine.drain()).await;
    assert!(message.contains("50 steps") && message.contains("`round` of `loops`"), "{message}");
    assert!(message.contains("max_steps") && message.contains("engine.rs"), "{message}");
}

#[tokio::test]
async fn a_failed_assertion_says_how_the_instance_stands() {
    let mut engine = TestEngine::in_memory().register(Loop::machine(Turner)).start().await.unwrap();
    let round = engine.insert(Round { fails: true }).await.unwrap();
    let message = message_of(engine.assert_done(&round)).await;
    assert!(message.contains("is not done") && message.contains("call `drain`"), "{message}");
    engine.advance(Duration::from_secs(3600)).await;
    let message = message_of(engine.assert_done(&round)).await;
    let told =
        ["scheduled", "`round` of `loops` version 1", "attempt 2", "the rope broke", "in 3600s", "engine.rs"];
    for part in told {
        assert!(message.contains(part), "{part} is missing in: {message}");
    }
    let elsewhere = engine.insert(Round { fails: true }).queue("elsewhere").await.unwrap();
    engine.drain().await;
    let message = message_of(engine.assert_failed(&elsewhere)).await;
    assert!(message.contains(".queue(\"elsewhere\")"), "{message}");
    let foreign = engine.insert(First {}).await.unwrap();
    let message = message_of(engine.assert_failed(&foreign)).await;
    assert!(message.contains(".register(...)"), "{message}");
    engine.assert_status(&foreign, Status::Ready).await;
}

#[tokio::test]
async fn many_test_engines_run_side_by_side() {
    let tests = (0..20).map(|_| async {
        let mut engine = TestEngine::in_memory().register(Stairs::machine(Climber)).start().await.unwrap();
        let stairs = engine.insert_all((0..10).map(|_| First {})).await.unwrap();
        assert_eq!(engine.drain().await.done, 10);
        assert_eq!(stairs.len(), 10);
    });
    futures_util::future::join_all(tests).await;
}

/// Delays collapse on PostgreSQL, too.
#[tokio::test]
async fn a_drain_on_postgresql_cuts_delays_short() {
    let bed = Bed::create().await;
    let builder = TestEngine::postgres(bed.pool.clone(), "gen_durable").unwrap();
    let mut engine =
        builder.register(Stairs::machine(Climber)).register(Loop::machine(Turner)).start().await.unwrap();
    let stairs = engine.insert(First {}).await.unwrap();
    let round = engine.insert(Round { fails: true }).await.unwrap();
    let tally = engine.drain().await;
    assert_eq!(engine.assert_done(&stairs).await, 5);
    assert_eq!(engine.assert_failed(&round).await, "the rope broke");
    assert_eq!((tally.of("round"), tally.retries), (100, 99));
    let message = message_of(engine.advance(DAY)).await;
    assert!(message.contains("use `drain`"), "{message}");
}
