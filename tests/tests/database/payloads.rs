//! What can and cannot be stored, and that a row that cannot be harms no other.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use gen_durable::prelude::*;
use gen_durable::{Error, Event, InstanceResult, Status};
use gen_durable_tests::Bed;
use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, mpsc};

use crate::support::{SOON, refusals, refuse, soon, told};

/// What is in a parcel.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Content {
    Fine,
    LargeState,
    LargeOutput,
    OddKeys,
    NulState,
    NulOutput,
    NulReason,
    NulError,
    NulPanic,
}

const BAD: [Content; 8] = [
    Content::LargeState,
    Content::LargeOutput,
    Content::OddKeys,
    Content::NulState,
    Content::NulOutput,
    Content::NulReason,
    Content::NulError,
    Content::NulPanic,
];

#[durable_fsm(name = "parcel", output = String)]
#[derive(Debug, PartialEq)]
pub enum Parcel {
    #[state(initial, next(Ship), finishes)]
    Pack { content: Content },
    #[state(finishes)]
    Ship { text: String, odd: HashMap<(i32, i32), i32> },
}

/// Packs only when it may.
struct Packers(Arc<Semaphore>);

const LIMIT: usize = 2048;

impl ParcelSteps for Packers {
    async fn pack(&self, s: Pack, cx: &mut Context<Pack>) -> StepResult<Pack> {
        self.0.acquire().await?.forget();
        let send = |text: &str| cx.next(Ship { text: text.into(), odd: HashMap::new() });
        Ok(match s.content {
            Content::Fine => cx.done("sent".into()),
            Content::LargeState => send(&"x".repeat(LIMIT)),
            Content::LargeOutput => cx.done("x".repeat(LIMIT)),
            Content::OddKeys => cx.next(Ship { text: String::new(), odd: HashMap::from([((1, 2), 3)]) }),
            Content::NulState => send("a\0b"),
            Content::NulOutput => cx.done("a\0b".into()),
            Content::NulReason => cx.stop("a\0b"),
            Content::NulError => return Err("a\0b".into()),
            Content::NulPanic => panic!("a\0b"),
        })
    }

    async fn ship(&self, _: Ship, cx: &mut Context<Ship>) -> StepResult<Ship> {
        Ok(cx.done("sent".into()))
    }
}

/// R14, R38, R39
#[tokio::test]
async fn what_cannot_be_stored_fails_alone_with_its_type_and_its_last_state_intact() {
    let bed = Bed::create().await;
    let gate = Arc::new(Semaphore::new(0));
    let machine = Parcel::machine(Packers(Arc::clone(&gate)));
    let engine =
        bed.engine().queue("default", 40).payload_limit(LIMIT).register(machine).start().await.unwrap();
    let fine = std::iter::repeat_n(Content::Fine, 10);
    let contents: Vec<Content> = fine.clone().chain(BAD).chain(fine).collect();
    let packs: Vec<Pack> = contents.iter().map(|&content| Pack { content }).collect();
    let ids = engine.insert_all(packs).await.unwrap();
    // All end at the same moment, so that they share batches.
    gate.add_permits(ids.len());
    for (id, content) in ids.into_iter().zip(contents) {
        let result = engine.result::<Parcel>(id).within(SOON).await.unwrap();
        let reason = match result {
            InstanceResult::Done(output) => {
                assert_eq!((content, output.as_str()), (Content::Fine, "sent"));
                continue;
            }
            InstanceResult::Failed { reason, .. } => reason,
            other => panic!("{content:?}: {other:?}"),
        };
        let said: &[&str] = match content {
            Content::Fine => panic!("{reason}"),
            Content::LargeState => &["Ship", "payload_limit", "2048"],
            Content::LargeOutput => &["String", "payload_limit", "2050"],
            Content::OddKeys => &["Ship", "key must be a string"],
            Content::NulState => &["Ship", "NUL"],
            Content::NulOutput => &["String", "NUL"],
            Content::NulReason | Content::NulError => &["a\u{2400}b"],
            Content::NulPanic => &["panicked", "a\u{2400}b"],
        };
        for said in said {
            assert!(reason.contains(said), "{content:?}: {reason}");
        }
        let end = engine.get(id).await.unwrap().unwrap();
        assert_eq!(end.status, Status::Failed);
        assert_eq!(end.decode::<Parcel>().unwrap(), Parcel::Pack { content }, "the last state is intact");
    }
}

/// R38, R39
#[tokio::test]
async fn what_cannot_be_stored_is_refused_by_the_insert() {
    let bed = Bed::create().await;
    let engine = bed.engine().without_queues().payload_limit(LIMIT).start().await.unwrap();
    let note = |text: &str| Note { text: text.into() };
    for (text, said) in [("a\0b".to_owned(), "NUL"), ("x".repeat(LIMIT), "payload_limit")] {
        let error = engine.insert(note(&text)).await.unwrap_err();
        assert!(matches!(error, Error::Unstorable { .. }), "{error}");
        assert!(error.to_string().contains(said) && error.to_string().contains("Note"), "{error}");
        let error = engine.insert_all([note("fine"), note(&text)]).await.unwrap_err();
        assert!(matches!(error, Error::Unstorable { .. }), "{error}");
    }
    let error = engine.insert(note("")).queue("a\0b").await.unwrap_err();
    assert!(matches!(error, Error::Option { option: "queue", .. }), "{error}");
    let error = engine.insert(note("")).trace_context("a\0b").await.unwrap_err();
    assert!(matches!(error, Error::Option { option: "trace_context", .. }), "{error}");
    assert!(engine.counts().await.unwrap().is_empty(), "nothing was inserted");
}

