//! Typed, versioned, durable state machines.
#![forbid(unsafe_code)]

#[cfg(not(any(feature = "postgres", feature = "sqlite")))]
compile_error!("gen-durable needs a store: enable its feature `postgres`, its feature `sqlite`, or both");

mod context;
mod engine;
mod error;
mod id;
mod job;
mod machine;
pub mod migrate;
mod outcome;
mod retry;
#[doc(hidden)]
pub mod store;
mod telemetry;

pub use context::Context;
pub use engine::{AwaitResult, Engine, EngineBuilder, Gc, Handle, Insert, InsertAll, InstanceResult, Poke};
pub use error::{BoxError, Error, StepError};
#[doc(hidden)]
pub use gen_durable_macros::DurableStates;
/// ```
/// use gen_durable::prelude::*;
///
/// #[durable_fsm(output = u32)]
/// enum Countdown {
///     #[state(next(Count), finishes, timeout = "10s", retry(max_attempts = 5, backoff = "1s"))]
///     Count { left: u32, counted: u32 },
/// }
///
/// struct Steps;
///
/// impl CountdownSteps for Steps {
///     async fn count(&self, s: Count, cx: &mut Context<Count>) -> StepResult<Count> {
///         if s.left == 0 {
///             return Ok(cx.done(s.counted));
///         }
///         Ok(cx.next(Count { left: s.left - 1, counted: s.counted + 1 }))
///     }
///
///     // By default: the retry policy, then stop.
///     async fn on_count_error(&self, s: Count, error: StepError, cx: &mut Context<Count>) -> StepResult<Count> {
///         if s.counted > 100 { Ok(cx.done(s.counted)) } else { Err(error) }
///     }
/// }
///
/// let entry = Countdown::machine(Steps);
/// assert_eq!((entry.name(), entry.version(), entry.queue()), ("countdown", 1, "default"));
/// ```
pub use gen_durable_macros::durable_fsm;
/// ```
/// use gen_durable::prelude::*;
///
/// #[derive(Serialize, Deserialize)]
/// struct Greet {
///     name: String,
/// }
///
/// struct Greeting(&'static str);
///
/// #[durable_job(queue = "doors", max_attempts = 5, timeout = "10s", resources(Greeting))]
/// async fn greet(job: Greet, cx: &mut Context<Greet>) -> JobResult<String> {
///     if job.name.is_empty() {
///         return Err(JobError::cancel("nobody to greet"));
///     }
///     Ok(format!("{}, {}", cx.resource::<Greeting>().0, job.name))
/// }
///
/// assert_eq!((Greet::job().name(), Greet::QUEUE), ("greet", "doors"));
/// ```
pub use gen_durable_macros::durable_job;
pub use id::{InstanceId, WorkerId};
pub use job::{Job, JobError, JobResult, JobReturn};
pub use machine::{Finishes, Follows, Initial, Machine, MachineEntry, State, Storable, Uses};
pub use outcome::{Next, Outcome, StepResult};
pub use retry::RetryPolicy;
#[cfg(feature = "sqlite")]
pub use store::sqlite::Synchronous;
pub use store::{Count, Snapshot, Status, StoreError};
pub use telemetry::{Event, EventStream, Notice};

/// What machines and jobs are written with: `use gen_durable::prelude::*;`.
///
/// Serde's derives are included; where they are used, `serde` must be a dependency, too.
pub mod prelude {
    pub use crate::context::Context;
    pub use crate::error::StepError;
    pub use crate::job::{Job, JobError, JobResult};
    pub use crate::machine::Machine;
    pub use crate::outcome::{Outcome, StepResult};
    pub use gen_durable_macros::{durable_fsm, durable_job};
    pub use serde::{Deserialize, Serialize};
}

/// What generated code names. Not for people: it may change in any release.
#[doc(hidden)]
pub mod __private {
    pub use crate::context::{Call, Context};
    pub use crate::error::StepError;
    pub use crate::job::{Job, JobReturn, job_entry, run_job};
    pub use crate::machine::{
        Discovered, Fault, Finishes, Follows, Initial, Machine, MachineEntry, Resource, State, StateCode,
        StateEntry, Stored, Uses, decode, entry, stored, stub, unknown_step,
    };
    pub use crate::outcome::StepResult;
    pub use crate::retry::RetryPolicy;
    pub use ::inventory;
    pub use ::serde;
    pub use ::std::boxed::Box;
    pub use ::std::string::String;
}
