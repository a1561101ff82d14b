//! Random histories on each store and on a small model of what a store is to do: after each operation both must say the
//! same, and look the same.
//!
//! A failure prints the shortest history that shows it: put that into `regressions.rs` to have it played first from then on. `GEN_DURABLE_MODEL_CASES` is how many histories each store plays.

mod commits;
mod compare;
mod events;
mod grounds;
#[expect(clippy::module_inception, reason = "it is the model")]
mod model;
mod operations;
mod play;
mod regressions;
mod steps;
mod upkeep;

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};
use tokio::runtime::{Builder, Runtime};

use self::grounds::{Ground, Postgres, Sqlite};
use self::operations::Operation;
use self::play::{Play, Verdict};

/// How many threads play, each on a database of its own.
const THREADS: u32 = 2;

/// After how many operations all instances are looked at. A shorter history finds at its end what a longer one saw late.
const LOOK_EVERY: usize = 3;

#[test]
fn postgres_does_what_the_model_does() {
    explore(cases(2_500), |_| Postgres::new());
}

#[test]
fn sqlite_does_what_the_model_does() {
    explore(cases(7_500), Sqlite::new);
}

fn cases(default: u32) -> u32 {
    std::env::var("GEN_DURABLE_MODEL_CASES")
        .map_or(default, |cases| cases.parse().expect("a number of cases"))
}

fn explore<G: Ground>(cases: u32, ground: fn(u32) -> G) {
    let began = Instant::now();
    let has_failed = AtomicBool::new(false);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let has_failed = &has_failed;
            scope.spawn(move || {
                Explorer::new(ground(thread)).explore(cases / THREADS, thread == 0, has_failed)
            });
        }
    });
    println!("{cases} histories in {:?}", began.elapsed());
}

/// Plays histories on one database after another.
struct Explorer<G> {
    runtime: Runtime,
    ground: G,
    /// `None` where the last history left something behind.
    play: Option<Play>,
    played: u32,
}

impl<G: Ground> Explorer<G> {
    fn new(ground: G) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        Self { runtime, ground, play: None, played: 0 }
    }

    fn explore(mut self, cases: u32, first: bool, has_failed: &AtomicBool) {
        for regression in regressions::all().into_iter().filter(|_| first) {
            if let Err(problem) = self.play(&regression) {
                panic!("{problem}\n{}", listed(&regression));
            }
        }
        let config =
            Config { cases, failure_persistence: None, max_shrink_iters: 3_000, ..Config::default() };
        let mut runner = TestRunner::new(config);
        let (explorer, is_ours) = (RefCell::new(self), Cell::new(false));
        let played = runner.run(&operations::case(), |history| {
            // One failure is enough: the other threads come to their ends.
            if has_failed.load(Ordering::Relaxed) && !is_ours.get() {
                return Ok(());
            }
            explorer.borrow_mut().play(&history).map_err(|problem| {
                is_ours.set(true);
                has_failed.store(true, Ordering::Relaxed);
                TestCaseError::fail(problem)
            })
        });
        match played {
            Ok(()) => {}
            Err(TestError::Fail(problem, history)) => panic!("{problem}\n{}", listed(&history)),
            Err(TestError::Abort(reason)) => panic!("{reason}"),
        }
    }

    fn play(&mut self, history: &[Operation]) -> Verdict {
        /// Histories on one database: what is deleted still takes room in its tables.
        const HISTORIES: u32 = 250;
        let play = self.play.take().filter(|_| self.played < HISTORIES);
        let mut play = match play {
            Some(play) => play,
            None => {
                self.played = 0;
                let store = self.ground.fresh(&self.runtime);
                self.runtime.block_on(Play::prepare(store, self.ground.locks()))?
            }
        };
        self.played += 1;
        self.runtime.block_on(async {
            play.begin().await?;
            for (place, operation) in history.iter().enumerate() {
                let at = |problem| format!("operation {place}, {operation:?}: {problem}");
                play.perform(operation).await.map_err(at)?;
                if (place + 1) % LOOK_EVERY == 0 || place + 1 == history.len() {
                    compare::all(&play).await.map_err(at)?;
                }
            }
            play.end().await.map_err(|problem| format!("at the end: {problem}"))?;
            match self.ground.signals().await {
                0 => Ok(()),
                left => Err(format!("at the end: {left} signals are left of instances that are gone")),
            }
        })?;
        self.play = Some(play);
        Ok(())
    }
}

/// A history as Rust.
fn listed(history: &[Operation]) -> String {
    let lines: Vec<String> = history.iter().map(|operation| format!("    {operation:?},\n")).collect();
    format!("[\n{}]", lines.concat()).replace('[', "vec![")
}
