//! An engine that runs steps when the test says so.

use std::future::Future;
use std::ops::Deref;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;

use super::builder::TestEngineBuilder;
use super::tally::Tally;
use crate::engine::{Engine, Inline};
#[cfg(feature = "sqlite")]
use crate::store::Clock;
use crate::store::{StoreError, StoreResult};
use crate::telemetry::{EventStream, Notice};

/// Where a test engine's time comes from.
#[derive(Debug, Clone)]
pub(super) enum Time {
    /// The test moves it.
    #[cfg(feature = "sqlite")]
    Virtual(Clock, Arc<crate::store::sqlite::SqliteStore>),
    /// Delays can only be cut short.
    #[cfg(feature = "postgres")]
    OfDatabase(Arc<crate::store::postgres::PostgresStore>),
}

impl Time {
    /// The virtual time, in microseconds.
    pub(super) fn now(&self) -> Option<i64> {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Virtual(clock, _) => Some(clock.micros()),
            #[cfg(feature = "postgres")]
            Self::OfDatabase(_) => None,
        }
    }
}

/// An [`Engine`] for tests: nothing runs until [`drain`](Self::drain) or [`advance`](Self::advance) is called, and
/// then in the calling task, one step after the other.
///
/// Claims, execution and commits are those of production, and so are error methods, retries and limits. Everything
/// that an engine has can be called on it, `insert` above all. Each test has its own; any number run in parallel.
///
/// Do not wait for results before the steps ran: `handle.result()` would wait for ever.
#[derive(Debug)]
pub struct TestEngine {
    engine: Engine,
    pub(super) inline: Inline,
    pub(super) time: Time,
    max_steps: u64,
    events: EventStream,
}

impl Deref for TestEngine {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}

impl TestEngine {
    /// A test engine on a database in memory of its own, with virtual time that begins now.
    #[cfg(feature = "sqlite")]
    pub fn in_memory() -> TestEngineBuilder {
        TestEngineBuilder::in_memory()
    }

    /// A test engine on PostgreSQL, in a schema that is migrated and runs nothing else. Its time is the database's:
    /// [`drain`](Self::drain) cuts delays short, and [`advance`](Self::advance) does not work.
    ///
    /// # Errors
    ///
    /// [`Error::Option`](crate::Error::Option) for a name that cannot be a schema's.
    #[cfg(feature = "postgres")]
    pub fn postgres(pool: sqlx::PgPool, schema: &str) -> Result<TestEngineBuilder, crate::Error> {
        TestEngineBuilder::postgres(pool, schema)
    }

    pub(super) fn new(engine: Engine, inline: Inline, time: Time, max_steps: u64) -> Self {
        let events = engine.events();
        Self { engine, inline, time, max_steps, events }
    }

    /// Runs everything to its rest, delays and backoffs included: time jumps to whatever is due next.
    ///
    /// Waits for signals stay: time does not jump for their timeouts. To let one time out, [`advance`](Self::advance).
    ///
    /// # Panics
    ///
    /// After [`max_steps`](TestEngineBuilder::max_steps), and when the database fails.
    #[track_caller]
    pub fn drain(&mut self) -> impl Future<Output = Tally> + Send + '_ {
        let caller = Location::caller();
        async move {
            let mut tally = Tally::default();
            let drained = self.try_drain(&mut tally).await;
            self.settle(drained, tally, caller)
        }
    }

    /// Runs what is ready now, and no more: delays stay.
    ///
    /// # Panics
    ///
    /// As [`drain`](Self::drain).
    #[track_caller]
    pub fn run_ready(&mut self) -> impl Future<Output = Tally> + Send + '_ {
        let caller = Location::caller();
        async move {
            let mut tally = Tally::default();
            let ran = self.run(&mut tally).await.map(drop);
            self.settle(ran, tally, caller)
        }
    }

    /// Lets this much time pass, and runs whatever is due on the way, each at its time.
    ///
    /// # Panics
    ///
    /// As [`drain`](Self::drain); and on PostgreSQL, whose time is not ours to move.
    #[track_caller]
    pub fn advance(&mut self, by: Duration) -> impl Future<Output = Tally> + Send + '_ {
        let caller = Location::caller();
        async move {
            let mut tally = Tally::default();
            let advanced = self.try_advance(by, &mut tally).await;
            self.settle(advanced, tally, caller)
        }
    }

    fn settle(&self, ran: StoreResult<()>, tally: Tally, caller: &Location<'_>) -> Tally {
        if let Err(error) = ran {
            panic!("the test engine stopped at {caller}: {}", error.chain());
        }
        tally
    }

    async fn try_drain(&mut self, tally: &mut Tally) -> StoreResult<()> {
        while self.run(tally).await?.is_some() {
            let Some(due) = self.next_start().await? else { break };
            self.pass(due, tally).await?;
        }
        Ok(())
    }

    /// Time until the next delayed instance is due, waits not counted.
    async fn next_start(&self) -> StoreResult<Option<Duration>> {
        match &self.time {
            #[cfg(feature = "sqlite")]
            Time::Virtual(_, store) => store.next_start().await,
            #[cfg(feature = "postgres")]
            Time::OfDatabase(store) => store.next_start().await,
        }
    }

    async fn try_advance(&mut self, by: Duration, tally: &mut Tally) -> StoreResult<()> {
        #[cfg(feature = "postgres")]
        if matches!(self.time, Time::OfDatabase(_)) {
            let problem = "the database's time cannot be moved; use `drain`, or a test engine in memory";
            return Err(StoreError::Unavailable(problem.into()));
        }
        let mut left = by;
        while let Some(due) = self.run(tally).await?.filter(|due| *due <= left) {
            left = left.saturating_sub(due);
            self.pass(due, tally).await?;
        }
        self.pass(left, tally).await?;
        self.run(tally).await.map(drop)
    }

    /// Runs all that is ready; returns the time until something is due.
    async fn run(&mut self, tally: &mut Tally) -> StoreResult<Option<Duration>> {
        self.inline.beat().await?;
        loop {
            while self.inline.run_next().await? {
                while let Some(Some(Notice::Event(event))) = self.events.next().now_or_never() {
                    tally.note(&event);
                }
                if tally.steps > self.max_steps {
                    let problem = format!(
                        "after {} steps nothing has come to rest ({}); if so many are meant, raise \
                         `max_steps`",
                        self.max_steps,
                        tally.most()
                    );
                    return Err(StoreError::Unavailable(problem.into()));
                }
            }
            let promoted = self.inline.promote().await?;
            if promoted.count == 0 {
                return Ok(promoted.next_due);
            }
        }
    }

    /// Lets time pass until something is due.
    async fn pass(&self, due: Duration, tally: &mut Tally) -> StoreResult<()> {
        tally.passed = tally.passed.saturating_add(due);
        match &self.time {
            #[cfg(feature = "sqlite")]
            Time::Virtual(clock, _) => clock.advance(due),
            #[cfg(feature = "postgres")]
            Time::OfDatabase(store) => {
                let hastened = store.hasten(&self.inline.queues(), self.inline.machines()).await?;
                if !hastened {
                    // What is due next is not ours, or somebody holds it.
                    tokio::time::sleep(due.min(Duration::from_millis(10))).await;
                }
            }
        }
        Ok(())
    }
}
