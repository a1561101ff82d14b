//! What a step is given: where it stands, and the outcomes it may return.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::children::{Children, IntoChild};
use crate::error::StepError;
use crate::id::{InstanceId, WorkerId};
use crate::machine::{Fault, Finishes, Follows, Machine, State, Uses};
use crate::outcome::{Next, Outcome, StepResult, Stop, Wait};
use crate::signal::{Received, Signal, SignalFor};
use crate::store::{ChildRecord, Claimed, DonePolicy, Parent, Store};
use crate::transaction::{Backend, Patience, StepTransaction};
use crate::transition::Transition;

/// The resources of an engine, by type.
pub(crate) type Resources = HashMap<TypeId, Arc<dyn Any + Send + Sync>>;

/// What every step of one engine shares.
#[derive(Default)]
pub(crate) struct StepScope {
    pub(crate) resources: Resources,
    pub(crate) payload_limit: usize,
    /// Where children are read; without one, a test says what they are.
    pub(crate) store: Option<Arc<dyn Store>>,
    pub(crate) given_children: Vec<(String, ChildRecord)>,
    pub(crate) done_policy: DonePolicy,
}

/// One start of a step: the claimed row, and what the engine lends it. Handed through by generated code.
#[derive(Clone)]
pub struct Call {
    pub(crate) row: Arc<Claimed>,
    pub(crate) scope: Arc<StepScope>,
    /// Who has claimed the row.
    pub(crate) worker: WorkerId,
    /// For how long the step may keep a transaction, if that is bounded.
    pub(crate) patience: Option<Arc<Patience>>,
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

/// A transaction on its way. A type with a name: an opaque one repeats the error of a `DB` that is none.
type Begun<'c, DB> = Pin<Box<dyn Future<Output = Result<StepTransaction<'c, DB>, StepError>> + Send + 'c>>;

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

    /// Waits for a signal `P`, then goes to another state: `Ok(cx.wait_for::<Paid>(state).timeout(day).into())`.
    ///
    /// A `P` that was sent before counts, also one that was sent before the instance began. The wait may name more
    /// signals with [`Wait::or`] and end in any case with [`Wait::timeout`].
    ///
    /// A wait that leads back to this very state is *renewed*: it keeps the signals that this step was handed, and ends
    /// when another one comes. So a step can gather several. Every other wait consumes them, as [`next`](Self::next)
    /// does.
    #[expect(clippy::needless_pass_by_value, reason = "a state is handed over, as with `next`")]
    pub fn wait_for<P: SignalFor<S::Machine>>(&self, to: impl Follows<S>) -> Wait<S> {
        self.wait::<_, P>(&to)
    }

    fn wait<T: Follows<S>, P: Signal>(&self, to: &T) -> Wait<S> {
        let is_renewed = T::STEP == S::STEP;
        let seen = self.call.row.mail.as_ref().filter(|_| is_renewed).map_or(0, |mail| mail.handed());
        Wait::of::<T, P>(to, seen, self.call.scope.payload_limit)
    }

    /// The signals `P` that this step waited for: in the order in which they were sent, those of renewed waits before.
    /// Empty when the wait [timed out](Self::timed_out) before any came.
    ///
    /// They are consumed by the outcome, unless that is [`retry`](Self::retry) or a renewed [wait](Self::wait_for).
    /// At most 1,000 are handed over at once; more are there when these are consumed.
    ///
    /// # Errors
    ///
    /// A fatal error when one of them is not a `P`: a tool sent it, or `P` has changed.
    pub fn awaited<P: SignalFor<S::Machine>>(&self) -> Result<Vec<P>, StepError> {
        let Some(mail) = &self.call.row.mail else { return Ok(Vec::new()) };
        let letters = mail.awaited().filter(|letter| letter.name == P::NAME);
        letters.map(|letter| Received::of(letter, true).read()).collect()
    }

    /// Whether the wait that led here was over before a signal ended it.
    #[must_use]
    pub fn timed_out(&self) -> bool {
        self.call.row.mail.as_ref().is_some_and(|mail| mail.timed_out)
    }

