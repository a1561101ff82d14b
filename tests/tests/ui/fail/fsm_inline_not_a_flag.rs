use gen_durable::prelude::*;

#[durable_fsm(inline)]
enum Checkout {
    #[state(next(Ship), inline = "yes")]
    Start { order: i64 },
    #[state(finishes, inline = false)]
    Ship { order: i64 },
}

struct Steps;

impl CheckoutSteps for Steps {
    async fn start(&self, s: Start, cx: &mut Context<Start>) -> StepResult<Start> {
        Ok(cx.next(Ship { order: s.order }))
    }

    async fn ship(&self, _: Ship, cx: &mut Context<Ship>) -> StepResult<Ship> {
        Ok(cx.done(()))
    }
}

fn main() {}
