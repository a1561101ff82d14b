//! Commits outcomes: many in one transaction, without ever waiting for company.
//!
//! An idle flusher commits an outcome at once; what is handed over while a commit is under way goes with
//! the next one. A batch is as large as the load makes it, up to a bound.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;

use super::core::Core;
use super::executor;
use super::lease::Lease;
use super::options::Options;
use super::queue::Ticket;
use super::settled::Settled;
use crate::store::{Claimed, Commit, DonePolicy, Flushed, Joined, Status, StoreError};
use crate::telemetry::{Event, Outage};
use crate::transition::Transition;

/// The most outcomes in one transaction.
const MAX_BATCH: usize = 1_000;
/// The most bytes of text in one transaction; an outcome larger than this goes alone.
const MAX_BYTES: usize = 4 * 1024 * 1024;
/// How long to rest before asking again for rows that somebody's transaction holds, when nothing else is to do.
const LOCKED_REST: Duration = Duration::from_millis(20);
/// Shortest and longest rest of an outcome that the database does not take while it takes others.
const FIRST_REST: Duration = Duration::from_millis(50);
const LONGEST_REST: Duration = Duration::from_secs(5);

/// A decided outcome on its way to the store.
pub(super) struct Handed {
    pub(super) lease: Arc<Lease>,
    pub(super) row: Arc<Claimed>,
    pub(super) machine: &'static str,
    pub(super) version: u32,
    pub(super) state: &'static str,
    pub(super) transition: Transition,
    pub(super) duration: Duration,
    /// Whether the database refused an earlier outcome of the same start.
    pub(super) rejected: bool,
    /// How often the database failed at this row alone, or refused it again.
    pub(super) faults: u32,
    /// How many steps the instance ran on this claim before this one.
    pub(super) ran_ahead: u32,
    /// Whether the next step runs on the same claim.
    pub(super) runs_ahead: bool,
    /// What became of it, if the step committed it in its own transaction.
    pub(super) committed: Option<Settlement>,
}

/// What a step's own transaction did.
#[derive(Clone)]
pub(super) struct Settlement {
    pub(super) status: Status,
    pub(super) watched: bool,
    pub(super) joined: Joined,
}

impl Handed {
    /// The outcome as the store commits it; it comes back with [`Self::transition`].
    fn commit(&mut self) -> Commit {
        Commit::of(&self.row, take(&mut self.transition), self.runs_ahead)
    }

    /// The row as this outcome, a committed `next`, leaves it, still under the same claim.
    pub(super) fn take_ahead(&mut self) -> Option<Ticket> {
        let Transition::Next { step, state, .. } = &mut self.transition else { return None };
        let before = &self.row;
        let row = Claimed {
            step: (*step).to_owned(),
            state: std::mem::take(state),
            queue: Arc::clone(&before.queue),
            revision: before.revision + 1,
            attempt: 0,
            failures: 0,
            crashes: 0,
            trace_context: before.trace_context.clone(),
            round: None,
            mail: None,
            ..**before
        };
        let kept = self.lease.keep(before.held(), row.held());
        kept.then(|| Ticket {
            row: Arc::new(row),
            lease: Arc::clone(&self.lease),
            claimed_at: std::time::Instant::now(),
            ran_ahead: self.ran_ahead + 1,
        })
    }
}

/// Where outcomes are handed over.
pub(super) struct Flusher {
    sender: mpsc::UnboundedSender<Handed>,
    waiting: AtomicUsize,
}

