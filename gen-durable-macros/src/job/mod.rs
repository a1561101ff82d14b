//! `#[durable_job]`: parse, check, expand.

mod check;
mod expand;
mod parse;

use proc_macro2::TokenStream;
use quote::quote;

use self::parse::Function;
use crate::errors::Errors;

/// Expands the attribute.
pub(crate) fn attribute(arguments: TokenStream, item: &TokenStream) -> TokenStream {
    let errors = Errors::new();
    let function = match syn::parse2::<Function>(item.clone()) {
        Ok(function) => function,
        Err(error) => {
            errors.keep(error);
            let errors = errors.finish();
            return quote!(#item #errors);
        }
    };
    let job = parse::job(arguments, &function, &errors);
    check::check(&job, &errors);
    let code = match errors.finish() {
        None => expand::job(&job),
        Some(errors) => {
            let stubs = expand::stubs(&job);
            quote!(#errors #stubs)
        }
    };
    quote!(#item #code)
}
