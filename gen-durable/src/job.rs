//! Jobs: machines of one state, written as a function.

use std::fmt;
use std::time::Duration;

use crate::context::{Call, Context};
use crate::error::{BoxError, StepError};
use crate::machine::{
    Fault, Initial, Machine, MachineEntry, Resource, State, StateCode, StateEntry, StepFuture, entry,
};
use crate::retry::RetryPolicy;
use crate::transition::Transition;

/// What a `#[durable_job]` function returns.
pub type JobResult<T> = Result<T, JobError>;

/// Why a job did not succeed. Every error type converts into it, so `?` works on any error inside a job.
pub struct JobError(StepError);

impl JobError {
    /// Gives the job up at once, without a retry.
    pub fn cancel(reason: impl Into<BoxError>) -> Self {
        Self(StepError::fatal(reason))
    }
}

impl<E: Into<BoxError>> From<E> for JobError {
    fn from(error: E) -> Self {
        Self(StepError::from(error))
    }
}

impl From<JobError> for StepError {
    fn from(error: JobError) -> Self {
        error.0
    }
}

impl fmt::Debug for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The argument of a `#[durable_job]` function, which is the job's only state.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the argument of a job",
    note = "write `#[durable_job] async fn name(argument: {Self}, cx: &mut Context<{Self}>) -> JobResult<()>`"
)]
pub trait Job: Machine + Initial {
    /// The job, ready to be given to [`EngineBuilder::jobs`](crate::EngineBuilder::jobs).
    fn job() -> MachineEntry;
}

/// What a `#[durable_job]` function may return: a `Result` whose error converts into [`JobError`].
#[diagnostic::on_unimplemented(
    message = "a job cannot return `{Self}`",
    label = "not a result of a job",
    note = "return `JobResult<()>`, or `JobResult<T>` with an output of type `T`"
)]
pub trait JobReturn {
    /// What the job yields.
    type Output;
    /// The result with its error as a job's error.
    fn into_job_result(self) -> JobResult<Self::Output>;
}

impl<T, E: Into<JobError>> JobReturn for Result<T, E> {
    type Output = T;

    fn into_job_result(self) -> JobResult<T> {
        self.map_err(Into::into)
    }
}

/// Runs a job; called by generated code.
pub fn run_job<'a, S: State, F>(
    call: Call,
    job: impl FnOnce(S, Context<S>) -> F + Send + 'a,
) -> StepFuture<'a>
where
    F: Future<Output = Result<Transition, Fault>> + Send + 'a,
{
    Box::pin(async move {
        let (state, cx) = call.begin()?;
        job(state, cx).await
    })
}

/// Makes the entry of the job with the argument `S`; called by generated code.
#[must_use]
pub fn job_entry<S: State<Machine = S> + Machine>(
    run: for<'a> fn(&'a (), Call) -> StepFuture<'a>,
    timeout: Option<Duration>,
    retry: RetryPolicy,
    resources: &'static [Resource],
) -> MachineEntry {
    let state = StateEntry { step: S::STEP, aliases: &[], timeout, retry: Some(retry), inline: false };
    let code = StateCode { run, recover: |(), error, _| Box::pin(async { Err(Fault::Error(error)) }) };
    entry::<S, (), 1>((), [state], [code], resources, &[])
}
