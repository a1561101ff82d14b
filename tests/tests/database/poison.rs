//! Steps that end their process.

use std::sync::Arc;
use std::time::Duration;

use gen_durable::{Engine, Event, InstanceId, InstanceResult, Notice};
use gen_durable_tests::{Bed, Process, until};
use tokio::sync::Semaphore;

use crate::fleet::errand::{Does, Errand, Once, Run, Thrice};
use crate::fleet::{self, Node, SOON, number, row, starts};

/// Starts the node again whenever it ends, until all is done; returns how often it ended.
async fn supervise(bed: &Bed, node: &Node) -> usize {
    let mut process = node.start(bed);
    let mut ends = 0;
    until("all is done", || {
        if process.has_ended() {
            ends += 1;
            process = node.start(bed);
        }
        async { fleet::unfinished(&bed.pool).await == 0 }
    })
    .await;
    ends
}

async fn reason(web: &Engine, id: InstanceId) -> String {
    match web.result::<Errand>(id).within(SOON).await.unwrap() {
        InstanceResult::Failed { reason, .. } => reason,
        other => panic!("{other:?}"),
    }
}

/// R17, R18.
#[tokio::test]
async fn a_step_that_ends_its_process_is_started_as_often_as_its_policy_allows() {
    let bed = fleet::bed().await;
    let web = bed.engine().without_queues().without_reaper().start().await.unwrap();
    let thrice = web.insert(Thrice { does: Does::Abort }).await.unwrap().id();
    let once = web.insert(Once { does: Does::Abort }).await.unwrap().id();
    supervise(&bed, &Node::named("pill").slots(1)).await;
    assert_eq!(starts(&bed.pool, thrice).await, 3);
    assert_eq!(reason(&web, thrice).await, "gave up: the process ended during the step, 3 times");
    assert_eq!(starts(&bed.pool, once).await, 1);
    assert_eq!(reason(&web, once).await, "gave up: the process ended during the step, 1 times");
    web.shutdown().await;
}

/// R17 without a policy: the bound is `max_crashes`.
#[tokio::test]
async fn a_step_without_a_policy_that_ends_its_process_is_started_max_crashes_times() {
    let bed = fleet::bed().await;
    let web = bed.engine().without_queues().without_reaper().start().await.unwrap();
    let pill = web.insert(Run { does: Does::Abort }).await.unwrap().id();
    let mut node = Node::named("pill");
    node.max_crashes = 5;
    supervise(&bed, &node).await;
    assert_eq!(starts(&bed.pool, pill).await, 5);
    assert_eq!(reason(&web, pill).await, "gave up: the process ended during the step, 5 times");
    web.shutdown().await;
}

/// R17: an error method that ends the process, too, is asked once.
#[tokio::test]
async fn an_error_method_that_ends_its_process_is_not_asked_again() {
    let bed = fleet::bed().await;
    let web = bed.engine().without_queues().without_reaper().start().await.unwrap();
    let pill = web.insert(Thrice { does: Does::AbortTwice }).await.unwrap().id();
    let ends = supervise(&bed, &Node::named("pill")).await;
    assert_eq!((starts(&bed.pool, pill).await, ends), (3, 4));
    assert_eq!(reason(&web, pill).await, "the process ended during the step, 4 times");
    let asked = "select count(*) from starts where what like 'error: %'";
    assert_eq!(number(&bed.pool, asked).await, 1);
    web.shutdown().await;
}

/// R17: poison takes no bystanders with it.
#[tokio::test]
async fn bystanders_of_poison_are_charged_twice_at_most_and_all_finish() {
    let bed = fleet::bed().await;
    let web = bed.engine().without_queues().without_reaper().start().await.unwrap();
    let mut pills = Vec::new();
    for _ in 0..4 {
        web.insert_all((0..100).map(|_| Run { does: Does::Work(5) })).await.unwrap();
        pills.push(web.insert(Thrice { does: Does::Abort }).await.unwrap().id());
    }
    let ends = supervise(&bed, &Node::named("pill").slots(10)).await;
    assert!(ends <= 12, "{ends}");
    for pill in pills {
        // One that waited beside another pill was charged without a start.
        let started = starts(&bed.pool, pill).await;
        assert!((1..=3).contains(&started), "{started}");
        assert_eq!(row(&bed.pool, pill).await, ("failed".into(), 3, 3));
    }
    let done = "select count(*) from gen_durable.instances where status = 'done'";
    assert_eq!(number(&bed.pool, done).await, 400);
    let most = "select max(crashes)::bigint from gen_durable.instances where status = 'done'";
    assert!(number(&bed.pool, most).await <= 2);
    let accompanied = "select count(*) from starts where what = 'step' and crashes >= 2 and beside > 0";
    assert_eq!(number(&bed.pool, accompanied).await, 0, "suspects run alone");
    let charged = number(&bed.pool, "select count(*) from journal where crashes > 0").await;
    println!("4 pills, 400 bystanders, {ends} ends of the process: {charged} bystanders were charged");
    web.shutdown().await;
}

