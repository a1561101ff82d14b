use gen_durable::prelude::*;

#[durable_fsm(verison = 1, name = "", queue = "a", queue = "b")]
#[serde(tag = "type")]
enum Checkout {
    #[state(initial = true, next(Shipp), timeout = "30")]
    Start { order: i64 },
    #[state(finish, rename = "start")]
    Ship { order: i64 },
    Refund(i64, i64),
}

struct Steps;

impl CheckoutSteps for Steps {
    async fn start(&self, s: Start, cx: &mut Context<Start>) -> StepResult<Start> {
        Ok(cx.next(Ship { order: s.order }))
    }

    async fn ship(&self, _: Ship, cx: &mut Context<Ship>) -> StepResult<Ship> {
        Ok(cx.done(()))
    }

    async fn refund(&self, s: Refund, cx: &mut Context<Refund>) -> StepResult<Refund> {
        Ok(if s.0 > s.1 { cx.next(Start { order: s.0 }) } else { cx.stop("too much") })
    }
}

fn entry() {
    let _ = Checkout::machine(Steps);
    let _ = Checkout::from(Ship { order: 1 });
    let _ = Checkout::Refund(1, 2);
}

fn main() {}
