//! From tokens to the model.

use proc_macro2::TokenStream;
use quote::{ToTokens, format_ident, quote};
use syn::ext::IdentExt;
use syn::parse::ParseStream;
use syn::spanned::Spanned;
use syn::{Attribute, Data, DeriveInput, Fields, Ident, Meta, Path, Token, Variant};

use super::model::{Kind, Machine, MachineOptions, State, StateOptions, TakenSignal};
use super::serde::{self, Place};
use crate::errors::Errors;
use crate::keys::{self, Key, Known, key};
use crate::names::{identifier, snake_case_of};
use crate::options::{self, Retry};

const MACHINE_KEYS: [Known; 9] = [
    key("name", "name = \"checkout\""),
    key("version", "version = 1"),
    key("queue", "queue = \"default\""),
    key("output", "output = Receipt"),
    key("signals", "signals(PaymentConfirmed)"),
    key("retry", "retry(max_attempts = 5)"),
    key("inline", "inline"),
    key("steps", "steps = Steps"),
    key("crate", "crate = path::to::gen_durable"),
];

const STATE_KEYS: [Known; 8] = [
    key("initial", "initial"),
    key("next", "next(Ship, Refund)"),
    key("finishes", "finishes"),
    key("timeout", "timeout = \"30s\""),
    key("retry", "retry(max_attempts = 5)"),
    key("inline", "inline = true"),
    key("rename", "rename = \"ship\""),
    Known { key: "alias", example: "alias = \"old_name\"", repeatable: true },
];

/// The path of the runtime crate, given the arguments of `#[durable_fsm]`.
pub(crate) fn crate_path(arguments: &TokenStream) -> TokenStream {
    let unread = Errors::new();
    let (_, krate) = machine_options(arguments.clone(), &unread);
    let _ = unread.finish();
    krate
}

/// Reads the enum and its attributes.
pub(crate) fn machine(input: &DeriveInput, errors: &Errors) -> Machine {
    let arguments = input.attrs.iter().find(|attribute| attribute.path().is_ident("__gd_fsm"));
    let arguments = arguments.and_then(|attribute| attribute.meta.require_list().ok());
    let (options, krate) =
        machine_options(arguments.map(|list| list.tokens.clone()).unwrap_or_default(), errors);

    let derives_serde = derives(&input.attrs).any(|path| is_serde(&path));
    let for_all = serde::carried(&input.attrs, Place::Enum, derives_serde, errors);
    let mut states: Vec<State> = Vec::new();
    if let Data::Enum(data) = &input.data {
        for variant in &data.variants {
            // The compiler reports a variant that is there twice; the second adds nothing.
            if states.iter().all(|state| state.ident != variant.ident) {
                states.push(state(variant, &for_all, derives_serde, errors));
            }
        }
    }
    Machine {
        private: quote!(#krate::__private),
        ident: input.ident.clone(),
        vis: input.vis.clone(),
        generics: input.generics.clone(),
        options,
        inherited: inherited(&input.attrs),
        variants: match &input.data {
            Data::Enum(data) => data.variants.len(),
            _ => 0,
        },
        states,
    }
}

fn machine_options(arguments: TokenStream, errors: &Errors) -> (MachineOptions, TokenStream) {
    let mut options = MachineOptions::default();
    let mut krate = quote!(::gen_durable);
    let mut seen = Vec::new();
    keys::read(arguments, "#[durable_fsm(...)]", &MACHINE_KEYS, &mut seen, errors, |key, input| {
        match key.known.key {
            "name" => options.name = Some(options::name(key, input)?),
            "version" => options.version = Some(options::positive(key, input)?),
            "queue" => options.queue = Some(options::name(key, input)?),
            "output" => options.output = Some(key.value(input)?),
            "signals" => options.signals = taken_signals(key, input, errors)?,
            "retry" => options.retry = Some(Retry::read(key, input, errors)?),
            "inline" => options.inline = options::flag(key, input)?,
            "steps" => options.steps = Some(key.value(input)?),
            _ => krate = options::crate_path(key, input)?,
        }
        Ok(())
    });
    (options, krate)
}

/// Reads `signals(...)`. What is clear is kept next to mistakes, so that its use is not another one.
fn taken_signals(key: &Key<'_>, input: ParseStream<'_>, errors: &Errors) -> syn::Result<Vec<TakenSignal>> {
    let mut signals = Vec::new();
    if input.peek(Token![=]) {
        errors.keep(key.error("needs a list"));
        input.parse::<Token![=]>()?;
        signals.extend(taken_signal(input, errors).ok());
    } else {
        keys::items(key.list(input)?, errors, |input| {
            signals.push(taken_signal(input, errors)?);
            Ok(())
        });
    }
    Ok(signals)
}

fn taken_signal(input: ParseStream<'_>, errors: &Errors) -> syn::Result<TakenSignal> {
    let mut cfgs = input.call(Attribute::parse_outer)?;
    cfgs.retain(|attribute| {
        let is_cfg = attribute.path().is_ident("cfg");
        if !is_cfg {
            errors.at(attribute, "only `#[cfg(...)]` may stand before a signal; remove this");
        }
        is_cfg
    });
    let start = input.span();
    let path = input.parse().map_err(|_| {
        let message =
            "`signals` takes types that derive `Signal`; write for example `signals(PaymentConfirmed)`";
        syn::Error::new(start, message)
    })?;
    Ok(TakenSignal { cfgs, path })
}

fn state(variant: &Variant, for_all: &[TokenStream], derives_serde: bool, errors: &Errors) -> State {
    let options = state_options(&variant.attrs, errors);
    let kind = match &variant.fields {
        Fields::Named(fields) => Kind::Struct(fields.clone()),
        Fields::Unit => Kind::Unit,
        Fields::Unnamed(fields) if fields.unnamed.len() == 1 => Kind::Own(fields.unnamed[0].ty.clone()),
        fields @ Fields::Unnamed(_) => Kind::Tuple(fields.clone()),
    };
    let serde = if let Kind::Own(ty) = &kind {
        let fields = variant.fields.iter().flat_map(|field| &field.attrs);
        serde::refused_on_own(variant.attrs.iter().chain(fields), ty, derives_serde, errors);
        Vec::new()
    } else {
        let own = serde::carried(&variant.attrs, Place::Variant, derives_serde, errors);
        serde::merged(for_all, own)
    };
    let step = snake_case_of(&variant.ident);
    State {
        ident: variant.ident.clone(),
        attributes: carried(&variant.attrs),
        serde,
        kind,
        method: identifier(&step, variant.ident.span()),
        error_method: format_ident!("on_{step}_error", span = variant.ident.span()),
        step,
        options,
    }
}

fn state_options(attributes: &[Attribute], errors: &Errors) -> StateOptions {
    let mut options = StateOptions::default();
    let mut seen = Vec::new();
    let errors_before = errors.count();
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("state")) {
        let tokens = match &attribute.meta {
            Meta::Path(_) => continue,
            Meta::List(list) => list.tokens.clone(),
            Meta::NameValue(meta) => {
                errors.at(meta, "`#[state]` takes a list; write `#[state(next(Ship))]`");
                continue;
            }
        };
        keys::read(tokens, "#[state(...)]", &STATE_KEYS, &mut seen, errors, |key, input| {
            state_option(&mut options, key, input, errors)
        });
    }
    options.unclear = errors.count() > errors_before;
    options
}

