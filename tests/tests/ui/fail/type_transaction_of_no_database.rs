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

struct MySql;

struct Steps;

impl CheckoutSteps for Steps {
    async fn start(&self, s: Start, cx: &mut Context<Start>) -> StepResult<Start> {
        let tx = cx.begin::<MySql>().await?;
        tx.finish(cx.next(Ship { order: s.order })).await
    }

    async fn ship(&self, _: Ship, cx: &mut Context<Ship>) -> StepResult<Ship> {
        Ok(cx.done(()))
    }
}

fn main() {}
