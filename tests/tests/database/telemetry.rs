//! What an engine tells, and that nobody who listens can harm it.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use gen_durable::prelude::*;
use gen_durable::{Event, InstanceResult, Notice};
use gen_durable_tests::Bed;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Metadata, Subscriber};

use crate::support::{LATE, SOON, soon, told};
use crate::work::{Dig, Rest, Work, site};

#[tokio::test]
async fn steps_claims_and_queues_are_told_of() {
    let bed = Bed::create().await;
    let (workers, _foreman) = site();
    let engine = bed.engine().queue("work", 3).max_prefetch(7).register(Work::machine(workers));
    let engine = engine.start().await.unwrap();
    let mut events = engine.events();
    let work = engine.insert(Rest { n: 1 }).await.unwrap();
    work.result().within(SOON).await.unwrap();
    engine.shutdown().await;
    let (mut finished, mut claimed, mut saturated, mut drained) = (0, 0, 0, 0);
    drop(engine);
    while drained == 0 {
        let Some(Notice::Event(event)) = soon(events.next()).await else { panic!("a few events only") };
        match event {
            Event::StepFinished { id, machine, version, state, outcome, attempt, duration } => {
                finished += 1;
                assert_eq!((id, machine, version, state), (work.id(), "work", 1, "rest"));
                assert_eq!((outcome, attempt), ("done", 0));
                assert!(duration < SOON);
            }
            Event::ClaimRan { count, demand, queue, .. } => {
                claimed += count;
                assert!((1..=10).contains(&demand) && &*queue == "work");
            }
            Event::QueueSaturation { concurrency, prefetch, queue, running, buffered } => {
                saturated += 1;
                assert_eq!((concurrency, &*queue), (3, "work"));
                assert!(prefetch <= 7 && running <= 3 && buffered <= 1);
            }
            Event::QueueDrained { released, running, queue } => {
                drained += 1;
                assert_eq!((released, running, &*queue), (0, 0, "work"));
            }
            other => panic!("{other:?} is not to be told of here"),
        }
    }
    assert_eq!((finished, claimed), (1, 1));
    assert!(saturated >= 1);
}

#[tokio::test]
async fn claims_of_an_earlier_process_of_the_node_are_told_of() {
    let bed = Bed::create().await;
    let (workers, mut foreman) = site();
    let engine =
        || bed.engine().name("a stable engine").node("a stable node").queue("work", 2).without_reaper();
    let first = engine().register(Work::machine(workers.clone())).start().await.unwrap();
    let work = first.insert(Dig { n: 3 }).await.unwrap();
    foreman.started().await;
    drop(first);
    let second = engine().register(Work::machine(workers)).start().await.unwrap();
    let mut events = second.events();
    let (count, queue) = told(&mut events, |event| match event {
        Event::ClaimsReclaimedAtStart { count, queue } => Some((count, queue)),
        _ => None,
    })
    .await;
    assert_eq!((count, queue.as_str()), (1, "work"));
    foreman.allow(2);
    assert_eq!(second.result::<Work>(work.id()).within(SOON).await.unwrap(), InstanceResult::Done(3));
}

#[tokio::test]
async fn an_outcome_of_a_row_that_was_taken_away_is_told_of_and_changes_nothing() {
    let bed = Bed::create().await;
    let (workers, mut foreman) = site();
    // No heartbeat notices it before the step's end.
    let engine = bed.engine().lease_ttl(SOON * 3).heartbeat(SOON).queue("work", 1);
    let engine = engine.register(Work::machine(workers)).start().await.unwrap();
    let mut events = engine.events();
    let work = engine.insert(Dig { n: 3 }).await.unwrap();
    foreman.started().await;
    let away = "update gen_durable.instances set claimed_by = claimed_by, claim = claim + 1";
    sqlx::query(away).execute(&bed.pool).await.unwrap();
    foreman.allow(1);
    let stale = told(&mut events, |event| match event {
        Event::OutcomeStale { id, machine, state, kind } => Some((id, machine, state, kind)),
        _ => None,
    });
    assert_eq!(stale.await, (work.id(), "work", "dig", "done"));
    let row = engine.get(work.id()).await.unwrap().unwrap();
    assert_eq!((row.revision, row.output), (0, None));
}

