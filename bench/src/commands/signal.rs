//! From a signal call to the start of the step that it wakes, on an idle engine; and how late timeouts fire.

use std::collections::HashMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use gen_durable::prelude::*;
use gen_durable::{Engine, InstanceId};
use gen_durable_tests::Server;
use sqlx::PgPool;
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::measure::{Samples, statement_times};
use crate::report::Report;
use crate::work::{Failure, engine, migrated};

/// Time from a signal call to the start of the woken step, on an idle engine, and the lateness of timeouts.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// How many signals to time, each way, and how many timeouts.
    #[arg(long, default_value_t = 200)]
    samples: usize,
}

/// Wakes one that waits.
#[derive(Signal, Serialize, Deserialize)]
struct Nudge {
    n: usize,
}

/// Says when it is woken.
#[durable_fsm(signals(Nudge))]
enum Sleeper {
    #[state(initial, next(Rise))]
    Doze { n: usize, timeout: Option<Duration> },
    #[state(finishes)]
    Rise { n: usize },
}

/// An instance was woken.
struct Woken {
    n: usize,
    at: Instant,
    /// By the clock of this machine, in microseconds since 1970.
    time: i64,
    timed_out: bool,
}

struct Steps(mpsc::UnboundedSender<Woken>);

impl SleeperSteps for Steps {
    async fn doze(&self, s: Doze, cx: &mut Context<Doze>) -> StepResult<Doze> {
        let wait = cx.wait_for::<Nudge>(Rise { n: s.n });
        Ok(match s.timeout {
            Some(timeout) => wait.timeout(timeout).into(),
            None => wait.into(),
        })
    }

    async fn rise(&self, s: Rise, cx: &mut Context<Rise>) -> StepResult<Rise> {
        let (at, time) = (Instant::now(), now());
        self.0.send(Woken { n: s.n, at, time, timed_out: cx.timed_out() })?;
        Ok(cx.done(()))
    }
}

/// The clock of this machine, in microseconds since 1970.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

pub(crate) async fn run(arguments: &Arguments, server: &Server) -> Result<Report, Failure> {
    let (_database, pool) = migrated(server).await?;
    let mut report = Report::of("signal", &pool).await?;
    report.fact("samples", arguments.samples);
    let (sender, mut woken) = mpsc::unbounded_channel();
    let worker = engine(&pool).register(Sleeper::machine(Steps(sender))).start().await?;
    // An engine that runs nothing: whom it wakes the worker hears of only through a notification.
    let other = engine(&pool).name("other").without_queues().without_reaper().start().await?;
    for (way, signaller) in [("local", &worker), ("notify", &other)] {
        let ids = asleep(&worker, &pool, arguments.samples, |_| None).await?;
        let mut times = Samples::default();
        for (n, id) in ids.into_iter().enumerate() {
            let begin = Instant::now();
            signaller.signal::<Sleeper>(id, Nudge { n }).await?;
            let seen = woken.recv().await.ok_or("the worker is gone")?;
            assert_eq!((seen.n, seen.timed_out), (n, false), "one at a time");
            times.push_milliseconds(seen.at - begin);
            // The engine is idle again, and the next signal shares nothing with this one.
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        let figures = figures(&mut report, "signal to woken step in ms", way, &times);
        let names = if way == "local" { ["p50_ms", "p99_ms"] } else { ["notify_p50_ms", "notify_p99_ms"] };
        report.figure(names[0], figures[0]);
        report.figure(names[1], figures[2]);
    }
    let late = lateness(&worker, &pool, arguments.samples, &mut woken).await?;
    let figures = figures(&mut report, "lateness in ms", "timeout", &late);
    report.figure("timeout_p50_ms", figures[0]);
    report.figure("timeout_p99_ms", figures[2]);
    for [name, calls, mean, total] in statement_times(&pool).await? {
        let row = [("statement", name), ("calls", calls), ("mean ms", mean), ("total ms", total)];
        report.row("statements", row);
    }
    other.shutdown().await;
    worker.shutdown().await;
    Ok(report)
}

fn figures(report: &mut Report, table: &'static str, way: &'static str, times: &Samples) -> [f64; 4] {
    let figures = [50.0, 90.0, 99.0, 100.0].map(|percent| times.percentile(percent));
    report.row(
        table,
        [
            ("by", way.into()),
            ("p50", figures[0].into()),
            ("p90", figures[1].into()),
            ("p99", figures[2].into()),
            ("max", figures[3].into()),
        ],
    );
    figures
}

/// Instances that wait, in the order of their numbers.
async fn asleep(
    engine: &Engine,
    pool: &PgPool,
    count: usize,
    mut timeout: impl FnMut(usize) -> Option<Duration>,
) -> Result<Vec<InstanceId>, Failure> {
    let states: Vec<Doze> = (0..count).map(|n| Doze { n, timeout: timeout(n) }).collect();
    let ids = engine.insert_all(states).await?;
    let waiting = "select count(*) from gen_durable.instances where status = 'waiting'";
    while sqlx::query_scalar::<_, i64>(waiting).fetch_one(pool).await? < i64::try_from(count)? {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // What parked them is done with, too.
    tokio::time::sleep(Duration::from_millis(250)).await;
    Ok(ids)
}

/// The shortest timeout, and how far the longest exceeds it for each of them: one fires every 50 ms.
const SHORTEST: Duration = Duration::from_secs(3);
const EACH: Duration = Duration::from_millis(50);

/// How long after its deadline each of some waits ends, whose timeouts are random.
async fn lateness(
    engine: &Engine,
    pool: &PgPool,
    count: usize,
    woken: &mut mpsc::UnboundedReceiver<Woken>,
) -> Result<Samples, Failure> {
    let spread = EACH * u32::try_from(count)?;
    // The last bits of an id are random.
    let random = |_| {
        let share = Uuid::now_v7().as_u128() as u32;
        Some(SHORTEST + spread.mul_f64(f64::from(share) / f64::from(u32::MAX)))
    };
    let ids = asleep(engine, pool, count, random).await?;
    let micros = |instant: &str| format!("(extract(epoch from {instant}) * 1000000)::bigint");
    let deadlines =
        format!("select id, {} from gen_durable.instances where status = 'waiting'", micros("eligible_at"));
    let deadlines: HashMap<Uuid, i64> =
        sqlx::query_as(sqlx::AssertSqlSafe(deadlines)).fetch_all(pool).await?.into_iter().collect();
    // How far the database's clock is ahead of ours, to half of a round trip.
    let (before, theirs): (i64, i64) = (
        now(),
        sqlx::query_scalar(sqlx::AssertSqlSafe(format!("select {}", micros("clock_timestamp()"))))
            .fetch_one(pool)
            .await?,
    );
    let ahead = theirs - i64::midpoint(before, now());
    let mut late = Samples::default();
    for _ in 0..count {
        let seen = woken.recv().await.ok_or("the worker is gone")?;
        assert!(seen.timed_out, "nobody sends it a signal");
        let deadline = deadlines.get(&ids[seen.n].as_uuid()).ok_or("a wait ended before it was seen")?;
        late.push((seen.time + ahead - deadline) as f64 / 1e3);
    }
    Ok(late)
}
