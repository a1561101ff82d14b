//! Every mistake that the macros find, collected so that one build reports them all.

use std::cell::RefCell;
use std::fmt::Display;

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;

/// Collects errors. Panics in debug builds if dropped without [`finish`](Self::finish): nothing gets lost.
pub(crate) struct Errors {
    list: RefCell<Option<Vec<syn::Error>>>,
}

impl Errors {
    pub(crate) fn new() -> Self {
        Self { list: RefCell::new(Some(Vec::new())) }
    }

    /// Reports a mistake at a span.
    pub(crate) fn push(&self, span: Span, message: impl Display) {
        self.keep(syn::Error::new(span, message));
    }

    /// Reports a mistake at all of some tokens.
    pub(crate) fn at(&self, tokens: impl ToTokens, message: impl Display) {
        self.keep(syn::Error::new_spanned(tokens, message));
    }

    /// Reports an error of the parser.
    pub(crate) fn keep(&self, error: syn::Error) {
        self.list.borrow_mut().get_or_insert_default().push(error);
    }

    /// How many mistakes there are so far.
    pub(crate) fn count(&self) -> usize {
        self.list.borrow().as_ref().map_or(0, Vec::len)
    }

    /// The collected errors as tokens that make the compiler report them, or `None` without any.
    pub(crate) fn finish(self) -> Option<TokenStream> {
        let errors = self.list.take().unwrap_or_default();
        if errors.is_empty() {
            return None;
        }
        Some(errors.iter().map(syn::Error::to_compile_error).collect())
    }
}

impl Drop for Errors {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            debug_assert!(self.list.borrow().is_none(), "collected errors were not reported");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_errors_are_reported() {
        let errors = Errors::new();
        errors.push(Span::call_site(), "one");
        errors.push(Span::call_site(), "two");
        let tokens = errors.finish().expect("errors").to_string();
        assert!(tokens.contains("one") && tokens.contains("two"), "{tokens}");
        assert!(Errors::new().finish().is_none());
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "collected errors were not reported")]
    fn errors_that_nobody_reads_are_a_bug() {
        drop(Errors::new());
    }
}
