//! Transactions of steps and of callers, as they see them.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use gen_durable::prelude::*;
use gen_durable::{
    Cancelled, Delivery, Engine, EngineBuilder, Error, InstanceId, InstanceResult, NewChild, Status,
};
use gen_durable_tests::until;

use super::{Bed, Db, OtherDb, pool};
use crate::desk::{Act, Clerks, Desk, Paid, Saw, desk, look, stands};
use crate::support::{SOON, soon};
use crate::work::{Foreman, Rest, Work, Workers, site};

/// What a step does after it has written a note in its transaction.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum How {
    Done,
    Next,
    Wait,
    FanOut,
    Retry,
    Stop,
    /// Fails at each start.
    Error,
    /// Fails at the first start.
    ErrorOnce,
    Panic,
    /// Does not end.
    Hang,
    /// Writes more, takes that back, and is done.
    Savepoint,
    /// Is done, and leaves the transaction unfinished.
    Forget,
    /// Waits for the foreman, and is done.
    Hold,
    /// Inserts an instance, sends a signal and is done; or fails after that.
    Act {
        fails: bool,
    },
    /// Begins on another kind of database.
    Astray,
    /// Returns an output that cannot be stored.
    Unstorable,
}

#[durable_fsm(name = "scribe", queue = "scribe", output = String, signals(Paid))]
#[derive(Debug)]
pub enum Scribe {
    #[state(initial, next(Read), finishes, timeout = "1s", retry(max_attempts = 2, backoff = "1ms"))]
    Write { how: How },
    /// Without a timeout.
    #[state(initial, finishes)]
    Hold {},
    #[state(finishes)]
    Read {},
}

#[derive(Clone)]
struct Scribes {
    workers: Workers,
    /// For acts in a step's transaction.
    engine: Arc<OnceLock<Engine>>,
}

const NOTE: &str = "insert into notes (id, note) values ($1, $2)";

impl Scribes {
    async fn note(
        &self,
        tx: &mut <Db as sqlx::Database>::Connection,
        id: InstanceId,
        note: &str,
    ) -> Result<(), StepError> {
        sqlx::query(NOTE).bind(id.to_string()).bind(note).execute(tx).await?;
        Ok(())
    }
}

impl ScribeSteps for Scribes {
    async fn write(&self, s: Write, cx: &mut Context<Write>) -> StepResult<Write> {
        if s.how == How::Astray {
            cx.begin::<OtherDb>().await?;
        }
        let mut tx = cx.begin::<Db>().await?;
        self.note(&mut tx, cx.id(), "written").await?;
        let outcome = match s.how {
            How::Done => cx.done("done".into()),
            How::Next => cx.next(Read {}),
            How::Wait => cx.wait_for::<Paid>(Read {}).into(),
            How::FanOut => {
                let children = [Write { how: How::Done }, Write { how: How::Next }];
                cx.fan_out(children.map(NewChild::of), Read {})
            }
            How::Retry if cx.attempt() == 0 => cx.retry(Write { how: How::Retry }, Duration::ZERO),
            How::Retry => cx.done("again".into()),
            How::Stop => cx.stop("as told"),
            How::Error => return Err("as told".into()),
            How::ErrorOnce if cx.attempt() == 0 => return Err("as told".into()),
            How::ErrorOnce => cx.done("at last".into()),
            How::Panic => panic!("as told"),
            How::Hang => std::future::pending().await,
            How::Savepoint => {
                sqlx::raw_sql("savepoint inner_one").execute(&mut *tx).await?;
                self.note(&mut tx, cx.id(), "taken back").await?;
                sqlx::raw_sql("rollback to savepoint inner_one").execute(&mut *tx).await?;
                sqlx::raw_sql("savepoint inner_two").execute(&mut *tx).await?;
                self.note(&mut tx, cx.id(), "kept").await?;
                sqlx::raw_sql("release savepoint inner_two").execute(&mut *tx).await?;
                cx.done("done".into())
            }
            How::Forget => return Ok(cx.done("forgotten".into())),
            How::Hold | How::Astray => unreachable!("not here"),
            How::Act { fails } => {
                let engine = self.engine.get().expect("it runs");
                let signal = engine.signal::<Desk>("desk", Paid { cents: 7 });
                assert_eq!(signal.in_tx(&mut tx).await?, Delivery::Delivered);
                engine.insert(Rest { n: 5 }).correlation_key("rest").in_tx(&mut tx).await?;
                if fails {
                    return Err("as told".into());
                }
                cx.done("done".into())
            }
            How::Unstorable => cx.done("a\0b".into()),
        };
        tx.finish(outcome).await
    }

