//! Signals and waits, as machines see them.

use std::time::Duration;

use gen_durable::{Delivery, Engine, Error, InstanceId, InstanceResult, KeyScope, Status};
use uuid::Uuid;

use super::Bed;
use crate::desk::{Act, Clerks, Desk, Nudge, Paid, Saw, clerks, desk, look, stands};
use crate::support::SOON;
use crate::work::{Foreman, Rest};

async fn start(bed: &Bed, clerks: &Clerks) -> Engine {
    bed.engine().queue("desk", 8).register(Desk::machine(clerks.clone())).start().await.unwrap()
}

async fn open(bed: &Bed) -> (Engine, Clerks, Foreman) {
    let (clerks, foreman) = clerks();
    (start(bed, &clerks).await, clerks, foreman)
}

async fn insert(engine: &Engine, script: impl IntoIterator<Item = Act>) -> InstanceId {
    engine.insert(desk(script)).await.unwrap().id()
}

async fn pay(engine: &Engine, id: InstanceId, cents: i64) {
    assert_eq!(engine.signal::<Desk>(id, Paid { cents }).await.unwrap(), Delivery::Delivered);
}

async fn nudge(engine: &Engine, id: InstanceId) {
    assert_eq!(engine.signal::<Desk>(id, Nudge).await.unwrap(), Delivery::Delivered);
}

async fn outcome(engine: &Engine, id: InstanceId) -> Vec<Saw> {
    engine.result::<Desk>(id).within(SOON).await.unwrap().done().unwrap()
}

#[tokio::test]
async fn a_signal_ends_the_wait_for_it() {
    let bed = Bed::create().await;
    let (engine, clerks, _) = open(&bed).await;
    let id = insert(&engine, [Act::Wait(None), Act::Done]).await;
    let waiting = stands(&engine, id, Status::Waiting).await;
    assert_eq!((waiting.awaits, waiting.eligible_at), (vec!["paid".to_owned()], None));
    pay(&engine, id, 5).await;
    assert_eq!(outcome(&engine, id).await, [Saw::default(), Saw::paid(&[5])]);
    assert_eq!(clerks.starts.of(id), 2);
    engine.shutdown().await;
}

/// R24: before the instance has started, and while its first step runs.
#[tokio::test]
async fn a_signal_that_came_before_the_wait_ends_it_at_once() {
    let bed = Bed::create().await;
    let web = bed.engine().without_queues().start().await.unwrap();
    let early = web.insert(desk([Act::Wait(None), Act::Done])).await.unwrap().id();
    pay(&web, early, 1).await;
    let (engine, _, mut foreman) = open(&bed).await;
    assert_eq!(outcome(&engine, early).await, [Saw::inbox(&["paid"]), Saw::paid(&[1])]);

    let id = insert(&engine, [Act::Hold, Act::Wait(None), Act::Done]).await;
    assert_eq!(foreman.started().await, id);
    pay(&engine, id, 2).await;
    foreman.allow(1);
    assert_eq!(outcome(&engine, id).await, [Saw::default(), Saw::paid(&[2])]);
    engine.shutdown().await;
    web.shutdown().await;
}

/// R24
#[tokio::test]
async fn a_signal_that_comes_between_retries_is_kept() {
    let bed = Bed::create().await;
    let (engine, _, _) = open(&bed).await;
    let id = insert(&engine, [Act::Again(1_500), Act::Wait(None), Act::Done]).await;
    stands(&engine, id, Status::Scheduled).await;
    pay(&engine, id, 3).await;
    let saw = outcome(&engine, id).await;
    assert_eq!(saw[1], Saw { attempt: 1, ..Saw::inbox(&["paid"]) });
    assert_eq!(saw[2], Saw::paid(&[3]));
    engine.shutdown().await;
}

#[tokio::test]
async fn whichever_of_several_signals_comes_first_ends_the_wait_and_others_do_not() {
    let bed = Bed::create().await;
    let (engine, clerks, _) = open(&bed).await;
    let id = insert(&engine, [Act::WaitEither(None), Act::Wait(None), Act::Done]).await;
    assert_eq!(stands(&engine, id, Status::Waiting).await.awaits, ["paid", "nudge"]);
    nudge(&engine, id).await;
    let nudged = Saw { nudges: 1, ..Saw::inbox(&["nudge"]) };
    stands(&engine, id, Status::Waiting).await;
    // Now it waits for a payment only.
    nudge(&engine, id).await;
    assert_eq!(look(&engine, id).await.status, Status::Waiting);
    pay(&engine, id, 7).await;
    let paid = Saw { paid: vec![7], ..Saw::inbox(&["nudge", "paid"]) };
    assert_eq!(outcome(&engine, id).await, [Saw::default(), nudged, paid]);
    assert_eq!(clerks.starts.of(id), 3);
    engine.shutdown().await;
}

