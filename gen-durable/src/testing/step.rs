//! One step alone.

use std::any::{Any, TypeId};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use crate::context::{Call, Context, StepScope};
use crate::error::StepError;
use crate::id::{InstanceId, MachineId};
use crate::machine::{Machine, State};
use crate::outcome::{StepResult, Transition};
use crate::store::Claimed;

/// A context for running one step alone: `steps.ship(Ship { order: 42 }, &mut testing::context()).await`.
#[must_use]
pub fn context<S: State>() -> TestContext<S> {
    let row = Claimed {
        id: InstanceId::generate(),
        machine: MachineId(0),
        step: S::STEP.to_owned(),
        state: "null".to_owned(),
        queue: S::Machine::QUEUE.into(),
        claim: 1,
        revision: 0,
        attempt: 0,
        failures: 0,
        crashes: 0,
        trace_context: None,
    };
    let scope = StepScope { payload_limit: 1024 * 1024, ..StepScope::default() };
    TestContext {
        context: Context::of(Call { row: Arc::new(row), scope: Arc::new(scope) }),
        state: PhantomData,
    }
}

/// A [`Context`] that a test made; `&mut` of it is a `&mut Context<S>`.
#[derive(Debug)]
pub struct TestContext<S> {
    context: Context<S>,
    state: PhantomData<S>,
}

impl<S: State> TestContext<S> {
    /// Lets the step have been started that many times before.
    #[must_use]
    pub fn with_attempt(self, attempt: u32) -> Self {
        self.change(|row| (row.attempt, row.failures) = (attempt, attempt))
    }

    /// Lets that many of the starts before have ended with the process.
    #[must_use]
    pub fn with_crashes(self, crashes: u32) -> Self {
        self.change(|row| row.crashes = crashes)
    }

    /// Gives the context another id than a random one.
    #[must_use]
    pub fn with_id(self, id: InstanceId) -> Self {
        self.change(|row| row.id = id)
    }

    /// Holds a value for `cx.resource()`.
    #[must_use]
    pub fn with_resource<T: Any + Send + Sync>(mut self, resource: T) -> Self {
        let scope = &self.context.call().scope;
        let mut resources = scope.resources.clone();
        resources.insert(TypeId::of::<T>(), Arc::new(resource));
        let scope = StepScope { resources, payload_limit: scope.payload_limit };
        self.context = Context::of(Call { scope: Arc::new(scope), ..self.context.call().clone() });
        self
    }

    fn change(mut self, change: impl FnOnce(&mut Claimed)) -> Self {
        let mut row = (*self.context.call().row).clone();
        change(&mut row);
        self.context = Context::of(Call { row: Arc::new(row), ..self.context.call().clone() });
        self
    }
}

impl<S> Deref for TestContext<S> {
    type Target = Context<S>;

    fn deref(&self) -> &Context<S> {
        &self.context
    }
}

impl<S> DerefMut for TestContext<S> {
    fn deref_mut(&mut self) -> &mut Context<S> {
        &mut self.context
    }
}

/// What a step decided.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Decided<M: Machine> {
    /// Go to another state, after a delay.
    Next {
        /// The state.
        state: M,
        /// Zero is at once.
        delay: Duration,
    },
    /// Run again, after a rest.
    Retry {
        /// The state to run with.
        state: M,
        /// Zero is at once.
        after: Duration,
    },
    /// Finished with this output.
    Done(M::Output),
    /// Failed for this reason.
    Stop(String),
}

/// What a step that was run alone decided: `decided(steps.ship(state, &mut cx).await)?`.
///
/// # Errors
///
/// The step's own error, or an outcome that cannot be stored or read back.
pub fn decided<S: State>(result: StepResult<S>) -> Result<Decided<S::Machine>, StepError> {
    let back = |step: &str, state: &str| <S::Machine as Machine>::decode(step, state);
    let decided = match result?.into_transition()? {
        Transition::Next { step, state, delay, .. } => Decided::Next { state: back(step, &state)?, delay },
        Transition::Retry { state, after, .. } => {
            Decided::Retry { state: back(S::STEP, state.as_deref().unwrap_or("null"))?, after }
        }
        Transition::Done { output } => Decided::Done(serde_json::from_str(&output)?),
        Transition::Stop { reason } => Decided::Stop(reason),
    };
    Ok(decided)
}
