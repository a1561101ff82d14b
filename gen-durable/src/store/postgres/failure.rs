//! From the driver's errors to the store's three kinds.

use std::fmt;
use std::time::Duration;

use crate::error::BoxError;
use crate::store::StoreError;

/// What went wrong with which statement. Shows the driver's error itself instead of naming it as its source.
#[derive(Debug)]
struct Failure {
    statement: &'static str,
    cause: sqlx::Error,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let statement = self.statement;
        match self.cause.as_database_error() {
            Some(error) => match error.code() {
                Some(code) => write!(f, "statement `{statement}`: {} (SQLSTATE {code})", error.message()),
                None => write!(f, "statement `{statement}`: {}", error.message()),
            },
            None => write!(f, "statement `{statement}`: {}", self.cause),
        }
    }
}

impl std::error::Error for Failure {}

/// The one place that decides whether the data was refused, the database is unavailable, or the statement failed.
///
/// Refused are data exceptions (22), violated constraints (23) and exceeded limits of the program (54), and what
/// the driver cannot even send. Everything else may pass. Unavailable is the database to all alike when a
/// connection is lost (08), it is read-only (25), met a conflict (40), is out of something (53), waits for locks (55),
/// is told to stop (57) or cannot read its files (58). Codes that we do not know are of the statement.
pub(super) fn classify(statement: &'static str, cause: sqlx::Error) -> StoreError {
    let kind: fn(BoxError) -> StoreError = match (&cause, sqlstate(&cause)) {
        (sqlx::Error::Encode(_), _) => StoreError::Rejected,
        (_, None) => StoreError::Unavailable,
        (_, Some(code)) => match code.get(..2) {
            Some("22" | "23" | "54") => StoreError::Rejected,
            Some("08" | "25" | "40" | "53" | "55" | "57" | "58") => StoreError::Unavailable,
            _ => StoreError::Failed,
        },
    };
    kind(Box::new(Failure { statement, cause }))
}

/// No answer came in time.
pub(super) fn overdue(statement: &'static str, after: Duration) -> StoreError {
    StoreError::Unavailable(format!("statement `{statement}`: no answer within {after:?}").into())
}

/// Something in the database that this binary does not understand.
pub(super) fn unknown(statement: &'static str, what: impl fmt::Display) -> StoreError {
    StoreError::Unavailable(format!("statement `{statement}`: {what}; deploy a newer build").into())
}

/// Whether a unique index refused the data.
pub(super) fn is_duplicate(error: &StoreError) -> bool {
    has_code(error, "23505")
}

/// Whether a lock was waited for in vain.
pub(super) fn is_lock_timeout(error: &StoreError) -> bool {
    has_code(error, "55P03")
}

fn has_code(error: &StoreError, wanted: &str) -> bool {
    let (StoreError::Unavailable(source) | StoreError::Failed(source) | StoreError::Rejected(source)) = error;
    let failure = source.downcast_ref::<Failure>();
    failure.and_then(|failure| sqlstate(&failure.cause)).is_some_and(|code| code == wanted)
}

/// Whether the error is about the connection and not about what was sent over it.
pub(super) fn is_about_connection(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_) => true,
        // The server shuts down, crashed, or starts (57P01 to 57P03), or says that the connection is broken.
        _ => sqlstate(error).is_some_and(|code| code.starts_with("57P") || code.starts_with("08")),
    }
}

fn sqlstate(error: &sqlx::Error) -> Option<String> {
    error.as_database_error().and_then(|error| error.code()).map(std::borrow::Cow::into_owned)
}
