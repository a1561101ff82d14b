//! The same work on each store, side by side: drain, five steps, pick-up.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use gen_durable::prelude::*;
use gen_durable::{Engine, EngineBuilder, Synchronous, migrate};
use gen_durable_tests::{Database, Server, SqliteBed};
use tokio::sync::mpsc;

use crate::measure::Samples;
use crate::report::{Report, progress};
use crate::work::{Failure, First, five};

/// Measure drain, five steps and pick-up on PostgreSQL and on SQLite, with the same code.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// How many one-step instances to drain, and a fifth of it five-step ones.
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u32).range(5..))]
    instances: u32,
    /// How many instances to insert one by one into an idle engine.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    pickups: u32,
    /// How often to measure everything; the report shows medians.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
}

/// Tells when its step starts.
#[durable_fsm(queue = "default")]
enum Touch {
    #[state(finishes)]
    Begin { n: u32 },
}

struct Told {
    starts: mpsc::UnboundedSender<Instant>,
    ended: Arc<AtomicUsize>,
}

impl TouchSteps for Told {
    async fn begin(&self, _: Begin, cx: &mut Context<Begin>) -> StepResult<Begin> {
        // Nobody listens while queues are drained.
        let _ = self.starts.send(Instant::now());
        self.ended.fetch_add(1, Ordering::Relaxed);
        Ok(cx.done(()))
    }
}

/// A fresh database of one store.
enum Place {
    Postgres(Box<Database>),
    Sqlite(SqliteBed, Synchronous),
    Memory,
}

impl Place {
    /// An engine with default settings.
    fn engine(&self) -> EngineBuilder {
        let engine = match self {
            Self::Postgres(database) => Engine::postgres(database.pool()),
            Self::Sqlite(bed, synchronous) => Engine::sqlite(bed.path()).synchronous(*synchronous),
            Self::Memory => Engine::in_memory(),
        };
        engine.jobs([])
    }
}

const STORES: [&str; 4] =
    ["PostgreSQL", "SQLite, synchronous = full", "SQLite, synchronous = normal", "in memory"];

async fn place(store: usize, server: &Server) -> Result<Place, Failure> {
    Ok(match store {
        0 => {
            let database = Database::create_on(server).await?;
            migrate::up(&database.pool()).await?;
            Place::Postgres(Box::new(database))
        }
        1 => Place::Sqlite(SqliteBed::create().await, Synchronous::Full),
        2 => Place::Sqlite(SqliteBed::create().await, Synchronous::Normal),
        _ => Place::Memory,
    })
}

pub(crate) async fn run(arguments: &Arguments, server: &Server) -> Result<Report, Failure> {
    let mut report = Report::of("stores", &Database::create_on(server).await?.pool()).await?;
    report.fact("instances", arguments.instances);
    report.fact("runs", arguments.runs);
    let mut figures: [[Samples; 4]; 4] = Default::default();
    for run in 1..=arguments.runs {
        for (store, figures) in figures.iter_mut().enumerate() {
            let drained = drain(&place(store, server).await?, arguments.instances, 1).await?;
            let stepped = drain(&place(store, server).await?, arguments.instances / 5, 5).await?;
            let picked = pickup(&place(store, server).await?, arguments.pickups).await?;
            progress(&format!("run {run}: {}: {drained:.0}/s, {stepped:.0} steps/s", STORES[store]));
            let sample = [drained, stepped, picked.median(), picked.percentile(99.0)];
            figures.iter_mut().zip(sample).for_each(|(samples, sample)| samples.push(sample));
        }
    }
    for (store, figures) in STORES.into_iter().zip(&figures) {
        let [drained, stepped, half, most] = figures.each_ref().map(Samples::median);
        report.row(
            "stores",
            [
                ("store", store.into()),
                ("one-step instances/s", drained.round().into()),
                ("steps/s of five", stepped.round().into()),
                ("pick-up p50 ms", half.into()),
                ("p99 ms", most.into()),
            ],
        );
    }
    Ok(report)
}

/// Inserts instances, and returns how many steps a second run from the start of an engine until the last has ended.
async fn drain(place: &Place, instances: u32, steps: u32) -> Result<f64, Failure> {
    let ended = Arc::new(AtomicUsize::new(0));
    let (starts, _) = mpsc::unbounded_channel();
    let touch = Touch::machine(Told { starts, ended: Arc::clone(&ended) });
    let inserter = match place {
        // What is in memory is there only for its engine, which must be the one that runs it.
        Place::Memory => None,
        _ => Some(place.engine().name("inserter").without_queues().start().await?),
    };
    let build = || place.engine().register(touch).register(five(&ended, false)).start();
    let (engine, begin) = match inserter {
        Some(inserter) => {
            insert(&inserter, instances, steps).await?;
            inserter.shutdown().await;
            let begin = Instant::now();
            (build().await?, begin)
        }
        None => {
            let engine = build().await?;
            let begin = Instant::now();
            insert(&engine, instances, steps).await?;
            (engine, begin)
        }
    };
    while ended.load(Ordering::Relaxed) < instances as usize {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    // Commits what is on its way, and waits for it.
    engine.shutdown().await;
    Ok(f64::from(instances) * f64::from(steps) / begin.elapsed().as_secs_f64())
}

async fn insert(engine: &Engine, instances: u32, steps: u32) -> Result<(), Failure> {
    if steps == 1 {
        engine.insert_all((0..instances).map(|n| Begin { n })).await?;
    } else {
        engine.insert_all((0..instances).map(|n| First { n })).await?;
    }
    Ok(())
}

/// Milliseconds from the insert's call to the step's start, one instance at a time.
async fn pickup(place: &Place, count: u32) -> Result<Samples, Failure> {
    let (starts, mut started) = mpsc::unbounded_channel();
    let told = Told { starts, ended: Arc::default() };
    let engine = place.engine().register(Touch::machine(told)).start().await?;
    let mut samples = Samples::default();
    for n in 0..count {
        let begin = Instant::now();
        engine.insert(Begin { n }).await?;
        let start = started.recv().await.ok_or("the engine is gone")?;
        samples.push_milliseconds(start.duration_since(begin));
        // Until it is idle again.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    engine.shutdown().await;
    Ok(samples)
}
