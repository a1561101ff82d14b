//! The tests that need a database, in one binary so that everything links once.

mod attempts;
mod errors;
mod harness;
mod ingest;
mod jobs;
mod outcomes;
mod panics;
mod payloads;
mod running;
mod scheduling;
mod store;
mod support;
mod undecodable;
