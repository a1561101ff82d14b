//! The schema in PostgreSQL.

use sqlx::pool::PoolConnection;
use sqlx::postgres::PgPool;
use sqlx::{AssertSqlSafe, Connection, PgConnection, raw_sql};

use super::{Migration, admits_code, migration};
use crate::error::Error;
use crate::store::StoreError;
use crate::store::postgres::{DEFAULT_SCHEMA, Schema};

/// What this build counts as when a migration names the oldest code that it admits. Raise it with each migration
/// that older statements cannot live with, and with each change of statements that such a migration is to tell
/// apart.
const CODE: i32 = 1;

const MIGRATIONS: &[Migration] = &[migration!(1, "postgres/0001_instances")];

/// The version that this build needs.
const LATEST: i32 = 1;

const BOOKKEEPING: &str = include_str!("../../migrations/postgres/bookkeeping.sql");

/// The migration and its record, to be run in one transaction.
fn up_text(migration: &Migration, schema: &Schema) -> String {
    let record = format!(
        "insert into {{schema}}.migrations (version, oldest_code) values ({}, {});\n",
        migration.version,
        migration.oldest_code()
    );
    format!("{}\n{}", schema.put_into(migration.up), schema.put_into(&record))
}

/// Installs or updates the default schema. See [`Migrations::up`].
///
/// # Errors
///
/// As [`Migrations::up`].
pub async fn up(pool: &PgPool) -> Result<(), Error> {
    schema(DEFAULT_SCHEMA).up(pool).await
}

/// Takes the default schema back to a version. See [`Migrations::down`].
///
/// # Errors
///
/// As [`Migrations::down`].
pub async fn down(pool: &PgPool, version: u32) -> Result<(), Error> {
    schema(DEFAULT_SCHEMA).down(pool, version).await
}

/// The version of the default schema. See [`Migrations::version`].
///
/// # Errors
///
/// As [`Migrations::version`].
pub async fn version(pool: &PgPool) -> Result<u32, Error> {
    schema(DEFAULT_SCHEMA).version(pool).await
}

/// The statements that install the default schema. See [`Migrations::sql`].
///
/// # Errors
///
/// As [`Migrations::sql`].
pub fn sql() -> Result<String, Error> {
    schema(DEFAULT_SCHEMA).sql(0)
}

/// The migrations of a schema of another name.
#[must_use]
pub fn schema(name: &str) -> Migrations<'_> {
    Migrations { schema: name }
}

/// The migrations of one schema.
#[derive(Debug, Clone, Copy)]
pub struct Migrations<'a> {
    schema: &'a str,
}

impl Migrations<'_> {
    /// Runs the migrations that are missing, all in one transaction.
    ///
    /// Any number of nodes may do so at once: one works, the others wait for it. Whoever is killed on the way
    /// leaves nothing behind. A schema that is there, or newer than this build, is left alone.
    ///
    /// Needs the right to create a schema in the database, unless the schema exists. Cancel-safe.
    ///
    /// # Errors
    ///
    /// [`Error::Option`] for a name that cannot be a schema's; [`Error::Store`] when the database refuses.
    pub async fn up(&self, pool: &PgPool) -> Result<(), Error> {
        let schema = Schema::new(self.schema)?;
        let mut connection = own_connection(pool).await?;
        let mut transaction = connection.begin().await.map_err(failed)?;
        lock(&mut transaction, &schema).await?;
        if !exists(&mut transaction, &schema).await? {
            run(&mut transaction, schema.put_into("create schema {schema}")).await?;
        }
        if !keeps_books(&mut transaction, &schema).await? {
            run(&mut transaction, schema.put_into(BOOKKEEPING)).await?;
        }
        let installed = installed(&mut transaction, &schema).await?;
        for migration in MIGRATIONS.iter().filter(|migration| migration.version > installed) {
            run(&mut transaction, up_text(migration, &schema)).await?;
        }
        transaction.commit().await.map_err(failed)
    }

    /// Undoes migrations until the given version is reached; 0 removes all tables **and everything in them**.
    ///
    /// The schema itself stays, as others may have made it. Stop all engines before.
    ///
    /// # Errors
    ///
    /// [`Error::Option`] for a name that cannot be a schema's; [`Error::Schema`] if the database has migrations
    /// that this build does not know; [`Error::Store`] when the database refuses.
    pub async fn down(&self, pool: &PgPool, version: u32) -> Result<(), Error> {
        let schema = Schema::new(self.schema)?;
        let target = i32::try_from(version).unwrap_or(i32::MAX);
        let mut connection = own_connection(pool).await?;
        let mut transaction = connection.begin().await.map_err(failed)?;
        lock(&mut transaction, &schema).await?;
        if !keeps_books(&mut transaction, &schema).await? {
            return Ok(());
        }
        let installed = installed(&mut transaction, &schema).await?;
        if installed > LATEST {
            let problem = format!(
                "the database is at version {installed}, and this build knows how to undo up to {LATEST}; use the \
                 build that migrated it"
            );
            return Err(Error::Schema { schema: schema.name().to_owned(), problem });
        }
        let undone = MIGRATIONS.iter().rev().filter(|m| m.version <= installed && m.version > target);
        for migration in undone {
            let forget = format!("delete from {{schema}}.migrations where version = {};", migration.version);
            let text = format!("{}\n{forget}", migration.down);
            run(&mut transaction, schema.put_into(&text)).await?;
        }
        if target == 0 {
            run(&mut transaction, schema.put_into("drop table {schema}.migrations")).await?;
        }
        transaction.commit().await.map_err(failed)
    }

    /// The version of the schema in the database; 0 if nothing is installed.
    ///
    /// # Errors
    ///
    /// [`Error::Option`] for a name that cannot be a schema's; [`Error::Store`] when the database refuses.
    pub async fn version(&self, pool: &PgPool) -> Result<u32, Error> {
        let schema = Schema::new(self.schema)?;
        let mut connection = own_connection(pool).await?;
        let mut transaction = connection.begin().await.map_err(failed)?;
        if !keeps_books(&mut transaction, &schema).await? {
            return Ok(0);
        }
        Ok(installed(&mut transaction, &schema).await?.unsigned_abs())
    }

    /// The statements that lead from a version (0: nothing is installed) to the latest, for other tools.
    ///
    /// They do what [`Migrations::up`] does, records included; run them in one transaction.
    ///
    /// # Errors
    ///
    /// [`Error::Option`] for a name that cannot be a schema's.
    pub fn sql(&self, from: u32) -> Result<String, Error> {
        let schema = Schema::new(self.schema)?;
        let mut text = String::new();
        if from == 0 {
            text.push_str(&schema.put_into("create schema if not exists {schema};\n\n"));
            text.push_str(&schema.put_into(BOOKKEEPING));
        }
        let missing = MIGRATIONS.iter().filter(|migration| migration.version.unsigned_abs() > from);
        for migration in missing {
            text.push('\n');
            text.push_str(&up_text(migration, &schema));
        }
        Ok(text)
    }
}

