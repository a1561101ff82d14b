//! One step alone.

use std::time::Duration;

use gen_durable::prelude::*;
use gen_durable::testing::{Decided, context, decided};

#[durable_fsm(output = (u32, u32), name = "alone")]
#[derive(Debug, Clone, PartialEq)]
enum Alone {
    #[state(finishes, next(Ask))]
    Ask { how: u8 },
}

struct Steps;

impl AloneSteps for Steps {
    async fn ask(&self, s: Ask, cx: &mut Context<Ask>) -> StepResult<Ask> {
        match s.how {
            0 => Ok(cx.done((cx.attempt(), cx.crashes()))),
            1 => Ok(cx.retry(Ask { how: 0 }, Duration::from_secs(5))),
            2 => Ok(cx.next(Ask { how: 0 })),
            3 => Ok(cx.stop("no more")),
            _ => Err("as told".into()),
        }
    }
}

#[tokio::test]
async fn every_decision_of_a_step_can_be_looked_at() {
    let ask =
        async |how| decided(Steps.ask(Ask { how }, &mut context().with_attempt(7).with_crashes(2)).await);
    assert_eq!(ask(0).await.unwrap(), Decided::Done((7, 2)));
    let state = Alone::Ask { how: 0 };
    assert_eq!(ask(1).await.unwrap(), Decided::Retry { state: state.clone(), after: Duration::from_secs(5) });
    assert_eq!(ask(2).await.unwrap(), Decided::Next { state, delay: Duration::ZERO });
    assert_eq!(ask(3).await.unwrap(), Decided::Stop("no more".into()));
    assert_eq!(ask(4).await.unwrap_err().to_string(), "as told");
}

#[tokio::test]
async fn a_context_has_the_id_and_queue_that_it_is_given() {
    let id = gen_durable::InstanceId::from(uuid::Uuid::now_v7());
    let cx = context::<Ask>().with_id(id);
    assert_eq!((cx.id(), cx.queue(), cx.attempt()), (id, "default", 0));
}
