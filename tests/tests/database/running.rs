//! Instances run to their end: outcomes, order, delays, results.

use std::time::Duration;

use gen_durable::prelude::*;
use gen_durable::{Gc, InstanceResult, Status};
use gen_durable_tests::Bed;

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