/// Whether this build can work with a schema, or what to do.
pub(crate) fn admits(installed: i32, oldest_code: i32) -> Result<(), String> {
    if installed == 0 {
        return Err(
            "the database is not migrated; run `gen_durable::migrate::up` before the engine starts".into()
        );
    }
    if installed < LATEST {
        return Err(format!(
            "the database is at version {installed}, and this build needs {LATEST}; run \
             `gen_durable::migrate::up` before the engine starts"
        ));
    }
    admits_code(installed, oldest_code, CODE)
}

/// A connection that is closed when it drops. One of the pool's would go back to it, and when the driver's `begin`
/// is dropped on the way (sqlx 0.9.0), the next one to borrow it would find itself in that transaction.
async fn own_connection(pool: &PgPool) -> Result<PgConnection, Error> {
    pool.acquire().await.map(PoolConnection::detach).map_err(failed)
}

// The statements below have no names and run in a transaction, so that a transaction-mode pooler may be on the way.

/// Lets one migration of a schema run at a time, until the transaction ends.
async fn lock(connection: &mut PgConnection, schema: &Schema) -> Result<(), Error> {
    sqlx::query("select pg_advisory_xact_lock(hashtextextended('gen_durable.migrate.' || $1, 0))")
        .persistent(false)
        .bind(schema.name())
        .execute(connection)
        .await
        .map(drop)
        .map_err(failed)
}

/// Asked first, because `create schema if not exists` needs its right even when there is nothing to create.
async fn exists(connection: &mut PgConnection, schema: &Schema) -> Result<bool, Error> {
    sqlx::query_scalar("select exists (select from pg_catalog.pg_namespace where nspname = $1)")
        .persistent(false)
        .bind(schema.name())
        .fetch_one(connection)
        .await
        .map_err(failed)
}

async fn keeps_books(connection: &mut PgConnection, schema: &Schema) -> Result<bool, Error> {
    sqlx::query_scalar(include_str!("../store/postgres/sql/keeps_books.sql"))
        .persistent(false)
        .bind(schema.name())
        .fetch_one(connection)
        .await
        .map_err(failed)
}

async fn installed(connection: &mut PgConnection, schema: &Schema) -> Result<i32, Error> {
    let text = schema.put_into("select coalesce(max(version), 0) from {schema}.migrations");
    sqlx::query_scalar(AssertSqlSafe(text)).persistent(false).fetch_one(connection).await.map_err(failed)
}

async fn run(connection: &mut PgConnection, text: String) -> Result<(), Error> {
    raw_sql(AssertSqlSafe(text)).execute(connection).await.map(drop).map_err(failed)
}

fn failed(error: sqlx::Error) -> Error {
    Error::Store { operation: "migrating", source: StoreError::Unavailable(error.into()) }
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
    fn a_database_that_does_not_fit_is_told_with_the_way_out() {
        assert!(admits(0, 0).expect_err("empty").contains("migrate::up"));
        assert!(admits(LATEST - 1, 1).expect_err("old").contains("migrate::up"));
        assert!(admits(LATEST + 1, CODE + 1).expect_err("new").contains("deploy"));
        assert_eq!(admits(LATEST, CODE), Ok(()));
        assert_eq!(admits(LATEST + 1, CODE), Ok(()), "a newer schema that still admits this build");
    }

    #[test]
    fn the_text_for_other_tools_starts_where_it_is_told() {
        let all = schema("here").sql(0).expect("a good name");
        assert!(all.contains("create schema if not exists \"here\"") && !all.contains("{schema}"));
        assert_eq!(schema("here").sql(LATEST.unsigned_abs()).expect("a good name"), "");
        assert!(schema("No!").sql(0).is_err());
    }
}
