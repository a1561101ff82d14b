//! A machine as it was written, ready to be checked and expanded.

use std::time::Duration;

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;
use syn::{Attribute, Fields, FieldsNamed, Generics, Ident, LitStr, Type, TypePath, Visibility};

use crate::options::Retry;

/// The enum and the attribute's arguments.
pub(crate) struct Machine {
    /// Path of the module that generated code names.
    pub(crate) private: TokenStream,
    pub(crate) ident: Ident,
    pub(crate) vis: Visibility,
    pub(crate) generics: Generics,
    pub(crate) options: MachineOptions,
    /// Derives and lint levels that the structs get from the enum.
    pub(crate) inherited: Vec<TokenStream>,
    /// Number of variants, those included that `states` leaves out.
    pub(crate) variants: usize,
    pub(crate) states: Vec<State>,
}

/// The arguments of `#[durable_fsm(...)]`.
#[derive(Default)]
pub(crate) struct MachineOptions {
    pub(crate) name: Option<LitStr>,
    pub(crate) version: Option<u32>,
    pub(crate) queue: Option<LitStr>,
    pub(crate) output: Option<Type>,
    pub(crate) signals: Vec<TakenSignal>,
    pub(crate) retry: Option<Retry>,
    /// Whether its steps may run ahead, if they do not say otherwise.
    pub(crate) inline: bool,
    pub(crate) steps: Option<Type>,
}

/// A signal that the machine takes.
pub(crate) struct TakenSignal {
    /// `cfg` attributes before it.
    pub(crate) cfgs: Vec<Attribute>,
    pub(crate) path: TypePath,
}

/// A variant.
pub(crate) struct State {
    pub(crate) ident: Ident,
    /// Attributes that its struct gets: documentation, lint levels, helpers of other derives.
    pub(crate) attributes: Vec<Attribute>,
    /// What is inside `#[serde(...)]` on its struct.
    pub(crate) serde: Vec<TokenStream>,
    pub(crate) kind: Kind,
    /// Name of its step in the store, unless renamed.
    pub(crate) step: String,
    /// Name of its step's method; `None` where no method can have the name.
    pub(crate) method: Option<Ident>,
    /// Name of its error method.
    pub(crate) error_method: Ident,
    pub(crate) options: StateOptions,
}

/// What the state of a variant is.
pub(crate) enum Kind {
    /// A struct with the variant's fields.
    Struct(FieldsNamed),
    /// A struct without fields.
    Unit,
    /// The type in the variant's only unnamed field.
    Own(Type),
    /// Something else, which is refused.
    Tuple(Fields),
}

/// The arguments of `#[state(...)]`.
#[derive(Default)]
pub(crate) struct StateOptions {
    pub(crate) initial: Option<Span>,
    pub(crate) next: Vec<Ident>,
    pub(crate) finishes: bool,
    pub(crate) timeout: Option<Duration>,
    pub(crate) retry: Option<Retry>,
    pub(crate) inline: Option<bool>,
    pub(crate) rename: Option<LitStr>,
    pub(crate) aliases: Vec<LitStr>,
    /// Whether some of it could not be read, so that it is not known where the state leads.
    pub(crate) unclear: bool,
}

impl Machine {
    /// Name of the machine in the store.
    pub(crate) fn name(&self) -> String {
        self.options.name.as_ref().map_or_else(|| crate::names::snake_case_of(&self.ident), LitStr::value)
    }

    /// Name of the trait of its steps.
    pub(crate) fn steps_trait(&self) -> Ident {
        quote::format_ident!("{}Steps", self.ident)
    }

    /// Whether instances may start in this state.
    pub(crate) fn is_initial(&self, at: usize) -> bool {
        if self.states.iter().any(|state| state.options.initial.is_some()) {
            self.states[at].options.initial.is_some()
        } else {
            at == 0
        }
    }
}

impl MachineOptions {
    /// Whether a signal of this name, written without a path before it, is taken.
    pub(crate) fn takes(&self, name: &Ident) -> bool {
        self.signals.iter().any(|signal| signal.path.path.is_ident(name))
    }
}

impl TakenSignal {
    /// The path as it was written, for messages.
    pub(crate) fn text(&self) -> String {
        self.path.to_token_stream().to_string().replace(' ', "")
    }

    /// Whether both are written alike, conditions included.
    pub(crate) fn repeats(&self, other: &Self) -> bool {
        let text = |TakenSignal { cfgs, path }: &Self| quote::quote!(#(#cfgs)* #path).to_string();
        text(self) == text(other)
    }
}

impl State {
    /// Name of its step in the store, and where it comes from.
    pub(crate) fn step_name(&self) -> (String, Span) {
        match &self.options.rename {
            Some(name) => (name.value(), name.span()),
            None => (self.step.clone(), self.ident.span()),
        }
    }

    /// The type of the state.
    pub(crate) fn ty(&self) -> TokenStream {
        match &self.kind {
            Kind::Own(ty) => ty.to_token_stream(),
            _ => self.ident.to_token_stream(),
        }
    }
}
