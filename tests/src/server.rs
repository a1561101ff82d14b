//! The servers: one shared by a process, or one that a test owns and may break.

use std::env;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use sqlx::ConnectOptions;
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use tokio::task::spawn_blocking;

use crate::cluster::{Cluster, Order};

/// A PostgreSQL server on which databases can be created.
#[derive(Debug)]
pub struct Server {
    options: PgConnectOptions,
    /// `None` for the server of `DATABASE_URL`, which is not ours to stop.
    cluster: Option<Arc<Cluster>>,
}

/// How a throwaway server is set up.
#[derive(Debug, Clone, Default)]
pub struct ServerOptions {
    settings: Vec<(String, String)>,
    tcp: bool,
}

impl ServerOptions {
    /// PostgreSQL's own defaults: every commit reaches the disk. For measurements.
    pub fn durable() -> Self {
        Self::default()
    }

    /// Nothing is forced to disk and many tests may connect at once. An immediate stop loses nothing even so:
    /// what was committed is in the operating system's cache.
    pub fn fast() -> Self {
        Self::default().set("fsync", "off").set("full_page_writes", "off").set("max_connections", "500")
    }

    /// Adds a line to `postgresql.conf`; the last one of a name counts.
    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Listens on a free port of 127.0.0.1 too, and connects there; for tests that put something in between.
    pub fn tcp(mut self) -> Self {
        self.tcp = true;
        self
    }
}

impl Server {
    /// The one server of this process: that of `DATABASE_URL`, or a throwaway one with [`ServerOptions::fast`].
    ///
    /// # Panics
    ///
    /// With words on what to do, when there is neither.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Result<Server, String>> = OnceLock::new();
        match SHARED.get_or_init(|| Self::open(ServerOptions::fast()).map_err(|error| error.to_string())) {
            Ok(server) => server,
            Err(error) => panic!("{error}"),
        }
    }

    /// The server of `DATABASE_URL` when that is set, else a throwaway one.
    ///
    /// # Errors
    ///
    /// `DATABASE_URL` is unreadable, or as [`Server::start`].
    pub fn open(options: ServerOptions) -> io::Result<Self> {
        let url = env::var("DATABASE_URL").unwrap_or_default();
        if url.is_empty() {
            return Self::start(options);
        }
        let options = url.parse().map_err(|error| {
            io::Error::other(format!("cannot read DATABASE_URL as a postgres URL: {error}"))
        })?;
        Ok(Self { options, cluster: None })
    }

    /// Starts a throwaway server that belongs to the caller, whatever `DATABASE_URL` says. It is stopped and
    /// removed when the value drops, and when this process ends in any way. Blocks for about a second.
    ///
    /// # Errors
    ///
    /// No server is installed, or it did not start; its log is in the error.
    pub fn start(options: ServerOptions) -> io::Result<Self> {
        let port = if options.tcp { free_port()? } else { 5432 };
        let addresses = if options.tcp { "127.0.0.1" } else { "" };
        let mut settings = vec![
            ("port".to_owned(), port.to_string()),
            ("listen_addresses".to_owned(), addresses.to_owned()),
        ];
        settings.extend(options.settings);
        let cluster = Cluster::start(&settings)?;
        let connect = PgConnectOptions::new_without_pgpass()
            .username("postgres")
            .database("postgres")
            .port(port)
            .ssl_mode(PgSslMode::Disable);
        let connect =
            if options.tcp { connect.host("127.0.0.1") } else { connect.socket(cluster.directory()) };
        Ok(Self { options: connect, cluster: Some(Arc::new(cluster)) })
    }

    /// How to connect to one of its databases.
    pub fn options(&self, database: &str) -> PgConnectOptions {
        self.options.clone().database(database)
    }

    /// The same as a URL, for other processes.
    pub fn url(&self, database: &str) -> String {
        self.options(database).to_url_lossy().to_string()
    }

    /// How to connect to the database that is there from the start, to create others.
    pub(crate) fn maintenance(&self) -> &PgConnectOptions {
        &self.options
    }

    /// The port on 127.0.0.1, for a server started with [`ServerOptions::tcp`].
    pub fn port(&self) -> u16 {
        self.options.get_port()
    }

    /// Where a throwaway server keeps its data, socket and logs.
    pub fn directory(&self) -> Option<&Path> {
        self.cluster.as_deref().map(Cluster::directory)
    }

    /// Stops the server in good order, cutting its connections.
    ///
    /// # Errors
    ///
    /// The server is not ours, or not running.
    pub async fn stop(&self) -> io::Result<()> {
        self.order(Order::Stop).await
    }

    /// Stops the server at once, as a crash would.
    ///
    /// # Errors
    ///
    /// The server is not ours, or not running.
    pub async fn kill_hard(&self) -> io::Result<()> {
        self.order(Order::Kill).await
    }

    /// Starts a stopped server, at the same address and with the same data.
    ///
    /// # Errors
    ///
    /// The server is not ours, or runs already.
    pub async fn start_again(&self) -> io::Result<()> {
        self.order(Order::Start).await
    }

    async fn order(&self, order: Order) -> io::Result<()> {
        let cluster = self.cluster.clone().ok_or_else(|| {
            io::Error::other("the server of DATABASE_URL is not ours to stop: use `Server::start`")
        })?;
        spawn_blocking(move || cluster.order(order)).await?
    }
}

/// A port that was free a moment ago: the server opens it itself.
fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}
