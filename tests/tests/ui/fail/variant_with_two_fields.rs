use gen_durable::prelude::*;

#[durable_fsm]
enum Checkout {
    #[state(finishes)]
    Start(i64, String),
}

struct Steps;

impl CheckoutSteps for Steps {
    async fn start(&self, _: Start, cx: &mut Context<Start>) -> StepResult<Start> {
        Ok(cx.done(()))
    }
}

fn main() {}
