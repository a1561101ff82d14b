//! What a step is given: where it stands, and the outcomes it may return.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use crate::error::StepError;
use crate::id::InstanceId;
use crate::machine::{Fault, Finishes, Follows, Machine, State, Uses};
use crate::outcome::{Next, Outcome, StepResult, Transition};
use crate::store::Claimed;

/// The resources of an engine, by type.
pub(crate) type Resources = HashMap<TypeId, Arc<dyn Any + Send + Sync>>;

/// What every step of one engine shares.
#[derive(Default)]
pub(crate) struct StepScope {
    pub(crate) resources: Resources,
    pub(crate) payload_limit: usize,
}

/// One start of a step: the claimed row, and what the engine lends it. Handed through by generated code.
#[derive(Clone)]
pub struct Call {
    pub(crate) row: Arc<Claimed>,
    pub(crate) scope: Arc<StepScope>,
}

impl Call {
    /// Decodes the state and makes its context.
    ///
    /// # Errors
    ///
    /// [`Fault::Undecodable`] when the stored text is not an `S`.
    pub fn begin<S: State>(self) -> Result<(S, Context<S>), Fault> {
        let state = (S::STORED.read)(&self.row.state).map_err(|error| {
            Fault::Undecodable(format!(
                "the stored state of step `{}` is not a `{}`: {error}",
                self.row.step,
                std::any::type_name::<S>()
            ))
        })?;
        Ok((state, Context { call: self, state: PhantomData }))
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("row", &self.row).finish_non_exhaustive()
    }
}

/// The context of a step of state `S`: what it may know, and the outcomes it may return.
///
/// ```
/// # use std::time::Duration;
/// use gen_durable::prelude::*;
///
/// #[durable_fsm(output = u32)]
/// enum Countdown {
///     #[state(next(Count), finishes)]
///     Count { left: u32 },
/// }
///
/// struct Steps;
///
/// impl CountdownSteps for Steps {
///     async fn count(&self, s: Count, cx: &mut Context<Count>) -> StepResult<Count> {
///         if s.left == 0 {
///             return Ok(cx.done(cx.attempt()));
///         }
///         Ok(cx.next_with(Count { left: s.left - 1 }).delay(Duration::from_secs(1)).into())
///     }
/// }
/// ```
pub struct Context<S> {
    call: Call,
    state: PhantomData<fn() -> S>,
}

impl<S> fmt::Debug for Context<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("row", &self.call.row).finish_non_exhaustive()
    }
}

impl<S> Context<S> {
    /// The context of one start.
    pub(crate) fn of(call: Call) -> Self {
        Self { call, state: PhantomData }
    }

    pub(crate) fn call(&self) -> &Call {
        &self.call
    }
}

impl<S: State> Context<S> {
    /// Identifies the instance, the same in every step and every start.
    #[must_use]
    pub fn id(&self) -> InstanceId {
        self.call.row.id
    }

    /// How many times this state's step was started before this start: 0 at first, and again after each `next`.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.call.row.attempt
    }

    /// How many of those starts ended with the process.
    #[must_use]
    pub fn crashes(&self) -> u32 {
        self.call.row.crashes
    }

    /// The queue on which the instance runs.
    #[must_use]
    pub fn queue(&self) -> &str {
        &self.call.row.queue
    }

    /// The W3C `traceparent` that was given when the instance was inserted.
    #[must_use]
    pub fn trace_context(&self) -> Option<&str> {
        self.call.row.trace_context.as_deref()
    }

    /// The resource `R` that the engine was built with.
    #[must_use]
    pub fn resource<R: Send + Sync + 'static>(&self) -> &R
    where
        S: Uses<R>,
    {
        // The engine refuses to start when a declared resource is missing, and `Uses` admits only declared ones.
        self.call
            .scope
            .resources
            .get(&TypeId::of::<R>())
            .and_then(|resource| resource.downcast_ref())
            .expect("the engine checked at start that it has every declared resource")
    }

    /// Goes to another state; its step runs after this outcome is committed.
    pub fn next<T: Follows<S>>(&self, to: T) -> Outcome<S> {
        self.next_with(to).into()
    }

    /// Goes to another state, with options: `Ok(cx.next_with(state).delay(duration).into())`.
    #[expect(clippy::needless_pass_by_value, reason = "a state is handed over, as with `next`")]
    pub fn next_with<T: Follows<S>>(&self, to: T) -> Next<S> {
        Next::to(&to, self.call.scope.payload_limit)
    }

    /// Runs this step again after a delay, with the given state; does not count against the retry policy.
    ///
    /// The delay is rounded up to microseconds, and at most 100 years.
    #[expect(clippy::needless_pass_by_value, reason = "a state is handed over, as with `next`")]
    pub fn retry(&self, state: S, after: Duration) -> Outcome<S> {
        Outcome::retry(&state, after, self.call.scope.payload_limit)
    }

    /// Finishes the machine with its output.
    #[expect(clippy::needless_pass_by_value, reason = "the output is handed over, as with `next`")]
    pub fn done(&self, output: <S::Machine as Machine>::Output) -> Outcome<S>
    where
        S: Finishes,
    {
        Outcome::done(&output, self.call.scope.payload_limit)
    }

    /// Fails the instance for good. The reason is stored, cut at 8 KiB.
    pub fn stop(&self, reason: impl fmt::Display) -> Outcome<S> {
        Outcome::stop(reason.to_string())
    }

    /// Turns what the step returned into what is committed; called by generated code.
    #[doc(hidden)]
    pub fn finish(&self, result: StepResult<S>) -> Result<Transition, Fault> {
        result.and_then(Outcome::into_transition).map_err(Fault::Error)
    }

    /// Turns what a job returned into what is committed; called by generated code.
    #[doc(hidden)]
    pub fn finish_job(
        &self,
        result: crate::job::JobResult<<S::Machine as Machine>::Output>,
    ) -> Result<Transition, Fault>
    where
        S: Finishes,
    {
        self.finish(result.map(|output| self.done(output)).map_err(StepError::from))
    }
}