    async fn hold(&self, _: Hold, cx: &mut Context<Hold>) -> StepResult<Hold> {
        let mut tx = cx.begin::<Db>().await?;
        self.note(&mut tx, cx.id(), "written").await?;
        self.workers.wait(cx.id()).await?;
        tx.finish(cx.done("held".into())).await
    }

    async fn read(&self, _: Read, cx: &mut Context<Read>) -> StepResult<Read> {
        Ok(cx.done(format!("read {}", cx.awaited::<Paid>()?.len())))
    }
}

/// A database with a table of notes, and an engine on it.
struct Office {
    bed: Bed,
    pool: sqlx::Pool<Db>,
    engine: Engine,
    foreman: Foreman,
}

impl Office {
    async fn open() -> Self {
        Self::open_with(|engine| engine).await
    }

    async fn open_with(with: impl FnOnce(EngineBuilder) -> EngineBuilder) -> Self {
        let bed = Bed::create().await;
        let (workers, foreman) = site();
        let scribes = Scribes { workers: workers.clone(), engine: Arc::default() };
        let engine = with(bed.engine())
            .queue("scribe", 8)
            .queue("desk", 8)
            .queue("work", 8)
            .register(Desk::machine(Clerks::of(&workers)))
            .register(Work::machine(workers))
            .register(Scribe::machine(scribes.clone()));
        let engine = engine.start().await.unwrap();
        scribes.engine.set(engine.clone()).unwrap();
        let pool = pool(&bed);
        sqlx::raw_sql("create table notes (id text not null, note text not null)")
            .execute(&pool)
            .await
            .unwrap();
        Self { bed, pool, engine, foreman }
    }

    async fn insert(&self, how: How) -> InstanceId {
        self.engine.insert(Write { how }).await.unwrap().id()
    }

    async fn result(&self, id: InstanceId) -> InstanceResult<String> {
        self.engine.result::<Scribe>(id).within(SOON).await.unwrap()
    }

    async fn done(&self, id: InstanceId) -> String {
        self.result(id).await.done().unwrap()
    }

    async fn notes(&self, id: InstanceId) -> Vec<String> {
        let text = "select note from notes where id = $1";
        sqlx::query_scalar(text).bind(id.to_string()).fetch_all(&self.pool).await.unwrap()
    }

    async fn fails(&self, how: How) -> String {
        let id = self.insert(how).await;
        let result = self.result(id).await;
        let InstanceResult::Failed { reason, .. } = result else { panic!("{how:?}: {result:?}") };
        assert!(self.notes(id).await.is_empty(), "{how:?}: what was written is rolled back");
        reason
    }
}

#[tokio::test]
async fn a_steps_writes_and_its_outcome_are_committed_together_whatever_the_outcome() {
    let office = Office::open().await;
    for (how, output) in [(How::Done, "done"), (How::Next, "read 0"), (How::Savepoint, "done")] {
        let id = office.insert(how).await;
        assert_eq!(office.done(id).await, output);
        let notes: &[&str] = if how == How::Savepoint { &["written", "kept"] } else { &["written"] };
        assert_eq!(office.notes(id).await, notes);
    }
    let id = office.insert(How::Retry).await;
    assert_eq!(office.done(id).await, "again");
    assert_eq!(office.notes(id).await, ["written", "written"], "each start wrote and was committed");

    let id = office.insert(How::Stop).await;
    let InstanceResult::Failed { reason, .. } = office.result(id).await else { panic!("it stops") };
    assert_eq!((reason.as_str(), office.notes(id).await), ("as told", vec!["written".to_owned()]));

    let id = office.insert(How::Wait).await;
    stands(&office.engine, id, Status::Waiting).await;
    assert_eq!(office.notes(id).await, ["written"]);
    office.engine.signal::<Scribe>(id, Paid { cents: 1 }).await.unwrap();
    assert_eq!(office.done(id).await, "read 1");

    // Its children end in transactions of their own, and tell it.
    let id = office.insert(How::FanOut).await;
    assert_eq!((office.done(id).await.as_str(), office.notes(id).await.len()), ("read 0", 1));
    office.engine.shutdown().await;
}

