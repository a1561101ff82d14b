//! The attribute macros of gen-durable.

use proc_macro::TokenStream;

/// x
#[proc_macro_attribute]
pub fn durable_fsm(_: TokenStream, item: TokenStream) -> TokenStream {
    item
}

/// x
#[proc_macro_attribute]
pub fn durable_job(_: TokenStream, item: TokenStream) -> TokenStream {
    item
}
