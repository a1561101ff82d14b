//! How fast an engine with default settings drains one-step instances, and how fast it could at best.

mod ceiling;
mod engine;
mod statements;

use std::error::Error;
use std::time::Duration;

use clap::Args;
use gen_durable::{Engine, migrate};
use gen_durable_tests::{Database, Server};
use serde_json::{Value, json};
use sqlx::PgPool;

use crate::commands::server;
use crate::measure::Samples;
use crate::report::{Report, progress};

use self::ceiling::Shape;
use self::engine::{Circumstance, Drained, OneStep};

type Failure = Box<dyn Error + Send + Sync>;

/// Measure the drain of one-step instances through an engine with default settings.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// How many instances to drain.
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(1..))]
    instances: u32,
    /// How often to measure everything; the report shows medians.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Measure bare claim-and-complete statements on the same rows, too.
    #[arg(long)]
    with_ceiling: bool,
    /// Measure a drain that deletes rows as they are done (retention 0), too.
    #[arg(long)]
    with_deletion: bool,
    /// Measure a drain through PgBouncer in transaction mode, too.
    #[arg(long)]
    through_pooler: bool,
    /// Measure a drain while somebody holds an old snapshot, too.
    #[arg(long)]
    under_snapshot: bool,
    /// How long one measurement of the ceiling may take at most, in seconds.
    #[arg(long, default_value_t = 10)]
    ceiling_seconds: u64,
}

pub(crate) async fn run(arguments: &Arguments, server: &Server) -> Result<Report, Failure> {
    let database = Database::create_on(server).await?;
    let mut report = Report::of("drain", &database.pool()).await?;
    report.fact("instances", arguments.instances);
    report.fact("runs", arguments.runs);
    report.fact("engine", "default settings: queue `default` runs 10 steps at once");
    report.fact("statements counted by", statements::method(&database.pool()).await?);

    let wanted = |circumstance| match circumstance {
        Circumstance::Default => true,
        Circumstance::Deleting => arguments.with_deletion,
        Circumstance::ThroughPooler => arguments.through_pooler,
        Circumstance::UnderSnapshot => arguments.under_snapshot,
    };
    let mut drains: Vec<(Circumstance, Drains)> =
        Circumstance::ALL.into_iter().filter(|it| wanted(*it)).map(|it| (it, Drains::default())).collect();
    let mut ceilings: Vec<(Shape, Samples)> = Vec::new();
    // Everything once in each run, so that what slows the machine for a while slows all of it.
    for run in 1..=arguments.runs {
        if arguments.with_ceiling {
            for shape in ceiling::SHAPES {
                let rate = ceiling::rate(arguments, shape, server).await?;
                progress(&format!("run {run}: bare, {shape}: {rate:.0}/s"));
                match ceilings.iter_mut().find(|(known, _)| *known == shape) {
                    Some((_, rates)) => rates.push(rate),
                    None => ceilings.push((shape, Samples::of(rate))),
                }
            }
        }
        for (circumstance, drains) in &mut drains {
            let drained = engine::drain(arguments.instances, *circumstance, server).await?;
            progress(&format!("run {run}: engine, {}: {:.0}/s", circumstance.name(), drained.rate));
            drains.push(&drained);
        }
    }

    for (shape, rates) in &ceilings {
        report.row(
            "bare claim and complete",
            [
                ("batch", shape.batch.into()),
                ("connections", shape.connections.into()),
                ("instances/s", rates.median().into()),
                ("lowest", rates.percentile(0.0).into()),
                ("highest", rates.percentile(100.0).into()),
            ],
        );
    }
    for (circumstance, drains) in &drains {
        report.row("engine", drains.row(circumstance.name()));
        match circumstance {
            Circumstance::Default => {
                report.figure("drain_per_second", drains.rates.median());
                report.figure("drain_per_second_runs", drains.rates.values());
                report.figure("statements_per_instance", drains.statements.median());
                report.figure("wal_bytes_per_instance", drains.wal_bytes.median());
            }
            Circumstance::Deleting => {
                report.figure("drain_per_second_deleted", drains.rates.median());
                report.figure("wal_bytes_per_instance_deleted", drains.wal_bytes.median());
            }
            Circumstance::ThroughPooler => {
                report.figure("drain_per_second_through_pooler", drains.rates.median());
            }
            Circumstance::UnderSnapshot => {
                report.figure("drain_per_second_under_snapshot", drains.rates.median());
            }
        }
    }
    server::settings(&mut report, &database.pool()).await?;

    let best = ceilings.iter().max_by(|(_, a), (_, b)| a.median().total_cmp(&b.median()));
    if let Some((shape, rates)) = best {
        report.figure("ceiling_per_second", rates.median());
        report.figure("ceiling_per_second_runs", rates.values());
        report.figure("ceiling_batch", shape.batch);
        report.figure("ceiling_connections", shape.connections);
        report.figure("ratio_to_ceiling", drains[0].1.rates.median() / rates.median());
    }
    Ok(report)
}

/// The drains of all runs.
#[derive(Debug, Default)]
struct Drains {
    rates: Samples,
    statements: Samples,
    wal_bytes: Samples,
}

impl Drains {
    fn push(&mut self, drained: &Drained) {
        self.rates.push(drained.rate);
        self.statements.push(drained.statements);
        self.wal_bytes.push(drained.wal_bytes);
    }

    fn row(&self, circumstance: &'static str) -> [(&'static str, Value); 6] {
        [
            ("circumstance", json!(circumstance)),
            ("instances/s", self.rates.median().into()),
            ("lowest", self.rates.percentile(0.0).into()),
            ("highest", self.rates.percentile(100.0).into()),
            ("statements each", self.statements.median().into()),
            ("WAL bytes each", self.wal_bytes.median().into()),
        ]
    }
}

/// A fresh database with the library's schema and this many ready instances, all of it on disk.
async fn loaded(instances: u32, server: &Server) -> Result<Database, Failure> {
    let database = Database::create_on(server).await?;
    let pool = database.pool();
    migrate::up(&pool).await?;
    let loader = Engine::postgres(pool.clone()).name("loader").without_queues().without_reaper().without_gc();
    let loader = loader.start().await?;
    loader.insert_all((0..instances).map(|number| OneStep { number })).await?;
    loader.shutdown().await;
    checkpoint(&pool).await;
    Ok(database)
}

/// Best effort: a user without the right measures what the load left to write, too.
async fn checkpoint(pool: &PgPool) {
    let checkpoint = sqlx::query("checkpoint").execute(pool);
    let _ = tokio::time::timeout(Duration::from_secs(60), checkpoint).await;
}
