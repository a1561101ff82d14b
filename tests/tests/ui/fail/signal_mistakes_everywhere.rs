use gen_durable::SignalFor;
use gen_durable::prelude::*;

#[derive(Signal, Serialize, Deserialize)]
struct Paid {
    cents: i64,
}

#[derive(Signal, Serialize, Deserialize)]
#[signal(naem = "paid")]
struct Late;

#[durable_fsm(signal(Paid Cancelled, Late, Paid, String, 1))]
enum Checkout {
    #[state(next(Ship))]
    Start { order: i64 },
    #[state(finish)]
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
    takes::<Checkout, Paid>();
    takes::<Checkout, Late>();
    let _ = Checkout::machine(Steps).signals();
}

fn main() {}
