//! `#[durable_fsm]`: parse, model, check, expand.
//!
//! The attribute leaves the enum as it is and adds a hidden derive, because a derive sees the enum with
//! every `cfg` resolved and an attribute does not. The derive finds the attribute's arguments, spans
//! included, in a helper attribute and makes everything else.

mod check;
mod expand;
mod fallback;
mod model;
mod parse;
mod serde;

use proc_macro2::TokenStream;
use quote::quote;
use syn::parse::{ParseStream, Parser};
use syn::{Attribute, DeriveInput, Token, Visibility};

use crate::errors::Errors;

/// Expands the attribute.
pub(crate) fn attribute(arguments: &TokenStream, item: &TokenStream) -> TokenStream {
    let errors = Errors::new();
    if let Err(error) = expect_enum.parse2(item.clone()) {
        errors.keep(error);
        let errors = errors.finish();
        return quote!(#item #errors);
    }
    // The derive reads the arguments again and reports what is wrong with them.
    let krate = parse::crate_path(arguments);
    let _ = errors.finish();
    quote! {
        #[derive(#krate::DurableStates)]
        #[__gd_fsm(#arguments)]
        #item
    }
}

/// Expands the hidden derive.
pub(crate) fn derive(input: &DeriveInput) -> TokenStream {
    let errors = Errors::new();
    let machine = parse::machine(input, &errors);
    check::check(&machine, &errors);
    match errors.finish() {
        None => expand::machine(&machine),
        Some(errors) => {
            let stubs = fallback::machine(machine);
            quote!(#errors #stubs)
        }
    }
}

fn expect_enum(input: ParseStream<'_>) -> syn::Result<()> {
    input.call(Attribute::parse_outer)?;
    input.parse::<Visibility>()?;
    if !input.peek(Token![enum]) {
        return Err(
            input.error("`#[durable_fsm]` goes on an enum, whose variants are the states of the machine")
        );
    }
    // The rest is the compiler's to judge.
    input.parse::<TokenStream>()?;
    Ok(())
}
