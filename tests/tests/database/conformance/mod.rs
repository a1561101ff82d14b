//! What every store must do. Each test is written once, in the files beside this one, and runs on each store, under
//! the store's name: `cargo test --test database conformance::sqlite`.
//!
//! A test says `use super::Bed;` and gets the bed of its store. A new store brings a bed with the same methods,
//! and lists the files once more.
#![allow(clippy::duplicate_mod, reason = "each file is there once for each store")]

#[path = "."]
pub(crate) mod postgres {
    pub(crate) use gen_durable_tests::Bed;
    pub(crate) use sqlx::{Postgres as Db, Sqlite as OtherDb};

    /// Connections of the test's own.
    pub(crate) fn pool(bed: &Bed) -> sqlx::Pool<Db> {
        bed.pool.clone()
    }

    mod attempts;
    mod cancelling;
    mod children;
    mod claims;
    mod engine;
    mod errors;
    mod keys;
    mod life;
    mod outcomes;
    mod panics;
    mod retrying;
    mod scheduling;
    pub(crate) mod setup;
    mod signals;
    mod store_cancelling;
    mod store_children;
    mod store_keys;
    mod store_signals;
    mod store_transactions;
    mod transactions;
    mod undecodable;
    mod values;
}

#[path = "."]
mod sqlite {
    pub(crate) use gen_durable_tests::SqliteBed as Bed;
    pub(crate) use sqlx::{Postgres as OtherDb, Sqlite as Db};

    /// Connections of the test's own.
    pub(crate) fn pool(bed: &Bed) -> sqlx::Pool<Db> {
        bed.pool()
    }

    mod attempts;
    mod cancelling;
    mod children;
    mod claims;
    mod engine;
    mod errors;
    mod keys;
    mod life;
    mod outcomes;
    mod panics;
    mod retrying;
    mod scheduling;
    mod setup;
    mod signals;
    mod store_cancelling;
    mod store_children;
    mod store_keys;
    mod store_signals;
    mod store_transactions;
    mod transactions;
    mod undecodable;
    mod values;
}
