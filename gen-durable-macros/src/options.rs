//! Values that several attributes share: names, versions, durations, retry policies.

use std::time::Duration;

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote};
use syn::parse::ParseStream;
use syn::{Expr, ExprLit, Lit, LitBool, LitStr, Path, Token, Type};

use crate::duration;
use crate::errors::Errors;
use crate::keys::{self, Key, Known, key};
use crate::names::MAX_NAME;

/// Reads a name that goes to the store.
pub(crate) fn name(key: &Key<'_>, input: ParseStream<'_>) -> syn::Result<LitStr> {
    let name = key.text(input)?;
    let text = name.value();
    let Known { key, example, .. } = key.known;
    let problem = if text.is_empty() {
        format!("is empty; write for example `{example}`, or leave it out")
    } else if text.contains('\0') {
        "contains a NUL character, which databases do not keep in text; remove it".into()
    } else if text.len() > MAX_NAME {
        format!("is {} bytes long; at most {MAX_NAME} are kept", text.len())
    } else {
        return Ok(name);
    };
    Err(syn::Error::new(name.span(), format!("this `{key}` {problem}")))
}

/// Reads a whole number from 1 to what the store keeps.
pub(crate) fn positive(key: &Key<'_>, input: ParseStream<'_>) -> syn::Result<u32> {
    const MOST: u32 = i32::MAX as u32;
    let value: Expr = key.value(input)?;
    if let Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) = &value
        && let Ok(number @ 1..=MOST) = number.base10_parse::<u32>()
    {
        return Ok(number);
    }
    let Known { key, example, .. } = key.known;
    let message = format!("`{key}` must be a whole number from 1 to {MOST}; write `{example}`");
    Err(syn::Error::new_spanned(value, message))
}

/// Reads a flag: alone it is true, or `= true`, or `= false`.
pub(crate) fn flag(key: &Key<'_>, input: ParseStream<'_>) -> syn::Result<bool> {
    if !input.peek(Token![=]) {
        return Ok(true);
    }
    Ok(key.value::<LitBool>(input)?.value)
}

/// Reads a duration.
pub(crate) fn duration(key: &Key<'_>, input: ParseStream<'_>) -> syn::Result<Duration> {
    Ok(duration_text(key, input)?.0)
}

/// Reads a timeout: a duration that is not zero.
pub(crate) fn timeout(key: &Key<'_>, input: ParseStream<'_>) -> syn::Result<Duration> {
    let (timeout, text) = duration_text(key, input)?;
    if timeout.is_zero() {
        return Err(syn::Error::new(
            text.span(),
            "a timeout of zero stops every step; leave it out for none",
        ));
    }
    Ok(timeout)
}

fn duration_text(key: &Key<'_>, input: ParseStream<'_>) -> syn::Result<(Duration, LitStr)> {
    let text = key.text(input)?;
    match duration::parse(&text.value()) {
        Ok(duration) => Ok((duration, text)),
        Err(problem) => Err(syn::Error::new(text.span(), problem)),
    }
}

/// Where the compiler shows generated code that stands for something of the user's. It remains code of the
/// macro, so that no lint is about it.
pub(crate) fn place(span: Span) -> Span {
    Span::call_site().located_at(span)
}

/// The tokens, all at one place.
pub(crate) fn at(span: Span, tokens: &TokenStream) -> TokenStream {
    let moved = tokens.clone().into_iter().map(|mut token| {
        token.set_span(span);
        token
    });
    moved.collect()
}

