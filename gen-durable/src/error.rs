//! Why a call or a step failed.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use crate::id::InstanceId;
use crate::store::{Status, StoreError};

/// Any error that can cross threads.
pub type BoxError = Box<dyn StdError + Send + Sync + 'static>;

/// Why a call to an engine failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An option of the builder has a value that cannot work.
    #[error("option `{option}`: {problem}")]
    Option {
        /// Name of the builder's method.
        option: &'static str,
        /// What is wrong with the value, and which values work.
        problem: String,
    },
    /// An engine of this name already runs in this process.
    #[error(
        "an engine named `{name}` already runs in this process; give this one another `name` or shut the other down"
    )]
    AlreadyStarted {
        /// Name of the engine.
        name: String,
    },
    /// Two registered machines have the same name and version.
    #[error("machine `{name}` version {version} is registered twice; rename one with `name = \"...\"`")]
    DuplicateMachine {
        /// Name of the machine.
        name: String,
        /// Version of the machine.
        version: u32,
    },
    /// A job that this engine would run needs a resource that was not given.
    #[error("job `{job}` needs the resource `{resource}`; add `.resource(...)` with it to the builder")]
    MissingResource {
        /// Name of the job.
        job: String,
        /// Type of the resource.
        resource: &'static str,
    },
    /// The database's schema is missing, or too old or too new for this binary.
    #[error("schema `{schema}`: {problem}")]
    Schema {
        /// Name of the schema.
        schema: String,
        /// What is wrong and what to do.
        problem: String,
    },
    /// Another engine runs the queues of this database, and one at a time may.
    #[error("{problem}")]
    QueuesTaken {
        /// Who has them and what to do.
        problem: String,
    },
    /// A state could not be turned into text that the store keeps.
    #[error("cannot store a `{type_name}`: {problem}")]
    Unstorable {
        /// Type of the value.
        type_name: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// A stored state, output or snapshot does not decode with this binary.
    #[error("cannot decode instance {id}: {problem}")]
    Undecodable {
        /// The instance.
        id: InstanceId,
        /// What does not decode and why.
        problem: String,
    },
    /// A result was expected to be `done` and is not.
    #[error("instance {id} is not done: {status}")]
    NotDone {
        /// The instance.
        id: InstanceId,
        /// Where it stands instead, with the reason of a failure.
        status: String,
    },
    /// There is no live instance to send a signal to.
    #[error(
        "no live instance of `{machine}` is {target}: it has ended, was never inserted, or is of another machine"
    )]
    NoTarget {
        /// Name of the machine.
        machine: String,
        /// Its id or correlation key.
        target: String,
    },
    /// Several live instances share a correlation key.
    #[error("several live instances of `{machine}` have the correlation key {target}; send to one by its id")]
    Ambiguous {
        /// Name of the machine.
        machine: String,
        /// The correlation key.
        target: String,
    },
    /// A machine does not take a signal of this name.
    #[error("machine `{machine}` takes no signal `{signal}`, only: {known}")]
    UnknownSignal {
        /// Name of the machine.
        machine: String,
        /// Name of the signal.
        signal: String,
        /// Names of those that it takes.
        known: String,
    },
    /// The correlation key is taken.
    #[error(
        "the correlation key is taken by instance {existing}; use that one, or insert with `.or_existing()`"
    )]
    Duplicate {
        /// The instance that has it.
        existing: InstanceId,
    },
    /// A transaction that is still open inserts the same correlation key.
    #[error("the correlation key `{key}` is being inserted by a transaction that stays open; try again")]
    KeyBusy {
        /// The key.
        key: String,
    },
    /// There is no such instance.
    #[error("there is no instance {id}, or not any longer")]
    NotFound {
        /// The instance.
        id: InstanceId,
    },
    /// Only a failed instance can be run again.
    #[error("instance {id} has not failed: it is {status}")]
    NotFailed {
        /// The instance.
        id: InstanceId,
        /// Where it stands.
        status: Status,
    },
    /// A detached insert needs a machine whose id is known.
    #[error(
        "machine `{machine}` version {version} is not registered on this engine; `.register(...)` it, or insert one instance with `.await` first"
    )]
    Unregistered {
        /// Name of the machine.
        machine: String,
        /// Version of the machine.
        version: u32,
    },
    /// Too many detached inserts wait to be written.
    #[error(
        "{limit} detached inserts wait to be written already; wait for the database, or insert with `.await`"
    )]
    TooManyDetached {
        /// How many may wait.
        limit: usize,
    },
    /// An instance could not be inserted; unless the database refused it, it may be inserted nevertheless.
    #[error("inserting an instance failed")]
    Insert {
        /// Why; shared by all inserts that went together.
        source: std::sync::Arc<StoreError>,
    },
    /// The engine has been shut down.
    #[error("the engine has been shut down; start a new one")]
    Stopped,
    /// Instances could not be read.
    #[error("reading instances failed")]
    Read {
        /// Why it failed; shared by all who asked together.
        source: std::sync::Arc<StoreError>,
    },
    /// The store failed.
    #[error("{operation} failed")]
    Store {
        /// What was being done.
        operation: &'static str,
        /// Why it failed.
        source: StoreError,
    },
}

