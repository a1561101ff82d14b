//! A machine that does what a test's script says, and notes what each of its steps sees.

use std::sync::Arc;
use std::time::Duration;

use gen_durable::prelude::*;
use gen_durable::{Engine, Finishes, Follows, InstanceId, Snapshot, State, Status};
use gen_durable_tests::until;

use crate::support::Tally;
use crate::work::{Foreman, Workers, site};

#[derive(Debug, Clone, PartialEq, Signal, Serialize, Deserialize)]
pub struct Paid {
    pub cents: i64,
}

/// A signal without a payload: `null` in the store.
#[derive(Debug, Clone, PartialEq, Signal, Serialize, Deserialize)]
pub struct Nudge;

/// What the desk does next. Where it says nothing else, it goes on in the other of its two states.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Act {
    /// Waits for a payment; in milliseconds, how long at most.
    Wait(Option<u64>),
    /// Waits for a payment or a nudge.
    WaitEither(Option<u64>),
    /// Waits for a nudge.
    WaitNudge(Option<u64>),
    /// Waits for payments, in the same state, until so many were handed over at once, or in all for so long.
    Gather(usize, Option<u64>),
    /// Goes on.
    Next,
    /// Goes on, on the same claim.
    Ahead,
    /// Goes on in the same state, as a retry, after so many milliseconds.
    Again(u64),
    /// Fails with an error, and is tried again by the retry policy.
    Err,
    /// Waits for the foreman's leave, and does what follows in the same step.
    Hold,
    /// Inserts so many desks with a script of their own and waits for their ends.
    FanOut(usize, Vec<Act>),
    /// Ends with what was seen.
    Done,
    /// Fails.
    Stop,
    /// Fails, and takes children with it.
    StopAll,
}

/// What a step saw when it started.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Saw {
    /// Whether the wait before was over before a signal came.
    pub timed_out: bool,
    /// The payments that were waited for.
    pub paid: Vec<i64>,
    /// How many nudges were waited for.
    pub nudges: usize,
    /// Names of all signals.
    pub inbox: Vec<String>,
    /// Starts before this one.
    pub attempt: u32,
}

impl Saw {
    /// Payments that were waited for, and nothing else.
    pub(crate) fn paid(cents: &[i64]) -> Self {
        let inbox = cents.iter().map(|_| "paid".to_owned()).collect();
        Self { paid: cents.to_vec(), inbox, ..Self::default() }
    }

    /// Signals that were not waited for.
    pub(crate) fn inbox(names: &[&str]) -> Self {
        Self { inbox: names.iter().map(|name| (*name).to_owned()).collect(), ..Self::default() }
    }

    /// The end of a wait for which nothing came.
    pub(crate) fn timeout() -> Self {
        Self { timed_out: true, ..Self::default() }
    }
}

#[durable_fsm(name = "desk", queue = "desk", output = Vec<Saw>, signals(Paid, Nudge))]
#[derive(Debug, Clone, PartialEq)]
pub enum Desk {
    #[state(initial, next(Left, Right), finishes, retry(max_attempts = 5, backoff = "1ms"))]
    Left { script: Vec<Act>, seen: Vec<Saw> },
    #[state(next(Left, Right), finishes, retry(max_attempts = 5, backoff = "1ms"))]
    Right { script: Vec<Act>, seen: Vec<Saw> },
}

/// An instance with this script.
pub(crate) fn desk(script: impl IntoIterator<Item = Act>) -> Left {
    Left { script: script.into_iter().collect(), seen: Vec::new() }
}

/// Runs the steps.
#[derive(Clone)]
pub(crate) struct Clerks {
    pub(crate) starts: Arc<Tally>,
    workers: Workers,
}

/// Clerks and whoever lets them go on.
pub(crate) fn clerks() -> (Clerks, Foreman) {
    let (workers, foreman) = site();
    (Clerks::of(&workers), foreman)
}