#[tokio::test]
async fn a_step_that_fails_after_it_has_written_leaves_nothing_behind() {
    let office = Office::open().await;
    assert_eq!(office.fails(How::Error).await, "as told");
    assert_eq!(office.fails(How::Panic).await, "the step panicked: as told");
    let reason = office.fails(How::Hang).await;
    assert!(reason.contains("did not end within its timeout"), "{reason}");
    let reason = office.fails(How::Unstorable).await;
    assert!(reason.contains("NUL"), "{reason}");
    let id = office.insert(How::ErrorOnce).await;
    assert_eq!((office.done(id).await.as_str(), office.notes(id).await.len()), ("at last", 1));
    let id = office.insert(How::Forget).await;
    assert_eq!((office.done(id).await.as_str(), office.notes(id).await.len()), ("forgotten", 0));
    office.engine.shutdown().await;
}

#[tokio::test]
async fn beginning_on_another_kind_of_database_says_so() {
    let office = Office::open().await;
    let reason = office.fails(How::Astray).await;
    assert!(reason.contains("the engine's tables are not in"), "{reason}");
    office.engine.shutdown().await;
}

#[tokio::test]
async fn what_a_step_inserts_and_sends_in_its_transaction_happens_with_its_outcome() {
    let office = Office::open().await;
    let desk =
        office.engine.insert(desk([Act::Wait(None), Act::Done])).correlation_key("desk").await.unwrap();
    stands(&office.engine, desk.id(), Status::Waiting).await;
    assert_eq!(office.fails(How::Act { fails: true }).await, "as told");
    assert_eq!(look(&office.engine, desk.id()).await.status, Status::Waiting);
    assert!(office.engine.find::<Work>("rest").await.unwrap().is_none());
    let id = office.insert(How::Act { fails: false }).await;
    assert_eq!(office.done(id).await, "done");
    assert_eq!(desk.result().within(SOON).await.unwrap().done().unwrap()[1], Saw::paid(&[7]));
    let rest = office.engine.find::<Work>("rest").await.unwrap().expect("it was inserted");
    assert_eq!(rest.result().within(SOON).await.unwrap().done().unwrap(), 5);
    office.engine.shutdown().await;
}

#[tokio::test]
async fn one_that_is_cancelled_in_its_transaction_writes_nothing() {
    let mut office = Office::open().await;
    let id = office.engine.insert(Hold {}).await.unwrap().id();
    assert_eq!(office.foreman.started().await, id);
    // On SQLite, whoever writes waits for the step.
    let cancelling = office.engine.cancel(id);
    let cancelling = tokio::spawn(async move { cancelling.await });
    if cancelling_waits::<Db>() {
        office.foreman.allow(1);
        assert!(matches!(cancelling.await.unwrap().unwrap(), Cancelled::Ended(Status::Done)));
        assert_eq!(office.notes(id).await, ["written"]);
    } else {
        assert_eq!(soon(cancelling).await.unwrap().unwrap(), Cancelled::Soon);
        assert_eq!(office.result(id).await, InstanceResult::Cancelled { id });
        assert!(office.notes(id).await.is_empty());
    }
    office.engine.shutdown().await;
}

fn cancelling_waits<D: sqlx::Database>() -> bool {
    D::NAME == "SQLite"
}

