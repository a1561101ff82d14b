//! Counts the lines and words of every file below a directory: `cargo run --example ingest -- <directory>`.
//!
//! What it finds goes to `ingest.db` in the current directory, or to the PostgreSQL database of `DATABASE_URL`.
//!
//! One durable instance per file. Kill it whenever you like and start it again with the same directory: it goes
//! on where it was, and no file counts twice.

mod content;
mod database;
mod machine;
mod path;
mod summary;
mod table;

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use gen_durable::{BoxError, Engine, Error};
use indicatif::{ProgressBar, ProgressStyle};

use crate::database::Database;
use crate::machine::{IngestFile, Read, Steps};
use crate::path::files_below;
use crate::table::Run;

const USAGE: &str = "usage: cargo run --example ingest -- [--database <file>] <directory>

Progress and figures are kept in the SQLite file ingest.db in the current directory, or in the file of --database.
Where DATABASE_URL is set and --database is not given, they are kept in that PostgreSQL database (13 or newer), in
which the URL's user must be allowed to create schemas and tables: postgres://user:password@localhost/database";

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tell(&format!("ingest: {}", with_causes(&*error)));
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), BoxError> {
    let Arguments { directory, file } = arguments()?;
    let directory = directory
        .canonicalize()
        .map_err(|error| format!("cannot find the directory {}: {error}", directory.display()))?;
    let database = Database::open(file.as_deref()).await?;
    tell(&format!("keeping what is found in {}", database.place()));
    table::create(&database).await?;
    let mut run = Run::of(&directory.to_string_lossy(), &database).await?;

    let steps_at_once = available_parallelism().map_or(2, usize::from) * 2;
    let engine = database
        .engine()
        // For PostgreSQL. A name that is the same after a restart, and short heartbeats: then a new process takes
        // over from one that was killed after two missed beats, instead of after the whole lease.
        .node(run.queue())
        .heartbeat(Duration::from_millis(500))
        .lease_ttl(Duration::from_secs(5))
        // A kill counts as a crash of every row that was claimed, and what crashed twice runs alone: few ahead.
        .max_prefetch(64)
        .queue(run.queue(), u32::try_from(steps_at_once)?)
        .register(IngestFile::machine(Steps { database: database.clone() }))
        .start()
        .await
        .map_err(explained)?;

    let files = insert_once(&engine, &mut run, &directory, &database).await?;
    tokio::select! {
        finished = watch(&run, files, &database) => finished?,
        interrupted = tokio::signal::ctrl_c() => {
            interrupted?;
            engine.shutdown().await;
            return Err("interrupted: start it again to go on".into());
        }
    }
    engine.shutdown().await;
    summary::print(&run, &database).await?;
    Ok(run.finish(&database).await?)
}

struct Arguments {
    directory: PathBuf,
    file: Option<PathBuf>,
}

fn arguments() -> Result<Arguments, BoxError> {
    let (mut directory, mut file) = (None, None);
    let mut arguments = env::args_os().skip(1);
    while let Some(argument) = arguments.next() {
        let earlier = if argument == "--database" {
            file.replace(arguments.next().ok_or(USAGE)?.into())
        } else if argument.as_encoded_bytes().starts_with(b"-") {
            return Err(USAGE.into());
        } else {
            directory.replace(PathBuf::from(argument))
        };
        // Each once.
        if earlier.is_some() {
            return Err(USAGE.into());
        }
    }
    Ok(Arguments { directory: directory.ok_or(USAGE)?, file })
}

fn explained(error: Error) -> BoxError {
    match error {
        Error::QueuesTaken { .. } => {
            "another process works with this database: wait for it, stop it, or name \
            another file with `--database <file>`"
                .into()
        }
        error => error.into(),
    }
}

/// Inserts one instance per file, unless an earlier process of this run has done so; returns how many there are.
///
/// A bulk insert inserts all or nothing, so one look tells whether it happened. Should a killed process's insert
/// commit only after that look, files are read twice and still count once: their row in the table is the same.
async fn insert_once(
    engine: &Engine,
    run: &mut Run,
    directory: &Path,
    database: &Database,
) -> Result<u64, BoxError> {
    if let Some(files) = run.files {
        tell(&format!("going on: {} of {files} files are counted", run.stored(database).await?));
        return Ok(files);
    }
    let mut files = run.instances(database).await?;
    if files == 0 {
        let id = run.id;
        let mut found = files_below(directory)?;
        found.retain(|file| !database.is_made_of(file.as_path()));
        files = found.len() as u64;
        let states = found.into_iter().map(move |path| Read { run: id, path });
        engine.insert_all(states).queue(run.queue()).await?;
    }
    run.set_files(files, database).await?;
    Ok(files)
}

/// How often to look how far the run is.
const LOOK: Duration = Duration::from_millis(200);
/// After how long without progress to look for what will never come.
const STALLED: Duration = Duration::from_secs(3);

/// Shows how far the run is until it is at its end.
async fn watch(run: &Run, files: u64, database: &Database) -> Result<(), BoxError> {
    let bar = ProgressBar::new(files)
        .with_style(ProgressStyle::with_template("{wide_bar} {pos}/{len} files, {per_sec}, {eta} to go")?);
    let mut progressed = Instant::now();
    loop {
        let stored = run.stored(database).await?;
        if stored != bar.position() {
            progressed = Instant::now();
            bar.set_position(stored);
        }
        // A file that the library set aside is never stored: it is at its end all the same.
        let ended =
            stored >= files || progressed.elapsed() > STALLED && run.live_instances(database).await? == 0;
        if ended {
            bar.finish();
            return Ok(());
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |error| error.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[expect(clippy::print_stderr, reason = "this is a program for a terminal")]
fn tell(text: &str) {
    eprintln!("{text}");
}
