use gen_durable::SignalFor;
use gen_durable::prelude::*;

#[derive(Signal, Serialize, Deserialize)]
#[signal(name = "", nmae = "paid")]
struct Paid<'a, T> {
    #[signal]
    by: &'a str,
    cents: T,
}

#[durable_fsm(signals(Paid<'static, i64>))]
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

    async fn ship(&self, _: Ship, cx: &mut Context<Ship>) -> StepResult<Ship> {
        Ok(cx.done(()))
    }
}

fn takes<M: Machine, S: SignalFor<M>>() {}

fn uses() {
    takes::<Checkout, Paid<'static, i64>>();
}

fn main() {}
