//! The tests that need a database, in one binary so that everything links once.

mod attempts;
mod conformance;
mod crash;
mod errors;
mod fleet;
mod harness;
mod ingest;
mod jobs;
mod payloads;
mod running;
mod sqlite;
mod store;
mod support;
mod timeouts;
mod versions;
mod zones;
