//! The tests that need a database, in one binary so that everything links once.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "in helpers of tests, too, a panic is a failure"
)]

mod conformance;
mod crash;
mod fleet;
mod freeze;
mod harness;
mod ingest;
mod jobs;
mod listening;
mod nodes;
mod outage;
mod payloads;
mod poison;
mod pools;
mod replies;
mod running;
mod sqlite;
mod store;
mod support;
mod timeouts;
mod versions;
mod zones;
