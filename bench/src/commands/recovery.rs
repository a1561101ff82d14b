//! From the death of a worker to the start of its steps elsewhere.

use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use gen_durable::prelude::*;
use gen_durable_tests::Server;
use tokio::sync::{Notify, mpsc};

use crate::measure::Samples;
use crate::report::Report;
use crate::work::{Failure, engine, migrated};

/// Time from the death of a worker to the start of its step on another, with default lease and reaper.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// How many deaths to time; each takes half a minute.
    #[arg(long, default_value_t = 3)]
    samples: usize,
}

/// Says when it starts, and never ends on the worker that dies.
#[durable_fsm]
enum Orphan {
    #[state(finishes)]
    Held { n: usize },
}

struct Steps {
    started: mpsc::UnboundedSender<Instant>,
    ends: bool,
    never: Arc<Notify>,
}

impl OrphanSteps for Steps {
    async fn held(&self, _: Held, cx: &mut Context<Held>) -> StepResult<Held> {
        self.started.send(Instant::now())?;
        if !self.ends {
            self.never.notified().await;
        }
        Ok(cx.done(()))
    }
}

pub(crate) async fn run(arguments: &Arguments, server: &Server) -> Result<Report, Failure> {
    let (_database, pool) = migrated(server).await?;
    let mut report = Report::of("recovery", &pool).await?;
    report.fact("lease and reaper", "30 s and 5 s, the defaults");
    let mut times = Samples::default();
    for n in 0..arguments.samples {
        let (_database, pool) = migrated(server).await?;
        let (started, mut starts) = mpsc::unbounded_channel();
        let steps = |ends| Steps { started: started.clone(), ends, never: Arc::default() };
        let dying = engine(&pool).name("dying").register(Orphan::machine(steps(false))).start().await?;
        dying.insert(Held { n }).await?;
        starts.recv().await.ok_or("the worker is gone")?;
        let heir = engine(&pool).name("heir").register(Orphan::machine(steps(true))).start().await?;
        // Dropped without a shutdown, an engine leaves all as a crash does.
        let died = Instant::now();
        drop(dying);
        let restarted = starts.recv().await.ok_or("the worker is gone")?;
        times.push((restarted - died).as_secs_f64());
        heir.shutdown().await;
    }
    report.figure("recovery_seconds", times.median());
    report.row(
        "seconds from death to restart",
        [("median", times.median().into()), ("longest", times.percentile(100.0).into())],
    );
    Ok(report)
}
