//! Children, as machines see them.

use std::time::{Duration, Instant};

use gen_durable::prelude::*;
use gen_durable::{Engine, EngineBuilder, Gc, InstanceId, InstanceResult, NewChild, Status};
use gen_durable_tests::until;

use super::Bed;
use crate::desk::{Act, Clerks, Desk, Paid, desk, look, stands};
use crate::family::{Mother, Mothers, Plan, Report, mother, mothers};
use crate::support::SOON;
use crate::work::{Foreman, Rest, Work};

/// An engine that runs families, in which all wait for the same foreman.
struct Town {
    engine: Engine,
    mothers: Mothers,
    foreman: Foreman,
}

async fn town(bed: &Bed) -> Town {
    town_with(bed.engine()).await
}

async fn town_with(engine: EngineBuilder) -> Town {
    let (mothers, foreman) = mothers();
    let engine = engine
        .queue("family", 8)
        .queue("work", 16)
        .queue("desk", 8)
        .register(Mother::machine(mothers.clone()))
        .register(Work::machine(mothers.workers.clone()))
        .register(Desk::machine(Clerks::of(&mothers.workers)));
    Town { engine: engine.start().await.unwrap(), mothers, foreman }
}

impl Town {
    async fn insert(&self, plans: impl IntoIterator<Item = Plan>) -> InstanceId {
        self.engine.insert(mother(plans)).await.unwrap().id()
    }

    async fn reports(&self, id: InstanceId) -> Vec<Report> {
        self.engine.result::<Mother>(id).within(SOON).await.unwrap().done().unwrap()
    }

    async fn pending(&self, id: InstanceId) -> u32 {
        look(&self.engine, id).await.children_pending
    }

    /// How many instances of a machine there are.
    async fn count(&self, machine: &str) -> u64 {
        let counts = self.engine.counts().await.unwrap();
        counts.iter().filter(|count| count.machine == machine).map(|count| count.count).sum()
    }
}

#[tokio::test]
async fn children_of_several_machines_are_waited_for_and_their_results_are_typed() {
    let bed = Bed::create().await;
    let town = town(&bed).await;
    let desks = vec![vec![Act::Done], vec![Act::Stop], vec![Act::Next, Act::Done]];
    let id = town.insert([Plan { rests: 3, desks, ..Plan::default() }]).await;
    let met = Report {
        sum: 6,
        pages: vec![3],
        done: 2,
        failed: vec!["as the script says".into()],
        ..Report::default()
    };
    assert_eq!(town.reports(id).await, [met, Report::default()], "who has gone on has no children");
    assert_eq!(town.mothers.starts.of(id), 3);
    town.engine.shutdown().await;
}

/// R27
#[tokio::test]
async fn without_children_the_parent_goes_straight_on() {
    let bed = Bed::create().await;
    let town = town(&bed).await;
    let id = town.insert([Plan::default()]).await;
    assert_eq!(town.reports(id).await, [Report::default(), Report::default()]);
    town.engine.shutdown().await;
}

/// R29: one that waits has not ended.
#[tokio::test]
async fn a_parent_waits_for_the_last_of_its_children_whatever_it_waits_for() {
    let bed = Bed::create().await;
    let mut town = town(&bed).await;
    let desks = vec![vec![Act::Hold, Act::Wait(None), Act::Done], vec![Act::Wait(Some(20)), Act::Done]];
    let id = town.insert([Plan { rests: 2, desks, ..Plan::default() }]).await;
    let patient = town.foreman.started().await;
    assert_eq!(look(&town.engine, patient).await.parent, Some(id));
    town.foreman.allow(1);
    stands(&town.engine, patient, Status::Waiting).await;
    until("one is left", || async { town.pending(id).await == 1 }).await;
    let result = town.engine.result::<Mother>(id).within(Duration::ZERO).await.unwrap();
    let InstanceResult::Waiting(joining) = result else { panic!("{result:?}") };
    assert_eq!((joining.status, joining.step.as_str()), (Status::Joining, "meet"));
    town.engine.signal::<Desk>(patient, Paid { cents: 1 }).await.unwrap();
    assert_eq!(town.reports(id).await[0], Report { sum: 3, pages: vec![2], done: 2, ..Report::default() });
    assert_eq!(town.mothers.starts.of(id), 3);
    town.engine.shutdown().await;
}

