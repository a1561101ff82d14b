//! The tables: installing them, bringing them up to date, taking them back.
//!
//! On PostgreSQL an operator, or a step of the deployment, migrates before engines start:
//!
//! ```no_run
//! # #[cfg(feature = "postgres")]
//! # async fn example(pool: sqlx::PgPool) -> Result<(), gen_durable::Error> {
//! gen_durable::migrate::up(&pool).await?;
//! // Under another name than `gen_durable`, for an engine with the option `schema`:
//! gen_durable::migrate::schema("orders").up(&pool).await?;
//! # Ok(())
//! # }
//! ```
//!
//! Each migration says which code it still admits, so that nodes of the previous release go on while it runs:
//! migrate first, then deploy.
//!
//! A SQLite file has no operator: an engine migrates it when it starts, see [`sqlite`](fn@sqlite).

#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;

#[cfg(feature = "postgres")]
pub use postgres::{Migrations, down, schema, sql, up, version};
#[cfg(feature = "sqlite")]
pub use sqlite::{SqliteMigrations, sqlite};

/// A step from one version of the tables to the next.
struct Migration {
    version: i32,
    up: &'static str,
    down: &'static str,
}

macro_rules! migration {
    ($version:literal, $file:literal) => {
        Migration {
            version: $version,
            up: include_str!(concat!("../../migrations/", $file, ".sql")),
            down: include_str!(concat!("../../migrations/", $file, ".down.sql")),
        }
    };
}
use migration;

impl Migration {
    /// The oldest code that can work with the tables after this migration, from the file's first line.
    fn oldest_code(&self) -> i32 {
        let stated = self.up.lines().find_map(|line| line.strip_prefix("-- oldest-code: "));
        stated.and_then(|number| number.trim().parse().ok()).unwrap_or(self.version)
    }
}

/// Whether migrations that this build need not know admit it, or what to do.
fn admits_code(installed: i32, oldest_code: i32, code: i32) -> Result<(), String> {
    if oldest_code > code {
        return Err(format!(
            "the database is at version {installed}, which admits builds from {oldest_code} on, and this build is \
             {code}; deploy a newer build"
        ));
    }
    Ok(())
}
