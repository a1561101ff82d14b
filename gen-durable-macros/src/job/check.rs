//! What can be wrong with a job: one check a function.

use quote::ToTokens;
use syn::{FnArg, ReturnType, Type};

use super::parse::Job;
use crate::errors::Errors;
use crate::names::MAX_NAME;
use crate::options::is_foreign;

/// Reports everything that is wrong with the job.
pub(crate) fn check(job: &Job<'_>, errors: &Errors) {
    is_async(job, errors);
    is_plain(job, errors);
    no_generics(job, errors);
    name_fits_the_store(job, errors);
    has_its_parameters(job, errors);
    argument_is_a_type_of_the_users(job, errors);
    context_is_a_reference(job, errors);
    returns_a_result(job, errors);
    resources_differ(job, errors);
}

fn is_async(job: &Job<'_>, errors: &Errors) {
    let signature = &job.function.sig;
    if signature.asyncness.is_none() {
        errors.at(signature.fn_token, "a job is an async function; write `async fn`");
    }
}

fn is_plain(job: &Job<'_>, errors: &Errors) {
    let signature = &job.function.sig;
    let reason = "a job is a plain async function; remove this";
    if let Some(token) = &signature.constness {
        errors.at(token, reason);
    }
    if let syn::Safety::Unsafe(token) = &signature.safety {
        errors.at(token, reason);
    }
    if let Some(abi) = &signature.abi {
        errors.at(abi, reason);
    }
}

fn no_generics(job: &Job<'_>, errors: &Errors) {
    let generics = &job.function.sig.generics;
    for parameter in &generics.params {
        let reason = match parameter {
            syn::GenericParam::Lifetime(_) => {
                "a job has no lifetimes: its argument is owned, and so is its output"
            }
            _ => "a job cannot be generic: it is stored and found by its argument's one type; write the type",
        };
        errors.at(parameter, reason);
    }
    if let Some(clause) = &generics.where_clause {
        errors.at(
            clause,
            "a job has no parameters of its own, so a `where` clause says nothing about it; remove it",
        );
    }
}

fn name_fits_the_store(job: &Job<'_>, errors: &Errors) {
    if job.options.name.is_none() && job.name().len() > MAX_NAME {
        let message = format!("this name is longer than {MAX_NAME} bytes; give `name = \"...\"`");
        errors.at(&job.function.sig.ident, message);
    }
}

fn has_its_parameters(job: &Job<'_>, errors: &Errors) {
    let signature = &job.function.sig;
    for input in &signature.inputs {
        if let FnArg::Receiver(receiver) = input {
            errors.at(
                receiver,
                "a job is a function of its own, not a method; move it out of the `impl`, and share data by `resources(...)`",
            );
        }
    }
    if signature.inputs.is_empty() {
        let name = &signature.ident;
        errors.at(
            name,
            format!("a job needs an argument, a type of your own; write `async fn {name}(job: MyJob) -> JobResult<()>`"),
        );
    }
    for extra in signature.inputs.iter().filter(|input| matches!(input, FnArg::Typed(_))).skip(2) {
        errors
            .at(extra, "a job has one argument and its context; put further data into the argument's fields");
    }
}

fn argument_is_a_type_of_the_users(job: &Job<'_>, errors: &Errors) {
    let Some(argument) = job.argument else { return };
    if let Type::Reference(_) = &*argument.ty {
        errors.at(&argument.ty, "a job owns its argument, which comes from the store; take it by value");
    } else if is_foreign(&argument.ty) {
        errors.at(&argument.ty, "a job is known by the type of its argument; make it a struct of your own");
    }
}

fn context_is_a_reference(job: &Job<'_>, errors: &Errors) {
    let Some(context) = job.context else { return };
    if !matches!(&*context.ty, Type::Reference(_)) {
        let argument =
            job.argument.map(|argument| argument.ty.to_token_stream().to_string()).unwrap_or_default();
        let message =
            format!("the second parameter of a job is its context; write `cx: &mut Context<{argument}>`");
        errors.at(&context.ty, message);
    }
}

fn returns_a_result(job: &Job<'_>, errors: &Errors) {
    let signature = &job.function.sig;
    match &signature.output {
        ReturnType::Default => {
            let message = "a job says how it ended; write `-> JobResult<()>`, and `Ok(())` at its end";
            errors.at(&signature.ident, message);
        }
        ReturnType::Type(_, ty) => {
            if let Type::ImplTrait(_) = &**ty {
                errors.at(ty, "the output of a job needs a name; write `-> JobResult<T>`");
            }
        }
    }
}

fn resources_differ(job: &Job<'_>, errors: &Errors) {
    let names: Vec<String> =
        job.options.resources.iter().map(|ty| ty.to_token_stream().to_string()).collect();
    for (at, resource) in job.options.resources.iter().enumerate() {
        if names[..at].contains(&names[at]) {
            errors.at(resource, format!("`{}` is named twice in `resources`; keep one", names[at]));
        }
    }
}