#[tokio::test]
async fn what_a_caller_does_in_a_transaction_happens_at_its_commit_and_not_before() {
    let office = Office::open().await;
    let engine = &office.engine;
    let [signalled, cancelled] = [(); 2].map(|()| desk([Act::Wait(None), Act::Done]));
    let signalled = engine.insert(signalled).await.unwrap();
    let cancelled = engine.insert(cancelled).await.unwrap();
    for id in [signalled.id(), cancelled.id()] {
        stands(engine, id, Status::Waiting).await;
    }
    for commits in [false, true] {
        let mut tx = office.pool.begin().await.unwrap();
        let inserted = engine.insert(Rest { n: 3 }).correlation_key("k").in_tx(&mut tx).await.unwrap();
        let again = engine.insert(Rest { n: 4 }).correlation_key("k");
        let again = again.or_existing().in_tx(&mut tx).await.unwrap();
        assert_eq!((again.created, again.handle.id()), (false, inserted.id()));
        let error = engine.insert(Rest { n: 4 }).correlation_key("k").in_tx(&mut tx).await.unwrap_err();
        assert!(matches!(error, Error::Duplicate { existing } if existing == inserted.id()), "{error}");
        let sent = engine.signal::<Desk>(signalled.id(), Paid { cents: 1 }).in_tx(&mut tx).await;
        assert_eq!(sent.unwrap(), Delivery::Delivered);
        assert_eq!(engine.cancel(cancelled.id()).in_tx(&mut tx).await.unwrap(), Cancelled::Now);

        assert!(engine.get(inserted.id()).await.unwrap().is_none());
        for id in [signalled.id(), cancelled.id()] {
            let seen = look(engine, id).await;
            assert_eq!((seen.status, seen.inbox), (Status::Waiting, 0));
        }
        if commits {
            tx.commit().await.unwrap();
            assert_eq!(inserted.result().within(SOON).await.unwrap().done().unwrap(), 3);
        } else {
            tx.rollback().await.unwrap();
            assert!(engine.get(inserted.id()).await.unwrap().is_none());
            assert_eq!(look(engine, cancelled.id()).await.status, Status::Waiting);
        }
    }
    assert_eq!(signalled.result().within(SOON).await.unwrap().done().unwrap()[1], Saw::paid(&[1]));
    let result = cancelled.result().within(SOON).await.unwrap();
    assert_eq!(result, InstanceResult::Cancelled { id: cancelled.id() });
    engine.shutdown().await;
}

#[tokio::test]
async fn a_callers_transaction_is_told_what_a_call_without_one_is_told() {
    let office = Office::open().await;
    let engine = &office.engine;
    let ended = engine.insert(desk([Act::Done])).await.unwrap();
    ended.result().within(SOON).await.unwrap().done().unwrap();
    let mut tx = office.pool.begin().await.unwrap();
    let signal = engine.signal::<Desk>(ended.id(), Paid { cents: 1 });
    assert!(matches!(signal.in_tx(&mut tx).await, Err(Error::NoTarget { .. })));
    let cancelled = engine.cancel(ended.id()).in_tx(&mut tx).await.unwrap();
    assert_eq!(cancelled, Cancelled::Ended(Status::Done));
    let unknown = InstanceId::from(uuid::Uuid::now_v7());
    assert!(matches!(engine.cancel(unknown).in_tx(&mut tx).await, Err(Error::NotFound { .. })));
    let refused = engine.insert(Rest { n: 1 }).correlation_key("").in_tx(&mut tx).await;
    assert!(matches!(refused, Err(Error::Option { option: "correlation_key", .. })));
    tx.commit().await.expect("none of this has spoilt it");
    engine.shutdown().await;
}

#[tokio::test]
async fn a_machine_that_is_new_in_a_transaction_is_forgotten_when_that_is_rolled_back() {
    let bed = Bed::create().await;
    let web = bed.engine().without_queues().start().await.unwrap();
    let pool = pool(&bed);
    let mut tx = pool.begin().await.unwrap();
    web.insert(Rest { n: 1 }).in_tx(&mut tx).await.unwrap();
    tx.rollback().await.unwrap();
    let mut tx = pool.begin().await.unwrap();
    let kept = web.insert(Rest { n: 2 }).in_tx(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    web.insert(Rest { n: 3 }).await.unwrap();
    assert_eq!(look(&web, kept.id()).await.machine, "work");
    assert_eq!(web.counts().await.unwrap().iter().map(|count| count.count).sum::<u64>(), 2);
    web.shutdown().await;
}

#[tokio::test]
async fn what_is_delayed_in_a_transaction_starts_after_its_commit_and_its_delay() {
    let office = Office::open().await;
    let mut tx = office.pool.begin().await.unwrap();
    let rest =
        office.engine.insert(Rest { n: 8 }).delay(Duration::from_millis(50)).in_tx(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(rest.result().within(SOON).await.unwrap().done().unwrap(), 8);
    until("it is there", || async { office.engine.get(rest.id()).await.unwrap().is_some() }).await;
    office.engine.shutdown().await;
    drop(office.bed);
}
