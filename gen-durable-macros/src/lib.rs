//! The macros of `gen-durable`; use them through that crate, whose pages show them at work.

mod duration;
mod errors;
mod fsm;
mod job;
mod keys;
mod names;
mod options;
mod signal;

use proc_macro::TokenStream;

/// Makes a durable state machine of an enum whose variants are its states.
///
/// The enum stays as it is written. Next to it, in the same scope and with its visibility, come:
///
/// - a struct for each variant, `Ship { .. }` for `Checkout::Ship { .. }`, with the variant's documentation,
///   fields and serde attributes; a variant `Payment(Payment)` has the type in it as its state instead;
/// - the trait `CheckoutSteps` with a method for each state, `async fn ship(&self, state: Ship,
///   cx: &mut Context<Ship>) -> StepResult<Ship>`, and one for its errors, `on_ship_error`, which has a default:
///   the retry policy, then stop;
/// - `Checkout::machine(steps)`, the machine for an engine to run, with steps of any type that implements the
///   trait;
/// - `From<Ship> for Checkout` and `TryFrom<Checkout> for Ship`, which gives the enum back if it is in another
///   state.
///
/// # Keys of `#[durable_fsm(...)]`
///
/// | key | default | meaning |
/// |---|---|---|
/// | `name = "checkout"` | the enum's name in `snake_case` | name in the store; never change it while instances live |
/// | `version = 2` | 1 | version in the store: an instance finishes on the version that it started on |
/// | `queue = "slow"` | `"default"` | queue on which instances run |
/// | `output = Receipt` | `()` | type that `cx.done(...)` takes |
/// | `signals(A, B)` | none | types with `#[derive(Signal)]` that its instances may wait for and be sent |
/// | `retry(...)` | none: the first failure stops | retry policy of all states that have none of their own |
/// | `inline` | `false` | its steps may run ahead, on the claim that the step before held |
/// | `steps = Steps` | | registers the machine at link time, with `Steps::default()` as its steps |
/// | `crate = path` | `::gen_durable` | where this library is, if it is renamed or re-exported |
///
/// # Keys of `#[state(...)]` on a variant
///
/// | key | meaning |
/// |---|---|
/// | `initial` | instances may start here; without any, only the first variant is initial |
/// | `next(Ship, Refund)` | states that may follow |
/// | `finishes` | the machine may finish here |
/// | `timeout = "30s"` | longest time for one run of the step; without it there is no limit |
/// | `retry(...)` | retry policy of this state, instead of the machine's |
/// | `inline = true` | this step may run ahead, instead of what the machine says |
/// | `rename = "ship"` | name of the step in the store, if not the variant's in `snake_case` |
/// | `alias = "deliver"` | an old name of the step, still to be found in the store; may be repeated |
///
/// # Keys of `retry(...)`
///
/// | key | default | meaning |
/// |---|---|---|
/// | `max_attempts = 5` | required | how often the step is started, the first time included |
/// | `backoff = "1s"` | `"1s"` | rest after the first failure; doubles with each further one |
/// | `max_backoff = "5m"` | `"5m"`, or `backoff` if that is longer | longest rest; equal to `backoff`, the rest is constant |
/// | `backoff = path::to::function` | | `fn(u32) -> Duration`: the rest, given the number of failures before this one |
///
/// Durations are whole numbers with the units `ms`, `s`, `m`, `h` and `d`, which may be added up: `"1h 30m"`.
///
/// # Derives and serde's attributes
///
/// A derive below `#[durable_fsm]` is the enum's and the structs', except `Default`, `Serialize` and
/// `Deserialize`, which are the enum's alone; a derive above it is the enum's alone. The structs are
/// serializable without being told. Serde's attributes on fields and variants act as on a struct, and
/// `rename_all_fields` and `deny_unknown_fields` on the enum act on all of them. Attributes about variants, such
/// as `tag`, are refused, because no enum is stored, unless the enum derives serde's traits for itself.
///
/// # Errors
///
/// These are errors of the build: a transition, a `done` or an inserted state that the attributes do not allow;
/// a state without a step or a step without a state; a step whose future is not `Send`; an output of another
/// type; a state that no transition reaches; names that collide, in Rust or in the store, those of its signals
/// included; unknown and repeated keys; generic parameters. All those that the macro sees are reported at once.
#[proc_macro_attribute]
pub fn durable_fsm(arguments: TokenStream, item: TokenStream) -> TokenStream {
    fsm::attribute(&arguments.into(), &item.into()).into()
}

