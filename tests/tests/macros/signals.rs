//! Signals: their names, and which machine takes which.
#![deny(warnings)]

use gen_durable::prelude::*;
use gen_durable::{Job, SignalFor};

mod bank {
    use gen_durable::prelude::*;

    #[derive(Signal, Serialize, Deserialize)]
    pub(crate) struct PaymentConfirmed {
        pub(crate) cents: i64,
    }

    /// Of the same name in Rust as one outside, so another one in the store.
    #[derive(Signal, Serialize, Deserialize)]
    #[signal(name = "bank_cancelled")]
    pub(crate) struct Cancelled;
}

#[derive(Signal, Serialize, Deserialize)]
struct Cancelled;

#[derive(Signal, Serialize, Deserialize)]
struct Corrected(i64, String);

#[derive(Signal, Serialize, Deserialize)]
#[signal(name = "verdict")]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Review {
    Approved,
    Refused {
        reason: String,
    },
    #[cfg(any())]
    Never(Missing),
}

#[derive(Signal, Serialize, Deserialize)]
#[cfg_attr(all(), signal(name = "found"))]
struct Conditional {
    #[cfg(any())]
    missing: Missing,
}

#[derive(Signal, Serialize, Deserialize)]
#[allow(non_camel_case_types)]
struct r#match;

#[derive(Signal, Serialize, Deserialize)]
struct HTTPCallback;

/// What may start an instance may also be sent to one.
#[derive(Signal, Serialize, Deserialize)]
struct Parcel {
    order: i64,
}

#[durable_fsm(signals(
    bank::PaymentConfirmed,
    Cancelled,
    bank::Cancelled,
    Corrected,
    Review,
    Parcel,
    #[cfg(any())]
    Missing,
    #[cfg(not(any()))]
    Conditional,
))]
enum Checkout {
    #[state(finishes)]
    Ship(Parcel),
}

#[durable_fsm(version = 2, signals(Cancelled))]
enum Refund {
    #[state(finishes)]
    Start,
}

struct Steps;

impl CheckoutSteps for Steps {
    async fn ship(&self, s: Parcel, cx: &mut Context<Parcel>) -> StepResult<Parcel> {
        Ok(if s.order == 0 { cx.stop("nothing ordered") } else { cx.done(()) })
    }
}

impl RefundSteps for Steps {
    async fn start(&self, _: Start, cx: &mut Context<Start>) -> StepResult<Start> {
        Ok(cx.done(()))
    }
}

#[derive(Serialize, Deserialize)]
struct Sweep;

#[durable_job]
async fn sweep(_: Sweep) -> JobResult<()> {
    Ok(())
}

#[test]
fn a_signal_is_called_like_its_type_unless_told_otherwise() {
    assert_eq!(bank::PaymentConfirmed::NAME, "payment_confirmed");
    assert_eq!((Cancelled::NAME, bank::Cancelled::NAME), ("cancelled", "bank_cancelled"));
    assert_eq!((Review::NAME, Conditional::NAME), ("verdict", "found"));
    assert_eq!((r#match::NAME, HTTPCallback::NAME), ("match", "http_callback"));
}

#[test]
fn a_machine_takes_what_it_lists_in_that_order() {
    let names =
        ["payment_confirmed", "cancelled", "bank_cancelled", "corrected", "verdict", "parcel", "found"];
    assert_eq!(Checkout::machine(Steps).signals(), names);
    assert_eq!(Refund::machine(Steps).signals(), ["cancelled"]);
    assert_eq!(Sweep::job().signals(), [""; 0]);
}

#[test]
fn the_rules_are_those_of_the_lists() {
    fn takes<M: Machine, S: SignalFor<M>>() {}
    takes::<Checkout, bank::PaymentConfirmed>();
    takes::<Checkout, Cancelled>();
    takes::<Checkout, Conditional>();
    takes::<Refund, Cancelled>();
}
