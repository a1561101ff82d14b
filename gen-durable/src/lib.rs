//! Typed, versioned, durable state machines on PostgreSQL or in a SQLite file.
//!
//! An *instance* of a machine is a row in your database. Each of its states has one *step*, an async method, which says
//! what follows. Instances run to their end through crashes, deploys and outages: on PostgreSQL any number of nodes share
//! the work; a SQLite file needs no server, and one engine at a time runs its queues.
//!
//! # The guarantee
//!
//! When a step completes, its outcome, new state included, is committed before anything proceeds from it. If the
//! process, the node or the database dies before that commit, the step runs again from its start.
//!
//! # A first machine
//!
//! ```no_run
//! use gen_durable::prelude::*;
//! use gen_durable::{Engine, migrate};
//!
//! /// A greeting, written and then delivered.
//! #[durable_fsm(output = usize)]
//! enum Greeting {
//!     #[state(initial, next(Deliver))]
//!     Write { name: String },
//!     #[state(finishes, timeout = "10s", retry(max_attempts = 5, backoff = "1s"))]
//!     Deliver { text: String },
//! }
//!
//! struct Steps;
//!
//! impl GreetingSteps for Steps {
//!     async fn write(&self, s: Write, cx: &mut Context<Write>) -> StepResult<Write> {
//!         Ok(cx.next(Deliver { text: format!("Hello {}", s.name) }))
//!     }
//!
//!     async fn deliver(&self, s: Deliver, cx: &mut Context<Deliver>) -> StepResult<Deliver> {
//!         Ok(cx.done(s.text.len()))
//!     }
//! }
//!
//! # async fn run(pool: sqlx::PgPool) -> Result<(), gen_durable::Error> {
//! migrate::up(&pool).await?;
//! let engine = Engine::postgres(pool).register(Greeting::machine(Steps)).start().await?;
//! let greeting = engine.insert(Write { name: "world".into() }).await?;
//! assert_eq!(greeting.result().await?.done()?, 11);
//! engine.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! # What is not promised
//!
//! - Exactly-once effects outside of the database: a step may run again, so they must tolerate that. Give them a key,
//!   for example [`Context::id`]. What a step writes in the engine's own database can be had exactly once:
//!   [`Context::begin`].
//! - Any order between instances: rows are claimed by priority and time, but steps end when they end.
//! - That a step may block its thread: it is an async task like others.
//!
//! # Where to begin
//!
//! [`durable_fsm`] and [`durable_job`] make machines, [`Context`] is what a step works with, [`Engine`] and
//! [`EngineBuilder`] run them, [`migrate`] makes the tables, [`Event`] tells what happens, [`testing`] runs machines in
//! unit tests.
//!
//! Instances wait for a [`Signal`] with [`Context::wait_for`], and are sent one with [`Engine::signal`]. They have
//! children with [`Context::fan_out`] and read their results with [`Context::children`]. A
//! [correlation key](Insert::correlation_key) makes an insert that comes twice one instance. Inserts, signals and cancelling
//! go into a transaction of yours with [`Insert::in_tx`], [`SendSignal::in_tx`] and [`Cancel::in_tx`]. The guides in the
//! repository's `docs` have the rules of each.
#![forbid(unsafe_code)]

#[cfg(not(any(feature = "postgres", feature = "sqlite")))]
compile_error!("gen-durable needs a store: enable its feature `postgres`, its feature `sqlite`, or both");

mod children;
mod context;
mod engine;
mod error;
mod id;
mod job;
mod machine;
pub mod migrate;
mod outcome;
mod retry;
mod signal;
#[doc(hidden)]
pub mod store;
mod telemetry;
pub mod testing;
mod transaction;
mod transition;

pub use children::{ChildEnd, Children, EndedChild, IntoChild, NewChild};
pub use context::Context;
pub use engine::{
    AwaitResult, Cancel, Cancelled, Delivery, Engine, EngineBuilder, Gc, Handle, InTransaction, Insert,
    InsertAll, InsertAllKeyed, InsertOrExisting, Inserted, InstanceResult, Poke, SendSignal, SendSignals,
};
pub use error::{BoxError, Error, StepError};
#[doc(hidden)]
pub use gen_durable_macros::DurableStates;
/// ```
/// use gen_durable::prelude::*;
///
/// #[derive(Signal, Serialize, Deserialize)]
/// struct PaymentConfirmed {
///     cents: i64,
/// }
///
/// #[derive(Signal, Serialize, Deserialize)]
/// #[signal(name = "review")]
/// enum Verdict {
///     Approved,
///     Refused { reason: String },
/// }
///
/// #[durable_fsm(signals(PaymentConfirmed, Verdict))]
/// enum Checkout {
///     #[state(finishes)]
///     Start { order: i64 },
/// }
///
/// struct Steps;
///
/// impl CheckoutSteps for Steps {
///     async fn start(&self, _: Start, cx: &mut Context<Start>) -> StepResult<Start> {
///         Ok(cx.done(()))
///     }
/// }
///
/// assert_eq!(Checkout::machine(Steps).signals(), ["payment_confirmed", "review"]);
/// ```
pub use gen_durable_macros::Signal;
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
pub use outcome::{Next, Outcome, StepResult, Stop, Wait};
pub use retry::RetryPolicy;
pub use signal::{Received, Signal, SignalFor};
#[cfg(feature = "sqlite")]
pub use store::sqlite::Synchronous;
pub use store::{Count, KeyScope, Snapshot, Status, StoreError, Target, UserTransaction};
pub use telemetry::{Event, EventStream, Notice};
pub use transaction::{Backend, StepTransaction};

/// What machines and jobs are written with: `use gen_durable::prelude::*;`.
///
/// Serde's derives are included; where they are used, `serde` must be a dependency, too.
pub mod prelude {
    pub use crate::context::Context;
    pub use crate::error::StepError;
    pub use crate::job::{Job, JobError, JobResult};
    pub use crate::machine::Machine;
    pub use crate::outcome::{Outcome, StepResult};
    pub use crate::signal::Signal;
    pub use gen_durable_macros::{Signal, durable_fsm, durable_job};
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
    pub use crate::signal::{Signal, SignalFor, distinct_signals, signal_name};
    pub use ::inventory;
    pub use ::serde;
    pub use ::std::boxed::Box;
    pub use ::std::string::String;
}
