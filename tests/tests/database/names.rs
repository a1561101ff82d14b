//! Names of any kind, and several installs in one database.

use std::collections::HashSet;

use gen_durable::prelude::*;
use gen_durable::{InstanceResult, Status};
use gen_durable_tests::Bed;
use sqlx::Executor;
use sqlx::postgres::PgPoolOptions;

use crate::support::{NEVER, SOON, second_schema, soon};
use crate::work::{Rest, Work, site};

#[durable_fsm(
    name = "it's a \"machine\"; drop table instances; -- 🦀",
    queue = "default'; --",
    output = String
)]
#[derive(Debug)]
pub enum Odd {
    #[state(finishes, rename = "o'step \"} {schema} $1")]
    Tell {},
}

struct Teller;

impl OddSteps for Teller {
    async fn tell(&self, _: Tell, cx: &mut Context<Tell>) -> StepResult<Tell> {
        Ok(cx.done(cx.queue().to_owned()))
    }
}

/// R42
#[tokio::test]
async fn any_text_can_name_a_queue_a_node_an_engine_and_a_machine() {
    let bed = Bed::create().await;
    let longest = "\u{1}".repeat(255);
    let names = [
        "it's",
        "a \"quoted\" name",
        "x'; drop table gen_durable.instances; --",
        "select",
        "MiXeD",
        "mixed",
        " sp  ace ",
        "日本語 🦀 é",
        "new\nline\ttab",
        "back\\slash \\' ",
        "$1 %s {schema} {}",
        "null",
        &longest,
    ];
    // No poll finds anything: both the web node's wake-ups and the results go through notifications.
    let quiet = |name: &str| {
        bed.engine().poll_interval(NEVER).max_poll_interval(NEVER).name(format!("R42 {name}")).node(name)
    };
    let mut node = quiet("node's \"name\"; -- 🦀").register(Odd::machine(Teller)).queue("default'; --", 1);
    for name in names {
        node = node.queue(name, 1);
    }
    let node = node.start().await.unwrap();
    let web = quiet("日本語 {schema} '").without_queues().start().await.unwrap();
    for name in names {
        let told = web.insert(Tell {}).queue(name).trace_context(name).await.unwrap();
        assert_eq!(told.result().within(SOON).await.unwrap(), InstanceResult::Done(name.to_owned()));
        let end = web.get(told.id()).await.unwrap().unwrap();
        assert_eq!((end.queue.as_str(), end.status), (name, Status::Done));
        end.decode::<Odd>().unwrap();
    }
    let told = web.insert(Tell {}).await.unwrap();
    assert_eq!(told.result().within(SOON).await.unwrap().done().unwrap(), "default'; --");
    let counts = web.counts().await.unwrap();
    assert_eq!((counts.len(), counts[0].count), (1, names.len() as u64 + 1));
    node.shutdown().await;
}

/// R43
#[tokio::test]
async fn two_installs_in_one_database_know_nothing_of_each_other() {
    let bed = Bed::create().await;
    second_schema(&bed, "second").await;
    let mut engines = Vec::new();
    for (n, schema) in ["gen_durable", "second"].into_iter().enumerate() {
        let (workers, _) = site();
        let engine = bed.engine().schema(schema).node("one node").queue("work", 2);
        let engine = engine.register(Work::machine(workers)).start().await.unwrap();
        let ids: HashSet<_> =
            engine.insert_all((0..20 + n as u32).map(|n| Rest { n })).await.unwrap().into_iter().collect();
        engines.push((engine, ids));
    }
    for (engine, ids) in &engines {
        for id in ids {
            engine.result::<Work>(*id).within(SOON).await.unwrap().done().unwrap();
        }
        let counts = engine.counts().await.unwrap();
        assert_eq!((counts.len(), counts[0].count), (1, ids.len() as u64));
    }
    let [(first, of_first), (second, of_second)] = &engines[..] else { panic!("two engines") };
    let (one, two) = (*of_first.iter().next().unwrap(), *of_second.iter().next().unwrap());
    assert!(first.get(two).await.unwrap().is_none() && second.get(one).await.unwrap().is_none());
    first.shutdown().await;
    gen_durable::migrate::down(&bed.pool, 0).await.unwrap();
    assert!(second.get(two).await.unwrap().is_some(), "the other install is intact");
    let work = second.insert(Rest { n: 1 }).await.unwrap();
    work.result().within(SOON).await.unwrap().done().unwrap();
}

/// R43
#[tokio::test]
async fn no_search_path_leads_an_engine_astray() {
    let bed = Bed::create().await;
    // Namesakes of what is ours, in a schema that is searched first.
    bed.pool
        .execute(
            "create schema decoy;
             create type decoy.status as enum ('nonsense');
             create table decoy.instances (nonsense int);
             create table decoy.workers (nonsense int);
             create table decoy.machines (nonsense int);",
        )
        .await
        .unwrap();
    for path in ["", "decoy", "decoy,public", "nowhere"] {
        let options = bed.database.options().options([("search_path", path)]);
        let pool = PgPoolOptions::new().connect_lazy_with(options);
        let (workers, _) = site();
        let engine =
            gen_durable::Engine::postgres(pool).jobs([]).name(format!("R43 {path}")).queue("work", 2);
        let engine = engine.register(Work::machine(workers)).start().await.unwrap();
        let work = engine.insert(Rest { n: 7 }).await.unwrap();
        assert_eq!(work.result().within(SOON).await.unwrap().done().unwrap(), 7, "{path:?}");
        soon(engine.shutdown()).await;
    }
    let namesakes: i64 =
        sqlx::query_scalar("select count(*) from decoy.instances").fetch_one(&bed.pool).await.unwrap();
    assert_eq!(namesakes, 0);
}