#[tokio::test]
async fn every_end_of_a_child_releases_the_join_once() {
    let bed = Bed::create().await;
    let mut town = town(&bed).await;
    let desks = vec![vec![Act::Hold, Act::Wait(None)], vec![Act::Stop], vec![Act::Done]];
    let id = town.insert([Plan { desks, digs: 1, ..Plan::default() }]).await;
    let one = town.foreman.started().await;
    let other = town.foreman.started().await;
    let is_desk = look(&town.engine, one).await.machine == "desk";
    let (desk, dig) = if is_desk { (one, other) } else { (other, one) };
    until("two are left", || async { town.pending(id).await == 2 }).await;
    // One in the middle of its step.
    town.engine.cancel(desk).await.unwrap();
    until("one is left", || async { town.pending(id).await == 1 }).await;
    town.engine.cancel(desk).await.unwrap();
    assert_eq!((town.pending(id).await, look(&town.engine, id).await.status), (1, Status::Joining));
    town.foreman.allow(1);
    let report = town.reports(id).await.remove(0);
    let failed = vec!["as the script says".to_owned()];
    assert_eq!(report, Report { sum: 1, pages: vec![1], done: 1, failed, cancelled: 1, ..Report::default() });
    assert_eq!(look(&town.engine, dig).await.status, Status::Done);
    assert_eq!(town.mothers.starts.of(id), 3);
    town.engine.shutdown().await;
}

/// R28: nodes end while a child runs and while its parent waits.
#[tokio::test]
async fn a_child_that_ended_its_process_too_often_releases_the_join() {
    let bed = Bed::create().await;
    let mut first = town(&bed).await;
    let id = first.insert([Plan { digs: 1, rests: 1, ..Plan::default() }]).await;
    first.foreman.started().await;
    until("one is left", || async { first.pending(id).await == 1 }).await;
    // As a crash.
    drop(first);
    let second = town_with(bed.engine().max_crashes(1)).await;
    let report = second.reports(id).await.remove(0);
    assert_eq!((report.sum, report.failed.len()), (1, 1), "{report:?}");
    assert!(report.failed[0].contains("the process ended during the step"), "{report:?}");
    assert_eq!(second.mothers.starts.of(id), 2);
    second.engine.shutdown().await;
}

#[tokio::test]
async fn children_may_have_children() {
    let bed = Bed::create().await;
    let town = town(&bed).await;
    let leaves = |rests| Plan { rests, ..Plan::default() };
    let middle = Plan { rests: 1, mothers: vec![leaves(2), leaves(0)], ..Plan::default() };
    let id = town.insert([Plan { mothers: vec![middle, leaves(3)], ..Plan::default() }]).await;
    let reports = town.reports(id).await;
    let sums: Vec<u64> = reports[0].mothers.iter().map(|reports| reports[0].sum).collect();
    assert_eq!(sums, [1, 6]);
    let sums: Vec<u64> = reports[0].mothers[0][0].mothers.iter().map(|reports| reports[0].sum).collect();
    assert_eq!(sums, [3, 0]);
    town.engine.shutdown().await;
}

#[tokio::test]
async fn a_step_sees_the_children_of_the_latest_fan_out_only() {
    let bed = Bed::create().await;
    let town = town(&bed).await;
    let plans = [3, 1, 0, 2].map(|rests| Plan { rests, ..Plan::default() });
    let id = town.insert(plans).await;
    let sums: Vec<u64> = town.reports(id).await.iter().map(|report| report.sum).collect();
    assert_eq!(sums, [6, 1, 0, 3, 0]);
    assert_eq!(town.mothers.starts.of(id), 6);
    town.engine.shutdown().await;
}

#[tokio::test]
async fn results_come_in_pages_of_a_thousand() {
    let bed = Bed::create().await;
    let town = town(&bed).await;
    let id = town.insert([Plan { rests: 2_500, ..Plan::default() }]).await;
    let report = town.reports(id).await.remove(0);
    assert_eq!((report.sum, report.pages), (2_500 * 2_501 / 2, vec![1_000, 1_000, 500]));
    town.engine.shutdown().await;
}

/// R47
#[tokio::test]
async fn with_retention_zero_children_stay_until_their_parent_goes_on_and_no_longer() {
    let bed = Bed::create().await;
    let gc = Gc::default().every(Duration::from_millis(20)).keep(Duration::ZERO);
    let mut town = town_with(bed.engine().gc(gc)).await;
    let desks = vec![vec![Act::Done], vec![Act::Stop]];
    let id = town.insert([Plan { rests: 5, desks, hold: true, ..Plan::default() }]).await;
    assert_eq!(town.foreman.started().await, id);
    // By then a sweep has looked at the children, which ended before this.
    let failed = town.engine.insert(desk([Act::Stop])).await.unwrap().id();
    until("another is swept", || async { town.engine.get(failed).await.unwrap().is_none() }).await;
    assert_eq!((town.count("work").await, town.count("desk").await), (5, 2));
    let result = town.engine.result::<Mother>(id).within(SOON);
    let result = tokio::spawn(async move { result.await });
    tokio::task::yield_now().await;
    town.foreman.allow(1);
    if let InstanceResult::Done(reports) = result.await.unwrap().unwrap() {
        let failed = vec!["as the script says".to_owned()];
        assert_eq!(reports[0], Report { sum: 15, pages: vec![5], done: 1, failed, ..Report::default() });
    }
    until("all are gone", || async {
        town.count("work").await + town.count("desk").await + town.count("mother").await == 0
    })
    .await;
    town.engine.shutdown().await;
}

