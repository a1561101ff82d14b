use gen_durable::SignalFor;
use gen_durable::prelude::*;

#[derive(Signal, Serialize, Deserialize)]
struct Paid {
    cents: i64,
}

mod bank {
    use gen_durable::prelude::*;

    #[derive(Signal, Serialize, Deserialize)]
    pub struct Paid;
}

#[derive(Signal, Serialize, Deserialize)]
#[signal(name = "paid")]
struct PaymentConfirmed;

#[durable_fsm(signals(Paid, bank::Paid, PaymentConfirmed))]
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
    takes::<Checkout, Paid>();
    takes::<Checkout, bank::Paid>();
    let _ = Checkout::machine(Steps).signals();
}

fn main() {}
