//! Databases to play on.

use std::sync::Arc;

use gen_durable::store::sqlite::SqliteStore;
use gen_durable::store::{Clock, Store};
use gen_durable_tests::{Bed, SqliteBed};
use sqlx::{PgPool, SqlitePool};
use tokio::runtime::Runtime;

/// Databases of one kind.
pub(crate) trait Ground {
    /// A store without instances.
    fn fresh(&mut self, runtime: &Runtime) -> Arc<dyn Store>;

    /// A way to wait for locks, where refused statements keep some for a moment after they were answered.
    fn locks(&self) -> Option<PgPool>;

    /// How many signals are there, as far as that can be seen.
    async fn signals(&self) -> i64;
}

/// One database, cleared now and then.
pub(crate) struct Postgres(Option<(Bed, Arc<dyn Store>)>);

impl Postgres {
    pub(crate) fn new() -> Self {
        Self(None)
    }
}

impl Ground for Postgres {
    fn fresh(&mut self, runtime: &Runtime) -> Arc<dyn Store> {
        /// Leaves no dead rows behind either.
        const CLEAR: &str = "truncate gen_durable.instances, gen_durable.signals, gen_durable.workers";
        let _inside = runtime.enter();
        if let Some((bed, store)) = &self.0 {
            runtime.block_on(sqlx::raw_sql(CLEAR).execute(&bed.pool)).unwrap();
            return Arc::clone(store);
        }
        let bed = runtime.block_on(Bed::create());
        let store = bed.store();
        self.0 = Some((bed, Arc::clone(&store)));
        store
    }

    fn locks(&self) -> Option<PgPool> {
        self.0.as_ref().map(|(bed, _)| bed.pool.clone())
    }

    async fn signals(&self) -> i64 {
        let Some((bed, _)) = &self.0 else { return 0 };
        sqlx::query_scalar("select count(*) from gen_durable.signals").fetch_one(&bed.pool).await.unwrap()
    }
}

/// In memory, or in a file, where others read than the one that writes.
pub(crate) enum Sqlite {
    Memory,
    File(Option<(SqliteBed, SqlitePool)>),
}

impl Sqlite {
    /// What a thread plays on.
    pub(crate) fn new(thread: u32) -> Self {
        if thread.is_multiple_of(2) { Self::Memory } else { Self::File(None) }
    }
}

impl Ground for Sqlite {
    fn fresh(&mut self, runtime: &Runtime) -> Arc<dyn Store> {
        let _inside = runtime.enter();
        let store: Arc<dyn Store> = match self {
            Self::Memory => Arc::new(SqliteStore::in_memory(Clock::system())),
            Self::File(old) => {
                let bed = runtime.block_on(SqliteBed::create());
                let (store, pool) = (bed.store(), bed.pool());
                *old = Some((bed, pool));
                store
            }
        };
        runtime.block_on(store.check()).unwrap().unwrap();
        store
    }

    fn locks(&self) -> Option<PgPool> {
        None
    }

    async fn signals(&self) -> i64 {
        let Self::File(Some((_, pool))) = self else { return 0 };
        sqlx::query_scalar("select count(*) from gen_durable_signals").fetch_one(pool).await.unwrap()
    }
}
