//! A step's own writes and its outcome in one transaction.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::context::Call;
use crate::error::{Error, StepError};
use crate::machine::State;
use crate::outcome::{Outcome, StepResult};
use crate::store::{Commit, Flushed, StepConnection, StoreError, UserTransaction};
use crate::transition::{Committed, Transition};

/// A database that keeps an engine's tables: `sqlx::Postgres` or `sqlx::Sqlite`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a database of gen-durable",
    label = "no database that keeps an engine's tables",
    note = "write `cx.begin::<sqlx::Postgres>()` or `cx.begin::<sqlx::Sqlite>()`, as the engine is on; the feature of that name must be on"
)]
pub trait Backend: sealed::Sealed + sqlx::Database {
    /// Its name, as errors show it.
    #[doc(hidden)]
    const TITLE: &'static str;
    #[doc(hidden)]
    fn connection<'c>(transaction: UserTransaction<'c>) -> Option<&'c mut Self::Connection>;
    #[doc(hidden)]
    fn look(connection: &StepConnection) -> Option<&Self::Connection>;
}

mod sealed {
    pub trait Sealed {}
    #[cfg(feature = "postgres")]
    impl Sealed for sqlx::Postgres {}
    #[cfg(feature = "sqlite")]
    impl Sealed for sqlx::Sqlite {}
}

macro_rules! backend {
    ($feature:literal, $database:ty, $variant:ident, $title:literal) => {
        #[cfg(feature = $feature)]
        #[diagnostic::do_not_recommend]
        impl Backend for $database {
            const TITLE: &'static str = $title;

            fn connection<'c>(transaction: UserTransaction<'c>) -> Option<&'c mut Self::Connection> {
                #[allow(unreachable_patterns)]
                match transaction {
                    UserTransaction::$variant(connection) => Some(connection),
                    _ => None,
                }
            }

            fn look(connection: &StepConnection) -> Option<&Self::Connection> {
                #[allow(unreachable_patterns)]
                match connection {
                    StepConnection::$variant(session) => Some(session.look()),
                    _ => None,
                }
            }
        }
    };
}

backend!("postgres", sqlx::Postgres, Postgres, "PostgreSQL");
backend!("sqlite", sqlx::Sqlite, Sqlite, "SQLite");

/// A transaction that ends with the step's outcome. Made by [`Context::begin`](crate::Context::begin).
///
/// `&mut *tx` is a connection to write with, and the transaction can be given to `.in_tx(&mut tx)`. It is rolled back when
/// it is dropped without [`finish`](Self::finish).
// Without a bound here and on `finish`, a `DB` that is none is one error, and not one for each use.
pub struct StepTransaction<'c, DB> {
    call: &'c Call,
    connection: StepConnection,
    _keeping: Keeping,
    database: PhantomData<fn() -> DB>,
}

impl<DB> fmt::Debug for StepTransaction<'_, DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StepTransaction").field("row", &self.call.row).finish_non_exhaustive()
    }
}

impl<DB: Backend> Deref for StepTransaction<'_, DB> {
    type Target = DB::Connection;

    fn deref(&self) -> &DB::Connection {
        DB::look(&self.connection).expect("begun on this database")
    }
}

impl<DB: Backend> DerefMut for StepTransaction<'_, DB> {
    fn deref_mut(&mut self) -> &mut DB::Connection {
        DB::connection(self.connection.as_users()).expect("begun on this database")
    }
}

impl<'t, DB: Backend> From<&'t mut StepTransaction<'_, DB>> for UserTransaction<'t> {
    fn from(transaction: &'t mut StepTransaction<'_, DB>) -> Self {
        transaction.connection.as_users()
    }
}

/// Watches for how long a step keeps its transaction, where it holds up everybody else.
#[derive(Debug)]
pub(crate) struct Patience {
    bound: Duration,
    since: Mutex<Option<Instant>>,
    begun: Notify,
}

impl Patience {
    pub(crate) fn new(bound: Duration) -> Arc<Self> {
        Arc::new(Self { bound, since: Mutex::new(None), begun: Notify::new() })
    }

    fn set(&self, since: Option<Instant>) {
        *self.since.lock().unwrap_or_else(PoisonError::into_inner) = since;
        self.begun.notify_one();
    }

