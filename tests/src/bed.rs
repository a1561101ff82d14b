//! A migrated database for one test, and engines on it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gen_durable::{Engine, EngineBuilder, migrate};
use sqlx::PgPool;

use crate::Database;

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

    /// An engine for this test: a name of its own, no discovered jobs, and a lease of 1.5 s, so that what a
    /// lease decides is decided soon.
    pub fn engine(&self) -> EngineBuilder {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        Engine::postgres(self.pool.clone())
            .name(format!("test {}", COUNT.fetch_add(1, Ordering::Relaxed)))
            .jobs([])
            .lease_ttl(Duration::from_millis(1500))
            .heartbeat(Duration::from_millis(300))
            .reaper(Duration::from_millis(300))
            .poll_interval(Duration::from_millis(200))
            .max_poll_interval(Duration::from_secs(1))
    }
}
