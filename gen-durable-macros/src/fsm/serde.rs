//! Serde's attributes on the enum and its variants: which act on the structs, and which cannot work.
//!
//! What is stored of a state is its struct, next to the name of its step. So attributes about fields act
//! as on a struct, and attributes about variants have nothing to act on. An enum that derives serde's
//! traits itself may have them all: they are about its own derive.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote};
use syn::ext::IdentExt;
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::{Attribute, Meta, Token, Type};

use crate::errors::Errors;

/// Where an attribute is.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Place {
    Enum,
    Variant,
}

enum Verdict {
    /// It acts on the struct, as these tokens.
    Carry(TokenStream),
    /// It cannot work, and this is why and what to do.
    Refuse(&'static str),
}

/// What the struct gets from serde's attributes on the enum or on a variant.
pub(crate) fn carried(
    attributes: &[Attribute],
    place: Place,
    derives_serde: bool,
    errors: &Errors,
) -> Vec<TokenStream> {
    let mut carried = Vec::new();
    for meta in metas(attributes, errors) {
        match verdict(&meta, place) {
            Verdict::Carry(tokens) => carried.push(tokens),
            Verdict::Refuse(_) if derives_serde => {}
            Verdict::Refuse(reason) => errors.at(&meta, reason),
        }
    }
    carried
}

/// Refuses serde's attributes on a variant whose state is the user's own type.
pub(crate) fn refused_on_own<'a>(
    attributes: impl Iterator<Item = &'a Attribute>,
    ty: &Type,
    derives_serde: bool,
    errors: &Errors,
) {
    if derives_serde {
        return;
    }
    for meta in metas(attributes, errors) {
        let ty = ty.to_token_stream();
        errors.at(meta, format!("the state of this variant is `{ty}` itself; put serde's attributes there"));
    }
}

/// What a variant's struct gets from the enum and from the variant, which goes first.
pub(crate) fn merged(for_all: &[TokenStream], own: Vec<TokenStream>) -> Vec<TokenStream> {
    let name = |tokens: &TokenStream| tokens.clone().into_iter().next().map(|token| token.to_string());
    let names: Vec<_> = own.iter().map(name).collect();
    for_all.iter().filter(|tokens| !names.contains(&name(tokens))).cloned().chain(own).collect()
}

fn metas<'a>(attributes: impl IntoIterator<Item = &'a Attribute>, errors: &Errors) -> Vec<Meta> {
    let mut metas = Vec::new();
    for attribute in attributes.into_iter().filter(|attribute| attribute.path().is_ident("serde")) {
        let Ok(list) = attribute.meta.require_list() else {
            errors.at(attribute, "expected a list; write for example `#[serde(rename_all = \"camelCase\")]`");
            continue;
        };
        match Punctuated::<Meta, Token![,]>::parse_terminated.parse2(list.tokens.clone()) {
            Ok(list) => metas.extend(list),
            Err(error) => errors.keep(error),
        }
    }
    metas
}

fn verdict(meta: &Meta, place: Place) -> Verdict {
    let name = meta.path().get_ident().map(|ident| ident.unraw().to_string()).unwrap_or_default();
    let on_enum = place == Place::Enum;
    Verdict::Refuse(match name.as_str() {
        "rename_all_fields" if on_enum => {
            let mut renamed = meta.clone();
            let key = syn::Ident::new("rename_all", Span::call_site());
            match &mut renamed {
                Meta::Path(path) => *path = key.into(),
                Meta::List(list) => list.path = key.into(),
                Meta::NameValue(value) => value.path = key.into(),
            }
            return Verdict::Carry(quote!(#renamed));
        }
        "tag" | "content" | "untagged" if on_enum => {
            "a state is stored as its fields next to the name of its step, never as a tagged enum; remove this"
        }
        "untagged" | "other" => {
            "a state is found by the name of its step, which is always stored; remove this"
        }
        "rename_all" if on_enum => {
            "variants are stored by the names of their steps; use `#[state(rename = \"...\")]` there, or `rename_all_fields` for fields"
        }
        "rename" if on_enum => {
            "an enum is stored by the name of its machine; use `#[durable_fsm(name = \"...\")]`"
        }
        "rename" => "variants are stored by the names of their steps; use `#[state(rename = \"...\")]`",
        "alias" => "variants are stored by the names of their steps; use `#[state(alias = \"...\")]`",
        "skip" | "skip_serializing" | "skip_deserializing" => {
            "every state must be stored; put `skip` on fields of the variant instead"
        }
        "with" | "serialize_with" | "deserialize_with" => {
            "a state is stored as a struct; put this on fields of the variant, or use a type of your own: `Name(Type)`"
        }
        "default" if on_enum => "put `default` on variants or their fields",
        "from" | "try_from" | "into" | "remote" | "transparent" | "bound" | "variant_identifier"
        | "field_identifier"
            if on_enum =>
        {
            "this would apply to the enum, which is not stored itself, but state by state; remove it"
        }
        "crate" => "gen-durable brings its own serde; remove this",
        _ => return Verdict::Carry(meta.to_token_stream()),
    })
}
