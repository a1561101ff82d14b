//! What other nodes tell, by `LISTEN`.

use std::time::Duration;

use async_trait::async_trait;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::failure::{classify, overdue};
use super::schema::Schema;
use crate::store::{Listener, Poke, StoreError, StoreResult};

/// How long it may take until we listen.
const PATIENCE: Duration = Duration::from_secs(5);

/// A listening connection.
#[derive(Debug)]
pub(super) struct PostgresListener {
    /// `None` only while it is dropped.
    connection: Option<PgListener>,
}

impl PostgresListener {
    /// Connects and listens to the channel named like the schema.
    pub(super) async fn open(options: PgConnectOptions, schema: &Schema) -> StoreResult<Self> {
        let listen = async {
            // The driver listens only on a connection of a pool; this pool is for nothing else.
            let pool = PgPoolOptions::new()
                .max_connections(1)
                .acquire_timeout(PATIENCE)
                .idle_timeout(None)
                .max_lifetime(None)
                .connect_with(options)
                .await?;
            let mut connection = PgListener::connect_with(&pool).await?;
            // A lost connection is told instead of mended, since pokes were missed.
            connection.eager_reconnect(false);
            connection.listen(schema.name()).await?;
            Ok(Self { connection: Some(connection) })
        };
        match timeout(PATIENCE, listen).await {
            Ok(opened) => opened.map_err(|error| classify("listen", error)),
            Err(_) => Err(overdue("listen", PATIENCE)),
        }
    }
}

#[async_trait]
impl Listener for PostgresListener {
    async fn next(&mut self) -> StoreResult<Poke> {
        let lost = || StoreError::Unavailable("the listening connection is lost".into());
        let connection = self.connection.as_mut().ok_or_else(lost)?;
        loop {
            match connection.try_recv().await {
                Ok(Some(notification)) => {
                    // Something else may use the channel, or a newer build tell what we do not know.
                    if let Ok(poke) = serde_json::from_str(notification.payload()) {
                        return Ok(poke);
                    }
                }
                Ok(None) => return Err(lost()),
                Err(error) => return Err(classify("listen", error)),
            }
        }
    }
}

impl Drop for PostgresListener {
    /// The driver says goodbye from a task, and panics where there is no runtime: there, leave it to the process's
    /// end.
    fn drop(&mut self) {
        if Handle::try_current().is_err() {
            std::mem::forget(self.connection.take());
        }
    }
}
