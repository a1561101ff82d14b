//! The tables in a SQLite file.

use std::io;
use std::path::{Path, PathBuf};

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Row, raw_sql};

use super::{Migration, admits_code, migration};
use crate::error::Error;
use crate::store::{StoreError, StoreResult};

/// What this build counts as when a migration names the oldest code that it admits. Raise it with each migration
/// that older statements cannot live with.
const CODE: i32 = 1;

const MIGRATIONS: &[Migration] = &[migration!(1, "sqlite/0001_instances")];

/// The version that this build needs.
const LATEST: i32 = 1;

const BOOKKEEPING: &str = include_str!("../../migrations/sqlite/bookkeeping.sql");

/// The migrations of a SQLite file, for looking at it and for taking them back.
///
/// There is no need to run them: [`Engine::sqlite`](crate::Engine::sqlite) does when it starts, in one transaction, so
/// that a process that is killed on the way leaves nothing behind. A new file is migrated by whoever comes first; an
/// older one only while no engine runs its queues. A file that is newer is left alone, and refused if it does not admit
/// this build.
#[must_use]
pub fn sqlite(path: impl AsRef<Path>) -> SqliteMigrations {
    SqliteMigrations { path: path.as_ref().to_owned() }
}

/// The migrations of one SQLite file.
#[derive(Debug, Clone)]
pub struct SqliteMigrations {
    path: PathBuf,
}

impl SqliteMigrations {
    /// Undoes migrations until the given version is reached; 0 removes all of our tables **and everything in them**.
    ///
    /// Stop all engines before.
    ///
    /// # Errors
    ///
    /// [`Error::Schema`] if the file has migrations that this build does not know; [`Error::Store`] when it cannot be
    /// changed.
    pub async fn down(&self, version: u32) -> Result<(), Error> {
        let target = i32::try_from(version).unwrap_or(i32::MAX);
        let mut connection = self.open().await?;
        let mut transaction = connection.begin_with("begin immediate").await.map_err(failed)?;
        let Some((installed, _)) = installed(&mut transaction).await.map_err(failed)? else { return Ok(()) };
        if installed > LATEST {
            let problem = format!(
                "the file is at version {installed}, and this build knows how to undo up to {LATEST}; use the build \
                 that migrated it"
            );
            return Err(Error::Schema { schema: self.path.display().to_string(), problem });
        }
        let undone = MIGRATIONS.iter().rev().filter(|m| m.version <= installed && m.version > target);
        for migration in undone {
            let forget = format!("delete from gen_durable_migrations where version = {};", migration.version);
            run(&mut transaction, format!("{}\n{forget}", migration.down)).await.map_err(failed)?;
        }
        if target == 0 {
            run(&mut transaction, "drop table gen_durable_migrations".into()).await.map_err(failed)?;
        }
        transaction.commit().await.map_err(failed)
    }

    /// The version of the tables in the file; 0 if there are none.
    ///
    /// # Errors
    ///
    /// [`Error::Store`] when the file cannot be read.
    pub async fn version(&self) -> Result<u32, Error> {
        let mut connection = self.open().await?;
        let installed = installed(&mut connection).await.map_err(failed)?;
        Ok(installed.map_or(0, |(version, _)| version.unsigned_abs()))
    }

    /// The statements that lead from a version (0: nothing is installed) to the latest, for other tools; run them in
    /// one transaction.
    #[must_use]
    pub fn sql(&self, from: u32) -> String {
        let mut text = if from == 0 { BOOKKEEPING.to_owned() } else { String::new() };
        for migration in MIGRATIONS.iter().filter(|migration| migration.version.unsigned_abs() > from) {
            text.push('\n');
            text.push_str(&up_text(migration, "unixepoch() * 1000000"));
        }
        text
    }

    async fn open(&self) -> Result<SqliteConnection, Error> {
        let options = SqliteConnectOptions::new().filename(&self.path).foreign_keys(false);
        options.disable_statement_logging().connect().await.map_err(failed)
    }
}

