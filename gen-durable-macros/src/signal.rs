//! `#[derive(Signal)]`: parse, check, expand.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::{Attribute, Data, DeriveInput, Generics, Ident, LitStr, Meta};

use crate::errors::Errors;
use crate::keys::{self, Known, key};
use crate::names::{MAX_NAME, snake_case_of};
use crate::options::{self, at, place};

const KEYS: [Known; 2] =
    [key("name", "name = \"payment_confirmed\""), key("crate", "crate = path::to::gen_durable")];

/// Expands the derive.
pub(crate) fn derive(input: &DeriveInput) -> TokenStream {
    let errors = Errors::new();
    let signal = parse(input, &errors);
    check(&signal, &errors);
    let errors = errors.finish();
    let code = expand(&signal);
    quote!(#errors #code)
}

/// A signal as it was written.
struct Signal<'a> {
    /// Path of the module that generated code names.
    private: TokenStream,
    ident: &'a Ident,
    generics: &'a Generics,
    data: &'a Data,
    name: Option<LitStr>,
}

impl Signal<'_> {
    /// Name of the signal in the store.
    fn name(&self) -> String {
        self.name.as_ref().map_or_else(|| snake_case_of(self.ident), LitStr::value)
    }

    /// Whether serde may be able to store it, as far as its shape tells.
    fn is_storable(&self) -> bool {
        self.generics.params.is_empty() && !matches!(self.data, Data::Union(_))
    }
}

fn parse<'a>(input: &'a DeriveInput, errors: &Errors) -> Signal<'a> {
    let mut name = None;
    let mut krate = quote!(::gen_durable);
    let mut seen = Vec::new();
    for attribute in input.attrs.iter().filter(|attribute| is_signal(attribute)) {
        let tokens = match &attribute.meta {
            Meta::Path(_) => continue,
            Meta::List(list) => list.tokens.clone(),
            Meta::NameValue(meta) => {
                errors.at(meta, "`#[signal]` takes a list; write `#[signal(name = \"payment_confirmed\")]`");
                continue;
            }
        };
        keys::read(tokens, "#[signal(...)]", &KEYS, &mut seen, errors, |key, input| {
            match key.known.key {
                "name" => name = Some(options::name(key, input)?),
                _ => krate = options::crate_path(key, input)?,
            }
            Ok(())
        });
    }
    Signal {
        private: quote!(#krate::__private),
        ident: &input.ident,
        generics: &input.generics,
        data: &input.data,
        name,
    }
}

fn is_signal(attribute: &Attribute) -> bool {
    attribute.path().is_ident("signal")
}

/// Reports everything that is wrong with the signal.
fn check(signal: &Signal<'_>, errors: &Errors) {
    is_no_union(signal, errors);
    no_generics(signal, errors);
    name_fits_the_store(signal, errors);
    attributes_are_on_the_type(signal, errors);
}

fn is_no_union(signal: &Signal<'_>, errors: &Errors) {
    if let Data::Union(data) = signal.data {
        errors.at(
            data.union_token,
            "a signal cannot be a union: nothing tells which of its fields to store; make it a struct or an enum",
        );
    }
}

fn no_generics(signal: &Signal<'_>, errors: &Errors) {
    use syn::GenericParam::{Const, Lifetime, Type};
    for parameter in &signal.generics.params {
        let reason = match parameter {
            Type(_) => {
                "a signal cannot be generic: its name in the store stands for one type; write the type, or make it an enum"
            }
            Const(_) => {
                "a signal cannot be generic: its name in the store stands for one type; write the value"
            }
            Lifetime(_) => "a signal cannot borrow: it is stored and read back later; use an owned type",
        };
        errors.at(parameter, reason);
    }
    if let Some(clause) = &signal.generics.where_clause {
        errors.at(clause, "a signal has no parameters, so a `where` clause says nothing about it; remove it");
    }
}

