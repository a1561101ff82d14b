//! Machines and jobs in a crate that denies what a strict crate denies: a finding in generated code fails
//! the build, or the run of clippy over all targets.
#![forbid(unsafe_code)]
#![deny(
    warnings,
    missing_docs,
    missing_debug_implementations,
    unreachable_pub,
    unused_qualifications,
    single_use_lifetimes,
    trivial_casts,
    clippy::all,
    clippy::pedantic
)]

use std::time::Duration;

use gen_durable::prelude::*;
use serde::{Deserialize, Serialize};

/// What a large order leaves.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// Which order.
    pub order: i64,
}

/// The money is there.
#[derive(Debug, Signal, Serialize, Deserialize)]
pub struct PaymentConfirmed {
    /// How much.
    pub cents: i64,
}

/// What the warehouse says.
#[derive(Debug, Signal, Serialize, Deserialize)]
#[signal(name = "stock")]
pub enum Stock {
    /// All is there.
    There,
    /// It comes on a day.
    On(String),
}

#[derive(Signal, Serialize, Deserialize)]
struct Hidden;

/// One order.
#[durable_fsm(version = 2, output = Receipt, signals(PaymentConfirmed, Stock), retry(max_attempts = 5, backoff = "1s"), steps = Steps)]
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Checkout {
    /// Reserves the stock.
    #[state(next(Large, Ship), timeout = "30s")]
    Start {
        /// Which order.
        order: i64,
        /// Who ordered.
        customer: String,
    },
    /// A state so large that a result with it is, too.
    #[state(next(Ship))]
    Large {
        /// Much data.
        data: [u64; 20],
    },
    /// Hands the parcel over.
    #[state(finishes, next(Waiting), retry(max_attempts = 3, backoff = slowly))]
    Ship(Parcel),
    /// Waits.
    #[state(next(Ship))]
    Waiting,
}

/// A parcel.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Parcel {
    /// Which order.
    pub order: i64,
}

fn slowly(failures: u32) -> Duration {
    Duration::from_secs(60 * u64::from(failures))
}

/// The steps.
#[derive(Debug, Default, Clone, Copy)]
pub struct Steps;

impl CheckoutSteps for Steps {
    async fn start(&self, s: Start, cx: &mut Context<Start>) -> StepResult<Start> {
        if s.customer.is_empty() {
            return Ok(cx.next(Large { data: [0; 20] }));
        }
        Ok(cx.next(Parcel { order: s.order }))
    }

    async fn large(&self, s: Large, cx: &mut Context<Large>) -> StepResult<Large> {
        Ok(cx.next(Parcel { order: i64::try_from(s.data[0])? }))
    }

    async fn ship(&self, s: Parcel, cx: &mut Context<Parcel>) -> StepResult<Parcel> {
        if s.order == 0 {
            return Ok(cx.next(Waiting));
        }
        Ok(cx.done(Receipt { order: s.order }))
    }

    async fn waiting(&self, Waiting: Waiting, cx: &mut Context<Waiting>) -> StepResult<Waiting> {
        Ok(cx.next_with(Parcel { order: 1 }).delay(Duration::from_secs(1)).into())
    }
}

#[durable_fsm(signals(Hidden, Stock))]
enum Private {
    #[state(finishes)]
    Only { order: i64 },
}

struct PrivateStepsOfOurs;

impl PrivateSteps for PrivateStepsOfOurs {
    async fn only(&self, s: Only, cx: &mut Context<Only>) -> StepResult<Only> {
        Ok(if s.order == 0 { cx.stop("nothing ordered") } else { cx.done(()) })
    }
}

/// What a mail needs.
#[derive(Debug, Serialize, Deserialize)]
pub struct SendMail {
    /// Whom to write to.
    pub to: String,
}

/// Sends mails.
#[derive(Debug, Clone, Copy)]
pub struct Mailer;

/// Sends one mail.
///
/// # Errors
///
/// When there is nobody to write to.
#[durable_job(queue = "mail", timeout = "10s", backoff = "1s", max_backoff = "1m", resources(Mailer))]
pub async fn send_mail(mail: SendMail, cx: &mut Context<SendMail>) -> JobResult<usize> {
    let Mailer = cx.resource::<Mailer>();
    std::future::ready(()).await;
    if mail.to.is_empty() {
        return Err(JobError::cancel("nobody to write to"));
    }
    Ok(mail.to.len())
}

#[test]
fn generated_code_causes_no_finding() {
    assert_eq!(Checkout::machine(Steps).version(), 2);
    assert_eq!(Private::machine(PrivateStepsOfOurs).name(), "private");
    assert_eq!(Checkout::machine(Steps).signals(), ["payment_confirmed", "stock"]);
    assert_eq!(Private::machine(PrivateStepsOfOurs).signals(), ["hidden", "stock"]);
    assert_eq!(SendMail::job().queue(), "mail");
}