#[tokio::test]
async fn a_wait_ends_with_its_timeout_and_the_step_is_told() {
    let bed = Bed::create().await;
    let (engine, clerks, _) = open(&bed).await;
    let id = insert(&engine, [Act::Wait(Some(20)), Act::Wait(Some(0)), Act::Next, Act::Done]).await;
    let saw = [Saw::default(), Saw::timeout(), Saw::timeout(), Saw::default()];
    assert_eq!(
        outcome(&engine, id).await,
        saw,
        "a timeout is no attempt, and is forgotten by the next outcome"
    );
    assert_eq!(clerks.starts.of(id), 4);
    engine.shutdown().await;
}

/// R26: the one that came too late is not lost.
#[tokio::test]
async fn a_signal_that_comes_after_the_timeout_is_kept_for_a_later_wait() {
    let bed = Bed::create().await;
    let (engine, _, mut foreman) = open(&bed).await;
    let id = insert(&engine, [Act::Wait(Some(10)), Act::Hold, Act::Wait(None), Act::Done]).await;
    assert_eq!(foreman.started().await, id);
    pay(&engine, id, 4).await;
    foreman.allow(1);
    assert_eq!(outcome(&engine, id).await, [Saw::default(), Saw::timeout(), Saw::paid(&[4])]);
    engine.shutdown().await;
}

/// R25
#[tokio::test]
async fn a_crash_neither_loses_nor_repeats_a_timeout() {
    let bed = Bed::create().await;
    let (engine, first, mut foreman) = open(&bed).await;
    let id = insert(&engine, [Act::Wait(Some(10)), Act::Hold, Act::Wait(None), Act::Done]).await;
    assert_eq!(foreman.started().await, id);
    pay(&engine, id, 6).await;
    // As a crash, and the step with it.
    drop(engine);
    let (engine, second, mut foreman) = open(&bed).await;
    assert_eq!(foreman.started().await, id);
    foreman.allow(1);
    let late = Saw { attempt: 1, inbox: vec!["paid".into()], ..Saw::timeout() };
    assert_eq!(outcome(&engine, id).await, [Saw::default(), late, Saw::paid(&[6])]);
    assert_eq!((first.starts.of(id), second.starts.of(id)), (2, 2));
    engine.shutdown().await;
}

/// R25
#[tokio::test]
async fn a_signal_without_a_payload_is_no_timeout() {
    let bed = Bed::create().await;
    let (engine, _, _) = open(&bed).await;
    let id = insert(&engine, [Act::WaitNudge(Some(3_600_000)), Act::Done]).await;
    stands(&engine, id, Status::Waiting).await;
    nudge(&engine, id).await;
    let nudged = Saw { nudges: 1, ..Saw::inbox(&["nudge"]) };
    assert_eq!(outcome(&engine, id).await, [Saw::default(), nudged]);
    engine.shutdown().await;
}

#[tokio::test]
async fn a_renewed_wait_gathers_a_pack_with_one_start_for_each_signal() {
    let bed = Bed::create().await;
    let (engine, clerks, _) = open(&bed).await;
    let id = insert(&engine, [Act::Gather(3, None), Act::Next, Act::Done]).await;
    for n in 1..=3 {
        // It has looked at what came before, and rests.
        gen_durable_tests::until("it waits", || async {
            clerks.starts.of(id) == n && look(&engine, id).await.status == Status::Waiting
        })
        .await;
        assert_eq!(look(&engine, id).await.inbox, n - 1, "the pack is kept");
        pay(&engine, id, n.into()).await;
    }
    assert_eq!(outcome(&engine, id).await, [Saw::paid(&[1, 2, 3]), Saw::default()]);
    assert_eq!(clerks.starts.of(id), 5, "one at first, one for each signal, one after");
    engine.shutdown().await;
}