fn name_fits_the_store(signal: &Signal<'_>, errors: &Errors) {
    if signal.name.is_none() && signal.name().len() > MAX_NAME {
        let message = format!("this name is longer than {MAX_NAME} bytes; give `#[signal(name = \"...\")]`");
        errors.at(signal.ident, message);
    }
}

/// The compiler takes the attribute anywhere inside the type, where it would say nothing.
fn attributes_are_on_the_type(signal: &Signal<'_>, errors: &Errors) {
    let of_variant = |variant: &'_ syn::Variant| {
        let fields = variant.fields.iter().flat_map(|field| field.attrs.clone());
        variant.attrs.iter().cloned().chain(fields).collect::<Vec<_>>()
    };
    let inside: Vec<Attribute> = match signal.data {
        Data::Struct(data) => data.fields.iter().flat_map(|field| field.attrs.clone()).collect(),
        Data::Enum(data) => data.variants.iter().flat_map(of_variant).collect(),
        Data::Union(data) => data.fields.named.iter().flat_map(|field| field.attrs.clone()).collect(),
    };
    for attribute in inside.iter().filter(|attribute| is_signal(attribute)) {
        errors.at(
            attribute,
            format!("`#[signal]` is about the type as a whole; move it above `{}`", signal.ident),
        );
    }
}

/// The implementation, with mistakes too, so that code which uses the signal causes no further errors.
fn expand(signal: &Signal<'_>) -> TokenStream {
    let (ident, name) = (signal.ident, signal.name());
    let span = place(ident.span());
    let private = at(span, &signal.private);
    let (parameters, arguments, clause) = signal.generics.split_for_impl();
    let stored = if signal.is_storable() {
        quote_spanned!(span=> #private::stored::<#ident>())
    } else {
        quote_spanned!(span=> #private::stub())
    };
    // Only a mistake has parameters; whatever they are, the supertraits are then not another one.
    let clause = if signal.generics.params.is_empty() {
        quote!(#clause)
    } else {
        let predicates = clause.map(|clause| &clause.predicates);
        quote!(where Self: ::core::marker::Send + 'static, #predicates)
    };
    quote_spanned! {span=>
        #[automatically_derived]
        impl #parameters #private::Signal for #ident #arguments #clause {
            const NAME: &'static str = #name;
            const STORED: #private::Stored<Self> = #stored;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn derived(signal: &str) -> String {
        derive(&syn::parse_str(signal).expect("a type")).to_string()
    }

    #[test]
    fn the_name_is_the_types_unless_given() {
        assert!(derived("struct PaymentConfirmed;").contains("\"payment_confirmed\""));
        assert!(derived("enum r#Paid { Now }").contains("\"paid\""));
        let given = derived("#[signal(name = \"a\")] #[signal(crate = elsewhere)] struct Paid(u8);");
        assert!(given.contains("= \"a\"") && given.contains("elsewhere"), "{given}");
        assert!(!given.contains("gen_durable") && !given.contains("compile_error"), "{given}");
    }

    #[test]
    fn all_mistakes_are_reported_at_once_and_the_implementation_stays() {
        let code = derived(
            "#[signal(nmae = \"a\", colour, name = \"b\")] #[signal = 1] struct Paid<'a, T, const N: usize>
             where T: Send { #[signal] a: &'a [T; N] }",
        );
        for said in [
            "did you mean `name`",
            "no key `colour`",
            "`name` is given twice",
            "takes a list",
            "cannot borrow",
            "write the type",
            "write the value",
            "`where` clause",
            "about the type as a whole",
        ] {
            assert!(code.contains(said), "{said}: {code}");
        }
        assert!(code.contains("Signal for Paid < 'a , T , N >"), "{code}");
        assert!(derived("union Paid { a: u8 }").contains("cannot be a union"));
        assert!(derived(&format!("struct {};", "A".repeat(201))).contains("longer than 200 bytes"));
    }
}