#[tokio::test]
async fn a_worker_that_was_declared_dead_is_told_of_and_the_engine_goes_on() {
    let bed = Bed::create().await;
    let (workers, mut foreman) = site();
    let engine = bed.engine().queue("work", 1).register(Work::machine(workers)).start().await.unwrap();
    let mut events = engine.events();
    let work = engine.insert(Dig { n: 3 }).await.unwrap();
    foreman.started().await;
    let (dead,): (i64,) = sqlx::query_as("update gen_durable.workers set dead = true returning id")
        .fetch_one(&bed.pool)
        .await
        .unwrap();
    let mut seen = Vec::new();
    while seen.len() < 2 {
        let next = told(&mut events, |event| match event {
            Event::WorkerFenced { worker } => Some(("fenced", worker.0, 0)),
            Event::WorkerReaped { worker, instances } => Some(("reaped", worker.0, instances)),
            _ => None,
        });
        seen.push(next.await);
    }
    seen.sort_unstable();
    assert_eq!(seen, [("fenced", dead, 0), ("reaped", dead, 1)], "each is told once");
    // It runs again, under the new worker.
    assert_eq!(foreman.started().await, work.id());
    foreman.allow(2);
    assert_eq!(work.result().within(SOON).await.unwrap(), InstanceResult::Done(3));
}

#[tokio::test]
async fn a_detached_insert_that_the_database_refuses_is_told_of() {
    let bed = Bed::create().await;
    let engine = bed.engine().without_queues().start().await.unwrap();
    engine.insert(Rest { n: 0 }).await.unwrap();
    let mut events = engine.events();
    let check = "alter table gen_durable.instances add constraint small check (state::text not like '%666%')";
    sqlx::query(check).execute(&bed.pool).await.unwrap();
    let fine = engine.insert(Rest { n: 1 }).detached().unwrap();
    let lost = engine.insert(Rest { n: 666 }).detached().unwrap();
    let (id, error) = told(&mut events, |event| match event {
        Event::DetachedInsertLost { id, error } => Some((id, error)),
        _ => None,
    })
    .await;
    assert_eq!(id, lost);
    assert!(error.contains("small"), "{error}");
    engine.shutdown().await;
    assert!(engine.get(fine).await.unwrap().is_some());
}

/// Blocks its thread until it is told to go on.
#[durable_fsm(name = "roadblock")]
enum Roadblock {
    #[state(finishes)]
    Block {},
}

struct Blocks(Mutex<mpsc::Receiver<()>>);

impl RoadblockSteps for Blocks {
    async fn block(&self, _: Block, cx: &mut Context<Block>) -> StepResult<Block> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).recv()?;
        Ok(cx.done(()))
    }
}

#[tokio::test]
async fn a_runtime_whose_threads_are_all_blocked_is_told_of() {
    let bed = Bed::create().await;
    let (go_on, wait) = mpsc::channel();
    let machine = Roadblock::machine(Blocks(Mutex::new(wait)));
    let builder = bed.engine().heartbeat(Duration::from_millis(50)).register(machine);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (engine, blocked) = runtime
        .spawn(async {
            let engine = builder.start().await.unwrap();
            let blocked = engine.insert(Block {}).await.unwrap();
            (engine, blocked)
        })
        .await
        .unwrap();
    let mut events = engine.events();
    let (duration, worker) = told(&mut events, |event| match event {
        Event::RuntimeStalled { duration, worker } => Some((duration, worker)),
        _ => None,
    })
    .await;
    assert!(duration >= Duration::from_millis(40) && worker.0 > 0, "{duration:?}");
    go_on.send(()).unwrap();
    let result = runtime.spawn(blocked.result().within(SOON).into_future()).await.unwrap();
    assert_eq!(result.unwrap(), InstanceResult::Done(()));
    runtime.spawn(async move { engine.shutdown().await }).await.unwrap();
    runtime.shutdown_background();
}

