//! Correlation keys, as callers see them.

use gen_durable::prelude::*;
use gen_durable::{Engine, Error, Gc, InstanceId, InstanceResult, KeyScope, Status};
use gen_durable_tests::until;
use std::time::Duration;

use super::Bed;
use crate::desk::{Act, Desk, Left, Paid, clerks, desk, stands};
use crate::support::SOON;
use crate::work::{Rest, Work};

const KEY: &str = "order:42";

async fn open(bed: &Bed) -> (Engine, crate::work::Foreman) {
    let (clerks, foreman) = clerks();
    let engine = bed.engine().queue("desk", 8).register(Desk::machine(clerks)).start().await.unwrap();
    (engine, foreman)
}

/// One that waits for a payment.
fn waiter() -> Left {
    desk([Act::Wait(None), Act::Done])
}

/// Who has the key, if that kept another one from being inserted.
async fn existing(engine: &Engine, scope: KeyScope) -> Option<InstanceId> {
    match engine.insert(waiter()).correlation_key(KEY).correlation_scope(scope).await {
        Ok(_) => None,
        Err(Error::Duplicate { existing }) => Some(existing),
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn a_taken_key_is_refused_with_who_has_it_or_yields_that_one() {
    let bed = Bed::create().await;
    let (engine, _) = open(&bed).await;
    let first = engine.insert(waiter()).correlation_key(KEY).or_existing().await.unwrap();
    assert!(first.created);
    let error = engine.insert(waiter()).correlation_key(KEY).await.unwrap_err();
    assert!(matches!(error, Error::Duplicate { existing } if existing == first.handle.id()), "{error}");
    let second = engine.insert(waiter()).correlation_key(KEY).or_existing().await.unwrap();
    assert_eq!((second.created, second.handle.id()), (false, first.handle.id()));
    let other = engine.insert(waiter()).correlation_key("order:43").or_existing().await.unwrap();
    assert!(other.created);
    // Another machine's keys are its own.
    assert!(engine.insert(Rest { n: 1 }).correlation_key(KEY).or_existing().await.unwrap().created);
    engine.signal::<Desk>(second.handle.id(), Paid { cents: 1 }).await.unwrap();
    assert_eq!(first.handle.result().within(SOON).await.unwrap().done().unwrap().len(), 2);
    engine.shutdown().await;
}

#[durable_fsm(name = "desk", version = 2, output = u32)]
#[derive(Debug)]
enum NewDesk {
    #[state(finishes)]
    Sit {},
}

struct Sitters;

impl NewDeskSteps for Sitters {
    async fn sit(&self, _: Sit, cx: &mut Context<Sit>) -> StepResult<Sit> {
        Ok(cx.done(2))
    }
}

#[tokio::test]
async fn all_versions_of_a_machine_share_their_keys() {
    let bed = Bed::create().await;
    let (engine, _) = open(&bed).await;
    let old = engine.insert(waiter()).correlation_key(KEY).await.unwrap();
    let error = engine.insert(Sit {}).correlation_key(KEY).await.unwrap_err();
    assert!(matches!(error, Error::Duplicate { existing } if existing == old.id()), "{error}");
    let _ = NewDesk::machine(Sitters);
    engine.shutdown().await;
}

/// R37: while it is ready, runs, waits, has ended, and is collected.
#[tokio::test]
async fn a_live_key_is_taken_until_its_instance_ends() {
    let bed = Bed::create().await;
    let web = bed.engine().without_queues().start().await.unwrap();
    let script = [Act::Hold, Act::Wait(None), Act::Done];
    let first = web.insert(desk(script)).correlation_key(KEY).await.unwrap();
    let taken = async || existing(&web, KeyScope::Live).await;
    assert_eq!(taken().await, Some(first.id()), "ready");
    let (engine, mut foreman) = open(&bed).await;
    foreman.started().await;
    assert_eq!(taken().await, Some(first.id()), "executing");
    foreman.allow(1);
    stands(&engine, first.id(), Status::Waiting).await;
    assert_eq!(taken().await, Some(first.id()), "waiting");
    web.signal::<Desk>(KEY, Paid { cents: 1 }).await.unwrap();
    first.result().within(SOON).await.unwrap().done().unwrap();
    assert_eq!(taken().await, None, "done");
    let second = web.find::<Desk>(KEY).await.unwrap().expect("the live one");
    assert_ne!(second.id(), first.id());
    assert_eq!(taken().await, Some(second.id()));
    engine.cancel(second.id()).await.unwrap();
    assert_eq!(taken().await, None, "cancelled");
    engine.shutdown().await;
    web.shutdown().await;
}

/// R37
#[tokio::test]
async fn a_row_key_is_taken_until_its_instance_is_collected() {
    let bed = Bed::create().await;
    let (engine, _) = open(&bed).await;
    let insert = engine.insert(desk([Act::Done])).correlation_key(KEY);
    let first = insert.correlation_scope(KeyScope::Row).await.unwrap();
    first.result().within(SOON).await.unwrap().done().unwrap();
    assert_eq!(existing(&engine, KeyScope::Row).await, Some(first.id()), "done");
    assert_eq!(existing(&engine, KeyScope::Live).await, Some(first.id()), "whatever the other wants");
    assert_eq!(engine.find::<Desk>(KEY).await.unwrap().expect("it is there").id(), first.id());
    engine.shutdown().await;

    let gc = Gc::default().every(Duration::from_millis(20)).keep(Duration::ZERO);
    let collector = bed.engine().without_queues().gc(gc).start().await.unwrap();
    until("it is collected", || async { collector.get(first.id()).await.unwrap().is_none() }).await;
    assert_eq!(existing(&collector, KeyScope::Row).await, None);
    collector.shutdown().await;
}

#[tokio::test]
async fn a_done_instance_that_reserves_its_key_outlives_retention_zero_until_a_sweep() {
    let bed = Bed::create().await;
    let gc = Gc::default().every(Duration::from_secs(3_600)).keep(Duration::ZERO);
    let engine = bed.engine().queue("desk", 8).gc(gc).register(Desk::machine(clerks().0));
    let engine = engine.start().await.unwrap();
    let insert = engine.insert(desk([Act::Wait(None), Act::Done])).correlation_key(KEY);
    let first = insert.correlation_scope(KeyScope::Row).await.unwrap();
    let ending = first.result().within(SOON);
    engine.signal::<Desk>(KEY, Paid { cents: 1 }).await.unwrap();
    assert!(matches!(ending.await.unwrap(), InstanceResult::Done(_)));
    assert_eq!(existing(&engine, KeyScope::Row).await, Some(first.id()));
    engine.shutdown().await;
}

#[tokio::test]
async fn an_address_is_shared_by_any_number() {
    let bed = Bed::create().await;
    let (engine, _) = open(&bed).await;
    for _ in 0..3 {
        assert_eq!(existing(&engine, KeyScope::Address).await, None);
    }
    assert_eq!(existing(&engine, KeyScope::Live).await, None, "nobody has it for himself");
    engine.shutdown().await;
}

#[tokio::test]
async fn of_many_with_keys_each_is_inserted_or_told_who_is_there() {
    let bed = Bed::create().await;
    let (engine, _) = open(&bed).await;
    let before = engine.insert(waiter()).correlation_key("k3").await.unwrap();
    let scripts = [1, 3, 2, 1, 4, 2].map(|n| desk([Act::Wait(Some(n)), Act::Done]));
    let key = |state: &Left| match state.script[0] {
        Act::Wait(Some(n)) => format!("k{n}"),
        _ => unreachable!("they all wait"),
    };
    let inserted = engine.insert_all(scripts.clone()).correlation_keys(key).await.unwrap();
    let created: Vec<bool> = inserted.iter().map(|inserted| inserted.created).collect();
    assert_eq!(created, [true, false, true, false, true, false]);
    let id = |place: usize| inserted[place].handle.id();
    assert_eq!((id(1), id(3), id(5)), (before.id(), id(0), id(2)));
    // Without keys nobody is kept out.
    assert_eq!(engine.insert_all(scripts).await.unwrap().len(), 6);
    engine.shutdown().await;
}

#[tokio::test]
async fn thousands_with_keys_are_inserted_once() {
    let bed = Bed::create().await;
    let web = bed.engine().without_queues().start().await.unwrap();
    let all = || {
        let states = (0..3_000).map(|n| Rest { n });
        web.insert_all(states).correlation_keys(|state| format!("k{}", state.n % 2_000))
    };
    let first = all().await.unwrap();
    assert_eq!(first.iter().filter(|inserted| inserted.created).count(), 2_000);
    let again = all().await.unwrap();
    assert!(again.iter().all(|inserted| !inserted.created));
    assert!(first.iter().zip(&again).all(|(one, other)| one.handle.id() == other.handle.id()));
    assert_eq!(web.counts().await.unwrap()[0].count, 2_000);
    web.shutdown().await;
}

#[tokio::test]
async fn finding_prefers_the_live_one_and_then_the_latest() {
    let bed = Bed::create().await;
    let (engine, _) = open(&bed).await;
    let find = async || engine.find::<Desk>(KEY).await.unwrap().map(|found| found.id());
    assert_eq!(find().await, None);
    assert!(engine.find::<Work>(KEY).await.unwrap().is_none());
    let mut ended = Vec::new();
    for _ in 0..2 {
        let handle = engine.insert(desk([Act::Done])).correlation_key(KEY).await.unwrap();
        handle.result().within(SOON).await.unwrap().done().unwrap();
        ended.push(handle.id());
    }
    assert_eq!(find().await, Some(ended[1]));
    let address = engine.insert(waiter()).correlation_key(KEY).correlation_scope(KeyScope::Address).await;
    let live = address.unwrap().id();
    assert_eq!(find().await, Some(live));
    assert_eq!(engine.get(live).await.unwrap().unwrap().correlation_key.as_deref(), Some(KEY));
    engine.shutdown().await;
}

#[tokio::test]
async fn a_key_that_cannot_be_kept_is_refused_at_once() {
    let bed = Bed::create().await;
    let web = bed.engine().without_queues().start().await.unwrap();
    for key in ["", "a\0b", &"k".repeat(300)] {
        let error = web.insert(Rest { n: 1 }).correlation_key(key).await.unwrap_err();
        assert!(matches!(error, Error::Option { option: "correlation_key", .. }), "{error}");
        let error = web.signal::<Desk>(key, Paid { cents: 1 }).await.unwrap_err();
        assert!(matches!(error, Error::Option { option: "correlation_key", .. }), "{error}");
    }
    let error = web.insert(Rest { n: 1 }).correlation_key(KEY).detached().unwrap_err();
    assert!(error.to_string().contains("a detached insert cannot tell"), "{error}");
    assert!(web.counts().await.unwrap().is_empty());
    web.shutdown().await;
}
