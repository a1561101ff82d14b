//! From the driver's errors to the store's two kinds.

use std::fmt;

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
            Some(error) => {
                write!(f, "statement `{statement}`: {}", error.message())?;
                error.code().map_or(Ok(()), |code| write!(f, " (SQLite code {code})"))
            }
            None => write!(f, "statement `{statement}`: {}", self.cause),
        }
    }
}

impl std::error::Error for Failure {}

// Primary result codes.
const BUSY: u32 = 5;
const TOO_BIG: u32 = 18;
const CONSTRAINT: u32 = 19;
const MISMATCH: u32 = 20;

/// The one place that decides whether the data was refused or the database is unavailable.
///
/// Refused are violated constraints, wrong types and texts that are too long, and what the driver cannot even send.
/// Everything else may pass: a busy file, a full disk, a lost mount, and codes that we do not know.
pub(super) fn classify(statement: &'static str, cause: sqlx::Error) -> StoreError {
    let refused = match &cause {
        sqlx::Error::Encode(_) => true,
        _ => matches!(primary_code(&cause), Some(TOO_BIG | CONSTRAINT | MISMATCH)),
    };
    let failure = Box::new(Failure { statement, cause });
    if refused { StoreError::Rejected(failure) } else { StoreError::Unavailable(failure) }
}

/// Something in the database that this binary does not understand.
pub(super) fn unknown(statement: &'static str, what: impl fmt::Display) -> StoreError {
    StoreError::Unavailable(format!("statement `{statement}`: {what}; deploy a newer build").into())
}

/// Whether somebody else held the file for longer than we wait.
pub(super) fn is_busy(error: &sqlx::Error) -> bool {
    primary_code(error) == Some(BUSY)
}

/// The driver gives the extended code, whose lowest byte is the primary one.
fn primary_code(error: &sqlx::Error) -> Option<u32> {
    let code = error.as_database_error()?.code()?.parse::<u32>().ok()?;
    Some(code & 0xff)
}