#[tokio::test]
async fn a_pack_that_is_not_complete_in_time_is_handed_over_in_part() {
    let bed = Bed::create().await;
    let (engine, clerks, mut foreman) = open(&bed).await;
    let id = insert(&engine, [Act::Hold, Act::Next, Act::Gather(2, Some(30)), Act::Next, Act::Done]).await;
    assert_eq!(foreman.started().await, id);
    pay(&engine, id, 1).await;
    foreman.allow(1);
    let part = Saw { timed_out: true, ..Saw::paid(&[1]) };
    assert_eq!(outcome(&engine, id).await, [Saw::default(), part, Saw::default()]);
    assert_eq!(clerks.starts.of(id), 5, "it found one, rested, and was told that the time is up");
    engine.shutdown().await;
}

#[tokio::test]
async fn going_on_consumes_exactly_the_awaited_signals_that_the_step_was_handed() {
    let bed = Bed::create().await;
    let (engine, _, mut foreman) = open(&bed).await;
    let id = insert(&engine, [Act::Hold, Act::Wait(None), Act::Hold, Act::Next, Act::Done]).await;
    assert_eq!(foreman.started().await, id);
    nudge(&engine, id).await;
    pay(&engine, id, 1).await;
    foreman.allow(1);
    assert_eq!(foreman.started().await, id);
    // Too late for this step.
    pay(&engine, id, 2).await;
    foreman.allow(1);
    let saw = [
        Saw::default(),
        Saw { paid: vec![1], ..Saw::inbox(&["nudge", "paid"]) },
        Saw::inbox(&["nudge", "paid"]),
    ];
    assert_eq!(outcome(&engine, id).await, saw);
    engine.shutdown().await;
}

#[tokio::test]
async fn a_retry_consumes_nothing() {
    let bed = Bed::create().await;
    let (engine, _, mut foreman) = open(&bed).await;
    let script = [Act::Hold, Act::Wait(None), Act::Again(1), Act::Next, Act::Done];
    let asked = insert(&engine, script).await;
    assert_eq!(foreman.started().await, asked);
    let script = [Act::Hold, Act::Wait(None), Act::Err, Act::Next, Act::Done];
    let failed = insert(&engine, script).await;
    assert_eq!(foreman.started().await, failed);
    for id in [asked, failed] {
        pay(&engine, id, 1).await;
    }
    foreman.allow(2);
    let again = Saw { attempt: 1, ..Saw::paid(&[1]) };
    let saw = outcome(&engine, asked).await;
    assert_eq!(saw, [Saw::default(), Saw::paid(&[1]), again.clone(), Saw::default()]);
    assert_eq!(outcome(&engine, failed).await, [Saw::default(), again, Saw::default()]);
    engine.shutdown().await;
}

#[tokio::test]
async fn the_end_of_an_instance_clears_its_inbox() {
    let bed = Bed::create().await;
    let (engine, _, mut foreman) = open(&bed).await;
    for end in [Act::Done, Act::Stop] {
        let id = insert(&engine, [Act::Hold, end]).await;
        assert_eq!(foreman.started().await, id);
        nudge(&engine, id).await;
        assert_eq!(look(&engine, id).await.inbox, 1);
        foreman.allow(1);
        engine.result::<Desk>(id).within(SOON).await.unwrap();
        assert_eq!(look(&engine, id).await.inbox, 0);
    }
    engine.shutdown().await;
}

/// Limits and durability, and what a step is shown, are the same with and without run-ahead.
#[tokio::test]
async fn a_step_that_runs_ahead_finds_what_was_sent_before() {
    let bed = Bed::create().await;
    let (engine, _, mut foreman) = open(&bed).await;
    let id = insert(&engine, [Act::Hold, Act::Ahead, Act::Hold, Act::Ahead, Act::Done]).await;
    assert_eq!(foreman.started().await, id);
    nudge(&engine, id).await;
    foreman.allow(1);
    assert_eq!(foreman.started().await, id);
    pay(&engine, id, 1).await;
    foreman.allow(1);
    let saw = [Saw::default(), Saw::inbox(&["nudge"]), Saw::inbox(&["nudge", "paid"])];
    assert_eq!(outcome(&engine, id).await, saw);
    engine.shutdown().await;
}

