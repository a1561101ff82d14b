//! Effects in the engine's own database happen exactly once, whatever dies: the same test on each store.
#![allow(clippy::duplicate_mod, reason = "the file is there once for each store")]

#[path = "."]
mod postgres {
    use std::process::Command;

    use gen_durable_tests::Bed as PostgresBed;

    pub(crate) type Bed = PostgresBed;
    pub(crate) type Database = sqlx::Postgres;
    pub(crate) const INSTANCES: &str = "gen_durable.instances";
    pub(crate) const KILLS: u64 = 30;

    pub(crate) fn pool(bed: &Bed) -> sqlx::PgPool {
        bed.pool.clone()
    }

    pub(crate) fn child(bed: &Bed) -> Command {
        bed.database.child("transfers::postgres::accounts::child_makes_transfers").unwrap()
    }

    mod accounts;
}

#[path = "."]
mod sqlite {
    use std::process::Command;

    use gen_durable_tests::SqliteBed;

    pub(crate) type Bed = SqliteBed;
    pub(crate) type Database = sqlx::Sqlite;
    pub(crate) const INSTANCES: &str = "gen_durable_instances";
    pub(crate) const KILLS: u64 = 30;

    pub(crate) fn pool(bed: &Bed) -> sqlx::SqlitePool {
        bed.pool()
    }

    pub(crate) fn child(bed: &Bed) -> Command {
        bed.child("transfers::sqlite::accounts::child_makes_transfers").unwrap()
    }

    mod accounts;
}
