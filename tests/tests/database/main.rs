//! The tests that need a database, in one binary so that everything links once.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "in helpers of tests, too, a panic is a failure"
)]

mod bulk;
mod checkout;
mod conformance;
mod crash;
mod desk;
mod economy;
mod example;
mod family;
mod fleet;
mod freeze;
mod harness;
mod held;
mod ingest;
mod jobs;
mod listening;
mod model;
mod names;
mod nodes;
mod options;
mod outage;
mod payloads;
mod poison;
mod pooler;
mod pools;
mod replies;
mod results;
mod retention;
mod running;
mod shutdown;
mod snapshots;
mod sqlite;
mod statements;
mod store;
mod support;
mod tangles;
mod telemetry;
mod testing;
mod timeouts;
mod topologies;
mod transactions;
mod transfers;
mod versions;
mod work;
mod zones;