/// A duration as an expression.
pub(crate) fn duration_tokens(duration: Duration) -> TokenStream {
    let (seconds, nanos) = (duration.as_secs(), duration.subsec_nanos());
    quote!(::core::time::Duration::new(#seconds, #nanos))
}

/// An option as an expression.
pub(crate) fn option_tokens(value: Option<impl ToTokens>) -> TokenStream {
    match value {
        Some(value) => quote!(::core::option::Option::Some(#value)),
        None => quote!(::core::option::Option::None),
    }
}

/// How long to rest between two starts of a step.
#[derive(Clone)]
pub(crate) enum Backoff {
    /// Doubling from this.
    Doubling(Duration),
    /// As a function says.
    Function(Path),
}

/// A retry policy as it is written.
#[derive(Clone, Default)]
pub(crate) struct Retry {
    pub(crate) max_attempts: Option<u32>,
    backoff: Option<Backoff>,
    max_backoff: Option<Duration>,
}

/// The keys of `retry(...)`; those of a job itself, too.
pub(crate) const RETRY_KEYS: [Known; 3] = [
    key("max_attempts", "max_attempts = 5"),
    key("backoff", "backoff = \"1s\"` or `backoff = path::to::function"),
    key("max_backoff", "max_backoff = \"5m\""),
];

/// Rest after the first failure, if nothing else is said.
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
/// Longest rest, if nothing else is said.
const MAX_BACKOFF: Duration = Duration::from_secs(300);

impl Retry {
    /// Reads `retry(...)`.
    pub(crate) fn read(key: &Key<'_>, input: ParseStream<'_>, errors: &Errors) -> syn::Result<Self> {
        let mut retry = Self::default();
        let mut seen = Vec::new();
        keys::read(key.list(input)?, "retry(...)", &RETRY_KEYS, &mut seen, errors, |key, input| {
            retry.read_key(key, input)
        });
        if !seen.contains(&"max_attempts") {
            errors.keep(key.error("needs its limit"));
        }
        Ok(retry)
    }

    /// Reads one of [`RETRY_KEYS`].
    pub(crate) fn read_key(&mut self, key: &Key<'_>, input: ParseStream<'_>) -> syn::Result<()> {
        match key.known.key {
            "max_attempts" => self.max_attempts = Some(positive(key, input)?),
            "backoff" => {
                let is_text = input.peek(Token![=]) && input.peek2(LitStr);
                self.backoff = Some(if is_text {
                    Backoff::Doubling(duration(key, input)?)
                } else {
                    Backoff::Function(key.value(input)?)
                });
            }
            _ => self.max_backoff = Some(duration(key, input)?),
        }
        if let (Some(Backoff::Function(_)), Some(_)) = (&self.backoff, self.max_backoff) {
            let message = "`max_backoff` does not apply to a `backoff` function; bound it in the function";
            return Err(syn::Error::new(key.ident.span(), message));
        }
        if let (Some(Backoff::Doubling(first)), Some(max)) = (&self.backoff, self.max_backoff)
            && *first > max
        {
            let message = format!("`max_backoff` of {max:?} is less than `backoff` of {first:?}");
            return Err(syn::Error::new(key.ident.span(), message));
        }
        Ok(())
    }

    /// The policy as an expression, with the default limit of attempts where none is given.
    pub(crate) fn tokens(&self, private: &TokenStream, default_attempts: u32) -> TokenStream {
        let attempts = self.max_attempts.unwrap_or(default_attempts);
        let policy = quote!(#private::RetryPolicy::attempts(#attempts));
        let first = match &self.backoff {
            Some(Backoff::Function(function)) => return quote!(#policy.with(#function)),
            Some(Backoff::Doubling(first)) => *first,
            None if self.max_backoff.is_none() => return policy,
            None => FIRST_BACKOFF,
        };
        let max = self.max_backoff.unwrap_or(MAX_BACKOFF.max(first));
        let (first, max) = (duration_tokens(first.min(max)), duration_tokens(max));
        quote!(#policy.exponential(#first, #max))
    }
}

/// Reads `crate = path`.
pub(crate) fn crate_path(key: &Key<'_>, input: ParseStream<'_>) -> syn::Result<TokenStream> {
    Ok(key.value_with(input, Path::parse_mod_style)?.into_token_stream())
}

/// Whether a type is certainly not one that the user's crate defines, so that no trait of ours can be
/// implemented for it there.
pub(crate) fn is_foreign(ty: &Type) -> bool {
    const PRIMITIVES: [&str; 17] = [
        "bool", "char", "str", "u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "i128",
        "isize", "f32", "f64",
    ];
    match ty {
        Type::Path(path) => {
            path.path.get_ident().is_some_and(|name| PRIMITIVES.iter().any(|known| name == known))
        }
        // A type that a macro of the user's makes, perhaps in a group of its own.
        Type::Macro(_) | Type::Group(_) | Type::Paren(_) => false,
        _ => true,
    }
}
