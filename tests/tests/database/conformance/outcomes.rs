//! What a step may return, and what becomes of it.

use std::time::Duration;

use gen_durable::prelude::*;
use gen_durable::{InstanceResult, Status};
use gen_durable_tests::TestClock;

use super::Bed;
use crate::support::{LATE, SOON};

/// A walk in two legs that are slow to start.
#[durable_fsm(name = "walk", output = Vec<u32>, retry(max_attempts = 3, backoff = "1ms"))]
#[derive(Debug, Clone, PartialEq)]
pub enum Walk {
    #[state(initial, next(Second))]
    First { failures: u32 },
    #[state(finishes)]
    Second { failures: u32, attempts: Vec<u32> },
}

struct Walker;

impl WalkSteps for Walker {
    async fn first(&self, s: First, cx: &mut Context<First>) -> StepResult<First> {
        if cx.attempt() < s.failures {
            return Err("still tired".into());
        }
        Ok(cx.next(Second { failures: s.failures, attempts: vec![cx.attempt()] }))
    }

    async fn second(&self, mut s: Second, cx: &mut Context<Second>) -> StepResult<Second> {
        if cx.attempt() < s.failures {
            return Err("tired again".into());
        }
        s.attempts.push(cx.attempt());
        Ok(cx.done(s.attempts))
    }
}

#[tokio::test]
async fn next_runs_the_next_step_and_begins_a_new_count_of_attempts() {
    let bed = Bed::create().await;
    let engine = bed.engine().register(Walk::machine(Walker)).start().await.unwrap();
    let walk = engine.insert(First { failures: 2 }).await.unwrap();
    // Three starts each: with one count for both, the second leg would have failed.
    assert_eq!(walk.result().within(SOON).await.unwrap().done().unwrap(), [2, 2]);
    let end = engine.get(walk.id()).await.unwrap().unwrap();
    assert_eq!((end.status, end.error), (Status::Done, None), "no error is left over");
}

/// What steps do to see when they run: read the database's clock.
struct Clocked(TestClock);

#[durable_fsm(name = "nap", output = i64)]
pub enum Nap {
    #[state(initial, next(Wake))]
    Doze { nanos: u64 },
    #[state(finishes)]
    Wake { since: i64 },
}

impl NapSteps for Clocked {
    async fn doze(&self, s: Doze, cx: &mut Context<Doze>) -> StepResult<Doze> {
        let since = self.0.micros().await;
        Ok(cx.next_with(Wake { since }).delay(Duration::from_nanos(s.nanos)).into())
    }

    async fn wake(&self, s: Wake, cx: &mut Context<Wake>) -> StepResult<Wake> {
        Ok(cx.done(self.0.micros().await - s.since))
    }
}

#[tokio::test]
async fn a_delayed_next_runs_on_time_and_never_early_by_the_databases_clock() {
    let bed = Bed::create().await;
    let engine = bed.engine().register(Nap::machine(Clocked(bed.clock()))).start().await.unwrap();
    for nanos in [1, 250_000_000, 40_000_001] {
        let nap = engine.insert(Doze { nanos }).await.unwrap();
        let slept = nap.result().within(SOON).await.unwrap().done().unwrap().unsigned_abs();
        assert!(slept >= nanos.div_ceil(1000), "{slept} us instead of {nanos} ns");
        assert!(slept < nanos / 1000 + LATE.as_micros() as u64, "{slept} us instead of {nanos} ns");
    }
}

/// R22
#[tokio::test]
async fn an_endless_delay_is_a_hundred_years_and_holds_up_nobody() {
    let bed = Bed::create().await;
    let engine = bed.engine().register(Nap::machine(Clocked(bed.clock()))).start().await.unwrap();
    let endless = engine.insert(Doze { nanos: u64::MAX }).await.unwrap();
    let short = engine.insert(Doze { nanos: 1_000_000 }).await.unwrap();
    short.result().within(SOON).await.unwrap().done().unwrap();
    let InstanceResult::Busy(nap) = endless.result().within(Duration::ZERO).await.unwrap() else {
        panic!("it sleeps for 584 years, cut to 100");
    };
    assert_eq!((nap.status, nap.step.as_str()), (Status::Scheduled, "wake"));
    let years = (nap.eligible_at.unwrap() - nap.created_at).num_days() / 365;
    assert_eq!(years, 100);
}