impl Error {
    pub(crate) fn option(option: &'static str, problem: impl Into<String>) -> Self {
        Self::Option { option, problem: problem.into() }
    }

    pub(crate) fn store(operation: &'static str) -> impl FnOnce(StoreError) -> Self {
        move |source| Self::Store { operation, source }
    }
}

/// Why a step did not end with an outcome; what a state's error method is given.
///
/// Every error type converts into it, so `?` works on any error inside a step.
#[non_exhaustive]
pub enum StepError {
    /// The step returned an error.
    Failed {
        /// The error that the step returned.
        source: BoxError,
        /// True when retrying cannot help: the retry policy is skipped.
        fatal: bool,
    },
    /// The step panicked.
    Panicked {
        /// The panic's message.
        message: String,
    },
    /// The step did not end within the state's `timeout`, and was dropped.
    TimedOut {
        /// The state's timeout.
        after: Duration,
    },
    /// The step's process ended during the step, as often as the limit allows. The step is not started again.
    Crashed {
        /// How many starts of this state ended with the process.
        crashes: u32,
    },
    /// The step returned an outcome that cannot be stored.
    Unstorable {
        /// What cannot be stored and why.
        problem: String,
    },
}

impl StepError {
    /// An error that retrying cannot mend: the retry policy is skipped.
    pub fn fatal(error: impl Into<BoxError>) -> Self {
        Self::Failed { source: error.into(), fatal: true }
    }

    /// Whether the retry policy does not apply: a fatal error, or a crash at the limit.
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        matches!(self, Self::Failed { fatal: true, .. } | Self::Crashed { .. })
    }

    /// The error that the step returned, if it is a `T`.
    #[must_use]
    pub fn downcast_ref<T: StdError + 'static>(&self) -> Option<&T> {
        match self {
            Self::Failed { source, .. } => source.downcast_ref(),
            _ => None,
        }
    }
}

impl<E: Into<BoxError>> From<E> for StepError {
    fn from(error: E) -> Self {
        Self::Failed { source: error.into(), fatal: false }
    }
}

/// The error with its chain of causes, as it is stored.
impl fmt::Display for StepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed { source, .. } => {
                write!(f, "{source}")?;
                let mut cause = source.source();
                while let Some(error) = cause {
                    write!(f, ": {error}")?;
                    cause = error.source();
                }
                Ok(())
            }
            Self::Panicked { message } => write!(f, "the step panicked: {message}"),
            Self::TimedOut { after } => write!(f, "the step did not end within its timeout of {after:?}"),
            Self::Crashed { crashes } => write!(f, "the process ended during the step, {crashes} times"),
            Self::Unstorable { problem } => write!(f, "the outcome cannot be stored: {problem}"),
        }
    }
}

impl fmt::Debug for StepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
