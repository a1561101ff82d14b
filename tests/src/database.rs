//! Fresh databases, one a test.

use std::env;
use std::io;
use std::panic::resume_unwind;
use std::process::Command;
use std::thread;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgPool};
use tokio::runtime;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use uuid::Uuid;

use crate::server::Server;

/// Tells a child process of a test which database is its parent's.
const PARENTS: &str = "GEN_DURABLE_TEST_DATABASE";

/// A database of one test, gone when the value drops.
#[derive(Debug)]
pub struct Database {
    options: PgConnectOptions,
    pool: PgPool,
    /// `None` when it belongs to somebody else.
    ours: Option<Ours>,
}

#[derive(Debug)]
struct Ours {
    /// How to reach the server to drop the database.
    maintenance: PgConnectOptions,
    /// The server outlives this process, so dropping the database waits until that is done.
    lasting: bool,
}

impl Database {
    /// A new, empty database on the server of this process.
    ///
    /// # Panics
    ///
    /// With words on what to do, when there is no server or it does not allow creating databases.
    pub async fn create() -> Self {
        // On its own thread because it blocks; its panic is passed on as it is.
        let server =
            spawn_blocking(Server::shared).await.unwrap_or_else(|panic| resume_unwind(panic.into_panic()));
        Self::create_on(server).await.expect("the server allows creating a database")
    }

    /// A new, empty database on this server.
    ///
    /// # Errors
    ///
    /// The server is unreachable, or its user may not create databases.
    pub async fn create_on(server: &Server) -> sqlx::Result<Self> {
        let name = format!("gen_durable_{}", Uuid::now_v7().simple());
        let mut connection = server.maintenance().connect().await?;
        // Copying files is faster than logging every page (23 ms each instead of 62, forty at once, 2 cores,
        // PostgreSQL 15), but its checkpoints are cheap only where nothing is forced to disk.
        let lasting = server.directory().is_none();
        let strategy = match connection.server_version_num() {
            Some(version) if version >= 150_000 && !lasting => "strategy file_copy",
            _ => "",
        };
        // Nobody can be connected to template0, which would make this fail.
        let create = format!("create database {name} template template0 {strategy}");
        sqlx::query(AssertSqlSafe(create)).execute(&mut connection).await?;
        connection.close().await?;
        let ours = Ours { maintenance: server.maintenance().clone(), lasting };
        Ok(Self::at(server.options(&name), Some(ours)))
    }

    /// In a [child](Database::child) process: the database of the parent.
    ///
    /// # Panics
    ///
    /// When there is no such parent: the test was run by hand.
    pub fn of_parent() -> Self {
        let url = env::var(PARENTS).expect("only a child made by `Database::child` has a parent");
        Self::at(url.parse().expect("the parent gave a URL"), None)
    }

    /// A process that runs one `#[ignore]`d test of this test binary against this database; kill it at will.
    ///
    /// # Errors
    ///
    /// The path of this binary is unknown.
    pub fn child(&self, test: &str) -> io::Result<Command> {
        let mut child = Command::new(env::current_exe()?);
        child
            .args(["--ignored", "--exact", "--nocapture", "--test-threads=1", test])
            .env(PARENTS, self.url());
        Ok(child)
    }

    /// Connections to it, ten at most, made when needed.
    pub fn pool(&self) -> PgPool {
        self.pool.clone()
    }

    /// How to connect to it.
    pub fn options(&self) -> PgConnectOptions {
        self.options.clone()
    }

    /// The same as a URL, for other processes.
    pub fn url(&self) -> String {
        self.options.to_url_lossy().to_string()
    }

    fn at(options: PgConnectOptions, ours: Option<Ours>) -> Self {
        let pool = PgPoolOptions::new().max_connections(10).connect_lazy_with(options.clone());
        Self { options, pool, ours }
    }
}

impl Drop for Database {
    /// Drops the database under whoever is still connected. Best effort: a test that succeeded does not fail
    /// because of it, and a server that is down is given up after ten seconds.
    fn drop(&mut self) {
        let (Some(ours), Some(name)) = (self.ours.take(), self.options.get_database()) else {
            return;
        };
        let statement = format!("drop database if exists {name} with (force)");
        let lasting = ours.lasting;
        // A thread of its own: the test's runtime is busy with this very drop, or already shut down.
        let dropping = thread::spawn(move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
            let dropped = async {
                let mut connection = ours.maintenance.connect().await?;
                sqlx::query(AssertSqlSafe(statement)).execute(&mut connection).await?;
                connection.close().await
            };
            let _ = runtime.block_on(async { timeout(Duration::from_secs(10), dropped).await });
            io::Result::Ok(())
        });
        if lasting {
            let _ = dropping.join();
        }
    }
}
