//! Jobs: machines of one state, written as a function.

use std::fmt;

use crate::error::{BoxError, StepError};
use crate::machine::{Initial, Machine, MachineEntry};

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
