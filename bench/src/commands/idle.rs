//! What an engine asks of the database while there is nothing to do.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use gen_durable_tests::Server;

use crate::measure::statements;
use crate::report::Report;
use crate::work::{Failure, engine, five, migrated};

/// Count the statements that an idle engine runs.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// How long to watch, in seconds.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// How many queues the engine runs.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 10])]
    queues: Vec<u32>,
}

pub(crate) async fn run(arguments: &Arguments, server: &Server) -> Result<Report, Failure> {
    let (_database, pool) = migrated(server).await?;
    let mut report = Report::of("idle", &pool).await?;
    report.fact("seconds", arguments.seconds);
    for &queues in &arguments.queues {
        let (_database, pool) = migrated(server).await?;
        // An engine without a machine would not even look for work.
        let runs_something = engine(&pool).register(five(&Arc::default(), false));
        let builder = (0..queues).fold(runs_something, |builder, n| builder.queue(format!("queue {n}"), 10));
        let engine = builder.start().await?;
        // Polls have backed off by then.
        tokio::time::sleep(Duration::from_secs(10)).await;
        let mut connection = pool.acquire().await?;
        let before = statements(&mut connection).await?;
        tokio::time::sleep(Duration::from_secs(arguments.seconds)).await;
        // The last look is one of our own.
        let count = statements(&mut connection).await? - before - 1;
        engine.shutdown().await;
        let rate = count as f64 / arguments.seconds as f64;
        if queues == 1 {
            report.figure("statements_per_second_of_one_queue", rate);
        }
        report.row(
            "statements",
            [
                ("queues", queues.into()),
                ("per second", rate.into()),
                ("per second and queue", (rate / f64::from(queues)).into()),
            ],
        );
    }
    Ok(report)
}