#[tokio::test]
async fn a_key_makes_a_signal_that_is_sent_again_a_no_op_until_the_instance_ends() {
    let bed = Bed::create().await;
    let (engine, _, mut foreman) = open(&bed).await;
    let id = insert(&engine, [Act::Wait(None), Act::Hold, Act::Wait(Some(20)), Act::Done]).await;
    let other = insert(&engine, [Act::Wait(None), Act::Done]).await;
    let send = |id, key: &str| engine.signal::<Desk>(id, Paid { cents: 1 }).dedup_key(key);
    stands(&engine, id, Status::Waiting).await;
    assert_eq!(send(id, "a").await.unwrap(), Delivery::Delivered);
    assert_eq!(foreman.started().await, id);
    assert_eq!(send(id, "a").await.unwrap(), Delivery::Repeated, "it was handed over");
    foreman.allow(1);
    // Consumed or not yet: the key is known.
    assert_eq!(send(id, "a").await.unwrap(), Delivery::Repeated);
    assert_eq!(outcome(&engine, id).await, [Saw::default(), Saw::paid(&[1]), Saw::timeout()]);
    assert_eq!(send(other, "a").await.unwrap(), Delivery::Delivered, "keys are the instance's own");
    assert_eq!(outcome(&engine, other).await.len(), 2);
    assert!(matches!(send(id, "b").await, Err(Error::NoTarget { .. })));
    assert!(matches!(send(other, "").await, Err(Error::Option { option: "dedup_key", .. })));
    engine.shutdown().await;
}

#[tokio::test]
async fn a_signal_without_a_live_target_says_so() {
    let bed = Bed::create().await;
    let (engine, _, _) = open(&bed).await;
    let ended = insert(&engine, [Act::Done]).await;
    outcome(&engine, ended).await;
    let foreign = engine.insert(Rest { n: 1 }).await.unwrap().id();
    let unknown = InstanceId::from(Uuid::now_v7());
    for id in [ended, foreign, unknown] {
        let error = engine.signal::<Desk>(id, Nudge).await.unwrap_err();
        assert!(matches!(error, Error::NoTarget { .. }), "{error}");
        assert!(error.to_string().contains(&id.to_string()), "{error}");
    }
    let error = engine.signal::<Desk>("nobody's key", Nudge).await.unwrap_err();
    assert!(error.to_string().contains("`nobody's key`"), "{error}");
    engine.shutdown().await;
}

#[tokio::test]
async fn a_signal_finds_the_live_instance_by_its_key() {
    let bed = Bed::create().await;
    let (engine, _, _) = open(&bed).await;
    let keyed = |script: Vec<Act>| engine.insert(desk(script)).correlation_key("order:1");
    let ended = keyed(vec![Act::Done]).await.unwrap();
    outcome(&engine, ended.id()).await;
    assert!(matches!(engine.signal::<Desk>("order:1", Nudge).await, Err(Error::NoTarget { .. })));
    let live = keyed(vec![Act::Wait(None), Act::Done]).await.unwrap();
    engine.signal::<Desk>("order:1", Paid { cents: 9 }).await.unwrap();
    assert_eq!(outcome(&engine, live.id()).await.last(), Some(&Saw::paid(&[9])));
    engine.shutdown().await;
}

#[tokio::test]
async fn a_signal_to_a_key_that_several_live_instances_have_is_refused() {
    let bed = Bed::create().await;
    let (engine, _, _) = open(&bed).await;
    let insert = || {
        let insert = engine.insert(desk([Act::Wait(None), Act::Done])).correlation_key("street");
        insert.correlation_scope(KeyScope::Address)
    };
    let (one, other) = (insert().await.unwrap(), insert().await.unwrap());
    let error = engine.signal::<Desk>("street", Paid { cents: 1 }).await.unwrap_err();
    assert!(matches!(error, Error::Ambiguous { .. }), "{error}");
    pay(&engine, one.id(), 1).await;
    outcome(&engine, one.id()).await;
    engine.signal::<Desk>("street", Paid { cents: 2 }).await.expect("one is left");
    assert_eq!(outcome(&engine, other.id()).await.last(), Some(&Saw::paid(&[2])));
    engine.shutdown().await;
}

