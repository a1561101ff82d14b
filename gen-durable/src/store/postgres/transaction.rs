//! In the transactions of users, and in those that steps are lent.

use std::time::{Duration, Instant};

use sqlx::pool::PoolConnection;
use sqlx::postgres::PgTransactionManager;
use sqlx::{PgConnection, PgPool, Postgres};
use sqlx_core::transaction::TransactionManager;

use super::connection::Session;
use super::coordination::bind_signals;
use super::failure::{classify, is_lock_timeout};
use super::{PostgresStore, read};
use crate::id::WorkerId;
#[cfg(feature = "sqlite")]
use crate::store::foreign;
use crate::store::{
    Commit, Delivered, Flush, Flushed, Joined, NewSignal, StepConnection, StoreError, StoreResult,
    UserTransaction,
};

/// For how long the database is asked what became of a commit whose answer was lost.
const SETTLE_PATIENCE: Duration = Duration::from_secs(10);
const SETTLE_REST: Duration = Duration::from_millis(100);

/// A connection of the user's pool in a transaction, for a step.
///
/// When it is dropped before the transaction is over, the connection is closed: it may be amid a statement, and a pool that
/// takes it back has no use for it until that ends.
#[derive(Debug)]
pub struct StepSession {
    connection: PoolConnection<Postgres>,
    is_over: bool,
}

impl StepSession {
    pub(crate) fn connection(&mut self) -> &mut PgConnection {
        &mut self.connection
    }

    pub(crate) fn look(&self) -> &PgConnection {
        &self.connection
    }

    async fn begin(pool: &PgPool) -> sqlx::Result<Self> {
        let mut session = Self { connection: pool.acquire().await?, is_over: false };
        // As the driver does, which then knows that a `begin` inside is a savepoint.
        PgTransactionManager::begin(&mut session.connection, None).await?;
        Ok(session)
    }

    async fn commit(mut self) -> sqlx::Result<()> {
        PgTransactionManager::commit(&mut self.connection).await?;
        self.is_over = true;
        Ok(())
    }

    async fn rollback(mut self) -> sqlx::Result<()> {
        PgTransactionManager::rollback(&mut self.connection).await?;
        self.is_over = true;
        Ok(())
    }
}

impl Drop for StepSession {
    fn drop(&mut self) {
        if !self.is_over {
            self.connection.close_on_drop();
        }
    }
}

impl PostgresStore {
    /// The user's transaction as a session, if it is one of PostgreSQL.
    pub(super) fn session<'t>(&self, transaction: &'t mut UserTransaction<'_>) -> StoreResult<Session<'t>> {
        match transaction {
            UserTransaction::Postgres(connection) => Ok(Session::of(connection, self.source.route())),
            #[cfg(feature = "sqlite")]
            UserTransaction::Sqlite(_) => Err(foreign("PostgreSQL")),
        }
    }

    pub(super) async fn send_signals_in(
        &self,
        session: &mut Session<'_>,
        signals: &[NewSignal],
    ) -> StoreResult<Vec<Delivered>> {
        let statement = &self.statements.signal_in_transaction;
        let rows = session.rows(statement, |query| bind_signals(signals, query)).await?;
        rows.iter().map(read::delivered).collect()
    }

    pub(super) async fn begin_for_step(&self) -> StoreResult<StepConnection> {
        let begun = StepSession::begin(&self.source.pool()).await;
        begun.map(StepConnection::Postgres).map_err(|error| classify("begin", error))
    }

    /// Commits a step's transaction with its outcome, unless the row is no longer the worker's.
    pub(super) async fn finish_for_step(
        &self,
        connection: StepConnection,
        worker: WorkerId,
        commit: &Commit,
        delete: bool,
    ) -> StoreResult<Flush> {
        let mut step = match connection {
            StepConnection::Postgres(session) => session,
            #[cfg(feature = "sqlite")]
            StepConnection::Sqlite(_) => return Err(foreign("PostgreSQL")),
        };
        let mut has_row = false;
        let answer = loop {
            let mut inside = Session::of(step.connection(), self.source.route());
            let (fates, joined) = match self.write_together(&mut inside, worker, delete, &[], &[commit]).await
            {
                Ok(written) => written,
                Err(error) => break Err(error),
            };
            if let Some(fate) = fates.into_values().next() {
                drop(inside);
                return match step.commit().await {
                    Ok(()) => Ok(Flush { fates: vec![fate], joined }),
                    Err(error) => self.ask_about(worker, commit, joined, classify("commit", error)).await,
                };
            }
            let missed = match self.settle_in(&mut inside, worker, &[commit]).await {
                Ok(missed) => missed.into_values().next().map(|missed| missed.fate),
                Err(error) => break Err(error),
            };
            match missed {
                // A signal is on its way, or the row is read for somebody: it takes no longer than a commit.
                Some(Flushed::Locked) if !has_row => {
                    let id = commit.held.id.as_uuid();
                    match inside.rows(&self.statements.await_row, |query| query.bind(id)).await {
                        Ok(rows) => has_row = !rows.is_empty(),
                        Err(error) if is_lock_timeout(&error) => break Ok(Flushed::Locked),
                        Err(error) => break Err(error),
                    }
                }
                Some(Flushed::Locked) => break Ok(Flushed::Locked),
                // Also when an outcome of this step was committed before: that did not bring these writes.
                _ => break Ok(Flushed::Stale),
            }
        };
        // One that is only dropped closes its connection, and keeps its locks a little longer.
        let _ = step.rollback().await;
        answer.map(|fate| Flush { fates: vec![fate], joined: Joined::default() })
    }

    /// Asks what became of a commit whose answer is an error.
    async fn ask_about(
        &self,
        worker: WorkerId,
        commit: &Commit,
        joined: Joined,
        error: StoreError,
    ) -> StoreResult<Flush> {
        let began = Instant::now();
        loop {
            match self.settle(worker, &[commit]).await {
                Ok(settled) => {
                    return match settled.into_values().next().map(|missed| missed.fate) {
                        Some(fate @ Flushed::Committed { .. }) => Ok(Flush { fates: vec![fate], joined }),
                        // Not committed, and still the worker's: the step has failed.
                        Some(_) => Err(error),
                        None => Ok(Flush { fates: vec![Flushed::Stale], joined: Joined::default() }),
                    };
                }
                Err(_) if began.elapsed() < SETTLE_PATIENCE => tokio::time::sleep(SETTLE_REST).await,
                Err(_) => return Err(error),
            }
        }
    }
}
