//! What a step returns, typed.

use std::marker::PhantomData;
use std::time::Duration;

use serde::Serialize;

use crate::error::{Error, StepError};
use crate::machine::State;
use crate::signal::{Signal, SignalFor};
use crate::transition::{Child, Committed, Transition};

/// What a step of state `S` returns: an outcome, or an error for the state's error method.
pub type StepResult<S> = Result<Outcome<S>, StepError>;

/// How a step of state `S` ended. Made by the methods of [`Context`](crate::Context).
#[derive(Debug)]
#[must_use = "an outcome takes effect only when the step returns it"]
pub struct Outcome<S> {
    transition: Result<Transition, StepError>,
    state: PhantomData<fn() -> S>,
}

/// A `next` with options; turn it into an [`Outcome`] with `.into()`.
#[derive(Debug)]
#[must_use = "an outcome takes effect only when the step returns it; end with `.into()`"]
pub struct Next<S> {
    transition: Result<Transition, StepError>,
    state: PhantomData<fn() -> S>,
}

impl<S> Next<S> {
    pub(crate) fn to<T: State>(state: &T, payload_limit: usize) -> Self {
        let transition = encode(state, payload_limit)
            .map(|state| Transition::Next { step: T::STEP, state, delay: Duration::ZERO, inline: None })
            .map_err(unstorable);
        Self { transition, state: PhantomData }
    }

    /// Runs the next step no earlier than `delay` after this outcome, by the database's clock.
    ///
    /// Rounded up to microseconds. Delays over 100 years are taken as 100 years.
    pub fn delay(mut self, delay: Duration) -> Self {
        if let Ok(Transition::Next { delay: stored, .. }) = &mut self.transition {
            *stored = delay;
        }
        self
    }

    /// Whether the next step may run ahead: right after the commit, on the claim already held, without going
    /// through the queue. Overrides what the state that follows says.
    pub fn inline(mut self, inline: bool) -> Self {
        if let Ok(Transition::Next { inline: stored, .. }) = &mut self.transition {
            *stored = Some(inline);
        }
        self
    }
}

/// A wait for signals with options; turn it into an [`Outcome`] with `.into()`.
#[derive(Debug)]
#[must_use = "an outcome takes effect only when the step returns it; end with `.into()`"]
pub struct Wait<S> {
    transition: Result<Transition, StepError>,
    state: PhantomData<fn() -> S>,
}

impl<S: State> Wait<S> {
    /// A wait for `P`, whose step has seen its signals up to `seen`.
    pub(crate) fn of<T: State, P: Signal>(state: &T, seen: i64, payload_limit: usize) -> Self {
        let transition = encode(state, payload_limit).map(|state| Transition::Wait {
            step: T::STEP,
            state,
            signals: vec![P::NAME],
            timeout: None,
            seen,
        });
        Self { transition: transition.map_err(unstorable), state: PhantomData }
    }

    /// Waits for a `P`, too: whichever comes first ends the wait.
    pub fn or<P: SignalFor<S::Machine>>(mut self) -> Self {
        if let Ok(Transition::Wait { signals, .. }) = &mut self.transition
            && !signals.contains(&P::NAME)
        {
            signals.push(P::NAME);
        }
        self
    }

    /// Waits no longer than this from the commit of this outcome, by the database's clock: then the step runs in any
    /// case, and [`Context::timed_out`](crate::Context::timed_out) tells it. Without a timeout, waits for as long as it
    /// takes.
    ///
    /// Rounded up to microseconds. Timeouts over 100 years are taken as 100 years.
    pub fn timeout(mut self, after: Duration) -> Self {
        if let Ok(Transition::Wait { timeout, .. }) = &mut self.transition {
            *timeout = Some(after);
        }
        self
    }
}

impl<S> From<Wait<S>> for Outcome<S> {
    fn from(wait: Wait<S>) -> Self {
        Self { transition: wait.transition, state: PhantomData }
    }
}

/// A failure with options; turn it into an [`Outcome`] with `.into()`.
#[derive(Debug)]
#[must_use = "an outcome takes effect only when the step returns it; end with `.into()`"]
pub struct Stop<S> {
    transition: Transition,
    state: PhantomData<fn() -> S>,
}

impl<S> Stop<S> {
    pub(crate) fn of(reason: String) -> Self {
        Self { transition: Transition::stop(reason), state: PhantomData }
    }

    /// Cancels the children of this instance that have not ended, and theirs.
    pub fn with_children(mut self) -> Self {
        if let Transition::Stop { cascade, .. } = &mut self.transition {
            *cascade = true;
        }
        self
    }
}

impl<S> From<Stop<S>> for Outcome<S> {
    fn from(stop: Stop<S>) -> Self {
        Self { transition: Ok(stop.transition), state: PhantomData }
    }
}

impl<S> From<Next<S>> for Outcome<S> {
    fn from(next: Next<S>) -> Self {
        Self { transition: next.transition, state: PhantomData }
    }
}

impl<S: State> Outcome<S> {
    pub(crate) fn retry(state: &S, after: Duration, payload_limit: usize) -> Self {
        let transition = encode(state, payload_limit)
            .map(|state| Transition::Retry { state: Some(state), after, error: None, counted: false })
            .map_err(unstorable);
        Self { transition, state: PhantomData }
    }

