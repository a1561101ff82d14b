//! What crosses the seam: batches of plain records.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::{Joined, Mail, NewKey, Parent, Status};
use crate::id::{InstanceId, MachineId, WorkerId};
use crate::transition::Transition;

/// From how many crashes on a row runs alone on its node.
pub const SOLO_CRASHES: u32 = 2;

/// The longest delay that is kept; longer ones are taken as this: 100 years.
pub const MAX_DELAY: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// A delay as the database is told it: microseconds, rounded up, at most [`MAX_DELAY`].
pub(crate) fn delay_micros(delay: Duration) -> i64 {
    let delay = delay.min(MAX_DELAY);
    i64::try_from(delay.as_nanos().div_ceil(1000)).unwrap_or(i64::MAX)
}

/// When a new instance may run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Start {
    /// This long after the insert, by the database's clock; zero is at once.
    After(Duration),
    /// At this instant, by the database's clock.
    At(DateTime<Utc>),
}

impl Start {
    /// Whether the instance may run at once.
    #[must_use]
    pub const fn is_now(&self) -> bool {
        matches!(self, Self::After(Duration::ZERO))
    }
}

/// An instance to insert.
#[derive(Debug, Clone, PartialEq)]
pub struct NewInstance {
    /// Made by the inserting node.
    pub id: InstanceId,
    /// The machine and version that it belongs to.
    pub machine: MachineId,
    /// Name of the initial state's step.
    pub step: &'static str,
    /// The initial state as JSON text.
    pub state: String,
    /// Queue on which it runs.
    pub queue: Arc<str>,
    /// Lower runs first.
    pub priority: i16,
    /// When it may run.
    pub start: Start,
    /// W3C `traceparent` of whoever inserted it.
    pub trace_context: Option<String>,
    /// The key under which it is to be found.
    pub key: Option<NewKey>,
    /// The fan-out that it is a child of.
    pub parent: Option<Parent>,
}

impl NewInstance {
    /// Bytes that it carries to the store, more or less.
    #[must_use]
    pub fn size(&self) -> usize {
        /// Numbers and lengths.
        const FIXED: usize = 64;
        FIXED
            + self.step.len()
            + self.state.len()
            + self.queue.len()
            + self.trace_context.as_deref().map_or(0, str::len)
            + self.key.as_ref().map_or(0, |key| key.family.len() + key.key.len())
    }
}

/// What a worker asks for.
#[derive(Debug)]
pub struct ClaimRequest<'a> {
    /// Who asks.
    pub worker: WorkerId,
    /// Number of this claim, counted by the worker; marks the rows it takes.
    pub claim: i64,
    /// Queue to take from.
    pub queue: &'a Arc<str>,
    /// Machines that this node can run.
    pub machines: &'a [MachineId],
    /// How many rows at most.
    pub limit: u32,
    /// Whether the worker holds nothing else: it may take a row that runs alone.
    pub alone: bool,
}

/// What a claim brought.
#[derive(Debug, Clone, Default)]
pub struct Claims {
    /// Rows that the worker owns now, most urgent first.
    pub rows: Vec<Claimed>,
    /// Whether rows that run alone were left. Without any other row: the most urgent one runs alone.
    pub left_suspects: bool,
    /// When to look again, if only a part of the queue was looked at: nobody pokes for what lies in the other.
    pub look_again: Option<Duration>,
}

/// A row that a worker owns: what its step needs.
#[derive(Debug, Clone)]
pub struct Claimed {
    /// The instance.
    pub id: InstanceId,
    /// Its machine and version.
    pub machine: MachineId,
    /// Name of the step to run.
    pub step: String,
    /// The state as JSON text.
    pub state: String,
    /// The queue it was taken from.
    pub queue: Arc<str>,
    /// Number of the claim that took it.
    pub claim: i64,
    /// How many outcomes were committed before.
    pub revision: i64,
    /// How many times this state's step was started before.
    pub attempt: u32,
    /// How many of those starts count against the limit.
    pub failures: u32,
    /// How many of those starts ended with the process.
    pub crashes: u32,
    /// W3C `traceparent` of whoever inserted it.
    pub trace_context: Option<String>,
    /// Whether it has a parent.
    pub is_child: bool,
    /// The fan-out whose children it may read.
    pub round: Option<i64>,
    /// What came from outside, if anything did.
    pub mail: Option<Arc<Mail>>,
}

impl Claimed {
    /// What proves that the worker owns the row.
    #[must_use]
    pub fn held(&self) -> Held {
        Held { id: self.id, claim: self.claim, revision: self.revision }
    }
}

/// A row that a worker owns. With the worker's id it proves ownership: the row was not taken away since.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Held {
    /// The instance.
    pub id: InstanceId,
    /// Number of the claim that took it.
    pub claim: i64,
    /// How many outcomes were committed before.
    pub revision: i64,
}