/// R31
#[tokio::test]
async fn a_parent_of_very_many_children_stays_small_and_each_costs_the_same() {
    const COUNT: u32 = 20_000;
    let bed = Bed::create().await;
    let town = town(&bed).await;
    let began = Instant::now();
    let id = town.insert([Plan { rests: COUNT, hold: true, ..Plan::default() }]).await;
    until("all have ended", || async { look(&town.engine, id).await.step == "meet" }).await;
    stands(&town.engine, id, Status::Executing).await;
    println!("{COUNT} children ended after {:?}", began.elapsed());
    let parent = look(&town.engine, id).await;
    assert!(parent.state.len() < 1_000, "{} bytes", parent.state.len());
    town.foreman.allow(1);
    let report = town.reports(id).await.remove(0);
    assert_eq!(report.sum, u64::from(COUNT) * u64::from(COUNT + 1) / 2);
    assert_eq!(report.pages, [1_000; COUNT as usize / 1_000]);
    assert_eq!(town.mothers.starts.of(id), 3);
    town.engine.shutdown().await;
}

#[tokio::test]
async fn a_fan_out_that_cannot_be_stored_inserts_no_child_and_is_an_error_of_the_step() {
    let bed = Bed::create().await;
    let town = town_with(bed.engine().payload_limit(1_000)).await;
    let id = town.insert([Plan { rests: 3, giant: 1_000, ..Plan::default() }]).await;
    let result = town.engine.result::<Mother>(id).within(SOON).await.unwrap();
    let InstanceResult::Failed { reason, .. } = result else { panic!("{result:?}") };
    assert!(reason.contains("over the `payload_limit` of 1000"), "{reason}");
    assert_eq!((town.count("work").await, town.count("desk").await), (0, 0));
    assert_eq!(look(&town.engine, id).await.step, "begin");
    town.engine.shutdown().await;
}

/// Picks where its children run.
#[durable_fsm(name = "picky", queue = "family", output = Vec<InstanceId>)]
#[derive(Debug)]
enum Picky {
    #[state(next(Picked))]
    Pick {},
    #[state(finishes)]
    Picked { children: Vec<InstanceId> },
}

struct Picks;

impl PickySteps for Picks {
    async fn pick(&self, _: Pick, cx: &mut Context<Pick>) -> StepResult<Pick> {
        let child = |n| NewChild::of(Rest { n });
        let delayed = child(3).delay(Duration::from_millis(30));
        let children = [child(1), child(2).queue("elsewhere").priority(-3), delayed];
        let ids = children.iter().map(|child| child.id().expect("it can be stored")).collect();
        Ok(cx.fan_out(children, Picked { children: ids }))
    }

    async fn picked(&self, s: Picked, cx: &mut Context<Picked>) -> StepResult<Picked> {
        Ok(cx.done(s.children))
    }
}

#[tokio::test]
async fn a_child_takes_the_options_that_it_is_given() {
    let bed = Bed::create().await;
    let (steps, _foreman) = mothers();
    let engine = bed.engine().queue("family", 1).queue("work", 1).queue("elsewhere", 1);
    let engine = engine.register(Picky::machine(Picks)).register(Work::machine(steps.workers));
    let engine = engine.start().await.unwrap();
    let id = engine.insert(Pick {}).await.unwrap();
    let children = id.result().within(SOON).await.unwrap().done().unwrap();
    let queues = ["work", "elsewhere", "work"];
    for (child, queue) in children.iter().zip(queues) {
        let seen = look(&engine, *child).await;
        assert_eq!((seen.queue.as_str(), seen.parent), (queue, Some(id.id())));
    }
    assert_eq!(look(&engine, children[1]).await.priority, -3);
    let delayed = look(&engine, children[2]).await;
    assert!(delayed.eligible_at.unwrap() - delayed.created_at >= chrono::TimeDelta::milliseconds(30));
    engine.shutdown().await;
}
