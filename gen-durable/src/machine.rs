//! The traits that generated code implements, and the machine without its types that an engine runs.

use std::any::TypeId;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::context::{Call, Resources};
use crate::error::StepError;
use crate::retry::RetryPolicy;
use crate::transition::Transition;

/// A state machine: implemented by `#[durable_fsm]` for the enum of its states, by `#[durable_job]` for
/// the job's argument.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a machine",
    note = "machines are enums with `#[durable_fsm]` and arguments of `#[durable_job]` functions"
)]
pub trait Machine: Sized + Send + 'static {
    /// What the machine yields when it is done.
    type Output: Serialize + DeserializeOwned + Send + 'static;
    /// Name of the machine in the store.
    const NAME: &'static str;
    /// Version of the machine.
    const VERSION: u32;
    /// Queue on which its instances run.
    const QUEUE: &'static str;

    /// The stored state as a value, given the name of its step and its JSON text.
    ///
    /// # Errors
    ///
    /// A sentence that says what does not decode.
    fn decode(step: &str, state: &str) -> Result<Self, String>;
}

/// A state of a machine: implemented by the macros for the struct of each variant.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a state of a machine",
    note = "states are the structs that `#[durable_fsm]` makes of the enum's variants: insert `module::Variant {{ .. }}`, not `Enum::Variant {{ .. }}`"
)]
pub trait State: Sized + Send + 'static {
    /// The machine that it belongs to.
    type Machine: Machine;
    /// Name of the state's step in the store.
    const STEP: &'static str;
    /// How the state becomes text and back.
    #[doc(hidden)]
    const STORED: Stored<Self>;
}

/// What serde can turn into text and back, as every state and signal must be: implemented for all such types.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be stored",
    label = "not serializable",
    note = "a type of your own needs `#[derive(serde::Serialize, serde::Deserialize)]`"
)]
pub trait Storable: Serialize + DeserializeOwned {}

#[diagnostic::do_not_recommend]
impl<T: Serialize + DeserializeOwned> Storable for T {}

/// How a state or a signal becomes text and back.
///
/// These are functions in a constant, not serde's traits as supertraits of [`State`] and `Signal`, so that a type
/// which serde cannot store is one error and not one for each trait that generated code implements for it.
pub struct Stored<S> {
    pub(crate) write: fn(&S) -> serde_json::Result<String>,
    pub(crate) read: fn(&str) -> serde_json::Result<S>,
}

/// How serde turns a state or a signal into text and back; called by generated code.
#[must_use]
pub const fn stored<S: Storable>() -> Stored<S> {
    Stored { write: |value| serde_json::to_string(value), read: |text| serde_json::from_str(text) }
}

impl<S> fmt::Debug for Stored<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stored").finish_non_exhaustive()
    }
}

/// A state in which instances may start.
#[diagnostic::on_unimplemented(
    message = "an instance may not start in the state `{Self}`",
    label = "not an initial state",
    note = "if `{Self}` is a variant, mark it with `#[state(initial)]`, or insert a state that is",
    note = "if `{Self}` is the enum, insert the struct of the variant: `Variant {{ .. }}`, not `{Self}::Variant {{ .. }}`"
)]
pub trait Initial: State {}

/// A state that may follow the state `From`.
#[diagnostic::on_unimplemented(
    message = "`{From}` has no transition to `{Self}`",
    label = "`{From}` may not go here",
    note = "if it should, add `{Self}` to the variant `{From}`: `#[state(next({Self}))]`"
)]
pub trait Follows<From: State>: State {}

/// A state that may finish its machine.
#[diagnostic::on_unimplemented(
    message = "`{Self}` may not finish its machine",
    label = "`done` is not for this state",
    note = "if it should, mark the variant `{Self}` with `#[state(finishes)]`"
)]
pub trait Finishes: State {}

/// A state whose step may use the resource `R`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not declare the resource `{R}`",
    label = "not declared by the job of `{Self}`",
    note = "add it to the job: `#[durable_job(resources({R}))]`"
)]
pub trait Uses<R>: State {}

/// A machine with its steps, ready to be run by an engine: what `Checkout::machine(steps)` returns.
#[derive(Clone)]
pub struct MachineEntry {
    pub(crate) name: &'static str,
    pub(crate) version: u32,
    pub(crate) queue: &'static str,
    pub(crate) states: Arc<[StateEntry]>,
    pub(crate) resources: &'static [Resource],
    pub(crate) signals: &'static [&'static str],
    pub(crate) steps: Arc<dyn ErasedSteps>,
}

impl MachineEntry {
    /// Name of the machine in the store.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Version of the machine.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Queue on which its instances run.
    #[must_use]
    pub fn queue(&self) -> &'static str {
        self.queue
    }

    /// Names in the store of the signals that its instances take, in the order in which they are listed.
    #[must_use]
    pub fn signals(&self) -> &'static [&'static str] {
        self.signals
    }
}

impl fmt::Debug for MachineEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MachineEntry")
            .field("name", &self.name)
            .field("version", &self.version)
            .field("queue", &self.queue)
            .finish_non_exhaustive()
    }
}

/// What the engine must know of a state besides its code.
#[derive(Debug, Clone, Copy)]
pub struct StateEntry {
    /// Name of the state's step in the store.
    pub step: &'static str,
    /// Old names of the step, still to be found in the store.
    pub aliases: &'static [&'static str],
    /// How long the step may take.
    pub timeout: Option<Duration>,
    /// What follows a failure, if not the default: to stop.
    pub retry: Option<RetryPolicy>,
    /// Whether the step may run ahead, on the claim that the step before it held.
    pub inline: bool,
}

