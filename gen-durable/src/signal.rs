//! Signals: what instances wait for, and which machine takes which.

use crate::error::StepError;
use crate::machine::{Machine, Stored};
use crate::store::Letter;

/// Something that instances can wait for: implemented by `#[derive(Signal)]`.
///
/// ```
/// use gen_durable::prelude::*;
///
/// /// The customer's bank says the money is there.
/// #[derive(Signal, Serialize, Deserialize)]
/// struct PaymentConfirmed {
///     cents: i64,
/// }
///
/// assert_eq!(PaymentConfirmed::NAME, "payment_confirmed");
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a signal",
    label = "does not derive `Signal`",
    note = "derive it: `#[derive(Signal, Serialize, Deserialize)]`"
)]
pub trait Signal: Sized + Send + 'static {
    /// Name of the signal in the store.
    const NAME: &'static str;
    /// How the signal becomes text and back.
    #[doc(hidden)]
    const STORED: Stored<Self>;
}

/// A signal that the machine `M` takes: implemented by `#[durable_fsm(signals(..))]` for each that it lists.
#[diagnostic::on_unimplemented(
    message = "the machine `{M}` does not take the signal `{Self}`",
    label = "not a signal of `{M}`",
    note = "if it should be, list it: `#[durable_fsm(signals({Self}))]`; a job takes none"
)]
pub trait SignalFor<M: Machine>: Signal {}

/// A signal in an instance's inbox, as its step sees it.
#[derive(Debug, Clone, Copy)]
pub struct Received<'a> {
    letter: &'a Letter,
    is_awaited: bool,
}

impl<'a> Received<'a> {
    pub(crate) fn of(letter: &'a Letter, is_awaited: bool) -> Self {
        Self { letter, is_awaited }
    }

    /// Name of the signal.
    #[must_use]
    pub fn name(&self) -> &'a str {
        &self.letter.name
    }

    /// The signal as JSON text.
    #[must_use]
    pub fn payload(&self) -> &'a str {
        &self.letter.payload
    }

    /// Whether the step waited for it: then the step's outcome consumes it.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        self.is_awaited
    }

    /// The signal, if it is a `P`; `None` if it has another name.
    ///
    /// # Errors
    ///
    /// A fatal error when it has the name of a `P` and is none: a tool sent it, or `P` has changed.
    pub fn get<P: Signal>(&self) -> Result<Option<P>, StepError> {
        (self.name() == P::NAME).then(|| self.read()).transpose()
    }

    pub(crate) fn read<P: Signal>(&self) -> Result<P, StepError> {
        (P::STORED.read)(self.payload()).map_err(|error| {
            let wanted = std::any::type_name::<P>();
            StepError::fatal(format!("a signal `{}` in the inbox is not a `{wanted}`: {error}", P::NAME))
        })
    }
}

/// Name of a signal that a machine takes; called by generated code.
///
/// The bound is met by the implementation that the macro makes, so that a listed type which is no signal is one
/// error, at that implementation, and not another for each use of its name.
#[must_use]
pub const fn signal_name<M: Machine, S: SignalFor<M>>() -> &'static str {
    S::NAME
}

/// Ends the build with `problem` if two signals of a machine have one name; called by generated code, since a
/// name is known to the compiler but not to the macro.
#[track_caller]
pub const fn distinct_signals(one: &str, other: &str, problem: &str) {
    assert!(!same(one.as_bytes(), other.as_bytes()), "{}", problem);
}

const fn same(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let mut at = 0;
    while at < one.len() {
        if one[at] != other[at] {
            return false;
        }
        at += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prelude::*;

    #[derive(Debug, PartialEq, Signal, Serialize, Deserialize)]
    #[signal(crate = crate)]
    struct PaymentConfirmed {
        cents: i64,
    }

    #[derive(Debug, PartialEq, Signal, Serialize, Deserialize)]
    #[signal(crate = crate, name = "verdict")]
    enum Review {
        Approved,
        Refused(String),
    }

    #[durable_fsm(crate = crate, signals(PaymentConfirmed, Review))]
    enum Order {
        #[state(finishes)]
        Start,
    }

    struct Steps;

    impl OrderSteps for Steps {
        async fn start(&self, _: Start, cx: &mut Context<Start>) -> StepResult<Start> {
            Ok(cx.done(()))
        }
    }

    #[test]
    fn an_entry_names_the_signals_in_the_order_of_the_list() {
        assert_eq!(Order::machine(Steps).signals(), ["payment_confirmed", "verdict"]);
    }

    #[test]
    fn a_signal_becomes_text_and_back() {
        fn roundtrip<S: Signal>(signal: &S) -> (String, S) {
            let text = (S::STORED.write)(signal).expect("serializes");
            let back = (S::STORED.read)(&text).expect("deserializes");
            (text, back)
        }
        let confirmed = PaymentConfirmed { cents: 995 };
        assert_eq!(roundtrip(&confirmed), (r#"{"cents":995}"#.into(), PaymentConfirmed { cents: 995 }));
        assert_eq!(roundtrip(&Review::Approved).1, Review::Approved);
        assert_eq!(roundtrip(&Review::Refused("late".into())).0, r#"{"Refused":"late"}"#);
    }

    #[test]
    fn names_are_compared_as_a_whole() {
        for (one, other) in [("paid", "pai"), ("paid", "said"), ("paid", "pail"), ("", "a")] {
            distinct_signals(one, other, "not the same");
        }
    }

    #[test]
    #[should_panic(expected = "give one of them another name")]
    fn one_name_for_two_ends_with_the_given_problem() {
        distinct_signals("paid", "paid", "give one of them another name");
    }
}