    fn since(&self) -> Option<Instant> {
        *self.since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the step has kept a transaction for too long; returns for how long it may. Cancel-safe.
    pub(crate) async fn is_lost(&self) -> Duration {
        loop {
            match self.since() {
                None => self.begun.notified().await,
                Some(since) => {
                    tokio::time::sleep_until(since + self.bound).await;
                    if self.since() == Some(since) {
                        return self.bound;
                    }
                }
            }
        }
    }
}

/// Notes that a step keeps a transaction, until it is dropped.
struct Keeping(Option<Arc<Patience>>);

impl Keeping {
    fn begin(patience: Option<&Arc<Patience>>) -> Self {
        if let Some(patience) = patience {
            patience.set(Some(Instant::now()));
        }
        Self(patience.cloned())
    }
}

impl Drop for Keeping {
    fn drop(&mut self) {
        if let Some(patience) = &self.0 {
            patience.set(None);
        }
    }
}

impl<'c, DB: Backend> StepTransaction<'c, DB> {
    pub(crate) async fn begin(call: &'c Call) -> Result<Self, StepError> {
        let Some(store) = &call.scope.store else {
            return Err(StepError::fatal(
                "a context without an engine has no database; test the step with a `TestEngine`",
            ));
        };
        let begun = store.begin_step().await.map_err(Error::store("beginning a transaction"))?;
        let connection = begun.ok_or_else(|| StepError::fatal("this store has no transactions for steps"))?;
        if DB::look(&connection).is_none() {
            let problem = format!(
                "the engine's tables are not in {}; begin on the database that it runs on",
                DB::TITLE
            );
            return Err(StepError::fatal(problem));
        }
        let keeping = Keeping::begin(call.patience.as_ref());
        Ok(Self { call, connection, _keeping: keeping, database: PhantomData })
    }
}

impl<DB> StepTransaction<'_, DB> {
    /// Commits the writes and the outcome together: `tx.finish(cx.done(receipt)).await`. Return what it yields.
    ///
    /// # Errors
    ///
    /// Then nothing was committed: the outcome cannot be stored, the database failed or refused it, or the claim was lost
    /// to another node meanwhile, whose start of the step counts. When the answer to the commit is lost, the database is
    /// asked what became of it, for as long as ten seconds; after that, this is an error although the commit may have
    /// happened: then whatever the error method decides is dropped, as the row has moved on.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it is ready, either both are committed or neither is.
    pub async fn finish<S: State>(mut self, outcome: impl Into<Outcome<S>>) -> StepResult<S> {
        let transition = self.complete(outcome.into().into_transition()?).await?;
        let Call { row, scope, worker, .. } = self.call;
        let Some(store) = &scope.store else { return Err(StepError::fatal("a context without an engine")) };
        let commit = Commit::of(row, transition, false);
        let flush = store.finish_step(self.connection, *worker, &commit, scope.done_policy).await;
        let mut flush = flush.map_err(refused)?;
        match flush.fates.pop() {
            Some(Flushed::Committed { status, watched }) => {
                let transition = Box::new(commit.transition);
                let committed = Committed { transition, status, watched, joined: flush.joined };
                Ok(Outcome::committed(committed))
            }
            Some(Flushed::Locked) => {
                Err(StepError::from("somebody's transaction holds the instance's row; nothing was committed"))
            }
            Some(Flushed::Stale) | None => {
                Err(StepError::from("another node has taken the instance over; nothing was committed"))
            }
        }
    }

    /// Says of children which machines they are of.
    async fn complete(&mut self, mut transition: Transition) -> Result<Transition, StepError> {
        if let (Transition::FanOut { children, .. }, Some(store)) = (&mut transition, &self.call.scope.store)
        {
            let mut known: Vec<((&str, u32), crate::id::MachineId)> = Vec::new();
            for child in children {
                let machine = (child.machine, child.version);
                let found = known.iter().find(|(name, _)| *name == machine).map(|(_, id)| *id);
                let id = match found {
                    Some(id) => id,
                    None => {
                        let id =
                            store.machine_in(&mut self.connection.as_users(), machine.0, machine.1).await;
                        let id = id.map_err(Error::store("registering a machine"))?;
                        known.push((machine, id));
                        id
                    }
                };
                child.instance.machine = id;
            }
        }
        Ok(transition)
    }
}

fn refused(error: StoreError) -> StepError {
    match error {
        StoreError::Rejected(_) => StepError::Unstorable { problem: error.chain() },
        error => Error::store("committing a step's transaction")(error).into(),
    }
}