/// Runs the migrations that are missing, all in one transaction; says what is wrong if this build cannot work with the
/// file.
///
/// `lock` keeps other engines from running queues meanwhile, or says who does.
pub(crate) async fn open<L>(
    connection: &mut SqliteConnection,
    now: i64,
    lock: impl FnOnce() -> io::Result<Result<L, String>> + Send,
) -> StoreResult<Result<(), String>> {
    // A look first, so that joining a file that fits waits for nobody who writes.
    let before = installed(connection).await.map_err(unavailable)?;
    if let Some((version, oldest_code)) = before
        && version >= LATEST
    {
        return Ok(admits_code(version, oldest_code, CODE));
    }
    let lock = match before {
        None => None,
        Some((version, _)) => {
            match lock()
                .map_err(|error| StoreError::Unavailable(format!("cannot lock the file: {error}").into()))?
            {
                Ok(lock) => Some(lock),
                Err(holder) => {
                    return Ok(Err(format!(
                        "the file is at version {version}, this build needs {LATEST}, and another engine ({holder}) \
                         runs its queues; shut that one down first"
                    )));
                }
            }
        }
    };
    let mut transaction = connection.begin_with("begin immediate").await.map_err(unavailable)?;
    run(&mut transaction, BOOKKEEPING.into()).await.map_err(unavailable)?;
    // Once more: somebody else may have been first.
    let (version, _) = installed(&mut transaction).await.map_err(unavailable)?.unwrap_or_default();
    for migration in MIGRATIONS.iter().filter(|migration| migration.version > version) {
        run(&mut transaction, up_text(migration, &now.to_string())).await.map_err(unavailable)?;
    }
    let (version, oldest_code) = installed(&mut transaction).await.map_err(unavailable)?.unwrap_or_default();
    transaction.commit().await.map_err(unavailable)?;
    drop(lock);
    Ok(admits_code(version, oldest_code, CODE))
}

/// The migration and its record.
fn up_text(migration: &Migration, now: &str) -> String {
    let Migration { version, up, .. } = migration;
    let oldest_code = migration.oldest_code();
    format!(
        "{up}\ninsert into gen_durable_migrations (version, oldest_code, applied_at) values ({version}, \
         {oldest_code}, {now});\n"
    )
}

/// Version and oldest code of a file, if it has been migrated at all.
async fn installed(connection: &mut SqliteConnection) -> sqlx::Result<Option<(i32, i32)>> {
    let keeps_books: i64 = sqlx::query_scalar(include_str!("../store/sqlite/sql/keeps_books.sql"))
        .fetch_one(&mut *connection)
        .await?;
    if keeps_books == 0 {
        return Ok(None);
    }
    let row = sqlx::query(include_str!("../store/sqlite/sql/installed.sql")).fetch_one(connection).await?;
    Ok(Some((row.try_get(0)?, row.try_get(1)?)))
}

async fn run(connection: &mut SqliteConnection, text: String) -> sqlx::Result<()> {
    // Safe: static texts and numbers.
    raw_sql(AssertSqlSafe(text)).execute(connection).await.map(drop)
}

fn unavailable(error: sqlx::Error) -> StoreError {
    StoreError::Unavailable(error.into())
}

fn failed(error: sqlx::Error) -> Error {
    Error::Store { operation: "migrating", source: unavailable(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_count_up_and_state_the_oldest_code() {
        for (place, migration) in MIGRATIONS.iter().enumerate() {
            assert_eq!(migration.version as usize, place + 1);
            assert!(migration.up.starts_with("-- oldest-code: "), "version {}", migration.version);
            assert!(migration.oldest_code() <= CODE);
        }
        assert_eq!(MIGRATIONS.len(), LATEST as usize);
    }

    #[test]
    fn a_file_that_does_not_fit_is_told_with_the_way_out() {
        assert!(admits_code(LATEST + 1, CODE + 1, CODE).expect_err("new").contains("deploy"));
        assert_eq!(admits_code(LATEST + 1, CODE, CODE), Ok(()), "a newer file that still admits this build");
    }
}