/// A type that a job needs the engine to hold.
#[derive(Debug, Clone, Copy)]
pub struct Resource {
    pub(crate) id: fn() -> TypeId,
    pub(crate) name: fn() -> &'static str,
}

impl Resource {
    /// The resource `T`.
    #[must_use]
    pub const fn of<T: Send + Sync + 'static>() -> Self {
        Self { id: TypeId::of::<T>, name: std::any::type_name::<T> }
    }

    pub(crate) fn is_in(&self, resources: &Resources) -> bool {
        resources.contains_key(&(self.id)())
    }
}

/// Why a step has no transition to commit.
#[derive(Debug)]
pub enum Fault {
    /// The step failed: the error method decides.
    Error(StepError),
    /// The stored state does not decode: the instance is set aside without burning an attempt.
    Undecodable(String),
}

/// The future of one step, from the stored text to the transition.
pub type StepFuture<'a> = BoxFuture<'a, Result<Transition, Fault>>;

/// The code of one state: its step and its error method.
pub struct StateCode<H> {
    /// Runs the step.
    pub run: for<'a> fn(&'a H, Call) -> StepFuture<'a>,
    /// Runs the error method.
    pub recover: for<'a> fn(&'a H, StepError, Call) -> StepFuture<'a>,
}

impl<H> fmt::Debug for StateCode<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateCode").finish_non_exhaustive()
    }
}

/// The code of a machine without the type that implements it.
pub(crate) trait ErasedSteps: Send + Sync {
    fn run(&self, state: usize, call: Call) -> StepFuture<'_>;
    fn recover(&self, state: usize, error: StepError, call: Call) -> StepFuture<'_>;
}

struct Steps<H, const N: usize> {
    code: [StateCode<H>; N],
    steps: H,
}

impl<H: Send + Sync + 'static, const N: usize> ErasedSteps for Steps<H, N> {
    fn run(&self, state: usize, call: Call) -> StepFuture<'_> {
        (self.code[state].run)(&self.steps, call)
    }

    fn recover(&self, state: usize, error: StepError, call: Call) -> StepFuture<'_> {
        (self.code[state].recover)(&self.steps, error, call)
    }
}

/// Makes the entry of machine `M`; called by generated code, with states and code in the same order.
#[must_use]
pub fn entry<M: Machine, H: Send + Sync + 'static, const N: usize>(
    steps: H,
    states: [StateEntry; N],
    code: [StateCode<H>; N],
    resources: &'static [Resource],
    signals: &'static [&'static str],
) -> MachineEntry {
    MachineEntry {
        name: M::NAME,
        version: M::VERSION,
        queue: M::QUEUE,
        states: Arc::new(states),
        resources,
        signals,
        steps: Arc::new(Steps { code, steps }),
    }
}

/// Decodes a state into its machine; called by generated code.
///
/// # Errors
///
/// A sentence that says what does not decode.
pub fn decode<S: State, M: From<S>>(state: &str) -> Result<M, String> {
    (S::STORED.read)(state)
        .map(M::from)
        .map_err(|error| format!("the stored state of step `{}` does not decode: {error}", S::STEP))
}

/// Why a step that a machine does not know does not decode; called by generated code.
#[must_use]
pub fn unknown_step<M: Machine>(step: &str) -> String {
    format!("machine `{}` version {} has no step `{step}`", M::NAME, M::VERSION)
}

/// Stands for code that a mistake in a macro's input left out; never runs, because the build fails.
#[must_use]
pub const fn stub<T>() -> T {
    panic!("the macro reported an error")
}

/// A machine that was submitted at link time.
pub struct Discovered(pub fn() -> MachineEntry);

impl fmt::Debug for Discovered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Discovered").finish_non_exhaustive()
    }
}

inventory::collect!(Discovered);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prelude::*;

    #[durable_fsm(crate = crate)]
    enum Lamp {
        #[state(next(On), alias = "dark")]
        Off { since: i64 },
        #[state(finishes)]
        On,
    }

    struct Steps;

    impl LampSteps for Steps {
        async fn off(&self, _: Off, cx: &mut Context<Off>) -> StepResult<Off> {
            Ok(cx.next(On))
        }

        async fn on(&self, _: On, cx: &mut Context<On>) -> StepResult<On> {
            Ok(cx.done(()))
        }
    }

    #[test]
    fn an_entry_has_the_states_in_the_order_of_the_variants() {
        let entry = Lamp::machine(Steps);
        let steps: Vec<_> = entry.states.iter().map(|state| (state.step, state.aliases)).collect();
        assert_eq!(steps, [("off", ["dark"].as_slice()), ("on", &[])]);
        assert!(matches!(Lamp::decode("dark", r#"{"since":1}"#), Ok(Lamp::Off { since: 1 })));
    }

    #[test]
    fn what_does_not_decode_is_said_with_its_step() {
        let Err(unknown) = Lamp::decode("dim", "null") else { panic!("there is no such step") };
        assert_eq!(unknown, "machine `lamp` version 1 has no step `dim`");
        let Err(missing) = Lamp::decode("off", "{}") else { panic!("a field is missing") };
        assert_eq!(
            missing,
            "the stored state of step `off` does not decode: missing field `since` at line 1 column 2"
        );
    }
}
