//! What can be wrong with a machine: one check a function.

use std::collections::HashMap;

use proc_macro2::Span;
use quote::ToTokens;
use syn::Ident;
use syn::ext::IdentExt;

use super::model::{Kind, Machine, State};
use crate::errors::Errors;
use crate::names::{listed, nearest};
use crate::options::is_foreign;

/// Reports everything that is wrong with the machine.
pub(crate) fn check(machine: &Machine, errors: &Errors) {
    no_generics(machine, errors);
    has_states(machine, errors);
    names_fit_the_store(machine, errors);
    for state in &machine.states {
        has_one_type(state, errors);
        method_is_possible(state, errors);
        hides_nothing(machine, state, errors);
        targets_exist_once(machine, state, errors);
    }
    types_differ(machine, errors);
    methods_differ(machine, errors);
    steps_differ(machine, errors);
    all_are_reached(machine, errors);
    signals_differ(machine, errors);
}

/// States that hide these names would break the module around them: those of the standard prelude and of
/// `gen_durable::prelude`.
pub(crate) const PRELUDE: &[&str] = &[
    "AsMut",
    "AsRef",
    "AsyncFn",
    "AsyncFnMut",
    "AsyncFnOnce",
    "Box",
    "Clone",
    "Copy",
    "Default",
    "Deserialize",
    "DoubleEndedIterator",
    "Drop",
    "Eq",
    "Err",
    "ExactSizeIterator",
    "Extend",
    "Fn",
    "FnMut",
    "FnOnce",
    "From",
    "FromIterator",
    "Future",
    "Into",
    "IntoFuture",
    "IntoIterator",
    "Iterator",
    "None",
    "Ok",
    "Option",
    "Ord",
    "PartialEq",
    "PartialOrd",
    "Result",
    "Send",
    "Serialize",
    "Sized",
    "Some",
    "String",
    "Sync",
    "ToOwned",
    "ToString",
    "TryFrom",
    "TryInto",
    "Unpin",
    "Vec",
    // of `gen_durable::prelude`
    "Context",
    "Job",
    "JobError",
    "JobResult",
    "Machine",
    "Outcome",
    "Signal",
    "StepError",
    "StepResult",
];

fn no_generics(machine: &Machine, errors: &Errors) {
    use syn::GenericParam::{Const, Lifetime, Type};
    for parameter in &machine.generics.params {
        let reason = match parameter {
            Type(_) => {
                "a machine cannot be generic: stored states name one type each; write the type, or make it an enum"
            }
            Const(_) => "a machine cannot be generic: stored states name one type each; write the value",
            Lifetime(_) => "a state cannot borrow: it is stored and read back later; use an owned type",
        };
        errors.at(parameter, reason);
    }
    if let Some(clause) = &machine.generics.where_clause {
        errors
            .at(clause, "a machine has no parameters, so a `where` clause says nothing about it; remove it");
    }
}

fn has_states(machine: &Machine, errors: &Errors) {
    if machine.states.is_empty() {
        errors.at(
            &machine.ident,
            "a machine needs a state; add a variant, the first one is where instances start",
        );
    }
}

fn names_fit_the_store(machine: &Machine, errors: &Errors) {
    let most = crate::names::MAX_NAME;
    if machine.options.name.is_none() && machine.name().len() > most {
        errors.at(&machine.ident, format!("this name is longer than {most} bytes; give `name = \"...\"`"));
    }
    for state in &machine.states {
        if state.options.rename.is_none() && state.step.len() > most {
            errors
                .at(&state.ident, format!("this name is longer than {most} bytes; give `rename = \"...\"`"));
        }
    }
}

fn has_one_type(state: &State, errors: &Errors) {
    if let Kind::Tuple(fields) = &state.kind {
        let message = if fields.is_empty() {
            "a state without data is written without parentheses"
        } else {
            "a state is one type; name the fields `{ a: A, b: B }`, or keep one field, whose type is the state"
        };
        errors.at(fields, message);
    }
    if let Kind::Own(ty) = &state.kind
        && is_foreign(ty)
    {
        errors.at(ty, "the type of a state must be one of your own; name the field: `{ name: Type }`");
    }
}

fn method_is_possible(state: &State, errors: &Errors) {
    if state.method.is_none() {
        let message =
            format!("its step cannot be called `{}`, which Rust reserves; rename the variant", state.step);
        errors.at(&state.ident, message);
    }
}

fn hides_nothing(machine: &Machine, state: &State, errors: &Errors) {
    if matches!(state.kind, Kind::Own(_)) {
        return;
    }
    let name = state.ident.unraw().to_string();
    let of = if state.ident == machine.ident {
        "the enum itself"
    } else if machine.steps_trait() == state.ident {
        "the trait of its steps"
    } else if PRELUDE.contains(&name.as_str()) {
        "a name that Rust's or gen-durable's prelude imports"
    } else if machine.options.takes(&state.ident) {
        "a signal that the machine takes"
    } else {
        return;
    };
    errors
        .at(&state.ident, format!("the struct of this state would hide `{name}`, {of}; rename the variant"));
}

