use gen_durable::prelude::*;

#[derive(Signal, Serialize, Deserialize)]
struct Paid {
    cents: i64,
}

#[derive(Signal, Serialize, Deserialize)]
struct Cancelled;

#[durable_fsm(signals(Cancelled))]
enum Checkout {
    #[state(next(Ship))]
    Start { order: i64 },
    #[state(finishes)]
    Ship { order: i64 },
}

struct Steps;

impl CheckoutSteps for Steps {
    async fn start(&self, s: Start, cx: &mut Context<Start>) -> StepResult<Start> {
        Ok(cx.wait_for::<Cancelled>(Ship { order: s.order }).or::<Paid>().into())
    }

    async fn ship(&self, _: Ship, cx: &mut Context<Ship>) -> StepResult<Ship> {
        Ok(cx.done(()))
    }
}

fn main() {}
