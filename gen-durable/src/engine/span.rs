//! The span of a step. Whoever listens to `tracing` is foreign code: if that panics, a step goes on without its span.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;

use tracing::Span;

use super::executor::message;

/// A span that may be missing, and that nothing panics at.
struct Quiet(Option<Span>);

impl Drop for Quiet {
    fn drop(&mut self) {
        let span = self.0.take();
        quietly(|| drop(span));
    }
}

/// Runs a step in the span that `make` makes.
///
/// The subscriber is called in the step's own task, so one that blocks holds up the steps that it looks at.
pub(super) async fn in_span<T>(make: impl FnOnce() -> Span, step: impl Future<Output = T>) -> T {
    let span = Quiet(quietly(make));
    let mut step = pin!(step);
    poll_fn(|cx| {
        let entered = span.0.as_ref().and_then(|span| quietly(|| span.enter()));
        // Caught here, because leaving the span while a panic unwinds may end the process.
        let polled = catch_unwind(AssertUnwindSafe(|| step.as_mut().poll(cx)));
        quietly(|| drop(entered));
        polled.unwrap_or_else(|panic| resume_unwind(panic))
    })
    .await
}

/// Calls foreign code; `None` if it panics.
fn quietly<T>(call: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(value) => Some(value),
        Err(panic) => {
            drop(message(panic));
            None
        }
    }
}
