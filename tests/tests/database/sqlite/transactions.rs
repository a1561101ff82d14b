//! Transactions of steps and of users on SQLite: one connection writes, and a step has it for a while.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use gen_durable::store::sqlite::{SqliteStore, Synchronous};
use gen_durable::store::{
    Cancelling, ClaimRequest, Claimed, Clock, Commit, Delivered, DonePolicy, Flush, Flushed, Inserted,
    MachineId, NewInstance, NewSignal, Start, StepConnection, Store, StoreError, StoreResult, Transition,
    UserTransaction,
};
use gen_durable::{InstanceId, Status, WorkerId};
use gen_durable_tests::{Bed, SqliteBed};
use sqlx::{Connection, SqliteConnection};
use uuid::Uuid;

const SOON: Duration = Duration::from_secs(20);
const DONE: Flushed = Flushed::Committed { status: Status::Done, watched: false };

/// A store with one machine, one worker, and a table of the user's, `notes`.
struct Place {
    store: Arc<dyn Store>,
    machine: MachineId,
    worker: WorkerId,
    /// Where the file is, if it is one.
    bed: Option<SqliteBed>,
}

impl Place {
    async fn file() -> Self {
        let bed = SqliteBed::create().await;
        // As users have it: a durable write also sets how soon it is on disk.
        Self::on(Arc::new(SqliteStore::file(bed.path(), Synchronous::Full)), Some(bed)).await
    }

    async fn memory() -> Self {
        Self::on(Arc::new(SqliteStore::in_memory(Clock::system())), None).await
    }

    async fn both() -> [Self; 2] {
        [Self::file().await, Self::memory().await]
    }

    async fn on(store: Arc<dyn Store>, bed: Option<SqliteBed>) -> Self {
        store.check().await.expect("it answers").expect("it is migrated");
        let machine = store.register_machines(&[("machine", 1)]).await.expect("a machine")[0];
        let worker = store.register_worker("engine", "node").await.expect("a worker");
        let place = Self { store, machine, worker, bed };
        let row = place.claimed().await;
        let mut step = place.begin().await;
        execute(&mut step, "create table notes (id integer primary key, note text unique)").await.unwrap();
        assert_eq!(place.finish(step, &done(&row)).await.unwrap().fates, [DONE]);
        place
    }

    fn instance(&self) -> NewInstance {
        NewInstance {
            id: InstanceId::from(Uuid::now_v7()),
            machine: self.machine,
            step: "first",
            state: "1".to_owned(),
            queue: "default".into(),
            priority: 0,
            start: Start::After(Duration::ZERO),
            trace_context: None,
            key: None,
            parent: None,
        }
    }

    async fn insert(&self) -> InstanceId {
        let instance = self.instance();
        self.store.insert(std::slice::from_ref(&instance)).await.expect("it is inserted");
        instance.id
    }

    async fn claimed(&self) -> Claimed {
        let id = self.insert().await;
        let queue: Arc<str> = "default".into();
        let machines = &[self.machine];
        let request =
            ClaimRequest { worker: self.worker, claim: 1, queue: &queue, machines, limit: 100, alone: true };
        let rows = self.store.claim(&request).await.expect("it claims").rows;
        rows.into_iter().find(|row| row.id == id).expect("it is claimed")
    }

    async fn begin(&self) -> StepConnection {
        self.store.begin_step().await.expect("it begins").expect("it has transactions")
    }

    async fn finish(&self, step: StepConnection, commit: &Commit) -> StoreResult<Flush> {
        self.store.finish_step(step, self.worker, commit, DonePolicy::Keep).await
    }

    async fn status(&self, id: InstanceId) -> Option<Status> {
        self.store.probe(&[id], false).await.expect("it reads").first().map(|snapshot| snapshot.status)
    }

    /// How many notes there are. Read by a step, as only one has a connection in memory.
    async fn notes(&self) -> i64 {
        let mut step = self.begin().await;
        sqlx::query_scalar("select count(*) from notes").fetch_one(connection(&mut step)).await.unwrap()
    }
}

