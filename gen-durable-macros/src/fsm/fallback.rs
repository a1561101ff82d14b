//! What a machine with mistakes expands to next to its errors: enough that code which uses it causes no
//! further errors. Every state may start, go anywhere and finish.

use std::collections::HashSet;

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::Ident;
use syn::ext::IdentExt;

use super::check::PRELUDE;
use super::expand;
use super::model::{Kind, Machine, MachineOptions, State, TakenSignal};
use crate::options::is_foreign;

/// The stubs of a machine with mistakes.
pub(crate) fn machine(mut machine: Machine) -> TokenStream {
    // With parameters there is no telling which of them a state's fields need.
    if !machine.generics.params.is_empty() {
        return TokenStream::new();
    }
    let mut taken = HashSet::from([machine.ident.to_string(), machine.steps_trait().to_string()]);
    let states = std::mem::take(&mut machine.states);
    let options = &machine.options;
    machine.states = states.into_iter().filter(|state| may_exist(state, options, &mut taken)).collect();
    let all: Vec<Ident> = machine.states.iter().map(|state| state.ident.clone()).collect();
    for state in &mut machine.states {
        state.options.initial.get_or_insert_with(|| state.ident.span());
        state.options.finishes = true;
        state.options.next.clone_from(&all);
        state.options.aliases.clear();
    }
    machine.options.steps = None;
    machine.options.signals = without_repetitions(machine.options.signals);
    expand::machine(&machine)
}

fn without_repetitions(signals: Vec<TakenSignal>) -> Vec<TakenSignal> {
    let mut kept: Vec<TakenSignal> = Vec::new();
    for signal in signals {
        if !kept.iter().any(|earlier| signal.repeats(earlier)) {
            kept.push(signal);
        }
    }
    kept
}

/// Whether nothing that the state expands to is there already.
fn may_exist(state: &State, options: &MachineOptions, taken: &mut HashSet<String>) -> bool {
    if matches!(&state.kind, Kind::Own(ty) if is_foreign(ty)) {
        return false;
    }
    let hides = !matches!(state.kind, Kind::Own(_))
        && (PRELUDE.contains(&state.ident.unraw().to_string().as_str()) || options.takes(&state.ident));
    let Some(method) = &state.method else { return false };
    let names = [
        state.ty().to_string(),
        method.unraw().to_string(),
        state.error_method.to_token_stream().to_string(),
    ];
    !hides && names.into_iter().all(|name| taken.insert(name))
}
