//! In the transactions of users, and in those that steps are lent.

use sqlx::SqliteConnection;

use super::connection::{Connections, Durability, Slot, Transaction, Writer};
use super::leash::Holder;
use super::{flush, query, statements};
use crate::id::WorkerId;
#[cfg(feature = "postgres")]
use crate::store::foreign;
use crate::store::{Commit, DonePolicy, Flush, Flushed, Joined, StoreError, StoreResult, UserTransaction};

/// Begins a step's transaction.
///
/// These are plain statements, so that what ends the transaction does not depend on how the user's code used the driver.
/// The savepoint is gone when SQLite rolled the transaction back by itself. Foreign keys are checked as on any connection
/// that sqlx opens, which cannot be changed inside of a transaction.
const BEGIN: &str = "pragma foreign_keys = on; begin immediate; savepoint gen_durable_step";

/// The connection that writes, inside a transaction, for a step. Nothing is committed on it before its end.
///
/// Rolled back when it is dropped, and a statement that still runs is interrupted: a file's connection is closed; the one of a database in memory, which would be lost with
/// it, is rolled back before its next use.
#[derive(Debug)]
pub struct StepSession {
    slot: Slot,
    is_file: bool,
}

impl StepSession {
    pub(crate) fn connection(&mut self) -> &mut SqliteConnection {
        &mut self.writer().connection
    }

    pub(crate) fn look(&self) -> &SqliteConnection {
        &self.slot.as_ref().expect(OPEN).connection
    }

    fn writer(&mut self) -> &mut Writer {
        self.slot.as_mut().expect(OPEN)
    }

    /// Commits the transaction with the step's outcome, unless the row is no longer the worker's.
    pub(super) async fn finish(
        mut self,
        connections: &Connections,
        now: i64,
        worker: WorkerId,
        commit: &Commit,
        policy: DonePolicy,
    ) -> StoreResult<Flush> {
        let Some((fate, joined)) = self.write(now, worker, commit, policy).await? else {
            if self.writer().tell("rollback").await.is_ok() {
                self.give_back().await;
            }
            return Ok(Flush { fates: vec![Flushed::Stale], joined: Joined::default() });
        };
        self.writer().leash.hand_to(Holder::Store);
        if let Err(error) = self.writer().tell("commit").await {
            drop(self);
            // It may be on disk nevertheless.
            let found = flush::settle(connections, worker, &[commit]).await.unwrap_or_default();
            let fates: Vec<Flushed> = found.into_iter().map(|(_, fate)| fate).collect();
            return if fates.is_empty() { Err(error) } else { Ok(Flush { fates, joined }) };
        }
        self.give_back().await;
        Ok(Flush { fates: vec![fate], joined })
    }

    /// Writes the step's outcome, where the worker still owns the row.
    async fn write(
        &mut self,
        now: i64,
        worker: WorkerId,
        commit: &Commit,
        policy: DonePolicy,
    ) -> StoreResult<Option<(Flushed, Joined)>> {
        self.writer().tell("release gen_durable_step").await.map_err(ended_early)?;
        let mut transaction = Transaction::Lent(self.connection());
        flush::commit_in(&mut transaction, now, worker, commit, policy).await
    }

    /// Makes the connection what it was. When that fails, it is treated like one that was dropped.
    async fn give_back(mut self) {
        let writer = self.writer();
        if writer.tell("pragma foreign_keys = off").await.is_ok() {
            writer.leash.hand_to(Holder::Store);
            writer.is_lent = false;
        }
    }
}

impl Drop for StepSession {
    fn drop(&mut self) {
        if !self.writer().is_lent {
            return;
        }
        self.writer().leash.hand_to(Holder::Nobody);
        if self.is_file {
            *self.slot = None;
        }
    }
}

const OPEN: &str = "a session has an open connection";

/// Lends the connection that writes, in a transaction that holds the write lock.
pub(super) async fn begin(connections: &Connections) -> StoreResult<StepSession> {
    let slot = connections.writer().await?;
    let mut session = StepSession { slot, is_file: connections.path().is_some() };
    let writer = session.writer();
    // From here on, whatever is cut short is taken back.
    writer.is_lent = true;
    connections.set(writer, Durability::Durable).await?;
    writer.tell(BEGIN).await?;
    writer.leash.hand_to(Holder::Step);
    Ok(session)
}

/// The user's transaction, if it is one of SQLite.
pub(super) fn of<'t>(transaction: &'t mut UserTransaction<'_>) -> StoreResult<Transaction<'t>> {
    match transaction {
        UserTransaction::Sqlite(connection) => Ok(Transaction::Lent(connection)),
        #[cfg(feature = "postgres")]
        UserTransaction::Postgres(_) => Err(foreign("SQLite")),
    }
}

/// Takes the write lock in a user's transaction.
pub(super) async fn take_turn(transaction: &mut Transaction<'_>) -> StoreResult<()> {
    transaction.run(statements::TAKE_TURN, query(statements::TAKE_TURN)).await.map(drop)
}

fn ended_early(error: StoreError) -> StoreError {
    match error {
        StoreError::Failed(error) => StoreError::Failed(
            format!("the step's transaction ended before its outcome was written; leave that to `finish` ({error})")
                .into(),
        ),
        error => error,
    }
}
