//! The tests that need a database, in one binary so that everything links once.

mod harness;
mod ingest;
mod running;
mod store;