/// Numbers that are not exact as floating point.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Numbers {
    most: u64,
    least: i64,
    odd: u64,
    huge: u128,
    tiny: f64,
}

#[durable_fsm(name = "ledger", output = Numbers)]
#[derive(Debug, PartialEq)]
pub enum Ledger {
    #[state(initial, next(Carry))]
    Open { numbers: Numbers },
    #[state(finishes)]
    Carry { numbers: Numbers },
}

struct Clerks;

impl LedgerSteps for Clerks {
    async fn open(&self, s: Open, cx: &mut Context<Open>) -> StepResult<Open> {
        Ok(cx.next(Carry { numbers: s.numbers }))
    }

    async fn carry(&self, s: Carry, cx: &mut Context<Carry>) -> StepResult<Carry> {
        Ok(cx.done(s.numbers))
    }
}

/// R40
#[tokio::test]
async fn large_integers_come_back_with_every_digit() {
    let bed = Bed::create().await;
    let engine = bed.engine().register(Ledger::machine(Clerks)).start().await.unwrap();
    let numbers = Numbers {
        most: u64::MAX,
        least: i64::MIN,
        odd: (1 << 53) + 1,
        huge: u128::MAX - 1,
        tiny: f64::MIN_POSITIVE,
    };
    let ledger = engine.insert(Open { numbers }).await.unwrap();
    assert_eq!(ledger.result().within(SOON).await.unwrap(), InstanceResult::Done(numbers));
    let end = engine.get(ledger.id()).await.unwrap().unwrap();
    assert_eq!(end.decode::<Ledger>().unwrap(), Ledger::Carry { numbers });
    // From the row, too, and not only from memory.
    let other = bed.engine().without_queues().start().await.unwrap();
    let read = other.result::<Ledger>(ledger.id()).within(SOON).await.unwrap();
    assert_eq!(read, InstanceResult::Done(numbers));
}

#[durable_fsm(name = "memo", output = String, queue = "memos")]
pub enum Memo {
    /// Yields its text, once it may.
    #[state(initial, finishes)]
    Note { text: String },
    /// Is mended when the database refuses it.
    #[state(initial, finishes)]
    Draft { text: String },
}

struct Writers {
    started: mpsc::UnboundedSender<()>,
    gate: Arc<Semaphore>,
}

impl MemoSteps for Writers {
    async fn note(&self, s: Note, cx: &mut Context<Note>) -> StepResult<Note> {
        self.started.send(())?;
        self.gate.acquire().await?.forget();
        Ok(cx.done(s.text))
    }

    async fn draft(&self, s: Draft, cx: &mut Context<Draft>) -> StepResult<Draft> {
        self.started.send(())?;
        self.gate.acquire().await?.forget();
        Ok(cx.done(s.text))
    }

    async fn on_draft_error(&self, _: Draft, error: StepError, cx: &mut Context<Draft>) -> StepResult<Draft> {
        let StepError::Unstorable { problem } = error else { panic!("{error}") };
        Ok(cx.done(format!("mended: {problem}")))
    }
}

/// An engine whose 40 memos all wait to end at once.
struct Office {
    bed: Bed,
    engine: gen_durable::Engine,
    started: mpsc::UnboundedReceiver<()>,
    gate: Arc<Semaphore>,
}

impl Office {
    async fn open() -> Self {
        let bed = Bed::create().await;
        let gate = Arc::new(Semaphore::new(0));
        let (sender, started) = mpsc::unbounded_channel();
        let machine = Memo::machine(Writers { started: sender, gate: Arc::clone(&gate) });
        let engine = bed.engine().queue("memos", 50).register(machine).start().await.unwrap();
        Self { bed, engine, started, gate }
    }

    /// Lets this many steps end, once all have started.
    async fn release(&mut self, count: usize) {
        for _ in 0..count {
            soon(self.started.recv()).await.expect("a step starts");
        }
        self.gate.add_permits(count);
    }
}

