//! The process dies at any moment.

use std::process::Stdio;
use std::time::{Duration, Instant};

use gen_durable::prelude::*;
use gen_durable::{Engine, EngineBuilder, Status};
use gen_durable_tests::SqliteBed;

/// Five steps that count themselves: a step that is lost or counted twice shows in the output.
#[durable_fsm(output = u32, queue = "legs")]
#[derive(Debug)]
pub enum FiveLegs {
    #[state(initial, next(Leg), finishes)]
    Leg { run: u32 },
}

struct Legs;

impl FiveLegsSteps for Legs {
    async fn leg(&self, s: Leg, cx: &mut Context<Leg>) -> StepResult<Leg> {
        tokio::time::sleep(Duration::from_millis(2)).await;
        Ok(if s.run == 4 { cx.done(5) } else { cx.next(Leg { run: s.run + 1 }) })
    }
}

const KILLS: u32 = 50;
const INSTANCES: u64 = 2_000;

fn worker(bed: &SqliteBed) -> EngineBuilder {
    // As a user would have it: every commit waits for the disk.
    Engine::sqlite(bed.path()).name("legs").jobs([]).queue("legs", 20).register(FiveLegs::machine(Legs))
}

/// A trigger keeps a journal of the outcomes that were committed.
const JOURNAL: &str = "
    create table journal (id blob not null, revision integer not null, primary key (id, revision)) strict;
    create trigger note_outcome after update of revision on gen_durable_instances
        when new.revision <> old.revision
        begin insert into journal values (new.id, new.revision); end;
";

#[tokio::test]
async fn a_process_killed_50_times_loses_nothing_and_commits_nothing_twice() {
    let bed = SqliteBed::create().await;
    let web = bed.engine().without_queues().start().await.unwrap();
    web.insert_all((0..INSTANCES).map(|_| Leg { run: 0 })).await.unwrap();
    let pool = bed.pool();
    sqlx::raw_sql(JOURNAL).execute(&pool).await.unwrap();
    let committed = || async {
        let count =
            sqlx::query_scalar::<_, i64>("select count(*) from journal").fetch_one(&pool).await.unwrap();
        count.unsigned_abs()
    };

    let began = Instant::now();
    let start =
        || bed.child("sqlite::crash::child_runs_legs").unwrap().stdout(Stdio::null()).spawn().unwrap();
    let mut child = start();
    for kill in 0..KILLS {
        // Somewhere in the work that is left, such that all kills fall into it.
        let before = committed().await;
        let share = (INSTANCES * 5 - before) / u64::from(KILLS - kill + 10);
        let moment = before + random() % (2 * share).max(1);
        let deadline = Instant::now() + Duration::from_secs(60);
        while committed().await < moment {
            assert!(Instant::now() < deadline, "it gets on");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        child.kill().unwrap();
        child.wait().unwrap();
        child = start();
    }
    let killed = began.elapsed();
    assert!(committed().await < INSTANCES * 5, "the last kill came while there was work");
    let deadline = Instant::now() + Duration::from_secs(120);
    while committed().await < INSTANCES * 5 {
        assert!(Instant::now() < deadline, "it ends");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    child.kill().unwrap();
    child.wait().unwrap();

    // The journal's key admits each outcome once.
    let counts = web.counts().await.unwrap();
    assert_eq!(counts.len(), 1, "{counts:?}");
    assert_eq!((counts[0].status, counts[0].count), (Status::Done, INSTANCES));
    let right: i64 = sqlx::query_scalar(
        "select count(*) from gen_durable_instances where output = '5' and state = '{\"run\":4}' and revision = 5",
    )
    .fetch_one(&pool)
    .await
    .unwrap();
    assert_eq!(right.unsigned_abs(), INSTANCES);
    let intact: String = sqlx::query_scalar("pragma integrity_check").fetch_one(&pool).await.unwrap();
    assert_eq!(intact, "ok");
    println!("{KILLS} kills in {killed:?}, all done after {:?}", began.elapsed());
    web.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run as a child"]
async fn child_runs_legs() {
    let _engine = worker(&SqliteBed::of_parent()).start().await.unwrap();
    // Until killed; bounded in case the parent itself was.
    tokio::time::sleep(Duration::from_secs(300)).await;
}

/// Rows that executed when the process died start again at once, charged with a crash.
#[tokio::test]
async fn what_a_dead_process_held_is_taken_back_at_once_and_charged() {
    let bed = SqliteBed::create().await;
    let store = bed.store();
    store.check().await.unwrap().unwrap();
    let dead = store.register_worker("gone", "gone").await.unwrap();
    let web = bed.engine().without_queues().start().await.unwrap();
    let handle = web.insert(Leg { run: 0 }).await.unwrap();
    let machine = store.register_machines(&[("five_legs", 1)]).await.unwrap();
    let request = gen_durable::store::ClaimRequest {
        worker: dead,
        claim: 1,
        queue: &"legs".into(),
        machines: &machine,
        limit: 1,
        alone: true,
    };
    assert_eq!(store.claim(&request).await.unwrap().rows.len(), 1);
    let began = Instant::now();
    let engine = worker(&bed).name("next").lease_ttl(Duration::from_secs(3600)).start().await.unwrap();
    assert_eq!(handle.result().within(Duration::from_secs(20)).await.unwrap().done().unwrap(), 5);
    assert!(began.elapsed() < Duration::from_secs(10), "nobody waits for a lease");
    engine.shutdown().await;
    web.shutdown().await;
}

fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}
