use gen_durable::prelude::*;

#[durable_fsm]
enum Checkout {
    #[state(next(Ship))]
    Start { order: i64 },
    #[state(finishes)]
    Ship { order: i64 },
}

struct Steps;

impl CheckoutSteps for Steps {
    async fn start(&self, s: Start, cx: &mut Context<Start>) -> StepResult<Start> {
        Ok(cx.next(Ship { order: s.order }))
    }

    async fn ship(&self, _: Ship, _: &mut Context<Ship>) -> StepResult<Start> {
        Err("never".into())
    }
}

fn main() {}
