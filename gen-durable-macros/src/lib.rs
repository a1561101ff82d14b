//! The attribute macros of `gen-durable`; use them through that crate, whose pages show them at work.

mod duration;
mod errors;
mod fsm;
mod job;
mod keys;
mod names;
mod options;

use proc_macro::TokenStream;

/// Makes a durable state machine of an enum whose variants are its states.
#[proc_macro_attribute]
pub fn durable_fsm(arguments: TokenStream, item: TokenStream) -> TokenStream {
    fsm::attribute(&arguments.into(), &item.into()).into()
}

/// Makes a durable job of an async function.
#[proc_macro_attribute]
pub fn durable_job(arguments: TokenStream, item: TokenStream) -> TokenStream {
    job::attribute(arguments.into(), &item.into()).into()
}

/// What `#[durable_fsm]` adds to the enum.
#[doc(hidden)]
#[proc_macro_derive(DurableStates, attributes(state, serde, __gd_fsm))]
pub fn durable_states(input: TokenStream) -> TokenStream {
    let input = syn::parse_macro_input!(input as syn::DeriveInput);
    fsm::derive(&input).into()
}
