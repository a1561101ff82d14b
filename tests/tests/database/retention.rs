//! How ended instances are deleted.

use std::time::Duration;

use gen_durable::{Event, Gc, InstanceId, InstanceResult, Notice};
use gen_durable_tests::Bed;

use crate::support::{Changes, SOON, soon, told};
use crate::work::{Dig, Rest, Work, site};

const HOUR: Duration = Duration::from_secs(3600);
const OFTEN: Duration = Duration::from_millis(50);

/// R46
#[tokio::test]
async fn retention_counts_from_the_end_of_an_instance() {
    let bed = Bed::create().await;
    let (workers, _foreman) = site();
    let engine = bed.engine().queue("work", 2).gc(Gc::default().every(OFTEN).keep(HOUR));
    let engine = engine.register(Work::machine(workers)).start().await.unwrap();
    let [long, kept, gone] = [0, 1, 2].map(|n| Rest { n });
    let mut ids = Vec::new();
    for (state, queue) in [(long, "other"), (kept, "work"), (gone, "work")] {
        ids.push(engine.insert(state).queue(queue).await.unwrap());
    }
    for work in &ids[1..] {
        work.result().within(SOON).await.unwrap();
    }
    let mut events = engine.events();
    // One has lived for a day and not ended, one has just ended after a day, one ended long ago.
    let aged = "update gen_durable.instances
        set created_at = now() - interval '1 day', eligible_at = now() - interval '1 day',
            finished_at = case when id = $1 then now() - interval '61 minutes' else finished_at end";
    sqlx::query(aged).bind(ids[2].id().as_uuid()).execute(&bed.pool).await.unwrap();
    let swept = told(&mut events, |event| match event {
        Event::GcSwept { instances, .. } => Some(instances),
        _ => None,
    });
    assert_eq!(swept.await, 1);
    assert!(engine.get(ids[0].id()).await.unwrap().is_some());
    assert!(engine.get(ids[1].id()).await.unwrap().is_some());
    assert_eq!(ids[2].result().await.unwrap(), InstanceResult::NotFound { id: ids[2].id() });
}

/// Instances that ended long ago.
async fn ended(bed: &Bed, count: u32) -> Vec<InstanceId> {
    let web = bed.engine().without_queues().without_gc().without_reaper().start().await.unwrap();
    let ids = web.insert_all((0..count).map(|n| Rest { n })).await.unwrap();
    let end = "update gen_durable.instances set status = 'done', finished_at = now() - interval '1 day'";
    sqlx::query(end).execute(&bed.pool).await.unwrap();
    web.shutdown().await;
    ids
}

/// R46, R15
#[tokio::test]
async fn sweeps_go_in_batches_and_any_number_of_nodes_share_them() {
    let bed = Bed::create().await;
    let ids = ended(&bed, 500).await;
    let gc = Gc::default().every(OFTEN).keep(HOUR).batch(10);
    let one = bed.engine().without_queues().gc(gc).start().await.unwrap();
    let mut of_one = one.events();
    let two = bed.engine().without_queues().gc(gc).start().await.unwrap();
    let mut of_two = two.events();
    let mut swept = 0;
    while swept < ids.len() as u64 {
        let notice = soon(async {
            tokio::select! { one = of_one.next() => one, two = of_two.next() => two }
        });
        match notice.await.expect("both live") {
            Notice::Event(Event::GcSwept { instances, .. }) => {
                assert!(instances <= 10, "{instances} in one transaction");
                swept += instances;
            }
            Notice::Event(Event::StoreUnavailable { operation, error }) => panic!("{operation}: {error}"),
            _ => {}
        }
    }
    assert_eq!(swept, 500, "each row is counted once");
    assert!(one.counts().await.unwrap().is_empty());
}

/// R46
#[tokio::test]
async fn with_retention_zero_a_watcher_on_another_node_still_gets_the_result() {
    let bed = Bed::create().await;
    let (workers, mut foreman) = site();
    let node = bed.engine().queue("work", 2).gc(Gc::default().keep(Duration::ZERO));
    let node = node.register(Work::machine(workers)).start().await.unwrap();
    let web = bed.engine().without_queues().without_gc().start().await.unwrap();
    let mut changes = Changes::watch(&bed).await;
    let watched = web.insert(Dig { n: 5 }).await.unwrap();
    let alone = web.insert(Dig { n: 6 }).await.unwrap();
    let (id, result) = (watched.id(), watched.result().within(SOON));
    let waiting = tokio::spawn(result.into_future());
    changes.watched(id).await;
    foreman.started().await;
    foreman.started().await;
    foreman.allow(2);
    assert_eq!(soon(waiting).await.unwrap().unwrap(), InstanceResult::Done(5));
    // Nobody waited for the other one: it is gone with its end.
    let result = node.result::<Work>(alone.id()).within(SOON).await.unwrap();
    assert!(matches!(result, InstanceResult::Done(6) | InstanceResult::NotFound { .. }), "{result:?}");
    assert!(node.get(alone.id()).await.unwrap().is_none());
}
