//! Parents with children: many with some, and one with very many.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use clap::Args;
use gen_durable::prelude::*;
use gen_durable_tests::Server;

use crate::measure::{Samples, statement_times, statements};
use crate::report::Report;
use crate::work::{Failure, all_ended, engine, migrated};

/// Run parents with children, with default settings: seconds from the insert of the parents until all have ended.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// How many parents there are.
    #[arg(long, default_value_t = 100)]
    parents: u32,
    /// How many children each of them has.
    #[arg(long, default_value_t = 50)]
    children: u32,
    /// How many children the one parent has that has very many.
    #[arg(long, default_value_t = 100_000)]
    many: u32,
    /// How many runs with many parents; the median is reported.
    #[arg(long, default_value_t = 5)]
    runs: usize,
}

/// Fans out, and counts the children that are done.
#[durable_fsm(output = u32)]
enum Parent {
    #[state(initial, next(Gather))]
    Spread { children: u32 },
    #[state(finishes)]
    Gather { children: u32 },
}

/// Does nothing.
#[durable_fsm(output = u32)]
enum Child {
    #[state(initial, finishes)]
    Play { n: u32 },
}

struct Parents(Arc<AtomicUsize>);

impl ParentSteps for Parents {
    async fn spread(&self, s: Spread, cx: &mut Context<Spread>) -> StepResult<Spread> {
        Ok(cx.fan_out((0..s.children).map(|n| Play { n }), Gather { children: s.children }))
    }

    async fn gather(&self, s: Gather, cx: &mut Context<Gather>) -> StepResult<Gather> {
        let mut done = 0;
        let mut children = cx.children::<Child>();
        loop {
            let page = children.next_page().await?;
            if page.is_empty() {
                break;
            }
            done += page.into_iter().filter_map(|child| child.end.done()).count();
        }
        assert_eq!(done, s.children as usize, "every child is done");
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(cx.done(s.children))
    }
}

struct Children;

impl ChildSteps for Children {
    async fn play(&self, s: Play, cx: &mut Context<Play>) -> StepResult<Play> {
        Ok(cx.done(s.n))
    }
}

pub(crate) async fn run(arguments: &Arguments, server: &Server) -> Result<Report, Failure> {
    let (_database, pool) = migrated(server).await?;
    let mut report = Report::of("fanout", &pool).await?;
    report.fact("runs", arguments.runs);
    let mut figures: [Samples; 3] = Default::default();
    for run in 0..arguments.runs {
        let is_last = run + 1 == arguments.runs;
        let run =
            family(server, arguments.parents, arguments.children, is_last.then_some(&mut report)).await?;
        for (samples, figure) in figures.iter_mut().zip(run) {
            samples.push(figure);
        }
    }
    let some = figures.map(|samples| samples.median());
    row(&mut report, arguments.parents, arguments.children, some);
    report.figure("seconds_100x50", some[0]);
    report.figure("statements_per_child_100x50", some[1]);
    let many = family(server, 1, arguments.many, Some(&mut report)).await?;
    row(&mut report, 1, arguments.many, many);
    report.figure("seconds_1x100000", many[0]);
    report.figure("statements_per_child", many[1]);
    report.figure("peak_mib", many[2]);
    Ok(report)
}

fn row(report: &mut Report, parents: u32, children: u32, [seconds, statements, peak]: [f64; 3]) {
    report.row(
        "parents and children",
        [
            ("parents", parents.into()),
            ("children each", children.into()),
            ("seconds", seconds.into()),
            ("children/s", (f64::from(parents * children) / seconds).round().into()),
            ("statements per child", statements.into()),
            ("peak MiB", peak.into()),
        ],
    );
}

/// One run: seconds, statements per child, and the most memory that this process has had, in MiB.
async fn family(
    server: &Server,
    parents: u32,
    children: u32,
    report: Option<&mut Report>,
) -> Result<[f64; 3], Failure> {
    let (_database, pool) = migrated(server).await?;
    let ended = Arc::new(AtomicUsize::new(0));
    let builder = engine(&pool).register(Parent::machine(Parents(Arc::clone(&ended))));
    let engine = builder.register(Child::machine(Children)).start().await?;
    // Connections are open and statements are prepared before the clock runs.
    engine.insert(Spread { children: 1 }).await?;
    all_ended(&pool, &ended, 1).await?;

    let mut connection = pool.acquire().await?;
    let before = statements(&mut connection).await?;
    forget_peak();
    let begin = Instant::now();
    engine.insert_all((0..parents).map(move |_| Spread { children })).await?;
    all_ended(&pool, &ended, parents as usize + 1).await?;
    let seconds = begin.elapsed().as_secs_f64();
    let peak = peak_mib();
    engine.shutdown().await;
    let count = statements(&mut connection).await? - before;
    if let Some(report) = report {
        let table = if parents == 1 { "statements of one parent" } else { "statements of many parents" };
        for [name, calls, mean, total] in statement_times(&pool).await? {
            report
                .row(table, [("statement", name), ("calls", calls), ("mean ms", mean), ("total ms", total)]);
        }
    }
    Ok([seconds, count as f64 / f64::from(parents * children), peak])
}

/// Lets the kernel begin anew with the most memory that this process has had; where it cannot, an earlier peak counts.
fn forget_peak() {
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// The most memory that this process has had; not a number where the kernel does not tell.
fn peak_mib() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kibibytes.map_or(f64::NAN, |kibibytes| kibibytes / 1024.0)
}
