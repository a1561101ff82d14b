//! From the start of an insert call to the start of the step, on an idle engine.

use std::time::{Duration, Instant};

use clap::Args;
use gen_durable::prelude::*;
use gen_durable_tests::Server;
use tokio::sync::mpsc;

use crate::measure::Samples;
use crate::report::Report;
use crate::work::{Failure, engine, migrated};

/// Time from an insert call to the start of the step, on an idle engine, one insert at a time.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// How many inserts to time, each way.
    #[arg(long, default_value_t = 300)]
    samples: usize,
}

/// Says when its step starts.
#[durable_fsm]
enum Ping {
    #[state(finishes)]
    Pong { n: usize },
}

struct Steps(mpsc::UnboundedSender<(usize, Instant)>);

impl PingSteps for Steps {
    async fn pong(&self, s: Pong, cx: &mut Context<Pong>) -> StepResult<Pong> {
        self.0.send((s.n, Instant::now()))?;
        Ok(cx.done(()))
    }
}

pub(crate) async fn run(arguments: &Arguments, server: &Server) -> Result<Report, Failure> {
    let (_database, pool) = migrated(server).await?;
    let mut report = Report::of("pickup", &pool).await?;
    report.fact("samples", arguments.samples);
    let (sender, mut started) = mpsc::unbounded_channel();
    let worker = engine(&pool).register(Ping::machine(Steps(sender))).start().await?;
    // An engine that runs nothing: what it inserts reaches the worker only through a notification.
    let other = engine(&pool).name("other").without_queues().without_reaper().start().await?;
    for (way, inserter) in [("local", &worker), ("notify", &other)] {
        let mut times = Samples::default();
        for n in 0..arguments.samples {
            let begin = Instant::now();
            inserter.insert(Pong { n }).await?;
            let (seen, at) = started.recv().await.ok_or("the worker is gone")?;
            assert_eq!(seen, n, "one at a time");
            times.push_milliseconds(at - begin);
            // The engine is idle again, and the next insert shares nothing with this one.
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        let figures = [50.0, 90.0, 99.0, 100.0].map(|percent| times.percentile(percent));
        if way == "notify" {
            report.figure("notify_p50_ms", figures[0]);
            report.figure("notify_p99_ms", figures[2]);
        } else {
            report.figure("p50_ms", figures[0]);
            report.figure("p99_ms", figures[2]);
        }
        report.row(
            "pick-up in ms",
            [
                ("poke", way.into()),
                ("p50", figures[0].into()),
                ("p90", figures[1].into()),
                ("p99", figures[2].into()),
                ("max", figures[3].into()),
            ],
        );
    }
    other.shutdown().await;
    worker.shutdown().await;
    Ok(report)
}