/// Makes a durable job of an async function.
///
/// A job is a machine with one state: the function's first parameter, a type of your own that serde can
/// serialize, and that belongs to this job alone. So `engine.insert(SendMail { .. })` inserts the job `send_mail`.
/// The function stays as it is written and can be called in tests. Its second parameter, `cx: &mut Context<SendMail>`,
/// may be left out. It returns `JobResult<T>`, or any `Result` whose error converts into `JobError`; `T` is the
/// job's output.
///
/// `Ok` finishes the job; `Err` is retried with backoff up to `max_attempts`, then the job has failed;
/// `JobError::cancel(reason)` fails it at once. Engines find jobs at link time.
///
/// | key | default | meaning |
/// |---|---|---|
/// | `name = "send_mail"` | the function's name | name in the store; never change it while instances live |
/// | `version = 2` | 1 | version in the store |
/// | `queue = "mail"` | `"default"` | queue on which the job runs |
/// | `max_attempts = 5` | 20 | how often the job is started, the first time included |
/// | `backoff = "1s"` | `"1s"` | rest after the first failure; doubles with each further one |
/// | `max_backoff = "5m"` | `"5m"`, or `backoff` if that is longer | longest rest; equal to `backoff`, the rest is constant |
/// | `backoff = path::to::function` | | `fn(u32) -> Duration`: the rest, given the number of failures before this one |
/// | `timeout = "30s"` | none | longest time for one run |
/// | `resources(Mailer, Pool)` | none | types that the job takes from the engine, by `cx.resource::<Mailer>()` |
/// | `crate = path` | `::gen_durable` | where this library is, if it is renamed or re-exported |
///
/// Durations are whole numbers with the units `ms`, `s`, `m`, `h` and `d`, which may be added up: `"1h 30m"`.
///
/// # Errors
///
/// These are errors of the build: a function that is not async, is generic or a method; another number or kind
/// of parameters; a return type that is no `Result`; a future that is not `Send`; a resource that is used and not
/// declared; unknown and repeated keys. An engine that runs the job's queue without its resources does not start.
#[proc_macro_attribute]
pub fn durable_job(arguments: TokenStream, item: TokenStream) -> TokenStream {
    job::attribute(arguments.into(), &item.into()).into()
}

/// Makes a signal of a struct or an enum, to be sent to instances that wait for it.
///
/// The type is stored as the JSON that serde makes of it, so it derives `Serialize` and `Deserialize`, too. A
/// machine takes the signals that it lists: `#[durable_fsm(signals(PaymentConfirmed))]`. One signal may be listed
/// by many machines, those of other crates included.
///
/// # Keys of `#[signal(...)]` on the type
///
/// | key | default | meaning |
/// |---|---|---|
/// | `name = "paid"` | the type's name in `snake_case` | name in the store; never change it while signals are on their way |
/// | `crate = path` | `::gen_durable` | where this library is, if it is renamed or re-exported |
///
/// # Errors
///
/// These are errors of the build: a union; generic parameters; unknown and repeated keys; a type that serde
/// cannot store; a signal that a machine lists twice, and two with one name in its list.
#[proc_macro_derive(Signal, attributes(signal))]
pub fn signal(input: TokenStream) -> TokenStream {
    let input = syn::parse_macro_input!(input as syn::DeriveInput);
    signal::derive(&input).into()
}

/// What `#[durable_fsm]` adds to the enum.
#[doc(hidden)]
#[proc_macro_derive(DurableStates, attributes(state, serde, __gd_fsm))]
pub fn durable_states(input: TokenStream) -> TokenStream {
    let input = syn::parse_macro_input!(input as syn::DeriveInput);
    fsm::derive(&input).into()
}