    /// All signals that the instance was sent and has not consumed, in the order in which they were sent; those that
    /// nobody waited for are kept for a later wait. At most 1,000, awaited ones before others.
    pub fn inbox(&self) -> impl Iterator<Item = Received<'_>> {
        let mail = self.call.row.mail.as_deref();
        mail.into_iter().flat_map(|mail| {
            let awaited: Vec<i64> = mail.awaited().map(|letter| letter.seq).collect();
            mail.inbox.iter().map(move |letter| Received::of(letter, awaited.contains(&letter.seq)))
        })
    }

    /// Inserts children, waits until all of them have ended, however they end, and goes to another state, whose step
    /// finds them with [`children`](Self::children). Without any, the step runs at once.
    ///
    /// Children may be of any machines: `[NewChild::of(pack::Start { .. }), NewChild::of(ship::Start { .. })]`. They are
    /// ordinary instances; any number, and children of children, are fine.
    #[expect(clippy::needless_pass_by_value, reason = "a state is handed over, as with `next`")]
    pub fn fan_out(
        &self,
        children: impl IntoIterator<Item = impl IntoChild>,
        to: impl Follows<S>,
    ) -> Outcome<S> {
        let limit = self.call.scope.payload_limit;
        let row = &self.call.row;
        // The fan-out is known by the revision that it makes.
        let parent = Parent { id: row.id, round: row.revision + 1 };
        let children = children.into_iter().map(|child| child.into_child().checked(parent, limit)).collect();
        Outcome::fan_out(&to, children, limit)
    }

    /// The children of machine `M` that the latest [`fan_out`](Self::fan_out) inserted, page by page. They are kept until
    /// this instance goes on: with a `next`, a wait, another fan-out, or its end.
    #[must_use]
    pub fn children<M: Machine>(&self) -> Children<'_, M> {
        Children::of(&self.call)
    }

    /// Begins a transaction for this step's own writes, which [`StepTransaction::finish`] commits together with the
    /// outcome: what the step writes in the engine's database happens exactly once.
    ///
    /// ```no_run
    /// # use gen_durable::prelude::*;
    /// # #[durable_fsm]
    /// # enum Transfer {
    /// #     #[state(finishes)]
    /// #     Move { cents: i64 },
    /// # }
    /// # struct Steps;
    /// # impl TransferSteps for Steps {
    /// async fn r#move(&self, s: Move, cx: &mut Context<Move>) -> StepResult<Move> {
    ///     let mut tx = cx.begin::<sqlx::Postgres>().await?;
    ///     sqlx::query("update accounts set cents = cents - $1").bind(s.cents).execute(&mut *tx).await?;
    ///     tx.finish(cx.done(())).await
    /// }
    /// # }
    /// ```
    ///
    /// On PostgreSQL the connection is one of the pool that the engine was given.
    ///
    /// On SQLite it is the one that writes, and nothing else is written until the transaction ends. So do slow work before
    /// it begins. Meanwhile the step must wait for no other write, such as an insert without `in_tx`, and with a database in
    /// memory for no read either, such as that of [`children`](Self::children): these wait for the step itself. One that
    /// keeps its transaction for over 5 seconds is dropped with [`StepError::TimedOut`], and a statement of its that still
    /// runs is interrupted. Foreign keys are checked, as on other connections of sqlx. To undo a part, run `savepoint part`
    /// and `rollback to part`: the driver's own nested `begin` fails.
    ///
    /// # Errors
    ///
    /// When the database cannot be reached or the pool has no connection in time; a fatal one when the engine runs on
    /// another kind of database than `DB`.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it is ready, nothing has happened.
    pub fn begin<DB: Backend>(&self) -> Begun<'_, DB> {
        Box::pin(StepTransaction::begin(&self.call))
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

    /// Fails the instance for good. The reason is stored, cut at 8 KiB. Children that have not ended go on.
    pub fn stop(&self, reason: impl fmt::Display) -> Outcome<S> {
        self.stop_with(reason).into()
    }

    /// Fails the instance for good, with options: `Ok(cx.stop_with(reason).with_children().into())`.
    pub fn stop_with(&self, reason: impl fmt::Display) -> Stop<S> {
        Stop::of(reason.to_string())
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
