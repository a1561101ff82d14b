//! What crosses the seam: batches of plain records.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::id::{InstanceId, MachineId, WorkerId};
use crate::outcome::Transition;

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

/// The correlation key of an instance to insert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewKey {
    /// Name of its machine: keys are unique among all versions of a machine.
    pub family: &'static str,
    /// The key.
    pub key: String,
    /// For how long the key is taken.
    pub scope: KeyScope,
}

/// For how long an instance's correlation key is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum KeyScope {
    /// Until the instance ends.
    #[default]
    Live,
    /// Until the instance's row is deleted after its retention.
    Row,
    /// Never: the key is an address that several instances may share.
    Address,
}

impl KeyScope {
    /// The scope as the store and people write it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Row => "row",
            Self::Address => "address",
        }
    }
}

/// A fan-out of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parent {
    /// The instance.
    pub id: InstanceId,
    /// Its fan-out: how many outcomes it had committed with this one.
    pub round: i64,
}

/// What became of an instance with a key that was to be inserted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inserted {
    /// It is inserted.
    Created,
    /// Its key is taken by this instance.
    Exists(InstanceId),
    /// A transaction that is still open inserts the key, or ends the instance that has it: try again.
    Locked,
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

/// What an instance waited for and what it was sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mail {
    /// Names of the signals that it waited for last.
    pub awaits: Vec<String>,
    /// Whether that wait timed out.
    pub timed_out: bool,
    /// The last signal that its step had been handed when it went to wait.
    pub seen: i64,
    /// What it was sent and has not consumed, in the order in which it was sent; those that it waited for before
    /// others where that is more than [`INBOX_LIMIT`].
    pub inbox: Vec<Letter>,
    /// Number of the last signal in the inbox, also when that is more than the step is handed.
    pub latest: i64,
}

/// The most signals that a step is handed.
pub const INBOX_LIMIT: u32 = 1_000;

/// A signal in an inbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Letter {
    /// Its number, which rises with each signal that its instance is sent.
    pub seq: i64,
    /// Name of the signal.
    pub name: String,
    /// The signal as JSON text.
    pub payload: String,
}

impl Mail {
    /// The signals that the step waited for: those that are there, or, when the wait timed out, those that were there
    /// when it began. One that comes after the time is up stays for a later wait.
    pub fn awaited(&self) -> impl Iterator<Item = &Letter> {
        self.inbox.iter().filter(|letter| {
            self.awaits.contains(&letter.name) && (!self.timed_out || letter.seq <= self.seen)
        })
    }

    /// The last signal that the step cannot be waiting for any more: it was handed those up to it, or would be, if there
    /// were not too many.
    #[must_use]
    pub fn handed(&self) -> i64 {
        if self.timed_out { self.seen } else { self.latest.max(self.seen) }
    }
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

/// What telling parents of their children's ends did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Joined {
    /// Queues on which parents became ready.
    pub queues: Vec<String>,
    /// Whether some could not be told, as somebody holds their rows: [`Store::join`](super::Store::join) tells them.
    pub left: bool,
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

/// Where a signal goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// To this instance.
    Id(InstanceId),
    /// To the live instance with this correlation key.
    Key(String),
}

impl From<InstanceId> for Target {
    fn from(id: InstanceId) -> Self {
        Self::Id(id)
    }
}

impl From<String> for Target {
    fn from(key: String) -> Self {
        Self::Key(key)
    }
}

impl From<&str> for Target {
    fn from(key: &str) -> Self {
        Self::Key(key.to_owned())
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Id(id) => write!(f, "{id}"),
            Self::Key(key) => write!(f, "`{key}`"),
        }
    }
}

/// A signal to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSignal {
    /// Name of the machine that takes it.
    pub machine: String,
    /// Which of its instances.
    pub target: Target,
    /// Name of the signal.
    pub name: String,
    /// The signal as JSON text.
    pub payload: String,
    /// Makes sending it again a no-op, until the instance ends.
    pub dedup_key: Option<String>,
}

/// What became of a signal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delivered {
    /// It is in the inbox.
    Stored {
        /// The queue on which its target became ready, if it was waiting for it.
        woke: Option<String>,
    },
    /// Its key was used before: nothing was changed.
    Repeated,
    /// Somebody's transaction holds the target; try again.
    Locked,
    /// No live instance is its target.
    NoTarget,
    /// Several live instances have the key.
    Ambiguous,
}

/// What became of a wish to cancel an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cancelling {
    /// It is cancelled.
    Cancelled {
        /// Whether another node waits for the result.
        watched: bool,
    },
    /// It executes: whoever runs it was asked to end it.
    Asked,
    /// It had ended before.
    Ended(Status),
    /// Somebody's transaction holds it; try again.
    Locked,
    /// There is no such instance.
    NotFound,
}

/// What became of a wish to run a failed instance again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Retrying {
    /// It is ready, on this queue.
    Ready(String),
    /// It has not failed.
    NotFailed(Status),
    /// Its key was taken meanwhile, by this instance.
    KeyTaken(InstanceId),
    /// Somebody's transaction holds it or its parent; try again.
    Locked,
    /// There is no such instance.
    NotFound,
}