/// R51
#[tokio::test]
async fn a_slow_subscriber_misses_events_and_is_told_how_many() {
    let bed = Bed::create().await;
    let (workers, _foreman) = site();
    let engine = bed.engine().queue("work", 100).register(Work::machine(workers)).start().await.unwrap();
    let mut slow = engine.events();
    let ids = engine.insert_all((0..4200).map(|n| Rest { n })).await.unwrap();
    for id in ids {
        engine.result::<Work>(id).within(SOON).await.unwrap();
    }
    let Some(Notice::Missed(missed)) = soon(slow.next()).await else { panic!("it is 4,200 events behind") };
    assert!(missed >= 100, "{missed}");
    assert!(matches!(soon(slow.next()).await, Some(Notice::Event(_))), "and then the rest");
}

/// Notes the spans of steps, and in which span events are.
#[derive(Clone, Default)]
struct Spans(Arc<SpansInner>);

#[derive(Default)]
struct SpansInner {
    ids: AtomicU64,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    steps: HashMap<u64, HashMap<String, String>>,
    entered: Vec<u64>,
    messages: Vec<(Option<u64>, String)>,
}

struct Fields<'a>(&'a mut HashMap<String, String>);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().into(), format!("{value:?}"));
    }
}

impl Spans {
    fn seen<T>(&self, with: impl FnOnce(&mut Seen) -> T) -> T {
        with(&mut self.0.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Subscriber for Spans {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("gen_durable") || metadata.target() == "test"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let id = self.0.ids.fetch_add(1, Ordering::Relaxed) + 1;
        if span.metadata().name() == "step" {
            let mut fields = HashMap::new();
            span.record(&mut Fields(&mut fields));
            self.seen(|seen| seen.steps.insert(id, fields));
        }
        Id::from_u64(id)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut fields = HashMap::new();
        event.record(&mut Fields(&mut fields));
        let message = fields.remove("message").unwrap_or_default();
        self.seen(|seen| seen.messages.push((seen.entered.last().copied(), message)));
    }

    fn enter(&self, span: &Id) {
        self.seen(|seen| seen.entered.push(span.into_u64()));
    }

    fn exit(&self, span: &Id) {
        self.seen(|seen| {
            let last = seen.entered.pop();
            assert_eq!(last, Some(span.into_u64()), "spans are left in turn");
        });
    }
}

#[durable_fsm(name = "diary", output = Option<String>)]
enum Diary {
    #[state(finishes, retry(max_attempts = 2, backoff = "1ms"))]
    Write {},
}

struct Writers;

impl DiarySteps for Writers {
    async fn write(&self, _: Write, cx: &mut Context<Write>) -> StepResult<Write> {
        tokio::task::yield_now().await;
        tracing::info!(target: "test", "dear diary, {}", cx.attempt());
        if cx.attempt() == 0 {
            return Err("the ink is dry".into());
        }
        Ok(cx.done(cx.trace_context().map(str::to_owned)))
    }
}

#[tokio::test]
async fn each_step_runs_in_a_span_with_its_fields_and_the_trace_context_of_its_insert() {
    let bed = Bed::create().await;
    let spans = Spans::default();
    // The engine's tasks run on this thread, too.
    let _guard = tracing::subscriber::set_default(spans.clone());
    let engine = bed.engine().register(Diary::machine(Writers)).start().await.unwrap();
    let context = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let traced = engine.insert(Write {}).trace_context(context).await.unwrap();
    let output = traced.result().within(SOON).await.unwrap().done().unwrap();
    assert_eq!(output.as_deref(), Some(context), "the step sees it");
    let plain = engine.insert(Write {}).await.unwrap();
    assert_eq!(plain.result().within(SOON).await.unwrap().done().unwrap(), None);

    spans.seen(|seen| {
        for (n, message) in ["dear diary, 0", "dear diary, 1"].into_iter().enumerate() {
            let (span, _) = seen.messages.iter().find(|(_, text)| text == message).expect(message);
            let fields = &seen.steps[&span.expect("it is inside of the step's span")];
            let field = |name: &str| fields.get(name).cloned().unwrap_or_default();
            assert_eq!(field("id"), traced.id().to_string());
            assert_eq!((field("machine"), field("version")), ("\"diary\"".into(), "1".into()));
            assert_eq!((field("state"), field("attempt")), ("\"write\"".into(), n.to_string()));
            assert!(field("trace_context").contains(context), "{fields:?}");
        }
        assert_eq!(seen.steps.len(), 4, "one span a start");
        assert!(seen.entered.is_empty());
    });
}

/// Panics at whatever it is asked to note.
struct Panics;

impl Subscriber for Panics {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        // Every other span is made, so that entering and closing are tried, too.
        static COUNT: AtomicU64 = AtomicU64::new(1);
        let id = COUNT.fetch_add(1, Ordering::Relaxed);
        assert!(id.is_multiple_of(2), "no span {}", span.metadata().name());
        Id::from_u64(id)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        panic!("no event");
    }

    fn enter(&self, span: &Id) {
        assert!(span.into_u64().is_multiple_of(4), "no way in");
    }

    fn exit(&self, _: &Id) {
        panic!("no way out");
    }

    fn try_close(&self, _: Id) -> bool {
        panic!("no end")
    }
}

/// Never returns from an event of the engine.
struct Blocking;

impl Subscriber for Blocking {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        if event.metadata().target() == "gen_durable" {
            loop {
                std::thread::park();
            }
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Runs steps that succeed, fail and panic, on the parent's database.
async fn run_steps_under(subscriber: impl Subscriber + Send + Sync) {
    let bed = Bed::of_parent();
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let (workers, _foreman) = site();
    let engine = bed.engine().queue("work", 10).register(Work::machine(workers));
    let engine = engine.register(Diary::machine(Quiet)).start().await.unwrap();
    let start = std::time::Instant::now();
    let ids = engine.insert_all((0..200).map(|n| Rest { n })).await.unwrap();
    for (n, id) in ids.into_iter().enumerate() {
        let output = engine.result::<Work>(id).within(SOON).await.unwrap().done().unwrap();
        assert_eq!(output as usize, n);
    }
    assert!(start.elapsed() < LATE * 5, "{:?}", start.elapsed());
    let diary = engine.insert(Write {}).queue("work").await.unwrap();
    let result = diary.result().within(SOON).await.unwrap();
    let InstanceResult::Failed { reason, .. } = result else { panic!("{result:?}") };
    assert!(reason.contains("the pen broke"), "{reason}");
    let end = engine.get(diary.id()).await.unwrap().unwrap();
    assert_eq!((end.attempt, end.failures), (1, 1), "two starts");
    engine.shutdown().await;
}

/// Panics, and says nothing.
struct Quiet;

impl DiarySteps for Quiet {
    async fn write(&self, _: Write, _: &mut Context<Write>) -> StepResult<Write> {
        panic!("the pen broke")
    }
}

/// R51
#[tokio::test]
async fn a_tracing_subscriber_that_panics_or_blocks_harms_no_step() {
    let bed = Bed::create().await;
    for child in ["child_runs_under_a_subscriber_that_panics", "child_runs_under_a_subscriber_that_blocks"] {
        let child = bed.database.child(&format!("telemetry::{child}")).unwrap();
        let mut child = tokio::process::Command::from(child);
        let output = soon(child.kill_on_drop(true).output()).await.unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
        assert!(said.contains("1 passed"), "{said}");
    }
}

#[tokio::test]
#[ignore = "run as a child"]
async fn child_runs_under_a_subscriber_that_panics() {
    run_steps_under(Panics).await;
}

#[tokio::test]
#[ignore = "run as a child"]
async fn child_runs_under_a_subscriber_that_blocks() {
    run_steps_under(Blocking).await;
}
