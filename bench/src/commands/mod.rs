//! One module a command: its arguments and a `run` that returns a [`Report`](crate::report::Report).

pub(crate) mod backlog;
pub(crate) mod delays;
pub(crate) mod drain;
pub(crate) mod fanout;
pub(crate) mod idle;
pub(crate) mod insert;
pub(crate) mod pickup;
pub(crate) mod recovery;
pub(crate) mod server;
pub(crate) mod signal;
pub(crate) mod steps;
pub(crate) mod store;
pub(crate) mod stores;
