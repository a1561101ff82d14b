//! The code of a job. Nothing here can fail: what gets here has been checked, or made harmless.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{LitStr, ReturnType, Type};

use super::parse::Job;
use crate::options::{duration_tokens, option_tokens};

/// How often a job is started if it does not say.
const MAX_ATTEMPTS: u32 = 20;

/// Everything that a correct job expands to, besides the function.
pub(crate) fn job(job: &Job<'_>) -> TokenStream {
    let Some(argument) = job.argument else { return TokenStream::new() };
    let (private, ty, function) = (&job.private, &argument.ty, &job.function.sig.ident);
    let output = match &job.function.sig.output {
        ReturnType::Type(_, ty) => quote_spanned!(ty.span()=> <#ty as #private::JobReturn>::Output),
        ReturnType::Default => quote!(()),
    };
    let context = job.context.map(|_| quote!(, &mut __gd_cx));
    let mutable = job.context.map(|_| quote!(mut));
    // The name's span makes a future that is not `Send` an error at the function.
    let run = quote_spanned! {function.span()=>
        |_, __gd_call| #private::Box::pin(async move {
            let (__gd_job, #mutable __gd_cx) = __gd_call.begin::<#ty>()?;
            let __gd_result = #function(__gd_job #context).await;
            __gd_cx.finish_job(#private::JobReturn::into_job_result(__gd_result))
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
    if !matches!(&**ty, Type::Path(_)) || !job.function.sig.generics.params.is_empty() {
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
    quote! {
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
