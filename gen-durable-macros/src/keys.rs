//! The inside of an attribute, `key, key = value, key(values)`, read so that one mistake hides no other.

use proc_macro2::{TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream, Parser};
use syn::{Ident, LitStr, Token};

use crate::errors::Errors;
use crate::names::{listed, nearest};

/// A key that an attribute knows, and an example that a message may show.
#[derive(Clone, Copy)]
pub(crate) struct Known {
    pub(crate) key: &'static str,
    pub(crate) example: &'static str,
    pub(crate) repeatable: bool,
}

/// A key that may be given once.
pub(crate) const fn key(key: &'static str, example: &'static str) -> Known {
    Known { key, example, repeatable: false }
}

/// A key as it was found.
pub(crate) struct Key<'a> {
    pub(crate) ident: &'a Ident,
    pub(crate) known: Known,
}

/// Reads `tokens` key by key; `each` reads the value. `seen` holds the keys that came before, in other
/// attributes of the same item; `place` is how messages call the attribute.
pub(crate) fn read(
    tokens: TokenStream,
    place: &str,
    known: &[Known],
    seen: &mut Vec<&'static str>,
    errors: &Errors,
    mut each: impl FnMut(&Key<'_>, ParseStream<'_>) -> syn::Result<()>,
) {
    items(tokens, errors, |input| read_one(input, place, known, seen, errors, &mut each));
}

/// Reads `tokens` item by item, separated by commas; `each` reads one. After a mistake it goes on with the next.
pub(crate) fn items(
    tokens: TokenStream,
    errors: &Errors,
    mut each: impl FnMut(ParseStream<'_>) -> syn::Result<()>,
) {
    let parser = |input: ParseStream<'_>| {
        while !input.is_empty() {
            if let Err(error) = each(input) {
                errors.keep(error);
                skip_to_comma(input);
            }
            if !input.is_empty() && input.parse::<Token![,]>().is_err() {
                errors.keep(input.error("expected `,` before this"));
                skip_to_comma(input);
                let _: Option<Token![,]> = input.parse()?;
            }
        }
        Ok(())
    };
    if let Err(error) = parser.parse2(tokens) {
        errors.keep(error);
    }
}

fn read_one(
    input: ParseStream<'_>,
    place: &str,
    known: &[Known],
    seen: &mut Vec<&'static str>,
    errors: &Errors,
    each: &mut impl FnMut(&Key<'_>, ParseStream<'_>) -> syn::Result<()>,
) -> syn::Result<()> {
    let names = || known.iter().map(|known| known.key);
    let Ok(ident) = input.call(Ident::parse_any) else {
        return Err(input.error(format!("expected a key of `{place}`: {}", listed(names()))));
    };
    let name = ident.unraw().to_string();
    // A misspelled key is read as the one it was meant to be, so that its value causes no further errors.
    let Some(meant) = nearest(&name, names()) else {
        let message = format!("`{place}` has no key `{name}`; its keys are {}", listed(names()));
        return Err(syn::Error::new(ident.span(), message));
    };
    if meant != name {
        errors.push(ident.span(), format!("`{place}` has no key `{name}`; did you mean `{meant}`?"));
    }
    let Some(known) = known.iter().find(|known| known.key == meant).copied() else { return Ok(()) };
    if seen.contains(&known.key) && !known.repeatable {
        return Err(syn::Error::new(ident.span(), format!("`{meant}` is given twice; keep one")));
    }
    seen.push(known.key);
    each(&Key { ident: &ident, known }, input)
}

fn skip_to_comma(input: ParseStream<'_>) {
    while !input.is_empty() && !input.peek(Token![,]) {
        let _ = input.parse::<TokenTree>();
    }
}