/// What cancelling children did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cascaded {
    /// Children that were cancelled.
    pub cancelled: Vec<InstanceId>,
    /// Children that execute: whoever runs them was asked to end them.
    pub asked: Vec<InstanceId>,
    /// Whether there may be more to cancel: the limit cut this short, or somebody holds rows.
    pub left: bool,
}

/// How a child stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildRecord {
    /// The child.
    pub id: InstanceId,
    /// Version of its machine.
    pub version: u32,
    /// Where it stands.
    pub status: Status,
    /// Its output as JSON text.
    pub output: Option<String>,
    /// Why it failed.
    pub error: Option<String>,
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

/// Where an instance stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Status {
    /// Waits for its time.
    Scheduled,
    /// Waits for a worker.
    Ready,
    /// Set aside until a node can run its machine's version.
    Blocked,
    /// Owned by a worker.
    Executing,
    /// Waits for a signal.
    Waiting,
    /// Waits for its children to end.
    Joining,
    /// Finished with an output.
    Done,
    /// Failed for good.
    Failed,
    /// Cancelled.
    Cancelled,
}

impl Status {
    /// The status as the store and people write it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Ready => "ready",
            Self::Blocked => "blocked",
            Self::Executing => "executing",
            Self::Waiting => "waiting",
            Self::Joining => "joining",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        use Status::{Blocked, Cancelled, Done, Executing, Failed, Joining, Ready, Scheduled, Waiting};
        [Scheduled, Ready, Blocked, Executing, Waiting, Joining, Done, Failed, Cancelled]
            .into_iter()
            .find(|status| status.as_str() == text)
    }

    /// Whether the instance has ended.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An instance as it stood when it was read.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Snapshot {
    /// The instance.
    pub id: InstanceId,
    /// Name of its machine.
    pub machine: String,
    /// Version of its machine.
    pub version: u32,
    /// Name of the step that runs next, runs now, or ran last.
    pub step: String,
    /// The state as JSON text.
    pub state: String,
    /// Where it stands.
    pub status: Status,
    /// The queue on which it runs.
    pub queue: String,
    /// Lower runs first.
    pub priority: i16,
    /// How many outcomes were committed.
    pub revision: i64,
    /// How many times the state's step was started and did not go on.
    pub attempt: u32,
    /// How many of those starts count against the limit.
    pub failures: u32,
    /// How many of those starts ended with the process.
    pub crashes: u32,
    /// Names of the signals that it waits for, or waited for last.
    pub awaits: Vec<String>,
    /// How many signals it was sent and has not consumed.
    pub inbox: u32,
    /// How many children of its fan-out have not ended.
    pub children_pending: u32,
    /// Its parent.
    pub parent: Option<InstanceId>,
    /// Its correlation key.
    pub correlation_key: Option<String>,
    /// Whether it executes and is asked to end.
    pub cancel_requested: bool,
    /// The worker that owns it or owned it last.
    pub worker: Option<WorkerId>,
    /// The output as JSON text, when it is done.
    pub output: Option<String>,
    /// Why it failed, or why its last start did.
    pub error: Option<String>,
    /// When it was inserted, by the database's clock.
    pub created_at: DateTime<Utc>,
    /// From when on it may run, by the database's clock; for a wait, when it times out, if it does.
    pub eligible_at: Option<DateTime<Utc>>,
    /// When it ended, by the database's clock.
    pub finished_at: Option<DateTime<Utc>>,
}

/// How many instances stand alike.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Count {
    /// Name of the machine.
    pub machine: String,
    /// Version of the machine.
    pub version: u32,
    /// Name of the step.
    pub step: String,
    /// Where they stand.
    pub status: Status,
    /// How many.
    pub count: u64,
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

    fn mail(awaits: &[&str], timed_out: bool, seen: i64, inbox: &[(i64, &str)]) -> Mail {
        let letter = |&(seq, name): &(i64, &str)| Letter { seq, name: name.into(), payload: "null".into() };
        Mail {
            awaits: awaits.iter().map(|name| (*name).into()).collect(),
            timed_out,
            seen,
            inbox: inbox.iter().map(letter).collect(),
            latest: inbox.last().map_or(0, |(seq, _)| *seq),
        }
    }

    fn awaited(mail: &Mail) -> Vec<i64> {
        mail.awaited().map(|letter| letter.seq).collect()
    }

    #[test]
    fn a_step_is_handed_the_signals_that_it_waited_for() {
        let mail = mail(&["a", "b"], false, 2, &[(1, "a"), (3, "c"), (4, "b")]);
        assert_eq!((awaited(&mail), mail.handed()), (vec![1, 4], 4));
    }

    #[test]
    fn what_comes_after_a_timeout_is_not_handed() {
        let mail = mail(&["a"], true, 2, &[(1, "a"), (4, "a")]);
        assert_eq!((awaited(&mail), mail.handed()), (vec![1], 2));
    }

    #[test]
    fn every_status_reads_back_from_its_text() {
        for status in [
            Status::Scheduled,
            Status::Ready,
            Status::Blocked,
            Status::Executing,
            Status::Waiting,
            Status::Joining,
            Status::Done,
            Status::Failed,
            Status::Cancelled,
        ] {
            assert_eq!(Status::parse(status.as_str()), Some(status));
        }
        assert_eq!(Status::parse("lost"), None);
    }
}
