//! One module a command: its arguments and a `run` that returns a [`Report`](crate::report::Report).

pub(crate) mod drain;
pub(crate) mod server;
pub(crate) mod store;