impl Key<'_> {
    /// An error at the key that shows how to write it.
    pub(crate) fn error(&self, problem: &str) -> syn::Error {
        let Known { key, example, .. } = self.known;
        syn::Error::new(self.ident.span(), format!("`{key}` {problem}; write `{example}`"))
    }

    /// Reads a key without a value.
    pub(crate) fn flag(&self, input: ParseStream<'_>) -> syn::Result<()> {
        if input.is_empty() || input.peek(Token![,]) { Ok(()) } else { Err(self.error("takes no value")) }
    }

    /// Reads `= value`.
    pub(crate) fn value<T: Parse>(&self, input: ParseStream<'_>) -> syn::Result<T> {
        self.value_with(input, T::parse)
    }

    /// Reads `= value` with a parser.
    pub(crate) fn value_with<T>(
        &self,
        input: ParseStream<'_>,
        parser: impl FnOnce(ParseStream<'_>) -> syn::Result<T>,
    ) -> syn::Result<T> {
        if !input.peek(Token![=]) {
            return Err(self.error("needs a value"));
        }
        input.parse::<Token![=]>()?;
        if input.is_empty() || input.peek(Token![,]) {
            return Err(self.error("needs a value"));
        }
        let wrong = input.cursor().span();
        parser(input).map_err(|_| {
            let Known { key, example, .. } = self.known;
            syn::Error::new(wrong, format!("not a value for `{key}`; write `{example}`"))
        })
    }

    /// Reads `= "text"`.
    pub(crate) fn text(&self, input: ParseStream<'_>) -> syn::Result<LitStr> {
        self.value(input)
    }

    /// Reads `(...)`, not empty.
    pub(crate) fn list(&self, input: ParseStream<'_>) -> syn::Result<TokenStream> {
        if !input.peek(syn::token::Paren) {
            return Err(self.error("needs a list"));
        }
        let content;
        syn::parenthesized!(content in input);
        if content.is_empty() {
            return Err(self.error("is empty"));
        }
        content.parse()
    }
}

/// Reads a list of values separated by commas.
pub(crate) fn values<T: Parse>(tokens: TokenStream) -> syn::Result<Vec<T>> {
    let parser = syn::punctuated::Punctuated::<T, Token![,]>::parse_terminated;
    Ok(parser.parse2(tokens)?.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [Known; 3] = [
        key("name", "name = \"a\""),
        key("initial", "initial"),
        Known { key: "alias", example: "alias = \"a\"", repeatable: true },
    ];

    /// What is read of the tokens, and the messages.
    fn read_all(tokens: &str) -> (Vec<String>, String) {
        let (errors, mut found) = (Errors::new(), Vec::new());
        let tokens = tokens.parse().expect("tokens");
        read(tokens, "#[x(...)]", &KNOWN, &mut Vec::new(), &errors, |key, input| {
            found.push(match key.known.key {
                "initial" => key.flag(input).map(|()| "initial".to_owned())?,
                name => format!("{name} {}", key.text(input)?.value()),
            });
            Ok(())
        });
        (found, errors.finish().unwrap_or_default().to_string())
    }

    #[test]
    fn a_mistake_hides_nothing_that_follows() {
        let (found, errors) =
            read_all(r#"nam = "a", what(1, 2), initial = 3, alias = "b" alias = "c", alias = "d","#);
        assert_eq!(found, ["name a", "alias b", "alias d"]);
        for said in ["did you mean `name`", "no key `what`", "`initial` takes no value", "expected `,`"] {
            assert!(errors.contains(said), "{said}: {errors}");
        }
    }

    #[test]
    fn only_repeatable_keys_repeat() {
        let (found, errors) = read_all(r#"name = "a", name = "b", alias = "c", alias = "d""#);
        assert_eq!(found, ["name a", "alias c", "alias d"]);
        assert!(errors.contains("`name` is given twice"), "{errors}");
    }

    #[test]
    fn what_is_half_typed_is_read_to_its_end() {
        for tokens in ["name", "name =", ", name", "= 1", "name = ,", "1 2 3", "initial initial", "crate"] {
            let (_, errors) = read_all(tokens);
            assert!(!errors.is_empty(), "{tokens}");
        }
    }
}
