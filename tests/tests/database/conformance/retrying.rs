//! Running failed instances again, as callers see it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gen_durable::prelude::*;
use gen_durable::{Engine, Error, InstanceId, Status};
use gen_durable_tests::until;
use uuid::Uuid;

use super::Bed;
use crate::desk::{look, stands};
use crate::support::{SOON, Tally};
use crate::work::{Foreman, Workers, site};

/// Those with an odd number fail for as long as something outside is broken. Others, but for the second, wait for the
/// foreman.
#[durable_fsm(name = "errand", queue = "errands", output = u32)]
#[derive(Debug)]
pub enum Errand {
    #[state(initial, next(Try))]
    Go { n: u32 },
    #[state(finishes, retry(max_attempts = 2, backoff = "1ms"))]
    Try { n: u32 },
}

/// Adds up what errands bring.
#[durable_fsm(name = "house", queue = "errands", output = Vec<u32>)]
#[derive(Debug)]
pub enum House {
    #[state(initial, next(Sum))]
    Begin { errands: Vec<u32> },
    #[state(next(Sleep))]
    Sum {},
    #[state(finishes)]
    Sleep { brought: Vec<u32> },
}

#[derive(Clone)]
struct People {
    mended: Arc<AtomicBool>,
    starts: Arc<Tally>,
    workers: Workers,
}

impl ErrandSteps for People {
    async fn go(&self, s: Go, cx: &mut Context<Go>) -> StepResult<Go> {
        Ok(cx.next(Try { n: s.n }))
    }

    async fn r#try(&self, s: Try, cx: &mut Context<Try>) -> StepResult<Try> {
        self.starts.note(cx.id());
        let crosses = s.n % 2 == 1;
        if crosses && !self.mended.load(Ordering::SeqCst) {
            self.workers.start(cx.id());
            return Err("the bridge is broken".into());
        }
        if s.n != 2 {
            self.workers.wait(cx.id()).await?;
        }
        Ok(cx.done(s.n * 10 + cx.attempt()))
    }
}

impl HouseSteps for People {
    async fn begin(&self, s: Begin, cx: &mut Context<Begin>) -> StepResult<Begin> {
        Ok(cx.fan_out(s.errands.into_iter().map(|n| Go { n }), Sum {}))
    }

    async fn sum(&self, _: Sum, cx: &mut Context<Sum>) -> StepResult<Sum> {
        self.starts.note(cx.id());
        let brought = cx.children::<Errand>().all().await?;
        let brought = brought.into_iter().filter_map(|child| child.end.done()).collect();
        Ok(cx.next(Sleep { brought }))
    }

    async fn sleep(&self, s: Sleep, cx: &mut Context<Sleep>) -> StepResult<Sleep> {
        self.workers.wait(cx.id()).await?;
        Ok(cx.done(s.brought))
    }
}

struct Village {
    engine: Engine,
    people: People,
    foreman: Foreman,
}

impl Village {
    async fn create(bed: &Bed) -> Self {
        let (workers, foreman) = site();
        let people = People { mended: Arc::default(), starts: Arc::default(), workers };
        let engine = bed.engine().queue("errands", 8);
        let engine =
            engine.register(Errand::machine(people.clone())).register(House::machine(people.clone()));
        Self { engine: engine.start().await.unwrap(), people, foreman }
    }

    fn mend(&self) {
        self.people.mended.store(true, Ordering::SeqCst);
    }

    /// Waits until an errand failed twice, which is for good.
    async fn fails(&mut self) -> InstanceId {
        loop {
            let id = self.foreman.started().await;
            if self.people.starts.of(id) == 2 {
                stands(&self.engine, id, Status::Failed).await;
                return id;
            }
        }
    }
}

#[tokio::test]
async fn a_failed_one_goes_on_from_the_step_that_failed_with_its_attempts_forgotten() {
    let bed = Bed::create().await;
    let village = Village::create(&bed).await;
    let engine = &village.engine;
    let handle = engine.insert(Go { n: 1 }).await.unwrap();
    let id = handle.id();
    let failed = stands(engine, id, Status::Failed).await;
    assert_eq!((failed.step.as_str(), failed.attempt), ("try", 1));
    assert_eq!(failed.error.as_deref(), Some("the bridge is broken"));
    // Nothing has changed: all attempts once more.
    engine.retry(id).await.unwrap();
    until("it failed again", || async { village.people.starts.of(id) == 4 }).await;
    stands(engine, id, Status::Failed).await;
    village.mend();
    engine.retry(id).await.unwrap();
    until("it runs", || async { village.people.starts.of(id) == 5 }).await;
    let running = look(engine, id).await;
    assert_eq!((running.attempt, running.failures, running.error, running.finished_at), (0, 0, None, None));
    village.foreman.allow(1);
    assert_eq!(handle.result().within(SOON).await.unwrap().done().unwrap(), 10);
    engine.shutdown().await;
}

