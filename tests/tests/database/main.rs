//! The tests that need a database, in one binary so that everything links once.

mod attempts;
mod errors;
mod harness;
mod ingest;
mod outcomes;
mod panics;
mod running;
mod store;
mod support;