fn state_option(
    options: &mut StateOptions,
    key: &Key<'_>,
    input: ParseStream<'_>,
    errors: &Errors,
) -> syn::Result<()> {
    match key.known.key {
        "initial" => {
            options.initial = Some(key.ident.span());
            key.flag(input)?;
        }
        "next" => {
            for target in keys::values::<Path>(key.list(input)?)? {
                match target.get_ident() {
                    Some(ident) => options.next.push(ident.clone()),
                    None => {
                        errors.at(target, "`next` takes names of variants; write for example `next(Ship)`")
                    }
                }
            }
        }
        "finishes" => {
            options.finishes = true;
            key.flag(input)?;
        }
        "timeout" => options.timeout = Some(options::timeout(key, input)?),
        "retry" => options.retry = Some(Retry::read(key, input, errors)?),
        "inline" => options.inline = Some(options::flag(key, input)?),
        "rename" => options.rename = Some(options::name(key, input)?),
        _ => options.aliases.push(options::name(key, input)?),
    }
    Ok(())
}

/// What the structs get from the attributes of the enum: the derives that make sense for a struct, and
/// the levels of lints.
fn inherited(attributes: &[Attribute]) -> Vec<TokenStream> {
    let derives =
        derives(attributes).filter(|path| !is_serde(path) && !named(path, &["Default", "DurableStates"]));
    let derives = derives.map(|path| quote!(#[derive(#path)]));
    let levels =
        attributes.iter().filter(|attribute| named(attribute.path(), &["allow", "expect", "warn", "deny"]));
    derives.chain(levels.map(met_expectation).map(Attribute::into_token_stream)).collect()
}

/// The attributes of a variant or field that its copy in the struct gets, besides serde's.
pub(crate) fn carried(attributes: &[Attribute]) -> Vec<Attribute> {
    let kept = attributes.iter().filter(|attribute| !named(attribute.path(), &["state", "serde", "default"]));
    kept.map(met_expectation).collect()
}

/// An expectation of a lint is met on the enum, so on the struct it only allows; everything else stays.
fn met_expectation(attribute: &Attribute) -> Attribute {
    let mut attribute = attribute.clone();
    if let Meta::List(list) = &mut attribute.meta
        && list.path.is_ident("expect")
    {
        list.path = Ident::new("allow", list.path.span()).into();
    }
    attribute
}

fn derives(attributes: &[Attribute]) -> impl Iterator<Item = Path> {
    let lists = attributes.iter().filter(|attribute| attribute.path().is_ident("derive"));
    lists.flat_map(|attribute| {
        let parser = syn::punctuated::Punctuated::<Path, Token![,]>::parse_terminated;
        attribute.parse_args_with(parser).unwrap_or_default()
    })
}

fn is_serde(path: &Path) -> bool {
    named(path, &["Serialize", "Deserialize"])
}

fn named(path: &Path, names: &[&str]) -> bool {
    let last: Option<&Ident> = path.segments.last().map(|segment| &segment.ident);
    last.is_some_and(|last| names.iter().any(|name| last.unraw() == name))
}