/// R14
#[tokio::test]
async fn an_outcome_that_the_database_refuses_goes_to_the_error_method_and_its_neighbours_commit() {
    let mut office = Office::open().await;
    refuse(&office.bed, "new.output::text = '\"poison\"'", "23514", u32::MAX).await;
    let engine = office.engine.clone();
    let mut events = engine.events();
    let fine: Vec<Note> = (0..38).map(|n| Note { text: n.to_string() }).collect();
    let fine = engine.insert_all(fine).await.unwrap();
    let mended = engine.insert(Draft { text: "poison".into() }).await.unwrap();
    let failed = engine.insert(Note { text: "poison".into() }).await.unwrap();
    office.release(40).await;
    for (n, id) in fine.into_iter().enumerate() {
        let output = engine.result::<Memo>(id).within(SOON).await.unwrap().done().unwrap();
        assert_eq!(output, n.to_string());
    }
    let output = mended.result().within(SOON).await.unwrap().done().unwrap();
    assert!(output.contains("mended") && output.contains("refused by a trigger"), "{output}");
    let InstanceResult::Failed { reason, .. } = failed.result().within(SOON).await.unwrap() else {
        panic!("by default there is no other outcome");
    };
    assert!(reason.contains("the database refused the outcome `done`"), "{reason}");
    assert!(reason.contains("23514"), "{reason}");
    let mut rejected = Vec::new();
    while rejected.len() < 2 {
        rejected.push(
            told(&mut events, |event| match event {
                Event::OutcomeRejected { id, machine: "memo", error, .. } => Some((id, error)),
                _ => None,
            })
            .await,
        );
    }
    for (id, error) in rejected {
        assert!(id == mended.id() || id == failed.id());
        assert!(error.contains("refused by a trigger"), "{error}");
    }
}

/// R14
#[tokio::test]
async fn a_row_that_the_database_never_lets_end_holds_up_nobody_and_ends_once_it_may() {
    let mut office = Office::open().await;
    refuse(&office.bed, "old.status = 'executing' and old.priority = 7", "22001", u32::MAX).await;
    let engine = office.engine.clone();
    let stuck = engine.insert(Note { text: "stuck".into() }).priority(7).await.unwrap();
    office.release(1).await;
    // Ten batches in which it takes part again and again.
    for _ in 0..10 {
        let fine: Vec<Note> = (0..20).map(|n| Note { text: n.to_string() }).collect();
        let fine = engine.insert_all(fine).await.unwrap();
        office.release(20).await;
        for id in fine {
            engine.result::<Memo>(id).within(SOON).await.unwrap().done().unwrap();
        }
    }
    let before = refusals(&office.bed).await;
    assert!(before < 500, "{before} tries in a moment");
    refuse(&office.bed, "false", "22001", 0).await;
    let InstanceResult::Failed { reason, .. } = stuck.result().within(SOON).await.unwrap() else {
        panic!("after two refusals it has failed");
    };
    assert!(reason.contains("refused by a trigger"), "{reason}");
}

/// R13
#[tokio::test]
async fn a_passing_fault_of_the_database_is_tried_again_until_it_works() {
    let mut office = Office::open().await;
    let engine = office.engine.clone();
    // Serialisation, deadlock, disk full, internal error, one that a trigger raises by default.
    for sqlstate in ["40001", "40P01", "53100", "XX000", "P0001"] {
        refuse(&office.bed, "new.output::text = '\"late\"'", sqlstate, 2).await;
        let mut events = engine.events();
        let texts = ["late", "fine"].map(|text| Note { text: text.into() });
        let ids = engine.insert_all(texts).await.unwrap();
        office.release(2).await;
        for id in ids {
            engine.result::<Memo>(id).within(SOON).await.unwrap().done().unwrap();
            let end = engine.get(id).await.unwrap().unwrap();
            assert_eq!((end.attempt, end.failures, end.crashes), (0, 0, 0), "{sqlstate}");
        }
        let (operation, error) = told(&mut events, |event| match event {
            Event::StoreUnavailable { operation, error } => Some((operation, error)),
            _ => None,
        })
        .await;
        assert!(operation.contains("outcomes") && error.contains(sqlstate), "{operation}: {error}");
        told(&mut events, |event| match event {
            Event::StoreBack { operation: back, downtime } if back == operation => Some(downtime),
            _ => None,
        })
        .await;
    }
}

/// R13, R14
#[tokio::test]
async fn a_row_whose_fault_never_passes_lets_its_neighbours_commit() {
    let mut office = Office::open().await;
    refuse(&office.bed, "new.output::text = '\"never\"'", "XX001", u32::MAX).await;
    let engine = office.engine.clone();
    let mut texts: Vec<Note> = (0..39).map(|n| Note { text: n.to_string() }).collect();
    texts.insert(20, Note { text: "never".into() });
    let ids = engine.insert_all(texts).await.unwrap();
    office.release(40).await;
    for (n, id) in ids.iter().enumerate().filter(|(n, _)| *n != 20) {
        let result = engine.result::<Memo>(*id).within(SOON).await.unwrap();
        assert!(matches!(result, InstanceResult::Done(_)), "{n}: {result:?}");
    }
    let never = engine.result::<Memo>(ids[20]).within(Duration::ZERO).await.unwrap();
    assert!(matches!(never, InstanceResult::Busy(_)), "{never:?}");
    refuse(&office.bed, "false", "22001", 0).await;
    engine.result::<Memo>(ids[20]).within(SOON).await.unwrap().done().unwrap();
}