impl DeskSteps for Clerks {
    async fn left(&self, mut s: Left, cx: &mut Context<Left>) -> StepResult<Left> {
        let act = self.look(&mut s.script, &mut s.seen, cx).await?;
        let there = Right { script: s.script.clone(), seen: s.seen.clone() };
        carry_out(act, s.seen.clone(), s, there, cx)
    }

    async fn right(&self, mut s: Right, cx: &mut Context<Right>) -> StepResult<Right> {
        let act = self.look(&mut s.script, &mut s.seen, cx).await?;
        let there = Left { script: s.script.clone(), seen: s.seen.clone() };
        carry_out(act, s.seen.clone(), s, there, cx)
    }
}

impl Clerks {
    /// Who wait for the foreman of these.
    pub(crate) fn of(workers: &Workers) -> Self {
        Self { starts: Arc::default(), workers: workers.clone() }
    }

    /// Notes what there is to see, and takes the next act from the script.
    async fn look<S: State<Machine = Desk>>(
        &self,
        script: &mut Vec<Act>,
        seen: &mut Vec<Saw>,
        cx: &Context<S>,
    ) -> Result<Act, StepError> {
        self.starts.note(cx.id());
        let paid = cx.awaited::<Paid>()?;
        let gathers = match script.first() {
            Some(Act::Gather(count, _)) if paid.len() < *count && !cx.timed_out() => true,
            Some(Act::Gather(..)) => {
                script.remove(0);
                false
            }
            _ => false,
        };
        if gathers {
            return Ok(script[0].clone());
        }
        seen.push(Saw {
            timed_out: cx.timed_out(),
            paid: paid.into_iter().map(|paid| paid.cents).collect(),
            nudges: cx.awaited::<Nudge>()?.len(),
            inbox: cx.inbox().map(|received| received.name().to_owned()).collect(),
            attempt: cx.attempt(),
        });
        loop {
            match script.remove(0) {
                Act::Hold => self.workers.wait(cx.id()).await?,
                // The row keeps the whole script.
                Act::Err if cx.attempt() == 0 => return Err("as the script says".into()),
                Act::Err => {}
                act => return Ok(act),
            }
        }
    }
}

fn carry_out<S: State<Machine = Desk> + Finishes + Follows<S>>(
    act: Act,
    seen: Vec<Saw>,
    here: S,
    there: impl Follows<S>,
    cx: &Context<S>,
) -> StepResult<S> {
    let millis = |millis: Option<u64>| Duration::from_millis(millis.unwrap_or_default());
    let bounded = |wait: gen_durable::Wait<S>, limit: Option<u64>| match limit {
        Some(_) => wait.timeout(millis(limit)).into(),
        None => wait.into(),
    };
    Ok(match act {
        Act::Wait(limit) => bounded(cx.wait_for::<Paid>(there), limit),
        Act::WaitEither(limit) => bounded(cx.wait_for::<Paid>(there).or::<Nudge>(), limit),
        Act::WaitNudge(limit) => bounded(cx.wait_for::<Nudge>(there), limit),
        Act::Gather(_, limit) => bounded(cx.wait_for::<Paid>(here), limit),
        Act::Next => cx.next(there),
        Act::Ahead => cx.next_with(there).inline(true).into(),
        Act::Again(after) => cx.retry(here, Duration::from_millis(after)),
        Act::FanOut(count, script) => cx.fan_out((0..count).map(|_| desk(script.clone())), there),
        Act::Done => cx.done(seen),
        Act::Stop => cx.stop("as the script says"),
        Act::StopAll => cx.stop_with("as the script says").with_children().into(),
        Act::Hold | Act::Err => unreachable!("done before"),
    })
}

/// Where an instance stands.
pub(crate) async fn look(engine: &Engine, id: InstanceId) -> Snapshot {
    engine.get(id).await.expect("it reads").expect("it is there")
}

/// Waits until an instance stands there.
pub(crate) async fn stands(engine: &Engine, id: InstanceId, status: Status) -> Snapshot {
    until(&format!("{id} is {status}"), || async { look(engine, id).await.status == status }).await;
    look(engine, id).await
}
