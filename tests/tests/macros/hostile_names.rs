//! Types, modules and values of the user's that have the names which generated code would use carelessly.
#![allow(dead_code, non_camel_case_types, non_upper_case_globals, unused_macros, clippy::upper_case_acronyms)]

mod core {}
mod std {}
mod alloc {}
mod serde {}
mod serde_json {}
mod gen_durable {}
mod inventory {}
struct Result;
struct Option;
struct String;
struct Box;
struct Vec;
struct State;
struct Context;
struct Machine;
struct Call;
struct Ok;
struct Err;
struct Some;
struct None;
trait Send {}
trait Sync {}
trait From {}
trait Into {}
trait TryFrom {}
trait Future {}
trait Serialize {}
trait Deserialize {}
trait Default {}
trait Signal {}
trait SignalFor {}
struct Stored;
struct Self_;
const order: i64 = 0;
const result: i64 = 0;
const call: i64 = 0;
const other: i64 = 0;
const value: i64 = 0;
macro_rules! vec {
    () => {};
}
macro_rules! compile_error {
    () => {};
}

#[derive(::gen_durable::Signal, ::serde::Serialize, ::serde::Deserialize)]
struct r#break;

#[derive(::gen_durable::Signal, ::serde::Serialize, ::serde::Deserialize)]
enum Paid {
    NAME,
    STORED { name: i64, state: i64 },
}

#[::gen_durable::durable_fsm(steps = Steps, signals(r#break, Paid))]
enum Checkout {
    #[state(next(A, B, Match, H))]
    S {
        r#type: i64,
        order: i64,
    },
    #[state(finishes)]
    A {
        order: i64,
    },
    B,
    H {
        state: i64,
        cx: i64,
    },
    #[state(finishes)]
    Match,
}

struct Steps;

impl ::core::default::Default for Steps {
    fn default() -> Self {
        Self
    }
}

type Step<S> = ::gen_durable::StepResult<S>;
type Cx<S> = ::gen_durable::Context<S>;

impl CheckoutSteps for Steps {
    async fn s(&self, s: S, cx: &mut Cx<S>) -> Step<S> {
        ::core::result::Result::Ok(cx.next(A { order: s.order + s.r#type }))
    }
    async fn a(&self, _: A, cx: &mut Cx<A>) -> Step<A> {
        ::core::result::Result::Ok(cx.done(()))
    }
    async fn b(&self, _: B, cx: &mut Cx<B>) -> Step<B> {
        ::core::result::Result::Ok(cx.stop(""))
    }
    async fn h(&self, _: H, cx: &mut Cx<H>) -> Step<H> {
        ::core::result::Result::Ok(cx.stop(""))
    }
    async fn r#match(&self, _: Match, cx: &mut Cx<Match>) -> Step<Match> {
        ::core::result::Result::Ok(cx.done(()))
    }
}

#[derive(::serde::Serialize, ::serde::Deserialize)]
struct Sweep;

#[::gen_durable::durable_job]
async fn r#loop(_: Sweep, _cx: &mut ::gen_durable::Context<Sweep>) -> ::gen_durable::JobResult<()> {
    ::core::result::Result::Ok(())
}

#[test]
fn raw_names_lose_their_prefix() {
    ::core::assert_eq!(Checkout::machine(Steps).signals(), ["break", "paid"]);
    let _ = <Sweep as ::gen_durable::Job>::job();
    ::core::assert_eq!(<Match as ::gen_durable::State>::STEP, "match");
    ::core::assert_eq!(<Sweep as ::gen_durable::State>::STEP, "loop");
}
