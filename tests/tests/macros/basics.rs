//! A machine and a job, as most users write them.

use std::time::Duration;

use gen_durable::prelude::*;
use gen_durable::{Finishes, Follows, Initial, State};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Receipt {
    order: i64,
}

/// One order, from cart to doorstep.
#[durable_fsm(version = 2, queue = "checkout", output = Receipt, retry(max_attempts = 5, backoff = "2s"))]
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Checkout {
    /// Reserve the stock.
    #[state(next(Ship, Review), timeout = "30s")]
    Start { order: i64 },
    #[state(next(Ship))]
    Review,
    #[state(finishes, rename = "deliver", alias = "ship", retry(max_attempts = 3, backoff = slowly))]
    Ship(Parcel),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Parcel {
    order: i64,
}

fn slowly(failures: u32) -> Duration {
    Duration::from_secs(60 * u64::from(failures))
}

struct Steps {
    large: i64,
}

impl CheckoutSteps for Steps {
    async fn start(&self, s: Start, cx: &mut Context<Start>) -> StepResult<Start> {
        if s.order > self.large {
            return Ok(cx.next(Review));
        }
        Ok(cx.next_with(Parcel { order: s.order }).delay(Duration::from_secs(1)).into())
    }

    async fn review(&self, _: Review, cx: &mut Context<Review>) -> StepResult<Review> {
        "12".parse::<i64>()?;
        Ok(cx.stop("too large"))
    }

    async fn ship(&self, s: Parcel, cx: &mut Context<Parcel>) -> StepResult<Parcel> {
        Ok(cx.done(Receipt { order: s.order }))
    }

    async fn on_ship_error(
        &self,
        s: Parcel,
        error: StepError,
        cx: &mut Context<Parcel>,
    ) -> StepResult<Parcel> {
        if error.is_fatal() { Err(error) } else { Ok(cx.retry(s, Duration::from_secs(3))) }
    }
}

#[test]
fn names_and_entry_say_what_the_attribute_says() {
    assert_eq!((Checkout::NAME, Checkout::VERSION, Checkout::QUEUE), ("checkout", 2, "checkout"));
    assert_eq!((Start::STEP, Review::STEP, Parcel::STEP), ("start", "review", "deliver"));
    let entry = Checkout::machine(Steps { large: 10 });
    assert_eq!((entry.name(), entry.version(), entry.queue()), ("checkout", 2, "checkout"));
}

#[test]
fn stored_states_decode_by_step_and_alias() {
    assert_eq!(Checkout::decode("start", r#"{"order":1}"#), Ok(Checkout::Start { order: 1 }));
    assert_eq!(Checkout::decode("review", "null"), Ok(Checkout::Review));
    assert_eq!(Checkout::decode("deliver", r#"{"order":2}"#), Ok(Checkout::Ship(Parcel { order: 2 })));
    assert_eq!(Checkout::decode("ship", r#"{"order":2}"#), Ok(Checkout::Ship(Parcel { order: 2 })));
    let error = Checkout::decode("shop", "{}").expect_err("no such step");
    assert_eq!(error, "machine `checkout` version 2 has no step `shop`");
    let error = Checkout::decode("start", "{}").expect_err("no order");
    assert!(error.contains("step `start`") && error.contains("missing field `order`"), "{error}");
}

#[test]
fn states_convert_to_the_enum_and_back() {
    assert_eq!(Checkout::from(Review), Checkout::Review);
    assert_eq!(Start::try_from(Checkout::from(Start { order: 3 })), Ok(Start { order: 3 }));
    assert_eq!(Parcel::try_from(Checkout::Ship(Parcel { order: 4 })), Ok(Parcel { order: 4 }));
    assert_eq!(Start::try_from(Checkout::Review), Err(Checkout::Review));
}

#[test]
fn the_rules_are_those_of_the_attributes() {
    fn initial<S: Initial>() {}
    fn finishes<S: Finishes>() {}
    fn follows<A: State, B: Follows<A>>() {}
    initial::<Start>();
    finishes::<Parcel>();
    follows::<Start, Parcel>();
    follows::<Start, Review>();
    follows::<Review, Parcel>();
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SendMail {
    to: String,
}

pub(crate) struct Mailer;

#[durable_job(
    queue = "mail",
    max_attempts = 3,
    backoff = "1s",
    max_backoff = "1m",
    timeout = "10s",
    resources(Mailer)
)]
async fn send_mail(mail: SendMail, cx: &mut Context<SendMail>) -> JobResult<u32> {
    let _: &Mailer = cx.resource();
    if mail.to.is_empty() {
        return Err(JobError::cancel("nobody to write to"));
    }
    Ok("1".parse()?)
}

#[derive(Serialize, Deserialize)]
struct Sweep;

#[durable_job]
async fn sweep(_: Sweep) -> Result<(), std::io::Error> {
    Ok(())
}

#[test]
fn a_job_is_a_machine_of_one_state() {
    assert_eq!((SendMail::NAME, SendMail::STEP, SendMail::QUEUE), ("send_mail", "send_mail", "mail"));
    assert_eq!((Sweep::NAME, Sweep::VERSION, Sweep::QUEUE), ("sweep", 1, "default"));
    assert_eq!(SendMail::decode("send_mail", r#"{"to":"a"}"#), Ok(SendMail { to: "a".into() }));
    assert_eq!(SendMail::job().name(), "send_mail");
    let _: <SendMail as Machine>::Output = 1_u32;
}
