//! One step alone.

use std::any::{Any, TypeId};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use crate::children::ChildEnd;
use crate::context::{Call, Context, StepScope};
use crate::error::StepError;
use crate::id::{InstanceId, MachineId, WorkerId};
use crate::machine::{Machine, State};
use crate::outcome::{Outcome, StepResult};
use crate::signal::SignalFor;
use crate::store::{ChildRecord, Claimed, Letter, Mail, Status};
use crate::transition::Transition;

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
        is_child: false,
        round: None,
        mail: None,
    };
    let scope = StepScope { payload_limit: 1024 * 1024, ..StepScope::default() };
    TestContext {
        context: Context::of(Call {
            row: Arc::new(row),
            scope: Arc::new(scope),
            worker: WorkerId(0),
            patience: None,
        }),
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
    pub fn with_resource<T: Any + Send + Sync>(self, resource: T) -> Self {
        self.change_scope(|scope| drop(scope.resources.insert(TypeId::of::<T>(), Arc::new(resource))))
    }

    /// Lets the step have waited for signals `P`, and this one have come. Several are handed over in the order given.
    ///
    /// # Panics
    ///
    /// When the signal cannot be stored.
    #[must_use]
    pub fn with_awaited<P: SignalFor<S::Machine>>(self, signal: &P) -> Self {
        let payload =
            (P::STORED.write)(signal).unwrap_or_else(|error| panic!("a signal cannot be stored: {error}"));
        self.change_mail(|mail| {
            mail.latest += 1;
            mail.seen = mail.latest;
            mail.awaits.push(P::NAME.to_owned());
            mail.inbox.push(Letter { seq: mail.latest, name: P::NAME.to_owned(), payload });
        })
    }

    /// Lets the wait before the step have timed out.
    #[must_use]
    pub fn with_timeout(self) -> Self {
        self.change_mail(|mail| mail.timed_out = true)
    }

    /// Lets a child of machine `M` have ended that the latest fan-out inserted.
    ///
    /// # Panics
    ///
    /// When its output cannot be stored.
    #[must_use]
    pub fn with_child<M: Machine>(self, end: ChildEnd<M::Output>) -> Self {
        let (status, output, error) = match end {
            ChildEnd::Done(output) => (Status::Done, Some(output), None),
            ChildEnd::Failed(reason) => (Status::Failed, None, Some(reason)),
            ChildEnd::Cancelled => (Status::Cancelled, None, None),
        };
        let output = output.map(|output| {
            serde_json::to_string(&output)
                .unwrap_or_else(|error| panic!("an output cannot be stored: {error}"))
        });
        let child = ChildRecord { id: InstanceId::generate(), version: M::VERSION, status, output, error };
        self.change_scope(|scope| scope.given_children.push((M::NAME.to_owned(), child)))
    }

    fn change_mail(self, change: impl FnOnce(&mut Mail)) -> Self {
        self.change(|row| {
            let mut mail = row.mail.as_deref().cloned().unwrap_or_default();
            change(&mut mail);
            row.mail = Some(Arc::new(mail));
        })
    }

    fn change_scope(mut self, change: impl FnOnce(&mut StepScope)) -> Self {
        let before = &self.context.call().scope;
        let mut scope = StepScope {
            resources: before.resources.clone(),
            payload_limit: before.payload_limit,
            store: None,
            given_children: before.given_children.clone(),
            done_policy: before.done_policy,
        };
        change(&mut scope);
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
    /// Wait for one of these signals, then go to another state.
    Wait {
        /// The state.
        state: M,
        /// Names of the signals.
        signals: Vec<&'static str>,
        /// After which time in any case.
        timeout: Option<Duration>,
    },
    /// Insert children, wait for their ends, then go to another state.
    FanOut {
        /// The state.
        state: M,
        /// Machine, step and state, as JSON text, of each child.
        children: Vec<(&'static str, &'static str, String)>,
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
        Transition::Wait { step, state, signals, timeout, .. } => {
            Decided::Wait { state: back(step, &state)?, signals, timeout }
        }
        Transition::FanOut { step, state, children } => {
            let child =
                |child: crate::transition::Child| (child.machine, child.instance.step, child.instance.state);
            Decided::FanOut {
                state: back(step, &state)?,
                children: children.into_iter().map(child).collect(),
            }
        }
        Transition::Stop { reason, .. } => Decided::Stop(reason),
        Transition::Committed(committed) => return decided::<S>(Ok(Outcome::of(*committed.transition))),
        Transition::Cancel => return Err(StepError::from("a step cannot cancel its instance")),
    };
    Ok(decided)
}
