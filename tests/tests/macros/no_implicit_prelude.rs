//! Without any prelude.
#![no_implicit_prelude]
#![forbid(unsafe_code)]
#![deny(warnings)]

use ::gen_durable::{Context, JobResult, StepError, StepResult, durable_fsm, durable_job};

#[derive(::gen_durable::Signal, ::serde::Serialize, ::serde::Deserialize)]
struct Paid {
    cents: i64,
}

#[derive(::gen_durable::Signal, ::serde::Serialize, ::serde::Deserialize)]
#[signal(name = "called_off")]
enum Cancelled {
    ByCustomer,
}

#[durable_fsm(version = 3, retry(max_attempts = 2), steps = Steps, signals(Paid, Cancelled))]
#[derive(::core::fmt::Debug, ::core::clone::Clone)]
enum Checkout {
    #[state(next(Ship, Payment), timeout = "1m", alias = "begin")]
    Start { order: i64 },
    #[state(finishes)]
    Ship,
    #[state(finishes)]
    Payment(Money),
}

#[derive(::core::fmt::Debug, ::core::clone::Clone, ::serde::Serialize, ::serde::Deserialize)]
struct Money {
    cents: i64,
}

#[derive(::core::default::Default)]
struct Steps;

impl CheckoutSteps for Steps {
    async fn start(&self, s: Start, cx: &mut Context<Start>) -> StepResult<Start> {
        if s.order == 0 {
            return ::core::result::Result::Ok(cx.next(Money { cents: 1 }));
        }
        ::core::result::Result::Ok(cx.next(Ship))
    }

    async fn ship(&self, _: Ship, cx: &mut Context<Ship>) -> StepResult<Ship> {
        ::core::result::Result::Ok(cx.done(()))
    }

    async fn payment(&self, s: Money, cx: &mut Context<Money>) -> StepResult<Money> {
        ::core::result::Result::Ok(if s.cents > 0 { cx.done(()) } else { cx.stop("no money") })
    }

    async fn on_ship_error(&self, _: Ship, error: StepError, _: &mut Context<Ship>) -> StepResult<Ship> {
        ::core::result::Result::Err(error)
    }
}

#[derive(::serde::Serialize, ::serde::Deserialize)]
struct Sweep;

struct Broom;

#[durable_job(timeout = "5s", resources(Broom))]
async fn sweep(_: Sweep, cx: &mut Context<Sweep>) -> JobResult<u32> {
    let _: &Broom = cx.resource();
    ::core::result::Result::Ok(1)
}

#[test]
fn it_compiles() {
    let _ = Checkout::machine(Steps);
    let _ = Checkout::Start { order: 1 };
}