/// Polls a slow carrier, one question a start.
#[durable_fsm(name = "inquiry", output = (u32, u32))]
#[derive(Debug, PartialEq)]
pub enum Inquiry {
    #[state(finishes, retry(max_attempts = 2, backoff = "1ms"))]
    Ask { left: u32, failed: bool, last: i64, shortest: i64 },
}

impl InquirySteps for Clocked {
    async fn ask(&self, s: Ask, cx: &mut Context<Ask>) -> StepResult<Ask> {
        let now = self.0.micros().await;
        let shortest = s.shortest.min(now - s.last);
        if s.left == 0 && !s.failed {
            // What follows at once is not measured.
            return Ok(cx.retry(Ask { failed: true, last: 0, ..s }, Duration::ZERO));
        }
        if s.failed && cx.attempt() == 6 {
            return Err("one real failure".into());
        }
        if s.left > 0 {
            let state = Ask { left: s.left - 1, failed: s.failed, last: now, shortest };
            return Ok(cx.retry(state, Duration::from_millis(20)));
        }
        Ok(cx.done((cx.attempt(), u32::try_from(shortest)?)))
    }
}

#[tokio::test]
async fn an_asked_for_retry_keeps_its_state_rests_and_does_not_count_against_the_policy() {
    let bed = Bed::create().await;
    let engine = bed.engine().register(Inquiry::machine(Clocked(bed.clock()))).start().await.unwrap();
    // The policy allows two starts that fail: five asked-for retries and one more, then one failure, are fine.
    let asked = engine.insert(Ask { left: 5, failed: false, last: 0, shortest: i64::MAX }).await.unwrap();
    let (attempt, shortest) = asked.result().within(SOON).await.unwrap().done().unwrap();
    assert_eq!(attempt, 7, "each start is counted for those who ask");
    assert!(shortest >= 20_000, "a start {shortest} us after the one before");
    let end = engine.get(asked.id()).await.unwrap().unwrap();
    assert_eq!((end.failures, end.crashes), (1, 0));
    assert!(matches!(end.decode().unwrap(), Inquiry::Ask { left: 0, failed: true, .. }));
}

#[durable_fsm(name = "verdict", output = Option<String>)]
pub enum Verdict {
    #[state(finishes)]
    Judge { guilty: bool },
}

struct Judges;

impl VerdictSteps for Judges {
    async fn judge(&self, s: Judge, cx: &mut Context<Judge>) -> StepResult<Judge> {
        Ok(if s.guilty { cx.stop("the proof is clear") } else { cx.done(Some("free".into())) })
    }
}

#[tokio::test]
async fn done_records_its_output_and_stop_its_reason() {
    let bed = Bed::create().await;
    let engine = bed.engine().register(Verdict::machine(Judges)).start().await.unwrap();
    let free = engine.insert(Judge { guilty: false }).await.unwrap();
    let output = free.result().within(SOON).await.unwrap();
    assert_eq!(output, InstanceResult::Done(Some("free".to_owned())));

    let guilty = engine.insert(Judge { guilty: true }).await.unwrap();
    let result = guilty.result().within(SOON).await.unwrap();
    let reason = "the proof is clear".to_owned();
    assert_eq!(result, InstanceResult::Failed { id: guilty.id(), reason });
    let error = result.done().unwrap_err().to_string();
    assert!(error.contains("the proof is clear") && error.contains(&guilty.id().to_string()), "{error}");
    let end = engine.get(guilty.id()).await.unwrap().unwrap();
    assert_eq!((end.status, end.attempt, end.failures), (Status::Failed, 0, 0));
    assert!(end.finished_at.unwrap() >= end.created_at);
}
