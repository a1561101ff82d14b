//! A migrated database for one test, and engines on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gen_durable::store::Store;
use gen_durable::store::postgres::{PostgresStore, Schema};
use gen_durable::{Engine, EngineBuilder, InstanceId, migrate};
use sqlx::PgPool;

use crate::Database;

/// The clock of a store.
#[derive(Debug, Clone)]
pub enum TestClock {
    /// The database's own.
    Database(PgPool),
    /// That of the process.
    Process,
}

impl TestClock {
    /// What time it is, in microseconds.
    ///
    /// # Panics
    ///
    /// When the database cannot be asked.
    pub async fn micros(&self) -> i64 {
        match self {
            Self::Database(pool) => {
                let clock = "select (extract(epoch from clock_timestamp()) * 1000000)::bigint";
                sqlx::query_scalar(clock).fetch_one(pool).await.expect("the database's clock")
            }
            Self::Process => chrono::Utc::now().timestamp_micros(),
        }
    }
}

/// A migrated database for one test.
#[derive(Debug)]
pub struct Bed {
    /// The database.
    pub database: Database,
    /// The test's own pool on it; engines open connections of their own.
    pub pool: PgPool,
}

impl Bed {
    /// A fresh database on this process's server, migrated.
    ///
    /// # Panics
    ///
    /// When there is no server, with words on what to do.
    pub async fn create() -> Self {
        Self::on(Database::create().await).await
    }

    /// The database that the parent process made for this one, migrated by the parent.
    pub fn of_parent() -> Self {
        let database = Database::of_parent();
        let pool = database.pool();
        Self { database, pool }
    }

    /// Migrates a database.
    ///
    /// # Panics
    ///
    /// When it cannot be migrated.
    pub async fn on(database: Database) -> Self {
        let pool = database.pool();
        migrate::up(&pool).await.expect("a fresh database can be migrated");
        Self { database, pool }
    }

    /// A store on the database, with connections of its own.
    pub fn store(&self) -> Arc<dyn Store> {
        Arc::new(PostgresStore::new(self.pool.clone(), Schema::default(), None))
    }

    /// The clock that delays go by.
    pub fn clock(&self) -> TestClock {
        TestClock::Database(self.pool.clone())
    }

    /// Makes a row ready as an older or newer build would have left it.
    ///
    /// # Panics
    ///
    /// When there is no such row.
    pub async fn leave(&self, id: InstanceId, step: &str, state: &str) {
        let text = "update gen_durable.instances
            set step = $2, state = $3::json, status = 'ready', eligible_at = now(), finished_at = null, error = null
            where id = $1";
        let left = sqlx::query(text).bind(id.as_uuid()).bind(step).bind(state).execute(&self.pool).await;
        assert_eq!(left.expect("it is left").rows_affected(), 1);
    }

    /// An engine for this test: a name of its own, no discovered jobs, and a lease of 1.5 s, so that what a
    /// lease decides is decided soon.
    pub fn engine(&self) -> EngineBuilder {
        Self::engine_on(self.pool.clone())
    }

    /// The same on another way to the database.
    pub fn engine_on(pool: PgPool) -> EngineBuilder {
        for_tests(Engine::postgres(pool))
    }
}

/// The options of engines in tests.
pub(crate) fn for_tests(engine: EngineBuilder) -> EngineBuilder {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    engine
        .name(format!("test {}", COUNT.fetch_add(1, Ordering::Relaxed)))
        .jobs([])
        .lease_ttl(Duration::from_millis(1500))
        .heartbeat(Duration::from_millis(300))
        .reaper(Duration::from_millis(300))
        .poll_interval(Duration::from_millis(200))
        .max_poll_interval(Duration::from_secs(1))
}
