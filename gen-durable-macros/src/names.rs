//! Names: from variants to steps, and the nearest spelling of a wrong one.

use proc_macro2::Span;
use syn::Ident;
use syn::ext::IdentExt;

/// The longest name that the store keeps, in bytes.
pub(crate) const MAX_NAME: usize = 200;

/// A name in `snake_case`: `ShipOrder` is `ship_order`, `HTTPRequest` is `http_request`.
pub(crate) fn snake_case(name: &str) -> String {
    let chars: Vec<char> = name.chars().collect();
    let mut snake = String::with_capacity(name.len() + 4);
    for (at, &char) in chars.iter().enumerate() {
        if char.is_uppercase() {
            let before = at.checked_sub(1).map(|at| chars[at]);
            let starts_word = before.is_some_and(|before| {
                before.is_lowercase()
                    || before.is_numeric()
                    || (before.is_uppercase() && chars.get(at + 1).is_some_and(|next| next.is_lowercase()))
            });
            if starts_word {
                snake.push('_');
            }
            snake.extend(char.to_lowercase());
        } else {
            snake.push(char);
        }
    }
    snake
}

/// The name of a type or variant in `snake_case`, without `r#`.
pub(crate) fn snake_case_of(ident: &Ident) -> String {
    snake_case(&ident.unraw().to_string())
}

/// An identifier of this name, raw where the name is a keyword; `None` for `crate`, `self` and `super`,
/// which cannot be identifiers at all.
pub(crate) fn identifier(name: &str, span: Span) -> Option<Ident> {
    match name {
        "crate" | "self" | "super" | "Self" | "_" => None,
        // A keyword since the edition of 2024, whatever the parser takes it for.
        "gen" => Some(Ident::new_raw(name, span)),
        _ if syn::parse_str::<Ident>(name).is_ok() => Some(Ident::new(name, span)),
        _ => Some(Ident::new_raw(name, span)),
    }
}

/// The known name that `name` was most likely meant to be.
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_lowercase();
    known
        .into_iter()
        .map(|known| (distance(&name, &known.to_lowercase()), known))
        .filter(|(distance, known)| {
            *distance <= 1.max(known.chars().count() / 3) || (name.len() > 2 && known.starts_with(&name))
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

/// Names as a message lists them: `` `a`, `b`, `c` ``.
pub(crate) fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// Insertions, deletions, substitutions and swaps of neighbours between two names.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let substituted = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = substituted.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snake_case_splits_words_and_keeps_acronyms_together() {
        for (name, snake) in [
            ("Ship", "ship"),
            ("ShipOrder", "ship_order"),
            ("HTTPRequest", "http_request"),
            ("GetURL", "get_url"),
            ("Step2Done", "step2_done"),
            ("Foo_Bar", "foo_bar"),
            ("A", "a"),
            ("ÜberMut", "über_mut"),
        ] {
            assert_eq!(snake_case(name), snake);
        }
    }

    #[test]
    fn nearest_finds_slips_and_leaves_strangers_alone() {
        let keys = ["name", "version", "queue", "output", "retry"];
        assert_eq!(nearest("verison", keys), Some("version"));
        assert_eq!(nearest("Queue", keys), Some("queue"));
        assert_eq!(nearest("outputs", keys), Some("output"));
        assert_eq!(nearest("ver", keys), Some("version"));
        assert_eq!(nearest("colour", keys), None);
    }

    #[test]
    fn identifiers_are_raw_where_they_must_be() {
        let of = |name| identifier(name, Span::call_site()).map(|ident| ident.to_string());
        assert_eq!(of("ship").as_deref(), Some("ship"));
        assert_eq!(of("match").as_deref(), Some("r#match"));
        assert_eq!(of("gen").as_deref(), Some("r#gen"));
        assert_eq!(of("crate"), None);
    }
}
