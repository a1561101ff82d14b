//! What only the SQLite store does: locks, migrations, crashes of the process.

mod crash;
mod file;
mod patience;
mod statements;
mod transactions;