fn done(row: &Claimed) -> Commit {
    Commit::of(row, Transition::Done { output: "true".into() }, false)
}

fn signal(id: InstanceId) -> NewSignal {
    let target = id.into();
    NewSignal { machine: "machine".into(), target, name: "a".into(), payload: "1".into(), dedup_key: None }
}

fn connection(step: &mut StepConnection) -> &mut SqliteConnection {
    match step.as_users() {
        UserTransaction::Sqlite(connection) => connection,
        other => panic!("{other:?}"),
    }
}

async fn execute(step: &mut StepConnection, text: &'static str) -> sqlx::Result<u64> {
    sqlx::query(text).execute(connection(step)).await.map(|done| done.rows_affected())
}

const NOTE: &str = "insert into notes (note) values (hex(randomblob(8)))";
/// Takes far longer than anybody waits.
const ENDLESS: &str =
    "insert into notes (note) with recursive n (n) as (select 1 union all select n + 1 from n limit 5000000)
    select hex(randomblob(8)) || n from n";

#[tokio::test]
async fn what_a_step_writes_is_committed_with_its_outcome() {
    for place in Place::both().await {
        let row = place.claimed().await;
        let mut step = place.begin().await;
        execute(&mut step, NOTE).await.unwrap();
        // A part of it that is undone.
        execute(&mut step, "savepoint part").await.unwrap();
        execute(&mut step, NOTE).await.unwrap();
        execute(&mut step, "rollback to part").await.unwrap();
        assert_eq!(place.finish(step, &done(&row)).await.unwrap().fates, [DONE]);
        assert_eq!((place.notes().await, place.status(row.id).await), (1, Some(Status::Done)));
        // Twice the same outcome: the row has moved on.
        let mut step = place.begin().await;
        execute(&mut step, NOTE).await.unwrap();
        assert_eq!(place.finish(step, &done(&row)).await.unwrap().fates, [Flushed::Stale]);
        assert_eq!(place.notes().await, 1);
    }
}

#[tokio::test]
async fn a_step_that_is_dropped_is_rolled_back_whatever_it_did_last() {
    for place in Place::both().await {
        let row = place.claimed().await;
        for attempt in 0..4 {
            let mut step = place.begin().await;
            execute(&mut step, NOTE).await.unwrap();
            match attempt {
                0 => {}
                1 => drop(execute(&mut step, "savepoint open").await.unwrap()),
                // The driver's own, never ended.
                2 => std::mem::forget(connection(&mut step).begin_with("savepoint theirs").await.unwrap()),
                _ => {
                    let endless =
                        execute(&mut step, "insert into notes (note) select 'a' from notes, notes n");
                    drop(tokio::time::timeout(Duration::ZERO, endless).await);
                }
            }
            drop(step);
            let id = tokio::time::timeout(SOON, place.insert()).await.expect("others go on");
            assert_eq!((place.notes().await, place.status(id).await), (0, Some(Status::Ready)));
        }
        assert_eq!(place.finish(place.begin().await, &done(&row)).await.unwrap().fates, [DONE]);
    }
}

#[tokio::test]
async fn a_step_that_is_dropped_amid_a_statement_is_rolled_back() {
    for place in Place::both().await {
        let mut step = place.begin().await;
        let cut = tokio::time::timeout(Duration::from_millis(50), execute(&mut step, ENDLESS)).await;
        assert!(cut.is_err(), "it takes longer");
        drop(step);
        let id = tokio::time::timeout(SOON, place.insert()).await.expect("others go on");
        assert_eq!((place.notes().await, place.status(id).await), (0, Some(Status::Ready)));
    }
}

