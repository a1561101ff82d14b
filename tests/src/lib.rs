//! What the tests and the measurements of `gen-durable` stand on: a PostgreSQL server and fresh databases.
//!
//! A test asks for [`Database::create`] and gets an empty database of its own on the one server of its
//! process; a test of outages asks for [`Server::start`] and gets a whole server that it may stop and kill.
//! Both use the server binaries that are installed; with `DATABASE_URL` set, [`Database::create`] uses that
//! server instead. Nothing outlives the process, not even one that was killed.

mod bed;
mod binaries;
mod cluster;
mod database;
#[cfg(doctest)]
mod guides;
mod pooler;
mod process;
mod proxy;
mod server;
mod sqlite_bed;
mod wait;

pub use bed::{Bed, TestClock};
pub use database::Database;
pub use pooler::Pooler;
pub use process::{Process, end_with_parent};
pub use proxy::Proxy;
pub use server::{Server, ServerOptions};
pub use sqlite_bed::SqliteBed;
pub use wait::{until, until_within};
