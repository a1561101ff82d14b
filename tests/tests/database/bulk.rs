//! Inserting many instances at once.

use gen_durable::{Error, Status};
use gen_durable_tests::Bed;

use crate::payloads::Note;
use crate::support::Logged;
use crate::work::Rest;

#[tokio::test]
async fn fifty_thousand_instances_are_inserted_in_a_few_statements() {
    let logged = Logged::create().await;
    let engine = logged.bed.engine().without_queues().start().await.unwrap();
    let ids = engine.insert_all((0..50_000).map(|n| Rest { n })).await.unwrap();
    assert_eq!(ids.len(), 50_000);
    assert!(ids.is_sorted(), "those inserted later sort later");
    let [count] = &engine.counts().await.unwrap()[..] else { panic!("one machine in one state") };
    assert_eq!((count.machine.as_str(), count.step.as_str()), ("work", "rest"));
    assert_eq!((count.status, count.count), (Status::Ready, 50_000));
    let statements = logged.count("insert");
    assert!((1..=5).contains(&statements), "{statements} statements");
}

#[tokio::test]
async fn large_states_are_inserted_by_the_megabyte() {
    let logged = Logged::create().await;
    let engine = logged.bed.engine().without_queues().start().await.unwrap();
    // 12 MB in all.
    engine.insert_all((0..120).map(|_| Note { text: "x".repeat(100_000) })).await.unwrap();
    let statements = logged.count("insert");
    assert!((3..=5).contains(&statements), "{statements} statements");
}

#[tokio::test]
async fn many_are_inserted_all_or_nothing() {
    let bed = Bed::create().await;
    let engine = bed.engine().without_queues().start().await.unwrap();
    assert!(engine.insert_all(Vec::<Rest>::new()).await.unwrap().is_empty());
    // The last row, in the last of several statements, is refused.
    sqlx::raw_sql(
        "create function refuse() returns trigger language plpgsql as $$ begin
             if new.state::text like '%49999%' then
                 raise exception 'refused by a trigger' using errcode = '23514';
             end if;
             return new;
         end $$;
         create trigger refuse before insert on gen_durable.instances for each row execute function refuse();",
    )
    .execute(&bed.pool)
    .await
    .unwrap();
    let error = engine.insert_all((0..50_000).map(|n| Rest { n })).await.unwrap_err();
    let Error::Store { source, .. } = &error else { panic!("{error}") };
    assert!(source.is_rejection(), "{error}");
    assert!(engine.counts().await.unwrap().is_empty(), "nothing is left of it");
    // And one by one, it fails alone.
    let single = engine.insert(Rest { n: 49_999 }).await.unwrap_err();
    assert!(std::error::Error::source(&single).is_some(), "{single}");
    engine.insert(Rest { n: 1 }).await.unwrap();
}
