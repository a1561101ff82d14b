//! Where an engine finds its store, from the builder's options.

use std::sync::Arc;

use super::options::{Options, Poke};
use crate::error::Error;
use crate::store::Store;
#[cfg(feature = "postgres")]
use crate::store::postgres::{DEFAULT_SCHEMA, PostgresStore, Schema};
#[cfg(feature = "sqlite")]
use crate::store::sqlite::{SqliteStore, Synchronous};

/// A store that is opened when the engine starts.
pub(crate) enum Source {
    #[cfg(feature = "postgres")]
    Postgres { pool: sqlx::PgPool, schema: String, listen_url: Option<String>, pooler: bool },
    #[cfg(feature = "sqlite")]
    Sqlite { path: std::path::PathBuf, synchronous: Synchronous },
    /// One that is open already.
    Open(Arc<dyn Store>),
    /// An option was set that this store does not have.
    Misused { option: &'static str, store: &'static str },
}

impl Source {
    #[cfg(feature = "postgres")]
    pub(super) fn postgres(pool: sqlx::PgPool) -> Self {
        Self::Postgres { pool, schema: DEFAULT_SCHEMA.into(), listen_url: None, pooler: false }
    }

    #[cfg(feature = "sqlite")]
    pub(super) fn sqlite(path: &std::path::Path) -> Self {
        Self::Sqlite { path: path.to_owned(), synchronous: Synchronous::default() }
    }

    #[cfg(feature = "sqlite")]
    pub(super) fn in_memory() -> Self {
        Self::Open(Arc::new(SqliteStore::in_memory(crate::store::Clock::system())))
    }

    #[cfg(feature = "postgres")]
    pub(super) fn set_schema(&mut self, name: String) {
        match self {
            Self::Postgres { schema, .. } => *schema = name,
            _ => *self = Self::Misused { option: "schema", store: "PostgreSQL" },
        }
    }

    #[cfg(feature = "postgres")]
    pub(super) fn set_listen_url(&mut self, url: String) {
        match self {
            Self::Postgres { listen_url, .. } => *listen_url = Some(url),
            _ => *self = Self::Misused { option: "listen_url", store: "PostgreSQL" },
        }
    }

    #[cfg(feature = "postgres")]
    pub(super) fn set_transaction_pooler(&mut self, through: bool) {
        match self {
            Self::Postgres { pooler, .. } => *pooler = through,
            _ => *self = Self::Misused { option: "transaction_pooler", store: "PostgreSQL" },
        }
    }

    #[cfg(feature = "sqlite")]
    pub(super) fn set_synchronous(&mut self, chosen: Synchronous) {
        match self {
            Self::Sqlite { synchronous, .. } => *synchronous = chosen,
            _ => *self = Self::Misused { option: "synchronous", store: "a SQLite file" },
        }
    }

    /// What an error calls the place of the tables.
    pub(super) fn place(&self) -> String {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres { schema, .. } => schema.clone(),
            #[cfg(feature = "sqlite")]
            Self::Sqlite { path, .. } => path.display().to_string(),
            Self::Open(_) => "open".into(),
            Self::Misused { .. } => String::new(),
        }
    }

    /// Makes the store; it connects when first used.
    pub(super) fn open(self) -> Result<Arc<dyn Store>, Error> {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres { pool, schema, listen_url, pooler } => {
                let schema = Schema::new(&schema)?;
                let listen = listen_url.as_deref().map(str::parse).transpose();
                let listen =
                    listen.map_err(|error: sqlx::Error| Error::option("listen_url", error.to_string()))?;
                let store = if pooler { PostgresStore::through_pooler } else { PostgresStore::new };
                Ok(Arc::new(store(pool, schema, listen)))
            }
            #[cfg(feature = "sqlite")]
            Self::Sqlite { path, synchronous } => Ok(Arc::new(SqliteStore::file(path, synchronous))),
            Self::Open(store) => Ok(store),
            Self::Misused { option, store } => {
                Err(Error::option(option, format!("this option is for {store}; leave it out")))
            }
        }
    }
}

/// Gives options that were left open the value that suits the store, and refuses those that it cannot follow.
pub(super) fn adapt(options: &mut Options, store: &dyn Store) -> Result<(), Error> {
    let many_nodes = store.has_leases();
    if many_nodes {
        options.poke.get_or_insert(Poke::Postgres);
        return Ok(());
    }
    if options.poke.replace(options.poke.unwrap_or(Poke::Local)) == Some(Poke::Postgres) {
        return Err(Error::option("poke", "SQLite cannot tell other processes; use `Poke::Local`"));
    }
    // Nobody is to be watched.
    options.reaper = None;
    Ok(())
}
