//! The code of a job. Nothing here can fail: what gets here has been checked, or made harmless.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{FnArg, LitStr, ReturnType, Type};

use super::parse::Job;
use crate::options::{at, duration_tokens, is_foreign, option_tokens, place};

/// How often a job is started if it does not say.
const MAX_ATTEMPTS: u32 = 20;

/// Everything that a correct job expands to, besides the function.
pub(crate) fn job(job: &Job<'_>) -> TokenStream {
    let Some(argument) = job.argument else { return TokenStream::new() };
    let (private, ty, function) = (&job.private, &argument.ty, &job.function.sig.ident);
    let ReturnType::Type(_, result) = &job.function.sig.output else { return TokenStream::new() };
    // Both at the type, so that a wrong one is one error.
    let there = at(result.span(), private);
    let output = quote_spanned!(result.span()=> <#result as #there::JobReturn>::Output);
    let converted = quote_spanned!(result.span()=> <#result as #there::JobReturn>::into_job_result);
    let context = job.context.map(|_| quote!(, &mut __gd_cx));
    let mutable = job.context.map(|_| quote!(mut));
    // The name's place makes a future that is not `Send` an error at the function.
    let span = place(function.span());
    let here = at(span, private);
    let run = quote_spanned! {span=>
        |(), __gd_call| #here::run_job(__gd_call, |__gd_job: #ty, #mutable __gd_cx| async move {
            let __gd_result = #function(__gd_job #context).await;
            __gd_cx.finish_job(#converted(__gd_result))
        })
    };
    let timeout = option_tokens(job.options.timeout.map(duration_tokens));
    let retry = job.options.retry.tokens(private, MAX_ATTEMPTS);
    let resources = &job.options.resources;
    let entry = quote! {
        #private::job_entry::<Self>(#run, #timeout, #retry, const { &[#(#private::Resource::of::<#resources>()),*] })
    };
    let uses = resources
        .iter()
        .map(|resource| quote!(#[automatically_derived] impl #private::Uses<#resource> for #ty {}));
    let impls = impls(job, ty, &output, &entry);
    let cfgs = &job.cfgs;
    quote! {
        #(#cfgs)*
        const _: () = {
            #impls
            #(#uses)*
            #private::inventory::submit! { #private::Discovered(<#ty as #private::Job>::job) }
        };
    }
}

/// What a job with mistakes expands to next to its errors and its function, so that code which uses it
/// causes no further errors.
pub(crate) fn stubs(job: &Job<'_>) -> TokenStream {
    let Some(argument) = job.argument else { return TokenStream::new() };
    let (private, ty, cfgs) = (&job.private, &argument.ty, &job.cfgs);
    let signature = &job.function.sig;
    let method = signature.inputs.iter().any(|input| matches!(input, FnArg::Receiver(_)));
    if is_foreign(ty) || !signature.generics.params.is_empty() || method {
        return TokenStream::new();
    }
    let output = match &job.function.sig.output {
        ReturnType::Type(_, ty) if !matches!(&**ty, Type::ImplTrait(_)) => {
            quote!(<#ty as #private::JobReturn>::Output)
        }
        _ => quote!(()),
    };
    let impls = impls(job, ty, &output, &quote!(#private::stub()));
    quote! {
        #(#cfgs)*
        const _: () = {
            #impls
            #[automatically_derived]
            impl<__GdResource> #private::Uses<__GdResource> for #ty {}
        };
    }
}

fn impls(job: &Job<'_>, ty: &Type, output: &TokenStream, entry: &TokenStream) -> TokenStream {
    let private = &job.private;
    let name = job.name();
    let version = job.options.version.unwrap_or(1);
    let queue = job.options.queue.as_ref().map_or_else(|| "default".into(), LitStr::value);
    let span = place(ty.span());
    quote_spanned! {span=>
        #[automatically_derived]
        impl #private::Machine for #ty {
            type Output = #output;
            const NAME: &'static str = #name;
            const VERSION: u32 = #version;
            const QUEUE: &'static str = #queue;

            fn decode(__gd_step: &str, __gd_state: &str) -> ::core::result::Result<Self, #private::String> {
                match __gd_step {
                    #name => #private::decode::<Self, Self>(__gd_state),
                    _ => ::core::result::Result::Err(#private::unknown_step::<Self>(__gd_step)),
                }
            }
        }

        #[automatically_derived]
        impl #private::State for #ty {
            type Machine = Self;
            const STEP: &'static str = #name;
            const STORED: #private::Stored<Self> = #private::stored::<#ty>();
        }

        #[automatically_derived]
        impl #private::Initial for #ty {}

        #[automatically_derived]
        impl #private::Finishes for #ty {}

        #[automatically_derived]
        impl #private::Job for #ty {
            fn job() -> #private::MachineEntry {
                #entry
            }
        }
    }
}