impl Flusher {
    pub(super) fn new() -> (Self, mpsc::UnboundedReceiver<Handed>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self { sender, waiting: AtomicUsize::new(0) }, receiver)
    }

    /// Hands an outcome over. Never waits: what bounds the outcomes on their way is that claiming pauses.
    pub(super) fn hand_over(&self, handed: Handed) {
        if !handed.lease.hand_over(handed.row.held()) {
            return;
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        if self.sender.send(handed).is_err() {
            // The engine is gone; the row returns when its lease ends.
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// How many outcomes are on their way.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    pub(super) fn settled(&self, count: usize) {
        self.waiting.fetch_sub(count, Ordering::Relaxed);
    }
}

/// Commits outcomes until the engine is gone.
pub(super) async fn run(core: Arc<Core>, handed: mpsc::UnboundedReceiver<Handed>) {
    let mut committer = Committer::new(core, handed);
    while committer.commit_next().await {}
}

/// Where outcomes come out again, batch by batch.
pub(super) struct Committer {
    core: Arc<Core>,
    handed: mpsc::UnboundedReceiver<Handed>,
    waiting: VecDeque<Handed>,
    /// Whether all that waits is locked by somebody.
    locked_only: bool,
    outage: Outage,
}

impl Committer {
    pub(super) fn new(core: Arc<Core>, handed: mpsc::UnboundedReceiver<Handed>) -> Self {
        let outage = Outage::of("committing outcomes", &core.events);
        Self { core, handed, waiting: VecDeque::new(), locked_only: false, outage }
    }

    /// Waits for outcomes and commits a batch of them; false when the engine is gone.
    pub(super) async fn commit_next(&mut self) -> bool {
        if self.waiting.is_empty() {
            match self.handed.recv().await {
                Some(first) => self.waiting.push_back(first),
                None => return false,
            }
        } else if self.locked_only {
            tokio::select! {
                first = self.handed.recv() => self.waiting.extend(first),
                () = tokio::time::sleep(LOCKED_REST) => {}
            }
        }
        while let Ok(more) = self.handed.try_recv() {
            self.waiting.push_back(more);
        }
        let batch = next_batch(&self.core, &mut self.waiting);
        let (committed, batch): (Vec<_>, Vec<_>) =
            batch.into_iter().partition(|handed| handed.committed.is_some());
        settle_committed(&self.core, committed);
        let locked = commit(&self.core, batch, &mut self.outage).await;
        // Rows that somebody holds do not hold up the others: they go to the end.
        self.locked_only = !locked.is_empty() && self.waiting.is_empty();
        self.waiting.extend(locked);
        true
    }
}

/// Goes on from outcomes that steps committed in their own transactions.
fn settle_committed(core: &Arc<Core>, committed: Vec<Handed>) {
    if committed.is_empty() {
        return;
    }
    let mut settled = Settled::default();
    for handed in committed {
        let Some(Settlement { status, watched, joined }) = handed.committed.clone() else { continue };
        core.parents_told(&joined);
        settled.committed(core, handed, status, watched);
    }
    settled.tell(core);
    // What they inserted and sent besides may be for queues of this node.
    core.look_everywhere();
}

/// Takes the next batch, of one lease, sorted by id: the order in which every batch locks its rows.
fn next_batch(core: &Core, waiting: &mut VecDeque<Handed>) -> Vec<Handed> {
    let mut batch: Vec<Handed> = Vec::with_capacity(waiting.len().min(MAX_BATCH));
    let mut bytes = 0;
    while let Some(next) = waiting.front() {
        let first = batch.first();
        bytes += next.transition.size();
        let full = batch.len() >= MAX_BATCH || bytes > MAX_BYTES;
        if first.is_some_and(|first| full || !Arc::ptr_eq(&first.lease, &next.lease)) {
            break;
        }
        let Some(next) = waiting.pop_front() else { break };
        if next.lease.is_lost() {
            core.flusher.settled(1);
            tell_stale(core, &next);
        } else {
            batch.push(next);
        }
    }
    batch.sort_unstable_by_key(|handed| handed.row.id);
    batch
}

/// Commits a batch, splitting it when the database refuses it; returns what somebody else holds locked.
async fn commit(core: &Arc<Core>, batch: Vec<Handed>, outage: &mut Outage) -> Vec<Handed> {
    let mut locked = Vec::new();
    let mut parts = vec![batch];
    while let Some(mut part) = parts.pop() {
        let Some(first) = part.first() else { continue };
        let worker = first.lease.id();
        let commits: Vec<Commit> = part.iter_mut().map(Handed::commit).collect();
        let result = core.store.flush(worker, &commits, core.options.done_policy()).await;
        for (handed, commit) in part.iter_mut().zip(commits) {
            handed.transition = commit.transition;
        }
        match result {
            Ok(flushed) => {
                outage.worked();
                let mut settled = Settled::default();
                core.parents_told(&flushed.joined);
                for (handed, fate) in part.into_iter().zip(flushed.fates) {
                    match fate {
                        Flushed::Committed { status, watched } => {
                            settled.committed(core, handed, status, watched);
                        }
                        Flushed::Locked => locked.push(handed),
                        Flushed::Stale => settled.stale(core, &handed),
                    }
                }
                settled.tell(core);
            }
            // Some row is at fault: the others must not wait for it.
            Err(StoreError::Rejected(_) | StoreError::Failed(_)) if part.len() > 1 => {
                let second = part.split_off(part.len() / 2);
                parts.push(second);
                parts.push(part);
            }
            Err(StoreError::Rejected(error)) => {
                for handed in part {
                    refuse(core, handed, &error.to_string());
                }
            }
            Err(error @ StoreError::Failed(_)) => {
                outage.failed(&error);
                for handed in part {
                    set_aside(core, handed);
                }
            }
            Err(error) => {
                tokio::time::sleep(outage.failed(&error)).await;
                let (lost, kept): (Vec<_>, Vec<_>) =
                    part.into_iter().partition(|handed| handed.lease.is_lost());
                core.flusher.settled(lost.len());
                lost.iter().for_each(|handed| tell_stale(core, handed));
                parts.push(kept);
            }
        }
    }
    locked
}

fn take(transition: &mut Transition) -> Transition {
    std::mem::replace(transition, Transition::Cancel)
}

/// Lets an outcome rest, longer each time, before it is sent again. It counts as waiting all the while.
fn set_aside(core: &Arc<Core>, mut handed: Handed) {
    let rest = FIRST_REST.saturating_mul(1 << handed.faults.min(10)).min(LONGEST_REST);
    handed.faults = handed.faults.saturating_add(1);
    let core = Arc::clone(core);
    tokio::spawn(async move {
        tokio::time::sleep(rest).await;
        // If the engine is gone, the row returns when its lease ends.
        let _ = core.flusher.sender.send(handed);
    });
}

/// Sends an outcome that the database refused to the state's error method; its neighbours are not concerned.
fn refuse(core: &Arc<Core>, handed: Handed, error: &str) {
    core.events.emit(Event::OutcomeRejected {
        id: handed.row.id,
        machine: handed.machine,
        state: handed.state,
        error: error.to_owned(),
    });
    if handed.rejected && matches!(handed.transition, Transition::Stop { .. }) {
        // Not even its failure can be recorded, for now.
        set_aside(core, handed);
        return;
    }
    core.flusher.settled(1);
    let core = Arc::clone(core);
    let error = error.to_owned();
    tokio::spawn(async move {
        let Some((transition, committed)) = executor::reject(&core, &handed, &error).await else { return };
        let handed = Handed { transition, committed, rejected: true, runs_ahead: false, ..handed };
        core.flusher.hand_over(handed);
    });
}

pub(super) fn tell_stale(core: &Core, handed: &Handed) {
    core.events.emit(Event::OutcomeStale {
        id: handed.row.id,
        machine: handed.machine,
        state: handed.state,
        kind: handed.transition.kind(),
    });
}

impl Options {
    pub(super) fn done_policy(&self) -> DonePolicy {
        match self.gc {
            Some(gc) if gc.retention.is_zero() => DonePolicy::Delete,
            _ => DonePolicy::Keep,
        }
    }
}
