//! From the start of an insert call to the start of the step, on an idle engine.

use std::time::{Duration, Instant};

use clap::Args;
use gen_durable::Engine;
use gen_durable::prelude::*;
use gen_durable_tests::Server;
use sqlx::{PgConnection, PgPool};
use tokio::sync::mpsc;

use crate::measure::Samples;
use crate::report::Report;
use crate::work::{Failure, engine, hold_snapshot, migrated};

/// How long nothing happens before each measurement.
const PAUSE: Duration = Duration::from_millis(25);

/// Time from an insert call to the start of the step, on an idle engine, one insert at a time.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// How many inserts to time, each way.
    #[arg(long, default_value_t = 300)]
    samples: usize,
    /// Hold an old snapshot while this many instances of two steps each run before.
    #[arg(long, default_value_t = 0)]
    under_snapshot: usize,
}

/// Says when its steps start.
#[durable_fsm]
enum Ping {
    #[state(next(Echo))]
    Pong { n: usize },
    #[state(finishes)]
    Echo { n: usize },
}

struct Steps(mpsc::UnboundedSender<(usize, Instant)>);

impl PingSteps for Steps {
    async fn pong(&self, s: Pong, cx: &mut Context<Pong>) -> StepResult<Pong> {
        self.0.send((s.n, Instant::now()))?;
        Ok(cx.next(Echo { n: s.n }))
    }

    async fn echo(&self, s: Echo, cx: &mut Context<Echo>) -> StepResult<Echo> {
        self.0.send((s.n, Instant::now()))?;
        Ok(cx.done(()))
    }
}

/// What was timed.
#[derive(Debug, Default)]
struct Times {
    bare: Samples,
    insert: Samples,
    pickup: Samples,
    next: Samples,
}

pub(crate) async fn run(arguments: &Arguments, server: &Server) -> Result<Report, Failure> {
    let (_database, pool) = migrated(server).await?;
    let mut report = Report::of("pickup", &pool).await?;
    report.fact("samples", arguments.samples);
    let (sender, mut started) = mpsc::unbounded_channel();
    let worker = engine(&pool).register(Ping::machine(Steps(sender))).start().await?;
    // An engine that runs nothing: what it inserts reaches the worker only through a notification.
    let other = engine(&pool).name("other").without_queues().without_reaper().start().await?;
    let mut snapshot = None;
    if arguments.under_snapshot > 0 {
        report.fact("instances since a snapshot that is still held", arguments.under_snapshot);
        snapshot = Some(hold_snapshot(&pool).await?);
        other.insert_all((0..arguments.under_snapshot).map(|n| Pong { n })).await?;
        for _ in 0..2 * arguments.under_snapshot {
            started.recv().await.ok_or("the worker is gone")?;
        }
    }
    let mut bare = BareCommit::new(&pool).await?;
    let ways = [("local", "p50_ms", "p99_ms", &worker), ("notify", "notify_p50_ms", "notify_p99_ms", &other)];
    for (way, p50, p99, inserter) in ways {
        let times = sample(arguments.samples, inserter, &mut started, &mut bare).await?;
        report.figure(p50, times.pickup.percentile(50.0));
        report.figure(p99, times.pickup.percentile(99.0));
        let spans = [
            ("bare commit of one row", &times.bare),
            ("insert call until it returns", &times.insert),
            ("insert call until the step starts", &times.pickup),
            ("start of a step until the next one", &times.next),
        ];
        for (span, times) in spans {
            let figures = [50.0, 90.0, 99.0, 100.0].map(|percent| times.percentile(percent));
            report.row(
                "ms on an idle engine",
                [
                    ("poke", way.into()),
                    ("span", span.into()),
                    ("p50", figures[0].into()),
                    ("p90", figures[1].into()),
                    ("p99", figures[2].into()),
                    ("max", figures[3].into()),
                ],
            );
        }
    }
    drop(snapshot);
    other.shutdown().await;
    worker.shutdown().await;
    Ok(report)
}

async fn sample(
    samples: usize,
    inserter: &Engine,
    started: &mut mpsc::UnboundedReceiver<(usize, Instant)>,
    bare: &mut BareCommit,
) -> Result<Times, Failure> {
    let mut times = Times::default();
    for n in 0..samples {
        // The engine is idle again, and what is timed next shares nothing with what was before.
        tokio::time::sleep(PAUSE).await;
        times.bare.push_milliseconds(bare.commit().await?);
        tokio::time::sleep(PAUSE).await;
        let begin = Instant::now();
        inserter.insert(Pong { n }).await?;
        times.insert.push_milliseconds(begin.elapsed());
        let (seen, first) = started.recv().await.ok_or("the worker is gone")?;
        times.pickup.push_milliseconds(first - begin);
        let (again, second) = started.recv().await.ok_or("the worker is gone")?;
        times.next.push_milliseconds(second - first);
        assert_eq!((seen, again), (n, n), "one at a time");
    }
    Ok(times)
}

/// The floor: a commit of one small row over a connection that was as idle as the engine. When the disk is slow for
/// a moment, it is so for this one, too.
struct BareCommit(sqlx::pool::PoolConnection<sqlx::Postgres>);

impl BareCommit {
    async fn new(pool: &PgPool) -> sqlx::Result<Self> {
        sqlx::query("create table commits (id bigint generated always as identity)").execute(pool).await?;
        pool.acquire().await.map(Self)
    }

    async fn commit(&mut self) -> sqlx::Result<Duration> {
        let connection: &mut PgConnection = &mut self.0;
        let begin = Instant::now();
        sqlx::query("insert into commits default values").execute(connection).await?;
        Ok(begin.elapsed())
    }
}
