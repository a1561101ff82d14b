use gen_durable::prelude::*;

#[derive(Signal, Serialize, Deserialize)]
struct Paid;

#[durable_fsm(signals(Paid))]
enum Checkout {
    #[state(next(Ship))]
    Start { order: i64 },
    #[state(finishes)]
    Ship { order: i64 },
}

struct Steps;

impl CheckoutSteps for Steps {
    async fn start(&self, s: Start, cx: &mut Context<Start>) -> StepResult<Start> {
        Ok(cx.wait_for::<Paid>(Start { order: s.order }).into())
    }

    async fn ship(&self, _: Ship, cx: &mut Context<Ship>) -> StepResult<Ship> {
        Ok(cx.done(()))
    }
}

fn main() {}
