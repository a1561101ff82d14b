//! From tokens to the model of a job.

use std::time::Duration;

use proc_macro2::TokenStream;
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, FnArg, LitStr, PatType, Signature, Token, Type, Visibility};

use crate::errors::Errors;
use crate::keys::{self, Known, key};
use crate::names::snake_case_of;
use crate::options::{self, RETRY_KEYS, Retry};

/// A function without its body: that may be half typed, and is the compiler's to judge.
pub(crate) struct Function {
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) sig: Signature,
}

impl Parse for Function {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let attrs = input.call(Attribute::parse_outer)?;
        input.parse::<Visibility>()?;
        let starts = input.peek(Token![fn]) || input.peek(Token![async]) || input.peek(Token![const]);
        if !starts && !input.peek(Token![unsafe]) && !input.peek(Token![extern]) {
            return Err(input.error(
                "`#[durable_job]` goes on an async function, whose first parameter is the job's argument",
            ));
        }
        let sig = input.parse()?;
        input.parse::<TokenStream>()?;
        Ok(Self { attrs, sig })
    }
}

/// A job as it was written.
pub(crate) struct Job<'a> {
    /// Path of the module that generated code names.
    pub(crate) private: TokenStream,
    pub(crate) function: &'a Function,
    pub(crate) options: JobOptions,
    /// `cfg` attributes of the function, which apply to what is generated, too.
    pub(crate) cfgs: Vec<&'a Attribute>,
    /// The first parameter.
    pub(crate) argument: Option<&'a PatType>,
    /// The second one.
    pub(crate) context: Option<&'a PatType>,
}

/// The arguments of `#[durable_job(...)]`.
#[derive(Default)]
pub(crate) struct JobOptions {
    pub(crate) name: Option<LitStr>,
    pub(crate) version: Option<u32>,
    pub(crate) queue: Option<LitStr>,
    pub(crate) retry: Retry,
    pub(crate) timeout: Option<Duration>,
    pub(crate) resources: Vec<Type>,
}

const KEYS: [Known; 9] = [
    key("name", "name = \"send_mail\""),
    key("version", "version = 1"),
    key("queue", "queue = \"default\""),
    RETRY_KEYS[0],
    RETRY_KEYS[1],
    RETRY_KEYS[2],
    key("timeout", "timeout = \"30s\""),
    key("resources", "resources(Mailer)"),
    key("crate", "crate = path::to::gen_durable"),
];

/// Reads the function and the attribute's arguments.
pub(crate) fn job<'a>(arguments: TokenStream, function: &'a Function, errors: &Errors) -> Job<'a> {
    let mut options = JobOptions::default();
    let mut krate = quote!(::gen_durable);
    let mut seen = Vec::new();
    keys::read(arguments, "#[durable_job(...)]", &KEYS, &mut seen, errors, |key, input| {
        match key.known.key {
            "name" => options.name = Some(options::name(key, input)?),
            "version" => options.version = Some(options::positive(key, input)?),
            "queue" => options.queue = Some(options::name(key, input)?),
            "timeout" => options.timeout = Some(options::timeout(key, input)?),
            "resources" => options.resources = keys::values(key.list(input)?)?,
            "crate" => krate = options::crate_path(key, input)?,
            _ => options.retry.read_key(key, input)?,
        }
        Ok(())
    });
    let mut parameters = function.sig.inputs.iter().filter_map(|input| match input {
        FnArg::Typed(parameter) => Some(parameter),
        FnArg::Receiver(_) => None,
    });
    Job {
        private: quote!(#krate::__private),
        function,
        options,
        cfgs: function.attrs.iter().filter(|attribute| attribute.path().is_ident("cfg")).collect(),
        argument: parameters.next(),
        context: parameters.next(),
    }
}

impl Job<'_> {
    /// Name of the job in the store, which is that of its only step, too.
    pub(crate) fn name(&self) -> String {
        self.options.name.as_ref().map_or_else(|| snake_case_of(&self.function.sig.ident), LitStr::value)
    }
}
