//! The code of a machine. Nothing here can fail: what gets here has been checked, or made harmless.

use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Field, LitStr};

use super::model::{Kind, Machine, State, TakenSignal};
use super::parse::carried;
use crate::options::{at, duration_tokens, option_tokens, place};

/// Limit of attempts of a `retry(...)` without one; never used, because that is refused.
const NO_LIMIT: u32 = 1;

/// Everything that a correct machine expands to.
pub(crate) fn machine(machine: &Machine) -> TokenStream {
    let structs = machine.states.iter().map(|state| state_struct(machine, state));
    let states = machine.states.iter().map(|state| state_impls(machine, state));
    let rules = rules(machine);
    let signals = signals(machine);
    let steps = steps_trait(machine);
    let entry = entry(machine);
    let machine = machine_impl(machine);
    quote!(#(#structs)* #steps #entry #machine #(#states)* #rules #signals)
}

/// The struct of a state.
pub(crate) fn state_struct(machine: &Machine, state: &State) -> TokenStream {
    let Machine { private, vis, ident: machine_ident, inherited, .. } = machine;
    let State { ident, attributes, serde, .. } = state;
    let doc = undocumented(attributes).then(|| {
        let doc = format!("The state `{ident}` of [`{machine_ident}`].");
        quote!(#[doc = #doc])
    });
    let span = place(ident.span());
    let body = match &state.kind {
        Kind::Own(_) => return TokenStream::new(),
        Kind::Unit => quote_spanned!(span=> ;),
        Kind::Struct(fields) => {
            let fields = fields.named.iter().map(|field| struct_field(machine, field));
            quote_spanned!(span=> { #(#fields),* })
        }
        Kind::Tuple(fields) => {
            let fields = fields.iter().map(|field| struct_field(machine, field));
            quote_spanned!(span=> ( #(#fields),* );)
        }
    };
    let path = quote!(#private::serde).to_string();
    let private = at(span, private);
    let mut name = ident.clone();
    name.set_span(span);
    quote_spanned! {span=>
        #(#inherited)*
        #[derive(#private::serde::Serialize, #private::serde::Deserialize)]
        #[serde(crate = #path, #(#serde),*)]
        #doc
        #(#attributes)*
        #vis struct #name #body
    }
}

fn struct_field(machine: &Machine, field: &Field) -> TokenStream {
    let vis = &machine.vis;
    let Field { ident, colon_token, ty, .. } = field;
    let attributes = carried(&field.attrs);
    let serde = field.attrs.iter().filter(|attribute| attribute.path().is_ident("serde"));
    let doc = undocumented(&attributes).then(|| {
        let doc =
            ident.as_ref().map_or("Data of the state.".into(), |ident| format!("`{ident}` of the state."));
        quote!(#[doc = #doc])
    });
    quote!(#doc #(#attributes)* #(#serde)* #vis #ident #colon_token #ty)
}

fn undocumented(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().all(|attribute| !attribute.path().is_ident("doc"))
}

/// The trait of the steps.
pub(crate) fn steps_trait(machine: &Machine) -> TokenStream {
    let Machine { private, vis, ident, .. } = machine;
    let steps = machine.steps_trait();
    let methods = machine.states.iter().map(|state| {
        let State { method, error_method, ident: variant, .. } = state;
        let ty = state.ty();
        let docs = state.attributes.iter().filter(|attribute| attribute.path().is_ident("doc"));
        let doc = undocumented(&state.attributes).then(|| {
            let doc = format!("The step of the state `{variant}`.");
            quote!(#[doc = #doc])
        });
        let error_doc =
            format!("Decides what follows when the step of `{variant}` failed. By default the retry policy, then stop.");
        quote_spanned! {place(variant.span())=>
            #doc
            #(#docs)*
            fn #method(
                &self,
                state: #ty,
                cx: &mut #private::Context<#ty>,
            ) -> impl ::core::future::Future<Output = #private::StepResult<#ty>> + ::core::marker::Send;

            #[doc = #error_doc]
            fn #error_method(
                &self,
                state: #ty,
                error: #private::StepError,
                cx: &mut #private::Context<#ty>,
            ) -> impl ::core::future::Future<Output = #private::StepResult<#ty>> + ::core::marker::Send {
                let _ = (state, cx);
                async move { ::core::result::Result::Err(error) }
            }
        }
    });
    let doc = format!("The steps of [`{ident}`]: a method for each state, and one for when that fails.");
    quote_spanned! {place(ident.span())=>
        #[doc = #doc]
        #vis trait #steps: ::core::marker::Send + ::core::marker::Sync + 'static {
            #(#methods)*
        }
    }
}

/// `Checkout::machine(steps)`, and its discovery at link time.
pub(crate) fn entry(machine: &Machine) -> TokenStream {
    let Machine { private, vis, ident, .. } = machine;
    let steps = machine.steps_trait();
    let entries = machine.states.iter().map(|state| state_entry(machine, state));
    let code = machine.states.iter().map(|state| {
        let State { method, error_method, .. } = state;
        let ty = state.ty();
        quote! {
            #private::StateCode {
                run: |__gd_steps, __gd_call| #private::Box::pin(async move {
                    let (__gd_state, mut __gd_cx) = __gd_call.begin::<#ty>()?;
                    let __gd_result = #steps::#method(__gd_steps, __gd_state, &mut __gd_cx).await;
                    __gd_cx.finish(__gd_result)
                }),
                recover: |__gd_steps, __gd_error, __gd_call| #private::Box::pin(async move {
                    let (__gd_state, mut __gd_cx) = __gd_call.begin::<#ty>()?;
                    let __gd_result =
                        #steps::#error_method(__gd_steps, __gd_state, __gd_error, &mut __gd_cx).await;
                    __gd_cx.finish(__gd_result)
                }),
            }
        }
    });
    let signals = machine.options.signals.iter().map(|TakenSignal { cfgs, path }| {
        let private = at(place(path.span()), private);
        quote!(#(#cfgs)* #private::signal_name::<Self, #path>())
    });
    let signals = quote!(const { &[#(#signals),*] });
    let discovered = machine.options.steps.as_ref().map(|ty| {
        let default = quote_spanned!(ty.span()=> <#ty as ::core::default::Default>::default());
        quote! {
            #private::inventory::submit! { #private::Discovered(|| #ident::machine(#default)) }
        }
    });
    quote! {
        #[automatically_derived]
        impl #ident {
            /// The machine with its steps, to be registered with an engine.
            #[must_use]
            #vis fn machine(steps: impl #steps) -> #private::MachineEntry {
                #private::entry::<Self, _, _>(steps, [#(#entries),*], [#(#code),*], &[], #signals)
            }
        }
        #discovered
    }
}

fn state_entry(machine: &Machine, state: &State) -> TokenStream {
    let private = &machine.private;
    let (step, _) = state.step_name();
    let aliases = state.options.aliases.iter().map(LitStr::value);
    let timeout = option_tokens(state.options.timeout.map(duration_tokens));
    let retry = state.options.retry.as_ref().or(machine.options.retry.as_ref());
    let retry = option_tokens(retry.map(|retry| retry.tokens(private, NO_LIMIT)));
    let inline = state.options.inline.unwrap_or(machine.options.inline);
    quote! {
        #private::StateEntry {
            step: #step,
            aliases: &[#(#aliases),*],
            timeout: #timeout,
            retry: #retry,
            inline: #inline,
        }
    }
}

/// `impl Machine`.
pub(crate) fn machine_impl(machine: &Machine) -> TokenStream {
    let Machine { private, ident, options, .. } = machine;
    let name = machine.name();
    let version = options.version.unwrap_or(1);
    let queue = options.queue.as_ref().map_or_else(|| "default".into(), LitStr::value);
    let output = options.output.as_ref().map_or_else(|| quote!(()), |ty| quote!(#ty));
    let arms = machine.states.iter().map(|state| {
        let ty = state.ty();
        let names = [state.step_name().0].into_iter().chain(state.options.aliases.iter().map(LitStr::value));
        quote!(#(#names)|* => #private::decode::<#ty, Self>(__gd_state),)
    });
    quote! {
        #[automatically_derived]
        impl #private::Machine for #ident {
            type Output = #output;
            const NAME: &'static str = #name;
            const VERSION: u32 = #version;
            const QUEUE: &'static str = #queue;

            fn decode(__gd_step: &str, __gd_state: &str) -> ::core::result::Result<Self, #private::String> {
                match __gd_step {
                    #(#arms)*
                    _ => ::core::result::Result::Err(#private::unknown_step::<Self>(__gd_step)),
                }
            }
        }
    }
}

/// What makes a type the state of a machine, and the conversions between both.
pub(crate) fn state_impls(machine: &Machine, state: &State) -> TokenStream {
    let Machine { private, ident, .. } = machine;
    let variant = &state.ident;
    let ty = state.ty();
    let (step, _) = state.step_name();
    let (pattern, value) = match &state.kind {
        Kind::Unit => (quote!(), quote!(Self)),
        Kind::Own(_) => (quote!((__gd_0)), quote!(__gd_0)),
        Kind::Struct(fields) => {
            let names = fields.named.iter().map(|field| &field.ident);
            let locals = (0..fields.named.len()).map(|at| format_ident!("__gd_{at}"));
            let body = quote!({ #(#names: #locals),* });
            (body.clone(), quote!(Self #body))
        }
        Kind::Tuple(fields) => {
            let locals = (0..fields.len()).map(|at| format_ident!("__gd_{at}"));
            let body = quote!(( #(#locals),* ));
            (body.clone(), quote!(Self #body))
        }
    };
    let (from, into) = match &state.kind {
        Kind::Own(_) => (quote!(__gd_0), quote!((__gd_0))),
        Kind::Unit => (quote!(_), quote!()),
        _ => (quote!(#ty #pattern), pattern.clone()),
    };
    let other =
        (machine.variants > 1).then(|| quote!(__gd_other => ::core::result::Result::Err(__gd_other),));
    quote_spanned! {place(variant.span())=>
        #[automatically_derived]
        impl #private::State for #ty {
            type Machine = #ident;
            const STEP: &'static str = #step;
            const STORED: #private::Stored<Self> = #private::stored::<#ty>();
        }

        #[automatically_derived]
        impl ::core::convert::From<#ty> for #ident {
            fn from(#from: #ty) -> Self {
                Self::#variant #into
            }
        }

        #[automatically_derived]
        impl ::core::convert::TryFrom<#ident> for #ty {
            type Error = #ident;

            fn try_from(__gd_machine: #ident) -> ::core::result::Result<Self, #ident> {
                match __gd_machine {
                    #ident::#variant #pattern => ::core::result::Result::Ok(#value),
                    #other
                }
            }
        }
    }
}

/// Where instances may start, go and finish.
fn rules(machine: &Machine) -> TokenStream {
    let private = &machine.private;
    let mut rules = TokenStream::new();
    for (at, state) in machine.states.iter().enumerate() {
        let ty = state.ty();
        let span = place(state.ident.span());
        if machine.is_initial(at) {
            rules.extend(quote_spanned!(span=> #[automatically_derived] impl #private::Initial for #ty {}));
        }
        if state.options.finishes {
            rules.extend(quote_spanned!(span=> #[automatically_derived] impl #private::Finishes for #ty {}));
        }
        for target in &state.options.next {
            for to in machine.states.iter().filter(|state| state.ident == *target).map(State::ty) {
                let span = place(target.span());
                rules.extend(
                    quote_spanned!(span=> #[automatically_derived] impl #private::Follows<#ty> for #to {}),
                );
            }
        }
    }
    rules
}

/// Which signals the machine takes, and that no two of them have one name.
fn signals(machine: &Machine) -> TokenStream {
    let Machine { private, ident, options, .. } = machine;
    let signals = options.signals.iter().enumerate().map(|(index, signal)| {
        let TakenSignal { cfgs, path } = signal;
        let span = place(path.span());
        let private = at(span, private);
        let earlier = options.signals[..index].iter().map(|other| {
            let TakenSignal { cfgs, path: earlier } = other;
            let problem = format!(
                "`{ident}` takes two signals that have one name in the store: `{}` and `{}`; change one by `#[signal(name = \"...\")]`",
                other.text(),
                signal.text(),
            );
            quote_spanned! {span=>
                #(#cfgs)*
                #private::distinct_signals(
                    #private::signal_name::<#ident, #earlier>(),
                    #private::signal_name::<#ident, #path>(),
                    #problem,
                );
            }
        });
        let distinct = (index > 0).then(|| quote_spanned!(span=> #(#cfgs)* const _: () = { #(#earlier)* };));
        quote_spanned! {span=>
            #(#cfgs)*
            #[automatically_derived]
            impl #private::SignalFor<#ident> for #path {}
            #distinct
        }
    });
    signals.collect()
}