#[tokio::test]
async fn a_step_that_is_cut_short_while_it_begins_or_finishes_leaves_nothing_half_done() {
    for place in Place::both().await {
        let began = Instant::now();
        let row = place.claimed().await;
        assert_eq!(place.finish(place.begin().await, &done(&row)).await.unwrap().fates, [DONE]);
        let whole = began.elapsed();
        let mut notes = 0;
        for moment in 0..=60 {
            let delay = if moment == 60 { SOON } else { whole * moment / 40 };
            drop(polled_for(delay, place.store.begin_step()).await);
            let row = tokio::time::timeout(SOON, place.claimed()).await.expect("others go on");
            let mut step = place.begin().await;
            execute(&mut step, NOTE).await.unwrap();
            let finished = polled_for(delay, place.finish(step, &done(&row))).await;
            // A commit that has begun goes on; whoever writes next waits for it.
            let found = place.notes().await;
            let status = place.status(row.id).await.unwrap();
            notes += i64::from(status == Status::Done);
            assert_eq!(found, notes, "{status}");
            assert!(finished.is_none() || status == Status::Done);
        }
        assert!((1..=60).contains(&notes), "{notes}: at least the last one, and not the first one");
    }
}

/// Polls again and again until the time is over, without the coarseness of a timer.
async fn polled_for<T>(delay: Duration, work: impl Future<Output = T>) -> Option<T> {
    let began = Instant::now();
    let mut work = std::pin::pin!(work);
    loop {
        if let Some(answer) = work.as_mut().now_or_never() {
            return Some(answer);
        }
        if began.elapsed() > delay {
            return None;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn steps_and_all_other_writes_wait_for_a_step_that_has_begun() {
    for place in Place::both().await {
        let rows = [place.claimed().await, place.claimed().await];
        let mut first = place.begin().await;
        execute(&mut first, NOTE).await.unwrap();
        let mut second = std::pin::pin!(place.begin());
        let mut insert = std::pin::pin!(place.insert());
        let waits = Duration::from_millis(50);
        assert!(tokio::time::timeout(waits, &mut second).await.is_err());
        assert!(tokio::time::timeout(waits, &mut insert).await.is_err());
        assert_eq!(place.finish(first, &done(&rows[0])).await.unwrap().fates, [DONE]);
        let mut second = tokio::time::timeout(SOON, second).await.expect("its turn");
        execute(&mut second, NOTE).await.unwrap();
        assert_eq!(place.finish(second, &done(&rows[1])).await.unwrap().fates, [DONE]);
        tokio::time::timeout(SOON, insert).await.expect("its turn");
        assert_eq!(place.notes().await, 2);
    }
}

#[tokio::test]
async fn a_transaction_that_ended_early_commits_no_outcome() {
    for place in Place::both().await {
        let row = place.claimed().await;
        let mut step = place.begin().await;
        execute(&mut step, "insert into notes values (1, 'a')").await.unwrap();
        let conflict = execute(&mut step, "insert or rollback into notes values (1, 'b')").await;
        assert!(conflict.is_err());
        // Outside of a transaction now, and nevertheless not committed.
        assert!(execute(&mut step, NOTE).await.is_err());
        let error = place.finish(step, &done(&row)).await.unwrap_err();
        assert!(matches!(error, StoreError::Failed(_)), "{error:?}");
        assert_eq!((place.notes().await, place.status(row.id).await), (0, Some(Status::Executing)));
        // The user's own commit is refused.
        let mut step = place.begin().await;
        execute(&mut step, NOTE).await.unwrap();
        assert!(execute(&mut step, "commit").await.is_err());
        assert!(place.finish(step, &done(&row)).await.is_err());
        assert_eq!(place.notes().await, 0);
        assert_eq!(place.finish(place.begin().await, &done(&row)).await.unwrap().fates, [DONE]);
    }
}

#[tokio::test]
async fn a_step_checks_foreign_keys_and_nobody_else_does() {
    for place in Place::both().await {
        let row = place.claimed().await;
        let mut step = place.begin().await;
        let table = "create table sequels (instance blob references gen_durable_instances deferrable initially deferred)";
        execute(&mut step, table).await.unwrap();
        let text = "insert into sequels values (?1)";
        let insert = sqlx::query(text).bind(row.id.as_uuid()).execute(connection(&mut step)).await;
        assert_eq!(insert.unwrap().rows_affected(), 1);
        assert_eq!(place.finish(step, &done(&row)).await.unwrap().fates, [DONE]);
        let row = place.claimed().await;
        let mut step = place.begin().await;
        execute(&mut step, "insert into sequels values (x'00')").await.unwrap();
        let error = place.finish(step, &done(&row)).await.unwrap_err();
        assert!(error.is_rejection(), "{error:?}");
        assert_eq!(place.status(row.id).await, Some(Status::Executing));
        let swept = place.store.sweep(Duration::ZERO, 10).await.expect("the user's keys do not hold up ours");
        assert_eq!(swept.instances, 2);
    }
}

#[tokio::test]
async fn what_is_done_in_a_users_transaction_is_there_when_it_is_committed() {
    let place = Place::file().await;
    let bed = place.bed.as_ref().expect("a file");
    let pool = bed.pool();
    let [sent, cancelled] = [place.insert().await, place.insert().await];
    let instance = place.instance();
    for commit in [false, true] {
        let mut transaction = pool.begin().await.unwrap();
        let mut users = UserTransaction::from(&mut transaction);
        let inserted = place.store.insert_in(&mut users, std::slice::from_ref(&instance)).await;
        assert_eq!(inserted.unwrap(), [Inserted::Created]);
        assert_eq!(
            place.store.signal_in(&mut users, &[signal(sent)]).await.unwrap(),
            [Delivered::Stored { woke: None }]
        );
        let (answer, _) = place.store.cancel_in(&mut users, cancelled, false).await.unwrap();
        assert_eq!(answer, Cancelling::Cancelled { watched: false });
        let machine = place.store.machine_in(&mut users, "new", 1).await.unwrap();
        place.store.notify_in(&mut users, &[]).await.unwrap();
        assert_eq!(place.status(instance.id).await, None, "not yet");
        if commit {
            transaction.commit().await.unwrap();
        } else {
            transaction.rollback().await.unwrap();
        }
        let inbox = place.store.probe(&[sent], false).await.unwrap()[0].inbox;
        let status = if commit { Status::Cancelled } else { Status::Ready };
        assert_eq!((inbox, place.status(cancelled).await), (u32::from(commit), Some(status)));
        assert_eq!(place.status(instance.id).await, commit.then_some(Status::Ready));
        if commit {
            assert_eq!(place.store.register_machines(&[("new", 1)]).await.unwrap(), [machine]);
        }
    }
}

#[tokio::test]
async fn a_users_transaction_that_has_only_begun_waits_for_its_turn() {
    let place = Place::file().await;
    let pool = place.bed.as_ref().expect("a file").pool();
    let id = place.insert().await;
    let row = place.claimed().await;
    let mut step = place.begin().await;
    execute(&mut step, NOTE).await.unwrap();
    let mut transaction = pool.begin().await.unwrap();
    let mut users = UserTransaction::from(&mut transaction);
    let signals = [signal(id)];
    let mut sending = place.store.signal_in(&mut users, &signals);
    assert!(tokio::time::timeout(Duration::from_millis(50), &mut sending).await.is_err());
    assert_eq!(place.finish(step, &done(&row)).await.unwrap().fates, [DONE]);
    assert_eq!(sending.await.unwrap(), [Delivered::Stored { woke: None }]);
    transaction.commit().await.unwrap();
    // One that has read meanwhile cannot: what it read is old.
    let mut transaction = pool.begin().await.unwrap();
    let notes: i64 =
        sqlx::query_scalar("select count(*) from notes").fetch_one(&mut *transaction).await.unwrap();
    assert_eq!(notes, 1);
    place.insert().await;
    let error =
        place.store.signal_in(&mut UserTransaction::from(&mut transaction), &signals).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
}

#[tokio::test]
async fn a_transaction_on_postgresql_is_refused() {
    let place = Place::memory().await;
    let bed = Bed::create().await;
    let mut transaction = bed.pool.begin().await.unwrap();
    let mut users = UserTransaction::from(&mut transaction);
    let error = place.store.insert_in(&mut users, &[place.instance()]).await.unwrap_err();
    let StoreError::Rejected(text) = &error else { panic!("{error:?}") };
    assert!(text.to_string().contains("are in SQLite"), "{text}");
}
