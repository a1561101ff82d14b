//! A shop that takes orders and payments over HTTP: `cargo run --example checkout`. `examples/README.md` shows a session.
//!
//! Orders, payments, stock and parcels are in `checkout.db` in the current directory, or in the PostgreSQL database of
//! `DATABASE_URL`.
//!
//! One durable instance per order, and one per parcel. Kill it whenever you like and start it again: orders go on where
//! they were, stock is taken once, and each item is shipped once.

mod checkout;
mod client;
mod database;
mod demo;
mod http;
mod shipment;
mod shop;
mod tables;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use gen_durable::{BoxError, Engine, Error};
use tokio::net::TcpListener;

use crate::checkout::Checkout;
use crate::database::Database;
use crate::shipment::{Carrier, Shipment};
use crate::shop::Shop;

/// A shop that takes orders and payments over HTTP, and survives being killed.
///
/// Everything is kept in the SQLite file checkout.db in the current directory, or in the file of --database. Where
/// DATABASE_URL is set and --database is not given, it is kept in that PostgreSQL database (13 or newer), in which the
/// URL's user must be allowed to create schemas and tables: <postgres://user:password@localhost/database>
#[derive(Parser)]
struct Arguments {
    /// Address and port to listen on; the port 0 is a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// SQLite file
    #[arg(long, value_name = "FILE")]
    database: Option<PathBuf>,
    /// How many seconds to wait for each payment of an order
    #[arg(long, value_name = "SECONDS", default_value = "900", value_parser = seconds)]
    payment_timeout: Duration,
    /// How many seconds the carrier takes to accept a parcel
    #[arg(long, value_name = "SECONDS", default_value = "0.1", value_parser = seconds)]
    carrier_takes: Duration,
    /// Take orders and payments only: another process, on the same database, does what follows from them
    #[arg(long)]
    front: bool,
    /// Play a session with the shop, on a free port, and end
    #[arg(long, conflicts_with_all = ["listen", "front"])]
    demo: bool,
}

fn seconds(text: &str) -> Result<Duration, BoxError> {
    Ok(Duration::try_from_secs_f64(text.parse()?)?)
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tell(&format!("checkout: {}", with_causes(&*error)));
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> Result<(), BoxError> {
    let address = if arguments.demo { SocketAddr::from(([127, 0, 0, 1], 0)) } else { arguments.listen };
    let listener = TcpListener::bind(address)
        .await
        .map_err(|error| format!("cannot listen on {address}, name another with `--listen`: {error}"))?;
    let address = listener.local_addr()?;
    let database = Database::open(arguments.database.as_deref()).await?;
    tables::create(&database).await?;
    let engine = start(&arguments, &database).await?;

    // The first line is for whoever started this and left the choice of the port.
    writeln!(
        io::stdout().lock(),
        "listening on http://{address}\nkeeping everything in {}",
        database.place()
    )?;
    let shop = Shop { database, engine: engine.clone() };
    let server = axum::serve(listener, http::routes(shop));
    let served = if arguments.demo {
        // The session reports its own problems, and ends the server with its end.
        tokio::select! {
            played = demo::play(address) => played,
            served = server => served.map_err(BoxError::from),
        }
    } else {
        // Answers what was asked before, then ends.
        server.with_graceful_shutdown(told_to_end()).await.map_err(BoxError::from)
    };
    engine.shutdown().await;
    served
}

/// Starts what works on the orders.
async fn start(arguments: &Arguments, database: &Database) -> Result<Engine, BoxError> {
    let checkout = checkout::Steps { database: database.clone(), patience: arguments.payment_timeout };
    let carrier = Carrier { takes: arguments.carrier_takes };
    let shipment = shipment::Steps { database: database.clone(), carrier };
    let mut engine = database
        .engine()
        // For PostgreSQL: short beats, so that after a kill somebody else, or the next process, takes over soon.
        .heartbeat(Duration::from_millis(500))
        .lease_ttl(Duration::from_secs(3))
        .reaper(Duration::from_secs(1))
        .register(Checkout::machine(checkout))
        .register(Shipment::machine(shipment));
    if arguments.front {
        engine = engine.without_queues();
    }
    engine.start().await.map_err(|error| match error {
        Error::QueuesTaken { .. } => {
            "another process works with this database: stop it, or give this one `--front` \
            or another file with `--database <file>`"
                .into()
        }
        error => error.into(),
    })
}

/// Waits for Ctrl-C, or for what a service manager sends.
async fn told_to_end() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
            return;
        }
    }
    let _ = tokio::signal::ctrl_c().await;
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |error| error.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[expect(clippy::print_stderr, reason = "this is a program for a terminal")]
fn tell(text: &str) {
    eprintln!("{text}");
}