/// R17: a suspect is not claimed while anything else runs, so that nothing else is charged to it.
#[tokio::test]
async fn a_suspect_waits_in_its_queue_until_the_node_is_idle_and_then_runs_alone() {
    let bed = fleet::bed().await;
    let gate = Arc::new(Semaphore::new(0));
    let engine = Node::named("a").slots(4).engine(&bed, Some(Arc::clone(&gate))).start().await.unwrap();
    let busy = engine.insert(Run { does: Does::Hold }).await.unwrap();
    until("it runs", || async { starts(&bed.pool, busy.id()).await == 1 }).await;

    let suspect = uuid::Uuid::now_v7();
    let copy = "insert into gen_durable.instances (id, machine_id, step, state, queue, status, crashes) \
                select $1, machine_id, step, '{\"does\":\"Hold\"}', queue, 'ready', 2 from gen_durable.instances";
    sqlx::query(copy).bind(suspect).execute(&bed.pool).await.unwrap();
    let mut events = engine.events();
    let suspect = engine.handle::<Errand>(suspect.into());
    let behind = engine.insert(Run { does: Does::Hold }).await.unwrap();
    // The queue's turn is the suspect's; what comes behind it waits, too.
    let looked = async {
        while let Some(notice) = events.next().await {
            if let Notice::Event(Event::ClaimRan { count: 0, queue, .. }) = notice
                && &*queue == "errands"
            {
                return;
            }
        }
    };
    tokio::time::timeout(SOON, looked).await.expect("it looks for work");
    assert_eq!(row(&bed.pool, suspect.id()).await.0, "ready");
    assert_eq!(starts(&bed.pool, suspect.id()).await, 0);

    gate.add_permits(1);
    until("the suspect runs", || async { starts(&bed.pool, suspect.id()).await == 1 }).await;
    assert_eq!(row(&bed.pool, busy.id()).await.0, "done", "not before the other outcome is committed");
    assert_eq!(starts(&bed.pool, behind.id()).await, 0, "nothing runs beside it");
    gate.add_permits(2);
    for handle in [&suspect, &behind] {
        assert_eq!(handle.result().within(SOON).await.unwrap().done().unwrap(), "a");
    }
    let beside = "select count(*) from starts where crashes >= 2 and beside > 0";
    assert_eq!(number(&bed.pool, beside).await, 0);
    engine.shutdown().await;
}

/// Suspects behind innocents do not wait for the next poll.
#[tokio::test]
async fn suspects_among_innocents_run_without_waiting_for_a_poll() {
    let bed = fleet::bed().await;
    let hour = Duration::from_secs(3600);
    let web = bed.engine().without_queues().without_reaper().start().await.unwrap();
    web.insert_all((0..60).map(|_| Run { does: Does::Nothing })).await.unwrap();
    sqlx::query(
        "update gen_durable.instances i set crashes = n % 4 from \
         (select id, row_number() over (order by id) as n from gen_durable.instances) o where o.id = i.id",
    )
    .execute(&bed.pool)
    .await
    .unwrap();
    let engine = Node::named("a")
        .slots(10)
        .engine(&bed, None)
        .poll_interval(hour)
        .max_poll_interval(hour)
        .start()
        .await
        .unwrap();
    until("all are done", || async { fleet::unfinished(&bed.pool).await == 0 }).await;
    engine.shutdown().await;
    web.shutdown().await;
}

/// R17: the attempt is stored before user code runs: here, as the claim.
#[tokio::test]
async fn a_process_that_dies_in_its_first_step_leaves_the_start_in_the_database() {
    let bed = fleet::bed().await;
    let web = bed.engine().without_queues().without_reaper().start().await.unwrap();
    let pill = web.insert(Run { does: Does::Abort }).await.unwrap().id();
    let mut process: Process = Node::named("pill").start(&bed);
    until("it dies", || {
        let ended = process.has_ended();
        async move { ended }
    })
    .await;
    assert_eq!(row(&bed.pool, pill).await, ("executing".into(), 0, 0));
    let reaper = bed.engine().without_queues().start().await.unwrap();
    until("it is taken back", || async { row(&bed.pool, pill).await == ("ready".into(), 1, 1) }).await;
    reaper.shutdown().await;
    web.shutdown().await;
}