/// An outcome to commit.
#[derive(Debug, Clone)]
pub struct Commit {
    /// The row, and what proves its ownership.
    pub held: Held,
    /// What happens to it.
    pub transition: Transition,
    /// Whether the worker keeps the row after a `next`, for a step that runs ahead.
    pub keeps_claim: bool,
    /// The signals that it consumes.
    pub consumed: Vec<i64>,
    /// Whether the row is more than a step and its state: it was sent signals, has waited, or has children.
    pub is_involved: bool,
    /// Whether the row has a parent, which is to be told of its end.
    pub is_child: bool,
}

impl Commit {
    /// The commit of an outcome of a claimed row. A progressing one consumes the signals that its step was handed.
    #[must_use]
    pub fn of(row: &Claimed, transition: Transition, keeps_claim: bool) -> Self {
        let goes_on = match &transition {
            Transition::Next { .. } | Transition::FanOut { .. } => true,
            // A renewed wait has seen its signals, and keeps them.
            Transition::Wait { seen, .. } => *seen == 0,
            _ => false,
        };
        let mail = row.mail.as_deref().filter(|_| goes_on);
        Self {
            held: row.held(),
            keeps_claim,
            consumed: mail.map_or_else(Vec::new, |mail| mail.awaited().map(|letter| letter.seq).collect()),
            is_involved: row.mail.is_some() || row.round.is_some(),
            is_child: row.is_child,
            transition,
        }
    }

    /// Whether it touches more than its row.
    #[must_use]
    pub fn reaches_out(&self) -> bool {
        self.is_involved
            || !self.consumed.is_empty()
            || matches!(
                self.transition,
                Transition::Wait { .. }
                    | Transition::FanOut { .. }
                    | Transition::Cancel
                    | Transition::Stop { cascade: true, .. }
            )
    }
}

/// What becomes of rows that are done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DonePolicy {
    /// They stay until they are swept.
    #[default]
    Keep,
    /// They are deleted at once, unless somebody waits for their result.
    Delete,
}

/// What a flush did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Flush {
    /// What became of each outcome, in the order given.
    pub fates: Vec<Flushed>,
    /// What the ends of children did to their parents.
    pub joined: Joined,
}

/// What became of an outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flushed {
    /// It is committed.
    Committed {
        /// Where the instance stands now: cancelled, if somebody asked for that and the outcome did not end it; ready,
        /// if what it was to wait for is there already.
        status: Status,
        /// Whether another node waits for the result.
        watched: bool,
    },
    /// Somebody's transaction holds the row; try again.
    Locked,
    /// The worker owns the row no longer: nothing was changed.
    Stale,
}

/// The answer to a heartbeat.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Beaten {
    /// False when the worker was declared dead.
    pub alive: bool,
    /// What it holds and is asked to cancel.
    pub cancel: Vec<InstanceId>,
}

/// The heartbeat of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerBeat {
    /// The worker.
    pub id: WorkerId,
    /// Name of its engine.
    pub engine: String,
    /// Name of its node.
    pub node: String,
    /// Rises while the worker is alive.
    pub beat: i64,
}

/// Rows that were taken from a dead or missing worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reclaimed {
    /// Who had them.
    pub worker: WorkerId,
    /// Queue they returned to.
    pub queue: String,
    /// How many.
    pub count: u64,
}

/// Rows that became due.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Promoted {
    /// How many.
    pub count: u64,
    /// Queues on which they are.
    pub queues: Vec<String>,
    /// Time until the next one is due, if there is one; zero if the limit cut this batch short.
    pub next_due: Option<Duration>,
}

/// Rows that were set aside as no node can run them, and rows that came back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SortedOut {
    /// How many were set aside.
    pub aside: u64,
    /// Queues to which rows came back, and how many.
    pub back: Vec<(String, u64)>,
}

/// What a sweep deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Instances past retention.
    pub instances: u64,
    /// Dead workers.
    pub workers: u64,
}

/// What nodes tell each other, best effort.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Poke {
    /// There is work on this queue.
    Queue(String),
    /// There will be a due row after this many milliseconds.
    Due(u64),
    /// This instance has ended.
    Ended(InstanceId),
    /// This instance executes and is to be cancelled.
    Cancel(InstanceId),
}

impl Poke {
    /// There will be a due row after this time.
    pub(crate) fn due(after: Duration) -> Self {
        Self::Due(u64::try_from(after.as_millis()).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_rounded_up_to_microseconds_and_saturate() {
        assert_eq!(delay_micros(Duration::ZERO), 0);
        assert_eq!(delay_micros(Duration::from_nanos(1)), 1);
        assert_eq!(delay_micros(Duration::from_nanos(1001)), 2);
        assert_eq!(delay_micros(Duration::MAX), delay_micros(MAX_DELAY));
    }
}
