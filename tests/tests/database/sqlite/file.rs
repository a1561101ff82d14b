//! The file: who may run its queues, and how it gets its tables.

use std::time::Duration;

use gen_durable::prelude::*;
use gen_durable::{Engine, Error, Poke, Status, migrate};
use gen_durable_tests::SqliteBed;

#[durable_fsm(output = u32, queue = "sums")]
enum Sum {
    #[state(finishes)]
    Add { one: u32, other: u32 },
}

struct Sums;

impl SumSteps for Sums {
    async fn add(&self, s: Add, cx: &mut Context<Add>) -> StepResult<Add> {
        Ok(cx.done(s.one + s.other))
    }
}

const SOON: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_second_engine_that_would_run_queues_is_refused_until_the_first_one_stops() {
    let bed = SqliteBed::create().await;
    let first = bed.engine().node("first").queue("sums", 1).start().await.unwrap();
    let error = bed.engine().queue("sums", 1).start().await.unwrap_err();
    assert!(matches!(error, Error::QueuesTaken { .. }));
    let text = error.to_string();
    assert!(text.contains("test.db") && text.contains("first") && text.contains("without_queues"), "{text}");
    // By another name of the same file, too.
    let link = bed.path().with_file_name("link.db");
    std::os::unix::fs::symlink(bed.path(), &link).unwrap();
    let error = Engine::sqlite(&link).name("link").queue("sums", 1).start().await.unwrap_err();
    assert!(matches!(error, Error::QueuesTaken { .. }), "{error}");
    first.shutdown().await;
    bed.engine().queue("sums", 1).start().await.unwrap().shutdown().await;
}

#[tokio::test]
async fn what_another_process_inserts_is_found_by_polling() {
    let bed = SqliteBed::create().await;
    let web = bed.engine().without_queues().start().await.unwrap();
    let before = web.insert(Add { one: 1, other: 2 }).await.unwrap();
    let worker = bed.engine().queue("sums", 1).register(Sum::machine(Sums)).start().await.unwrap();
    assert_eq!(before.result().within(SOON).await.unwrap().done().unwrap(), 3);
    let output = bed.child("sqlite::file::child_inserts").unwrap().output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let done = async {
        loop {
            let counts = worker.counts().await.unwrap();
            let done = counts.iter().filter(|count| count.status == Status::Done).map(|count| count.count);
            if done.sum::<u64>() == 2 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(SOON, done).await.expect("the poll finds it");
    worker.shutdown().await;
}

#[tokio::test]
#[ignore = "run as a child"]
async fn child_inserts() {
    let bed = SqliteBed::of_parent();
    let error = bed.engine().queue("sums", 1).start().await.unwrap_err();
    assert!(matches!(error, Error::QueuesTaken { .. }), "{error}");
    let web = bed.engine().without_queues().start().await.unwrap();
    web.insert(Add { one: 2, other: 2 }).await.unwrap();
    web.shutdown().await;
}

#[tokio::test]
async fn a_file_is_migrated_by_its_first_engine_and_can_be_taken_back() {
    let bed = SqliteBed::create().await;
    let starting = (0..4).map(|_| bed.engine().without_queues().start());
    for engine in futures_util::future::try_join_all(starting).await.unwrap() {
        engine.shutdown().await;
    }
    let migrations = migrate::sqlite(bed.path());
    assert_eq!(migrations.version().await.unwrap(), 1);
    migrations.down(0).await.unwrap();
    assert_eq!(migrations.version().await.unwrap(), 0);
    let left: i64 = sqlx::query_scalar("select count(*) from sqlite_schema where name like 'gen_durable%'")
        .fetch_one(&bed.pool())
        .await
        .unwrap();
    assert_eq!(left, 0);
    sqlx::raw_sql(sqlx::AssertSqlSafe(migrations.sql(0))).execute(&bed.pool()).await.unwrap();
    bed.engine().queue("sums", 1).start().await.unwrap().shutdown().await;
}

#[tokio::test]
async fn a_file_of_a_newer_build_is_refused_unless_it_admits_this_one() {
    let bed = SqliteBed::create().await;
    bed.store().check().await.unwrap().unwrap();
    let newer =
        |oldest| sqlx::query("insert or replace into gen_durable_migrations values (99, ?, 0)").bind(oldest);
    newer(1).execute(&bed.pool()).await.unwrap();
    bed.engine().start().await.unwrap().shutdown().await;
    newer(99).execute(&bed.pool()).await.unwrap();
    let error = bed.engine().start().await.unwrap_err();
    assert!(matches!(error, Error::Schema { .. }) && error.to_string().contains("newer build"), "{error}");
    let error = migrate::sqlite(bed.path()).down(0).await.unwrap_err();
    assert!(error.to_string().contains("the build that migrated it"), "{error}");
}

#[tokio::test]
async fn an_older_file_is_left_alone_while_somebody_runs_its_queues() {
    let bed = SqliteBed::create().await;
    let running = bed.engine().node("old one").start().await.unwrap();
    sqlx::query("update gen_durable_migrations set version = 0").execute(&bed.pool()).await.unwrap();
    let error = bed.engine().without_queues().start().await.unwrap_err();
    assert!(error.to_string().contains("old one"), "{error}");
    running.shutdown().await;
}

#[tokio::test]
async fn misfits_say_what_to_do() {
    let bed = SqliteBed::create().await;
    let error = Engine::sqlite("/nowhere/at/all.db").name("nowhere").start().await.unwrap_err();
    let cause = std::error::Error::source(&error).and_then(std::error::Error::source).unwrap().to_string();
    assert!(cause.contains("/nowhere/at/all.db") && cause.contains("directory"), "{cause}");
    std::fs::write(bed.path(), "a letter to a friend, longer than a header, and no database at all").unwrap();
    let error = bed.engine().start().await.unwrap_err();
    assert!(matches!(error, Error::Store { .. }), "{error}");
    let memory = || Engine::in_memory().name("misfit");
    for (option, builder) in [
        ("schema", memory().schema("x")),
        ("listen_url", memory().listen_url("x")),
        ("transaction_pooler", memory().transaction_pooler(true)),
        ("synchronous", memory().synchronous(gen_durable::Synchronous::Full)),
        ("poke", memory().poke(Poke::Postgres)),
    ] {
        let error = builder.start().await.unwrap_err().to_string();
        assert!(error.contains(&format!("`{option}`")), "{error}");
    }
}

#[tokio::test]
async fn an_engine_in_memory_keeps_nothing_and_is_nobody_elses() {
    let one =
        Engine::in_memory().name("one").queue("sums", 1).register(Sum::machine(Sums)).start().await.unwrap();
    let two =
        Engine::in_memory().name("two").queue("sums", 1).register(Sum::machine(Sums)).start().await.unwrap();
    let handle = one.insert(Add { one: 20, other: 22 }).await.unwrap();
    assert_eq!(handle.result().within(SOON).await.unwrap().done().unwrap(), 42);
    assert!(two.get(handle.id()).await.unwrap().is_none());
    one.shutdown().await;
    two.shutdown().await;
}
