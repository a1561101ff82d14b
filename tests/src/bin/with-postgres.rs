//! Runs a command with `DATABASE_URL` set to a fresh database, gone when the command ends:
//! `cargo run -p gen-durable-tests --bin with-postgres -- cargo run --example ingest -- docs`.
//!
//! The database is on the server of `DATABASE_URL` when that is set, else on a throwaway one.

use std::env;
use std::error::Error;
use std::process::ExitCode;

use gen_durable_tests::Database;
use tokio::process::Command;

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut words = env::args_os().skip(1);
    let program = words.next().ok_or("usage: with-postgres <command> [argument...]")?;
    let database = Database::create().await;
    let status = Command::new(program).args(words).env("DATABASE_URL", database.url()).status().await?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}