fn targets_exist_once(machine: &Machine, state: &State, errors: &Errors) {
    let names: Vec<String> = machine.states.iter().map(|state| state.ident.to_string()).collect();
    let names = || names.iter().map(String::as_str);
    for (at, target) in state.options.next.iter().enumerate() {
        let name = target.to_string();
        if state.options.next[..at].contains(target) {
            errors.at(target, format!("`{name}` is named twice in this `next`; keep one"));
        } else if names().all(|known| known != name) {
            let remedy = match nearest(&name, names()) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => format!("its states are {}", listed(names())),
            };
            errors.at(target, format!("`{}` has no state `{name}`; {remedy}", machine.ident));
        }
    }
}

fn types_differ(machine: &Machine, errors: &Errors) {
    let mut owners: HashMap<String, &Ident> = HashMap::from([(machine.ident.to_string(), &machine.ident)]);
    let structs = machine.states.iter().filter(|state| !matches!(state.kind, Kind::Own(_)));
    owners.extend(structs.map(|state| (state.ident.to_string(), &state.ident)));
    for state in &machine.states {
        let Kind::Own(ty) = &state.kind else { continue };
        match owners.insert(ty.to_token_stream().to_string(), &state.ident) {
            Some(owner) if *owner == machine.ident => {
                errors.at(ty, "the machine cannot be a state of itself; use another type");
            }
            Some(owner) => {
                let message = format!(
                    "this is the type of the state `{owner}` already; every state needs its own, so wrap it in a struct"
                );
                errors.at(ty, message);
            }
            None => {}
        }
    }
}

fn methods_differ(machine: &Machine, errors: &Errors) {
    let mut methods: HashMap<String, &State> = HashMap::new();
    for state in &machine.states {
        let names = state.method.iter().chain([&state.error_method]);
        for name in names.map(|name| name.unraw().to_string()) {
            let Some(first) = methods.insert(name.clone(), state) else { continue };
            let [a, b] = [&first.ident, &state.ident];
            errors
                .at(a, format!("`{a}` and `{b}` both need the method `{name}`; rename one of the variants"));
            errors.at(b, format!("`{name}` is a method of `{a}` already"));
            break;
        }
    }
}

fn steps_differ(machine: &Machine, errors: &Errors) {
    let mut names: HashMap<String, (Span, &Ident)> = HashMap::new();
    let mut by_variant: HashMap<&str, &Ident> = HashMap::new();
    for state in &machine.states {
        let aliases = state.options.aliases.iter().map(|alias| (alias.value(), alias.span()));
        // `methods_differ` speaks about two variants whose names make the same step.
        let same_method = by_variant.insert(&state.step, &state.ident);
        for (name, span) in [state.step_name()].into_iter().chain(aliases) {
            let Some((first, owner)) = names.insert(name.clone(), (span, &state.ident)) else { continue };
            if same_method.is_some_and(|same| same == owner) {
                continue;
            }
            if *owner == state.ident {
                errors.push(span, format!("`{name}` is a name of this step already; remove this"));
                continue;
            }
            let ident = &state.ident;
            errors.push(
                first,
                format!("the steps of `{owner}` and `{ident}` are both stored as `{name}`; change one"),
            );
            errors.push(span, format!("`{name}` is the step of `{owner}` already"));
        }
    }
}

fn all_are_reached(machine: &Machine, errors: &Errors) {
    let states = &machine.states;
    if states.iter().any(|state| state.options.unclear) {
        return;
    }
    let mut reached: Vec<bool> = (0..states.len()).map(|at| machine.is_initial(at)).collect();
    let mut todo: Vec<usize> = (0..states.len()).filter(|at| reached[*at]).collect();
    while let Some(at) = todo.pop() {
        for target in &states[at].options.next {
            // A misspelled target is reported as such, and counts as what it was meant to be.
            let names: Vec<String> = states.iter().map(|state| state.ident.to_string()).collect();
            let meant = nearest(&target.to_string(), names.iter().map(String::as_str)).map(str::to_owned);
            let Some(found) = meant.and_then(|meant| names.iter().position(|name| *name == meant)) else {
                continue;
            };
            if !std::mem::replace(&mut reached[found], true) {
                todo.push(found);
            }
        }
    }
    for (state, _) in states.iter().zip(&reached).filter(|(_, reached)| !**reached) {
        let name = &state.ident;
        let message = format!(
            "no transition reaches `{name}`; name it in a `next(...)` that leads here, or mark it `#[state(initial)]`"
        );
        errors.at(name, message);
    }
}

fn signals_differ(machine: &Machine, errors: &Errors) {
    let signals = &machine.options.signals;
    for (at, signal) in signals.iter().enumerate() {
        if signals[..at].iter().any(|earlier| signal.repeats(earlier)) {
            errors.at(&signal.path, format!("`{}` is named twice in `signals`; keep one", signal.text()));
        }
    }
}