    pub(crate) fn done(output: &impl Serialize, payload_limit: usize) -> Self {
        let transition =
            encode_value(output, payload_limit).map(|output| Transition::Done { output }).map_err(unstorable);
        Self { transition, state: PhantomData }
    }

    pub(crate) fn fan_out<T: State>(
        state: &T,
        children: Result<Vec<Child>, Error>,
        payload_limit: usize,
    ) -> Self {
        let transition = encode(state, payload_limit)
            .and_then(|state| Ok(Transition::FanOut { step: T::STEP, state, children: children? }))
            .map_err(unstorable);
        Self { transition, state: PhantomData }
    }

    pub(crate) fn of(transition: Transition) -> Self {
        Self { transition: Ok(transition), state: PhantomData }
    }

    pub(crate) fn committed(committed: Committed) -> Self {
        Self { transition: Ok(Transition::Committed(committed)), state: PhantomData }
    }

    pub(crate) fn into_transition(self) -> Result<Transition, StepError> {
        self.transition
    }
}

/// Turns a state into the JSON text that the store keeps, or says why it cannot be kept.
pub(crate) fn encode<S: State>(state: &S, payload_limit: usize) -> Result<String, Error> {
    storable_json::<S>((S::STORED.write)(state), payload_limit)
}

/// Turns a value into the JSON text that the store keeps, or says why it cannot be kept.
pub(crate) fn encode_value<T: Serialize>(value: &T, payload_limit: usize) -> Result<String, Error> {
    storable_json::<T>(serde_json::to_string(value), payload_limit)
}

/// The JSON text of a `T`, unless the store cannot keep it.
pub(crate) fn storable_json<T>(
    text: serde_json::Result<String>,
    payload_limit: usize,
) -> Result<String, Error> {
    let refuse = |problem: String| Error::Unstorable { type_name: std::any::type_name::<T>(), problem };
    let text = text.map_err(|error| refuse(error.to_string()))?;
    if text.len() > payload_limit {
        let size = text.len();
        return Err(refuse(format!(
            "it takes {size} bytes of JSON, over the `payload_limit` of {payload_limit}; keep large data elsewhere and store a reference"
        )));
    }
    if has_nul(&text) {
        return Err(refuse("it holds a NUL character (\\u0000), which databases do not keep in text".into()));
    }
    Ok(text)
}

fn unstorable(error: Error) -> StepError {
    StepError::Unstorable { problem: error.to_string() }
}

/// Whether JSON text holds an escaped NUL: `\u0000` whose backslash is not itself escaped.
fn has_nul(json: &str) -> bool {
    json.match_indices("\\u0000").any(|(at, _)| {
        let backslashes = json.as_bytes()[..at].iter().rev().take_while(|byte| **byte == b'\\').count();
        backslashes % 2 == 0
    })
}

/// Most bytes of a reason or an error that are stored.
pub(crate) const REASON_LIMIT: usize = 8 * 1024;

/// A reason or an error as it can be stored: NUL made visible, cut at 8 KiB.
pub(crate) fn storable_text(mut text: String) -> String {
    if text.contains('\0') {
        text = text.replace('\0', "\u{2400}");
    }
    if text.len() > REASON_LIMIT {
        const MARK: &str = " [cut]";
        text.truncate(text.floor_char_boundary(REASON_LIMIT - MARK.len()));
        text.push_str(MARK);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    const LIMIT: usize = 1024;

    #[test]
    fn nul_is_refused_and_its_lookalikes_are_kept() {
        assert!(encode_value(&"a\0b", LIMIT).is_err());
        assert!(encode_value(&"\\\0", LIMIT).is_err());
        assert_eq!(encode_value(&"\\u0000", LIMIT).expect("an escaped backslash"), r#""\\u0000""#);
    }

    #[test]
    fn a_value_that_json_cannot_hold_is_refused_with_its_type() {
        let error = encode_value(&HashMap::from([((1, 2), 3)]), LIMIT).expect_err("keys must be strings");
        assert!(error.to_string().contains("HashMap"), "{error}");
    }

    #[test]
    fn a_value_over_the_limit_is_refused_with_both_sizes() {
        let error = encode_value(&"x".repeat(LIMIT), LIMIT).expect_err("too large");
        assert!(error.to_string().contains("1026") && error.to_string().contains("1024"), "{error}");
    }

    #[test]
    fn reasons_are_cut_between_characters_at_eight_kibibytes() {
        let text = storable_text("é".repeat(REASON_LIMIT));
        assert!(text.len() <= REASON_LIMIT && text.ends_with("[cut]"));
        assert_eq!(storable_text("a\0b".into()), "a\u{2400}b");
    }

    #[test]
    fn large_integers_keep_every_digit() {
        let text = encode_value(&(u64::MAX, i64::MIN, u128::MAX), LIMIT).expect("integers");
        let back: (u64, i64, u128) = serde_json::from_str(&text).expect("the same integers");
        assert_eq!(back, (u64::MAX, i64::MIN, u128::MAX));
    }
}
