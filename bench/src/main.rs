//! The measurements: `cargo run --release -p gen-durable-bench -- <command>`.
//!
//! Every command runs on a throwaway PostgreSQL server with PostgreSQL's own defaults, so that each commit
//! reaches the disk; with `DATABASE_URL` set, on that server instead.

mod commands;
mod measure;
mod report;
mod work;

use std::error::Error;
use std::io;

use clap::{Parser, Subcommand};
use gen_durable_tests::{Server, ServerOptions};
use tokio::task::spawn_blocking;

use crate::report::Report;

/// Measures gen-durable on this machine.
#[derive(Debug, Parser)]
#[command(name = "gen-durable-bench", version)]
struct Arguments {
    /// Print one JSON object on the last line too.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Server(commands::server::Arguments),
    Store(commands::store::Arguments),
    Drain(commands::drain::Arguments),
    Steps(commands::steps::Arguments),
    Pickup(commands::pickup::Arguments),
    Delays(commands::delays::Arguments),
    Signal(commands::signal::Arguments),
    Fanout(commands::fanout::Arguments),
    Insert(commands::insert::Arguments),
    Idle(commands::idle::Arguments),
    Backlog(commands::backlog::Arguments),
    Recovery(commands::recovery::Arguments),
    Stores(commands::stores::Arguments),
}

impl Command {
    async fn run(&self, server: &Server) -> Result<Report, Box<dyn Error + Send + Sync>> {
        match self {
            Self::Server(arguments) => commands::server::run(arguments, server).await,
            Self::Store(arguments) => commands::store::run(arguments, server).await,
            Self::Drain(arguments) => commands::drain::run(arguments, server).await,
            Self::Steps(arguments) => commands::steps::run(arguments, server).await,
            Self::Pickup(arguments) => commands::pickup::run(arguments, server).await,
            Self::Delays(arguments) => commands::delays::run(arguments, server).await,
            Self::Signal(arguments) => commands::signal::run(arguments, server).await,
            Self::Fanout(arguments) => commands::fanout::run(arguments, server).await,
            Self::Insert(arguments) => commands::insert::run(arguments, server).await,
            Self::Idle(arguments) => commands::idle::run(arguments, server).await,
            Self::Backlog(arguments) => commands::backlog::run(arguments, server).await,
            Self::Recovery(arguments) => commands::recovery::run(arguments, server).await,
            Self::Stores(arguments) => commands::stores::run(arguments, server).await,
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let arguments = Arguments::parse();
    let server = spawn_blocking(open_server).await??;
    let report = arguments.command.run(&server).await?;
    report.print(arguments.json)?;
    Ok(())
}

/// A server that counts statements, where that extension is installed; it costs all commands the same.
fn open_server() -> io::Result<Server> {
    let counting = ServerOptions::durable().set("shared_preload_libraries", "pg_stat_statements");
    Server::open(counting).or_else(|_| Server::open(ServerOptions::durable()))
}
