//! How late delayed instances start, on an idle engine.

use std::time::{Duration, Instant};

use clap::Args;
use gen_durable::prelude::*;
use gen_durable_tests::Server;
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::measure::Samples;
use crate::report::Report;
use crate::work::{Failure, engine, migrated};

/// Time from when a delayed instance is due to the start of its step, on an idle engine.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// How many instances.
    #[arg(long, default_value_t = 200)]
    samples: usize,
    /// The longest delay in seconds; they are at random up to it.
    #[arg(long, default_value_t = 30.0)]
    seconds: f64,
}

/// Says when its step starts.
#[durable_fsm]
enum Alarm {
    #[state(finishes)]
    Ring { n: usize },
}

struct Steps(mpsc::UnboundedSender<(usize, Instant)>);

impl AlarmSteps for Steps {
    async fn ring(&self, s: Ring, cx: &mut Context<Ring>) -> StepResult<Ring> {
        self.0.send((s.n, Instant::now()))?;
        Ok(cx.done(()))
    }
}

pub(crate) async fn run(arguments: &Arguments, server: &Server) -> Result<Report, Failure> {
    let (_database, pool) = migrated(server).await?;
    let mut report = Report::of("delays", &pool).await?;
    report.fact("samples", arguments.samples);
    report.fact("seconds", arguments.seconds);
    let (sender, mut started) = mpsc::unbounded_channel();
    let worker = engine(&pool).register(Alarm::machine(Steps(sender))).start().await?;
    let mut due = Vec::new();
    for n in 0..arguments.samples {
        let delay = Duration::from_secs_f64(arguments.seconds * random_share());
        // The database counts from some time within the call: the start of it makes every lateness look longer.
        due.push(Instant::now() + delay);
        worker.insert(Ring { n }).delay(delay).await?;
    }
    let mut times = Samples::default();
    for _ in 0..arguments.samples {
        let (n, at) = started.recv().await.ok_or("the worker is gone")?;
        times.push_milliseconds(at.saturating_duration_since(due[n]));
    }
    worker.shutdown().await;
    let figures = [50.0, 90.0, 99.0, 100.0].map(|percent| times.percentile(percent));
    report.figure("lateness_p50_ms", figures[0]);
    report.figure("lateness_p99_ms", figures[2]);
    report.row(
        "lateness in ms",
        [
            ("p50", figures[0].into()),
            ("p90", figures[1].into()),
            ("p99", figures[2].into()),
            ("max", figures[3].into()),
        ],
    );
    Ok(report)
}

/// From 0 to 1.
fn random_share() -> f64 {
    // The last bytes of an id are random.
    let [.., a, b, c, d] = Uuid::now_v7().into_bytes();
    f64::from(u32::from_be_bytes([a, b, c, d])) / f64::from(u32::MAX)
}
