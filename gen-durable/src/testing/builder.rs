//! Building a test engine.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::engine::{TestEngine, Time};
use crate::engine::{EngineBuilder, Source};
use crate::error::Error;
use crate::machine::MachineEntry;
#[cfg(feature = "postgres")]
use crate::store::postgres::{PostgresStore, Schema};
#[cfg(feature = "sqlite")]
use crate::store::sqlite::SqliteStore;

/// How many steps one call runs at most, if nothing else is said.
const MAX_STEPS: u64 = 10_000;

/// Builds a [`TestEngine`]. It runs the queues of its machines and jobs, and no discovered jobs.
#[derive(Debug)]
#[must_use = "an engine runs only once it is started"]
pub struct TestEngineBuilder {
    engine: EngineBuilder,
    time: Time,
    max_steps: u64,
}

impl TestEngineBuilder {
    #[cfg(feature = "sqlite")]
    pub(super) fn in_memory() -> Self {
        let clock = crate::store::Clock::manual(chrono::Utc::now());
        let store = Arc::new(SqliteStore::in_memory(clock.clone()));
        let source = Source::Open(Arc::<SqliteStore>::clone(&store));
        Self::on(source, Time::Virtual(clock, store))
    }

    #[cfg(feature = "postgres")]
    pub(super) fn postgres(pool: sqlx::PgPool, schema: &str) -> Result<Self, Error> {
        let store = Arc::new(PostgresStore::new(pool, Schema::new(schema)?, None));
        let source = Source::Open(Arc::<PostgresStore>::clone(&store));
        Ok(Self::on(source, Time::OfDatabase(store)))
    }

    fn on(source: Source, time: Time) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("test engine {}", COUNT.fetch_add(1, Ordering::Relaxed));
        Self { engine: EngineBuilder::new(source).name(name).jobs([]), time, max_steps: MAX_STEPS }
    }

    /// Adds a machine: `Checkout::machine(steps)`.
    pub fn register(self, machine: MachineEntry) -> Self {
        self.configure(|engine| engine.register(machine))
    }

    /// Adds jobs: `SendMail::job()`.
    pub fn jobs(self, jobs: impl IntoIterator<Item = MachineEntry>) -> Self {
        self.configure(|engine| engine.jobs(jobs))
    }

    /// Holds a value for the jobs that declare its type.
    pub fn resource<T: Any + Send + Sync>(self, resource: T) -> Self {
        self.configure(|engine| engine.resource(resource))
    }

    /// Runs one more queue than those that machines and jobs declare.
    pub fn queue(self, queue: impl Into<String>) -> Self {
        self.configure(|engine| engine.queue(queue, 1))
    }

    /// How many steps one [`drain`](TestEngine::drain) or [`advance`](TestEngine::advance) runs before it takes the
    /// machine for a runaway and panics; 10,000 by default.
    pub fn max_steps(mut self, steps: u64) -> Self {
        self.max_steps = steps;
        self
    }

    /// Sets any other option: `.configure(|engine| engine.payload_limit(1024))`.
    pub fn configure(mut self, set: impl FnOnce(EngineBuilder) -> EngineBuilder) -> Self {
        self.engine = set(self.engine);
        self
    }

    /// Starts the engine.
    ///
    /// # Errors
    ///
    /// As [`EngineBuilder::start`].
    pub async fn start(self) -> Result<TestEngine, Error> {
        let (engine, inline) = self.engine.start_inline().await?;
        Ok(TestEngine::new(engine, inline, self.time, self.max_steps))
    }
}
