//! Transactions of users: those that they began themselves, and those that a step is lent.

#[cfg(all(feature = "postgres", feature = "sqlite"))]
use super::StoreError;

/// A transaction that a user began, and will end.
///
/// Made from `&mut` of the driver's transaction or connection, on PostgreSQL or SQLite: `.in_tx(&mut tx)`.
#[derive(Debug)]
#[non_exhaustive]
pub enum UserTransaction<'t> {
    /// On PostgreSQL.
    #[cfg(feature = "postgres")]
    Postgres(&'t mut sqlx::PgConnection),
    /// On the SQLite file of the engine.
    #[cfg(feature = "sqlite")]
    Sqlite(&'t mut sqlx::SqliteConnection),
}

#[cfg(feature = "postgres")]
impl<'t> From<&'t mut sqlx::PgConnection> for UserTransaction<'t> {
    fn from(connection: &'t mut sqlx::PgConnection) -> Self {
        Self::Postgres(connection)
    }
}

#[cfg(feature = "postgres")]
impl<'t> From<&'t mut sqlx::Transaction<'_, sqlx::Postgres>> for UserTransaction<'t> {
    fn from(transaction: &'t mut sqlx::Transaction<'_, sqlx::Postgres>) -> Self {
        Self::Postgres(transaction)
    }
}

#[cfg(feature = "sqlite")]
impl<'t> From<&'t mut sqlx::SqliteConnection> for UserTransaction<'t> {
    fn from(connection: &'t mut sqlx::SqliteConnection) -> Self {
        Self::Sqlite(connection)
    }
}

#[cfg(feature = "sqlite")]
impl<'t> From<&'t mut sqlx::Transaction<'_, sqlx::Sqlite>> for UserTransaction<'t> {
    fn from(transaction: &'t mut sqlx::Transaction<'_, sqlx::Sqlite>) -> Self {
        Self::Sqlite(transaction)
    }
}

/// A connection inside a transaction that a step is lent. What is not committed is rolled back when this is dropped.
#[derive(Debug)]
pub enum StepConnection {
    /// One of the user's pool.
    #[cfg(feature = "postgres")]
    Postgres(super::postgres::StepSession),
    /// The one that writes.
    #[cfg(feature = "sqlite")]
    Sqlite(super::sqlite::StepSession),
}

impl StepConnection {
    /// The transaction as a user's.
    #[must_use]
    pub fn as_users(&mut self) -> UserTransaction<'_> {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(session) => UserTransaction::Postgres(session.connection()),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(session) => UserTransaction::Sqlite(session.connection()),
        }
    }
}

/// A transaction of another database than the engine's.
#[cfg(all(feature = "postgres", feature = "sqlite"))]
pub(crate) fn foreign(wanted: &str) -> StoreError {
    StoreError::Rejected(
        format!("the engine's tables are in {wanted}, and the transaction is of another kind of database")
            .into(),
    )
}
