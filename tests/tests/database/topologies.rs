//! Nodes of different kinds on one database, and machines that only some of them have.

use std::time::Duration;

use gen_durable::prelude::*;
use gen_durable::{Event, Gc, InstanceResult, Status};
use gen_durable_tests::Bed;

use crate::support::{Changes, SOON, told};
use crate::work::{Dig, Rest, Work, site};

#[tokio::test]
async fn a_web_node_a_worker_and_a_maintenance_node_share_the_work() {
    let bed = Bed::create().await;
    let (workers, mut foreman) = site();
    let web = bed.engine().without_queues().without_reaper().without_gc().start().await.unwrap();
    let gc = Gc::default().every(Duration::from_millis(50)).keep(Duration::from_secs(3600));
    let maintenance = bed.engine().without_queues().gc(gc).start().await.unwrap();
    let mut events = maintenance.events();

    // With no worker there, due rows become ready all the same.
    let mut changes = Changes::watch(&bed).await;
    let early = web.insert(Dig { n: 1 }).delay(Duration::from_millis(50)).await.unwrap();
    changes.status(early.id(), "ready").await;

    let worker = || bed.engine().without_reaper().without_gc().queue("work", 2);
    let first = worker().register(Work::machine(workers.clone())).start().await.unwrap();
    assert_eq!(foreman.started().await, early.id());
    // The worker is gone without a word; another takes over, since the maintenance node notices.
    drop(first);
    let second = worker().register(Work::machine(workers)).start().await.unwrap();
    told(&mut events, |event| match event {
        Event::WorkerReaped { instances: 1, .. } => Some(()),
        _ => None,
    })
    .await;
    assert_eq!(foreman.started().await, early.id());
    foreman.allow(2);
    assert_eq!(early.result().within(SOON).await.unwrap(), InstanceResult::Done(1));
    let end = web.get(early.id()).await.unwrap().unwrap();
    assert_eq!((end.attempt, end.crashes), (1, 1));

    // What ended long ago is swept, by the only node that sweeps.
    let old = "update gen_durable.instances set finished_at = now() - interval '1 day' where id = $1";
    sqlx::query(old).bind(early.id().as_uuid()).execute(&bed.pool).await.unwrap();
    told(&mut events, |event| matches!(event, Event::GcSwept { instances: 1, .. }).then_some(())).await;
    assert!(web.get(early.id()).await.unwrap().is_none());
    drop(second);
}

#[tokio::test]
async fn an_engine_without_queues_runs_nothing() {
    let bed = Bed::create().await;
    let (workers, _foreman) = site();
    let web = bed.engine().without_queues().register(Work::machine(workers.clone())).start().await.unwrap();
    let waits = web.insert(Rest { n: 1 }).await.unwrap();
    let result = waits.result().within(Duration::from_millis(600)).await.unwrap();
    let InstanceResult::Busy(snapshot) = result else { panic!("{result:?}") };
    assert_eq!((snapshot.status, snapshot.worker), (Status::Ready, None));
    let _node = bed.engine().queue("work", 1).register(Work::machine(workers)).start().await.unwrap();
    assert_eq!(waits.result().within(SOON).await.unwrap().done().unwrap(), 1);
}

mod v1 {
    use gen_durable::prelude::*;

    #[durable_fsm(name = "order", version = 1, queue = "orders", output = u32)]
    pub enum Order {
        #[state(finishes)]
        Take {},
    }
}

mod v2 {
    use gen_durable::prelude::*;

    #[durable_fsm(name = "order", version = 2, queue = "orders", output = u32)]
    pub enum Order {
        #[state(finishes)]
        Take {},
    }
}

struct Clerks;

impl v1::OrderSteps for Clerks {
    async fn take(&self, _: v1::Take, cx: &mut Context<v1::Take>) -> StepResult<v1::Take> {
        Ok(cx.done(1))
    }
}

impl v2::OrderSteps for Clerks {
    async fn take(&self, _: v2::Take, cx: &mut Context<v2::Take>) -> StepResult<v2::Take> {
        Ok(cx.done(2))
    }
}

/// R45
#[tokio::test]
async fn an_instance_runs_only_where_its_version_is_and_others_do_not_wait_for_it() {
    let bed = Bed::create().await;
    let old = bed.engine().queue("orders", 1).register(v1::Order::machine(Clerks)).start().await.unwrap();
    // Ahead of all others in the queue, and more than one claim would look at.
    let new = old.insert_all((0..200).map(|_| v2::Take {})).priority(-1).await.unwrap();
    for _ in 0..3 {
        let order = old.insert(v1::Take {}).await.unwrap();
        assert_eq!(order.result().within(SOON).await.unwrap().done().unwrap(), 1);
    }
    let waits = old.get(new[0]).await.unwrap().unwrap();
    assert_eq!((waits.status, waits.attempt, waits.worker, waits.version), (Status::Ready, 0, None, 2));
    let counts = old.counts().await.unwrap();
    let waiting = counts.iter().find(|count| count.version == 2).expect("they are visible");
    assert_eq!((waiting.machine.as_str(), waiting.status, waiting.count), ("order", Status::Ready, 200));

    let both = bed.engine().queue("orders", 4).register(v2::Order::machine(Clerks));
    let both = both.register(v1::Order::machine(Clerks)).start().await.unwrap();
    for id in new {
        assert_eq!(both.result::<v2::Order>(id).within(SOON).await.unwrap().done().unwrap(), 2);
    }
    let order = both.insert(v1::Take {}).await.unwrap();
    assert_eq!(order.result().within(SOON).await.unwrap().done().unwrap(), 1);
}