#[tokio::test]
async fn only_a_failed_one_runs_again() {
    let bed = Bed::create().await;
    let mut village = Village::create(&bed).await;
    let engine = &village.engine;
    village.mend();
    let handle = engine.insert(Go { n: 1 }).await.unwrap();
    village.foreman.started().await;
    let error = engine.retry(handle.id()).await.unwrap_err();
    assert!(matches!(error, Error::NotFailed { status: Status::Executing, .. }), "{error}");
    village.foreman.allow(1);
    handle.result().within(SOON).await.unwrap().done().unwrap();
    let error = engine.retry(handle.id()).await.unwrap_err();
    assert!(matches!(error, Error::NotFailed { status: Status::Done, .. }), "{error}");
    assert!(error.to_string().contains("it is done"), "{error}");
    let unknown = InstanceId::from(Uuid::now_v7());
    let error = engine.retry(unknown).await.unwrap_err();
    assert!(matches!(error, Error::NotFound { id } if id == unknown), "{error}");
    engine.shutdown().await;
}

#[tokio::test]
async fn one_whose_key_another_has_by_now_does_not_run_again() {
    let bed = Bed::create().await;
    let mut village = Village::create(&bed).await;
    let engine = &village.engine;
    let first = engine.insert(Go { n: 1 }).correlation_key("k").await.unwrap();
    stands(engine, first.id(), Status::Failed).await;
    village.mend();
    let second = engine.insert(Go { n: 3 }).correlation_key("k").await.unwrap();
    let error = engine.retry(first.id()).await.unwrap_err();
    assert!(matches!(error, Error::Duplicate { existing } if existing == second.id()), "{error}");
    assert_eq!(look(engine, first.id()).await.status, Status::Failed);
    village.foreman.started().await;
    village.foreman.allow(1);
    second.result().within(SOON).await.unwrap().done().unwrap();
    engine.retry(first.id()).await.expect("the key is free");
    village.foreman.allow(1);
    assert_eq!(first.result().within(SOON).await.unwrap().done().unwrap(), 10);
    engine.shutdown().await;
}

#[tokio::test]
async fn a_failed_child_that_runs_again_while_its_parent_waits_for_others_is_waited_for() {
    let bed = Bed::create().await;
    let mut village = Village::create(&bed).await;
    let house = village.engine.insert(Begin { errands: vec![1, 4] }).await.unwrap();
    let failed = village.fails().await;
    let pending = async || look(&village.engine, house.id()).await.children_pending;
    until("one is left", || async { pending().await == 1 }).await;
    village.mend();
    village.engine.retry(failed).await.unwrap();
    assert_eq!((pending().await, look(&village.engine, house.id()).await.status), (2, Status::Joining));
    until("it runs again", || async { village.people.starts.of(failed) == 3 }).await;
    // The other one, which has waited for longer.
    village.foreman.allow(1);
    until("one is left", || async { pending().await == 1 }).await;
    assert_eq!(look(&village.engine, house.id()).await.status, Status::Joining);
    village.foreman.allow(2);
    assert_eq!(house.result().within(SOON).await.unwrap().done().unwrap(), [10, 40]);
    assert_eq!(village.people.starts.of(house.id()), 1);
    village.engine.shutdown().await;
}

#[tokio::test]
async fn a_failed_child_that_runs_again_after_its_parent_went_on_does_not_touch_it() {
    let bed = Bed::create().await;
    let mut village = Village::create(&bed).await;
    let house = village.engine.insert(Begin { errands: vec![1, 2] }).await.unwrap();
    let failed = village.fails().await;
    until("the parent has gone on", || async { look(&village.engine, house.id()).await.step == "sleep" })
        .await;
    while village.foreman.started().await != house.id() {}
    village.mend();
    let before = look(&village.engine, house.id()).await.revision;
    village.engine.retry(failed).await.unwrap();
    while village.foreman.started().await != failed {}
    village.foreman.allow(2);
    assert_eq!(village.engine.result::<Errand>(failed).within(SOON).await.unwrap().done().unwrap(), 10);
    assert_eq!(house.result().within(SOON).await.unwrap().done().unwrap(), [20]);
    assert_eq!(look(&village.engine, house.id()).await.revision, before + 1);
    assert_eq!(village.people.starts.of(house.id()), 1);
    village.engine.shutdown().await;
}
