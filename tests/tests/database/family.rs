//! Parents of several kinds of children.

use std::sync::Arc;

use gen_durable::prelude::*;
use gen_durable::{ChildEnd, Children, EndedChild, NewChild, State};
use serde::{Deserialize, Serialize};

use crate::desk::{Act, Desk, desk};
use crate::support::Tally;
use crate::work::{Dig, Foreman, Rest, Work, Workers, site};

/// The children of one fan-out.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Those that end at once, with their number.
    pub(crate) rests: u32,
    /// Those that end when the foreman allows it.
    pub(crate) digs: u32,
    /// Those that follow a script.
    pub(crate) desks: Vec<Vec<Act>>,
    /// One with a script that is so long.
    pub(crate) giant: usize,
    /// Those that are parents themselves.
    pub(crate) mothers: Vec<Plan>,
    /// Whether the mother waits for the foreman before she looks at them.
    pub(crate) hold: bool,
}

/// What a mother saw of her children.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Outputs of the workers, added up.
    pub(crate) sum: u64,
    /// How many were on each page of workers.
    pub(crate) pages: Vec<usize>,
    /// How many desks were done.
    pub(crate) done: usize,
    /// Why children failed.
    pub(crate) failed: Vec<String>,
    /// How many were cancelled.
    pub(crate) cancelled: usize,
    /// What children who were mothers said.
    pub(crate) mothers: Vec<Vec<Report>>,
}

#[durable_fsm(name = "mother", queue = "family", output = Vec<Report>)]
#[derive(Debug)]
pub enum Mother {
    #[state(initial, next(Meet))]
    Begin { plans: Vec<Plan> },
    /// Looks at the children, and sends the next ones.
    #[state(next(Meet, Rue))]
    Meet { hold: bool, plans: Vec<Plan>, reports: Vec<Report> },
    /// Looks once more.
    #[state(finishes)]
    Rue { reports: Vec<Report> },
}

/// One who has these children, one plan after the other.
pub(crate) fn mother(plans: impl IntoIterator<Item = Plan>) -> Begin {
    Begin { plans: plans.into_iter().collect() }
}

/// Runs the steps.
#[derive(Clone)]
pub(crate) struct Mothers {
    pub(crate) starts: Arc<Tally>,
    pub(crate) workers: Workers,
}

/// Mothers and whoever lets them go on.
pub(crate) fn mothers() -> (Mothers, Foreman) {
    let (workers, foreman) = site();
    (Mothers { starts: Arc::default(), workers }, foreman)
}

impl MotherSteps for Mothers {
    async fn begin(&self, mut s: Begin, cx: &mut Context<Begin>) -> StepResult<Begin> {
        self.starts.note(cx.id());
        let plan = s.plans.remove(0);
        let hold = plan.hold;
        Ok(cx.fan_out(children(plan), Meet { hold, plans: s.plans, reports: Vec::new() }))
    }

    async fn meet(&self, mut s: Meet, cx: &mut Context<Meet>) -> StepResult<Meet> {
        self.starts.note(cx.id());
        if s.hold {
            self.workers.wait(cx.id()).await?;
        }
        s.reports.push(report(cx).await?);
        if s.plans.is_empty() {
            return Ok(cx.next(Rue { reports: s.reports }));
        }
        let plan = s.plans.remove(0);
        Ok(cx.fan_out(children(plan.clone()), Meet { hold: plan.hold, ..s }))
    }

    async fn rue(&self, mut s: Rue, cx: &mut Context<Rue>) -> StepResult<Rue> {
        self.starts.note(cx.id());
        s.reports.push(report(cx).await?);
        Ok(cx.done(s.reports))
    }
}

fn children(plan: Plan) -> Vec<NewChild> {
    let rests = (1..=plan.rests).map(|n| NewChild::of(Rest { n }));
    let digs = (1..=plan.digs).map(|n| NewChild::of(Dig { n }));
    let desks = plan.desks.into_iter().map(|script| NewChild::of(desk(script)));
    let giant = (plan.giant > 0).then(|| NewChild::of(desk(vec![Act::Next; plan.giant])));
    let mothers = plan.mothers.into_iter().map(|plan| NewChild::of(mother([plan])));
    rests.chain(digs).chain(desks).chain(giant).chain(mothers).collect()
}

async fn report<S: State>(cx: &Context<S>) -> Result<Report, StepError> {
    let mut report = Report::default();
    let mut workers: Children<'_, Work> = cx.children();
    loop {
        let page = workers.next_page().await?;
        if page.is_empty() {
            break;
        }
        report.pages.push(page.len());
        report.sum += page.into_iter().filter_map(|child| report.note(child)).map(u64::from).sum::<u64>();
    }
    let desks = cx.children::<Desk>().all().await?;
    report.done = desks.into_iter().filter_map(|child| report.note(child)).count();
    let mothers = cx.children::<Mother>().all().await?;
    report.mothers = mothers.into_iter().filter_map(|child| report.note(child)).collect();
    Ok(report)
}

impl Report {
    fn note<T>(&mut self, child: EndedChild<T>) -> Option<T> {
        match child.end {
            ChildEnd::Done(output) => return Some(output),
            ChildEnd::Failed(reason) => self.failed.push(reason),
            ChildEnd::Cancelled => self.cancelled += 1,
            end => unreachable!("{}", std::any::type_name_of_val(&end)),
        }
        None
    }
}
