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

#[cfg(test)]
mod tests {
    use super::*;

    fn expand(machine: &str) -> String {
        derive(&syn::parse_str(machine).expect("an enum")).to_string()
    }

    #[test]
    fn with_a_path_of_its_own_the_crate_is_never_named() {
        let arguments = "crate = elsewhere, steps = Steps, retry(max_attempts = 1), signals(E, F)";
        let correct =
            expand(&format!("#[__gd_fsm({arguments})] enum A {{ #[state(next(C))] B {{ x: u8 }}, C(D) }}"));
        assert!(correct.contains("elsewhere") && !correct.contains("gen_durable"), "{correct}");
        let stubs =
            expand(&format!("#[__gd_fsm({arguments})] enum A {{ #[state(nxt(C))] B {{ x: u8 }}, C(D) }}"));
        assert!(stubs.contains("did you mean `next`") && !stubs.contains("gen_durable"), "{stubs}");
        let attribute = attribute(
            &quote!(crate = elsewhere),
            &quote!(
                enum A {
                    B,
                }
            ),
        )
        .to_string();
        assert!(attribute.contains("elsewhere") && !attribute.contains("gen_durable"), "{attribute}");
    }

    #[test]
    fn no_lint_is_allowed_that_the_user_did_not_allow() {
        let code =
            expand("#[__gd_fsm(signals(E, F))] enum A { #[state(next(C), finishes)] B { x: u8 }, C(D) }");
        assert!(!code.contains("allow") && !code.contains("expect"), "{code}");
    }

    #[test]
    fn no_state_may_hide_a_name_of_the_prelude() {
        let lib: syn::File = syn::parse_str(include_str!("../../../gen-durable/src/lib.rs")).expect("parses");
        let prelude = lib.items.iter().find_map(|item| match item {
            syn::Item::Mod(module) if module.ident == "prelude" => module.content.as_ref(),
            _ => None,
        });
        let (_, uses) = prelude.expect("the prelude is there");
        let text = quote!(#(#uses)*).to_string();
        let words = text.split(|char: char| !char.is_alphanumeric());
        for name in words.filter(|word| word.starts_with(char::is_uppercase)) {
            assert!(check::PRELUDE.contains(&name), "`{name}` is missing in `check::PRELUDE`");
        }
    }
}
