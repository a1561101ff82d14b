//! Jobs: discovery, resources, attempts, cancelling, output.

use std::sync::Arc;
use std::time::Duration;

use gen_durable::prelude::*;
use gen_durable::{Engine, EngineBuilder, Error, InstanceResult, Status};
use gen_durable_tests::Bed;
use serde::{Deserialize, Serialize};

use crate::support::{SOON, Tally};

/// What the jobs of this module need.
#[derive(Clone, Default)]
struct Office(Arc<Tally>);

#[derive(Serialize, Deserialize)]
struct Photocopy {
    pages: u32,
}

#[durable_job(queue = "office", resources(Office))]
async fn copy(job: Photocopy, cx: &mut Context<Photocopy>) -> JobResult<u32> {
    cx.resource::<Office>().0.note(cx.id());
    Ok(job.pages * 2)
}

#[derive(Serialize, Deserialize)]
struct Staple {}

#[durable_job(queue = "office")]
async fn staple(_: Staple) -> JobResult<()> {
    Ok(())
}

fn at_once(_: u32) -> Duration {
    Duration::ZERO
}

#[derive(Serialize, Deserialize)]
struct Shred {
    fatal: bool,
}

#[durable_job(queue = "office", resources(Office), backoff = at_once)]
async fn shred(job: Shred, cx: &mut Context<Shred>) -> JobResult<()> {
    cx.resource::<Office>().0.note(cx.id());
    if job.fatal {
        return Err(JobError::cancel("it is the only copy"));
    }
    Err("the paper is stuck")?
}

#[derive(Serialize, Deserialize)]
struct Scan {}

#[durable_job(queue = "office", resources(Office), max_attempts = 3, backoff = "1ms")]
async fn scan(_: Scan, cx: &mut Context<Scan>) -> Result<String, std::num::ParseIntError> {
    cx.resource::<Office>().0.note(cx.id());
    "x".parse::<i32>().map(|n| n.to_string())
}

/// Without the bed's `jobs([])`, so that jobs are discovered.
fn discovering(bed: &Bed, name: &str) -> EngineBuilder {
    Engine::postgres(bed.pool.clone()).name(name)
}

#[tokio::test]
async fn jobs_are_discovered_at_link_time() {
    let bed = Bed::create().await;
    let office = Office::default();
    let engine =
        discovering(&bed, "discovers").queue("office", 2).resource(office.clone()).start().await.unwrap();
    let copy = engine.insert(Photocopy { pages: 21 }).await.unwrap();
    assert_eq!(copy.result().within(SOON).await.unwrap().done().unwrap(), 42);
    let staple = engine.insert(Staple {}).await.unwrap();
    staple.result().within(SOON).await.unwrap().done().unwrap();
    assert_eq!(office.0.of(copy.id()), 1);
}

#[tokio::test]
async fn jobs_that_are_named_run_and_others_are_left_alone() {
    let bed = Bed::create().await;
    let engine = bed.engine().queue("office", 1).jobs([Staple::job()]).start().await.unwrap();
    let left = engine.insert(Photocopy { pages: 1 }).priority(-5).await.unwrap();
    let staple = engine.insert(Staple {}).await.unwrap();
    staple.result().within(SOON).await.unwrap().done().unwrap();
    let left = engine.get(left.id()).await.unwrap().unwrap();
    assert_eq!((left.status, left.attempt, left.worker), (Status::Ready, 0, None));
}

#[tokio::test]
async fn a_missing_resource_is_an_error_at_start_where_the_jobs_queue_runs() {
    let bed = Bed::create().await;
    let error = bed.engine().queue("office", 1).jobs([Photocopy::job()]).start().await.unwrap_err();
    let Error::MissingResource { job, resource } = &error else { panic!("{error}") };
    assert_eq!(job, "copy");
    assert!(resource.ends_with("jobs::Office") && error.to_string().contains("`.resource(...)`"), "{error}");
    // Nothing is missing where the queue does not run.
    bed.engine().queue("elsewhere", 1).jobs([Photocopy::job()]).start().await.unwrap();
    bed.engine().without_queues().jobs([Photocopy::job()]).start().await.unwrap();
}

#[tokio::test]
async fn a_job_on_another_queue_waits_for_a_node_with_its_resources() {
    let bed = Bed::create().await;
    // It runs the queue, and knows the job, but could not give it what it needs.
    let without =
        bed.engine().queue("annex", 1).jobs([Photocopy::job(), Staple::job()]).start().await.unwrap();
    let copy = without.insert(Photocopy { pages: 4 }).queue("annex").priority(-1).await.unwrap();
    let staple = without.insert(Staple {}).queue("annex").await.unwrap();
    staple.result().within(SOON).await.unwrap().done().unwrap();
    let left = without.get(copy.id()).await.unwrap().unwrap();
    assert_eq!((left.status, left.attempt), (Status::Ready, 0), "{:?}", left.error);

    let with = bed.engine().queue("annex", 1).resource(Office::default()).jobs([Photocopy::job()]).start();
    let with = with.await.unwrap();
    assert_eq!(with.result::<Photocopy>(copy.id()).within(SOON).await.unwrap().done().unwrap(), 8);
}

/// R18
#[tokio::test]
async fn a_job_is_started_twenty_times_unless_it_says_otherwise_and_once_when_it_cancels() {
    let bed = Bed::create().await;
    let office = Office::default();
    let engine = bed.engine().queue("office", 2).resource(office.clone()).jobs([Shred::job(), Scan::job()]);
    let engine = engine.start().await.unwrap();
    let stuck = engine.insert(Shred { fatal: false }).await.unwrap();
    let cancelled = engine.insert(Shred { fatal: true }).await.unwrap();
    let scan = engine.insert(Scan {}).await.unwrap();

    let failed = |result| match result {
        InstanceResult::Failed { reason, .. } => reason,
        _ => panic!("it cannot succeed"),
    };
    assert_eq!(failed(cancelled.result().within(SOON).await.unwrap()), "it is the only copy");
    assert_eq!(office.0.of(cancelled.id()), 1);
    assert_eq!(failed(stuck.result().within(SOON).await.unwrap()), "the paper is stuck");
    assert_eq!(office.0.of(stuck.id()), 20);
    let InstanceResult::Failed { reason, .. } = scan.result().within(SOON).await.unwrap() else {
        panic!("it cannot succeed");
    };
    assert_eq!(reason, "invalid digit found in string");
    assert_eq!(office.0.of(scan.id()), 3);
}
