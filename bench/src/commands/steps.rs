//! Machines of five steps, with and without run-ahead.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Instant;

use clap::Args;
use gen_durable_tests::Server;

use crate::measure::{Samples, statements, wal_position};
use crate::report::Report;
use crate::work::{Failure, First, all_ended, engine, five, migrated};

/// Run machines of five steps with default settings, with and without run-ahead.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// How many instances a run drains.
    #[arg(long, default_value_t = 40_000)]
    instances: u32,
    /// How many runs; medians are reported.
    #[arg(long, default_value_t = 5)]
    runs: usize,
}

const STEPS: f64 = 5.0;

pub(crate) async fn run(arguments: &Arguments, server: &Server) -> Result<Report, Failure> {
    let (_database, pool) = migrated(server).await?;
    let mut report = Report::of("steps", &pool).await?;
    report.fact("instances", arguments.instances);
    report.fact("runs", arguments.runs);
    for ahead in [false, true] {
        let mut figures: [Samples; 3] = Default::default();
        for _ in 0..arguments.runs {
            for (samples, figure) in figures.iter_mut().zip(drain(arguments, server, ahead).await?) {
                samples.push(figure);
            }
        }
        let [rate, statements, wal] = figures.map(|samples| samples.median());
        let name = if ahead { "steps_per_second_run_ahead" } else { "steps_per_second" };
        report.figure(name, rate.round());
        report.row(
            "five steps",
            [
                ("run-ahead", ahead.into()),
                ("steps/s", rate.round().into()),
                ("statements per step", statements.into()),
                ("WAL bytes per step", wal.round().into()),
            ],
        );
    }
    Ok(report)
}

/// One run: steps a second, statements and WAL bytes per step.
async fn drain(arguments: &Arguments, server: &Server, ahead: bool) -> Result<[f64; 3], Failure> {
    let (_database, pool) = migrated(server).await?;
    let inserter = engine(&pool).name("inserter").without_queues().without_reaper().start().await?;
    inserter.insert_all((0..arguments.instances).map(|n| First { n })).await?;
    inserter.shutdown().await;

    let ended = Arc::new(AtomicUsize::new(0));
    let mut connection = pool.acquire().await?;
    let before = (statements(&mut connection).await?, wal_position(&mut connection).await?);
    let begin = Instant::now();
    let engine = engine(&pool).register(five(&ended, ahead)).start().await?;
    all_ended(&pool, &ended, arguments.instances as usize).await?;
    let seconds = begin.elapsed().as_secs_f64();
    engine.shutdown().await;
    let after = (statements(&mut connection).await?, wal_position(&mut connection).await?);
    let steps = f64::from(arguments.instances) * STEPS;
    Ok([steps / seconds, (after.0 - before.0) as f64 / steps, (after.1 - before.1) as f64 / steps])
}
