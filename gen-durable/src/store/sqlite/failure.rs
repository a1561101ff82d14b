//! From the driver's errors to the store's two kinds.

use std::fmt;

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
            Some(error) => {
                write!(f, "statement `{statement}`: {}", error.message())?;
                error.code().map_or(Ok(()), |code| write!(f, " (SQLite code {code})"))
            }
            None => write!(f, "statement `{statement}`: {}", self.cause),
        }
    }
}

impl std::error::Error for Failure {}

/// Somebody else held the file for longer than we wait.
const BUSY: u32 = 5;
/// Primary codes of a file that cannot be used now, by any statement: locked, out of memory, read-only, interrupted,
/// input or output failed, full, not to be opened, a lock that misbehaves, and no database at all.
const OF_THE_FILE: [u32; 10] = [BUSY, 6, 7, 8, 9, 10, 13, 14, 15, 26];
/// Primary codes of data that no try can store: too big, a violated constraint, the wrong type.
const OF_THE_DATA: [u32; 3] = [18, 19, 20];
/// The extended code of a trigger's exception, whose primary code is that of a constraint.
const TRIGGER: u32 = 1811;

/// The one place that decides whether the data was refused, the database is unavailable, or the statement failed.
///
/// Refused is, too, what the driver cannot even send. Codes that we do not know are of the statement.
pub(super) fn classify(statement: &'static str, cause: sqlx::Error) -> StoreError {
    let kind: fn(BoxError) -> StoreError = match (&cause, code(&cause)) {
        (sqlx::Error::Encode(_), _) => StoreError::Rejected,
        (_, None) => StoreError::Unavailable,
        (_, Some(TRIGGER)) => StoreError::Failed,
        (_, Some(code)) if OF_THE_DATA.contains(&primary(code)) => StoreError::Rejected,
        (_, Some(code)) if OF_THE_FILE.contains(&primary(code)) => StoreError::Unavailable,
        _ => StoreError::Failed,
    };
    kind(Box::new(Failure { statement, cause }))
}

/// Something in the database that this binary does not understand.
pub(super) fn unknown(statement: &'static str, what: impl fmt::Display) -> StoreError {
    StoreError::Unavailable(format!("statement `{statement}`: {what}; deploy a newer build").into())
}

/// Whether somebody else held the file for longer than we wait.
pub(super) fn is_busy(error: &sqlx::Error) -> bool {
    code(error).map(primary) == Some(BUSY)
}

/// The extended code.
fn code(error: &sqlx::Error) -> Option<u32> {
    error.as_database_error()?.code()?.parse().ok()
}

fn primary(code: u32) -> u32 {
    code & 0xff
}