#[tokio::test]
async fn tools_send_signals_by_name() {
    let bed = Bed::create().await;
    let (engine, _, _) = open(&bed).await;
    let id = insert(&engine, [Act::Wait(None), Act::Done]).await;
    let send = |machine, name, payload| engine.signal_untyped(machine, id, name, payload);
    let error = send("desk", "piad", "1").await.unwrap_err();
    assert!(matches!(error, Error::UnknownSignal { .. }), "{error}");
    assert!(error.to_string().contains("paid, nudge"), "{error}");
    assert!(matches!(send("desk", "paid", "{").await, Err(Error::Unstorable { .. })));
    assert!(matches!(send("desk", "paid", r#""\u0000""#).await, Err(Error::Unstorable { .. })));
    // A machine that this engine does not know may take any signal, but this instance is none of it.
    assert!(matches!(send("other", "paid", "1").await, Err(Error::NoTarget { .. })));
    stands(&engine, id, Status::Waiting).await;
    assert_eq!(send("desk", "paid", r#"{"cents":8}"#).await.unwrap(), Delivery::Delivered);
    assert_eq!(outcome(&engine, id).await, [Saw::default(), Saw::paid(&[8])]);
    engine.shutdown().await;
}

#[tokio::test]
async fn a_signal_that_is_not_what_its_name_says_fails_the_instance_with_the_reason() {
    let bed = Bed::create().await;
    let (engine, clerks, _) = open(&bed).await;
    let id = insert(&engine, [Act::Wait(None), Act::Done]).await;
    engine.signal_untyped("desk", id, "paid", r#"{"cents":"many"}"#).await.unwrap();
    let result = engine.result::<Desk>(id).within(SOON).await.unwrap();
    let InstanceResult::Failed { reason, .. } = result else { panic!("{result:?}") };
    assert!(reason.contains("a signal `paid` in the inbox is not a"), "{reason}");
    assert_eq!(clerks.starts.of(id), 2, "trying again cannot help");
    engine.shutdown().await;
}

#[tokio::test]
async fn of_many_signals_a_bad_one_stops_no_others() {
    let bed = Bed::create().await;
    let (engine, _, _) = open(&bed).await;
    let good = insert(&engine, [Act::Gather(2, None), Act::Done]).await;
    let other = insert(&engine, [Act::Wait(None), Act::Done]).await;
    let unknown = InstanceId::from(Uuid::now_v7());
    let targets = [good, unknown, other, good, good];
    let signals = targets.into_iter().zip(1..).map(|(id, cents)| (id, Paid { cents }));
    let keys = ["a", "b", "c", "d", "a"];
    let sent = engine.signal_all::<Desk, _>(signals).dedup_keys(|place| keys[place].into()).await.unwrap();
    assert!(matches!(
        sent[..],
        [
            Ok(Delivery::Delivered),
            Err(Error::NoTarget { .. }),
            Ok(Delivery::Delivered),
            Ok(Delivery::Delivered),
            Ok(Delivery::Repeated)
        ]
    ));
    assert_eq!(outcome(&engine, good).await, [Saw::paid(&[1, 4])]);
    assert_eq!(outcome(&engine, other).await.last(), Some(&Saw::paid(&[3])));
    assert!(engine.signal_all::<Desk, Paid>(Vec::<(InstanceId, _)>::new()).await.unwrap().is_empty());
    engine.shutdown().await;
}

#[tokio::test]
async fn thousands_of_signals_in_an_inbox_are_handed_over_in_order_a_thousand_at_a_time() {
    let bed = Bed::create().await;
    let (engine, _, mut foreman) = open(&bed).await;
    let id = insert(&engine, [Act::Hold, Act::Wait(None), Act::Wait(None), Act::Wait(None), Act::Done]).await;
    assert_eq!(foreman.started().await, id);
    let sent = engine.signal_all::<Desk, _>((0..2_500).map(|cents| (id, Paid { cents }))).await.unwrap();
    assert!(sent.iter().all(|sent| matches!(sent, Ok(Delivery::Delivered))));
    assert_eq!(look(&engine, id).await.inbox, 2_500);
    foreman.allow(1);
    let saw = outcome(&engine, id).await;
    let counts: Vec<usize> = saw.iter().map(|saw| saw.paid.len()).collect();
    assert_eq!(counts, [0, 1_000, 1_000, 500]);
    let all: Vec<i64> = saw.into_iter().flat_map(|saw| saw.paid).collect();
    assert_eq!(all, (0..2_500).collect::<Vec<_>>());
    engine.shutdown().await;
}

#[tokio::test]
async fn who_asks_for_the_result_of_one_that_waits_is_told_what_for() {
    let bed = Bed::create().await;
    let (engine, _, _) = open(&bed).await;
    let id = insert(&engine, [Act::WaitEither(None), Act::Done]).await;
    stands(&engine, id, Status::Waiting).await;
    let result = engine.result::<Desk>(id).within(Duration::ZERO).await.unwrap();
    let InstanceResult::Waiting(snapshot) = &result else { panic!("{result:?}") };
    assert_eq!((snapshot.id, snapshot.awaits.as_slice()), (id, &["paid".to_owned(), "nudge".to_owned()][..]));
    assert!(result.done().unwrap_err().to_string().contains("it is waiting in step `right`"));
    engine.shutdown().await;
}
