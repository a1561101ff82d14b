//! Runs steps one at a time in the caller's task: through the same claim, executor and commit as the loops.

use std::sync::Arc;
use std::time::Instant;

use super::core::Core;
use super::executor;
use super::flusher::Committer;
use super::queue::{Queue, Turn};
use super::scheduler;
#[cfg(feature = "postgres")]
use crate::id::MachineId;
use crate::store::{Promoted, StoreError, StoreResult};

/// The most rows that one statement makes ready.
const BATCH: u32 = 1_000;

/// Takes the place of all loops that run instances.
pub(crate) struct Inline {
    core: Arc<Core>,
    committer: Committer,
    /// Which queue has its turn.
    turn: usize,
}

impl std::fmt::Debug for Inline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inline").finish_non_exhaustive()
    }
}

impl Inline {
    pub(super) fn new(core: Arc<Core>, committer: Committer) -> Self {
        Self { core, committer, turn: 0 }
    }

    /// Shows that this worker is alive, where that matters.
    pub(crate) async fn beat(&self) -> StoreResult<()> {
        let lease = self.core.lease();
        let sent = Instant::now();
        if self.core.store.has_leases() && !self.core.store.beat(lease.id()).await?.alive {
            let gone = "this worker was declared dead by another engine; make a new one";
            return Err(StoreError::Unavailable(gone.into()));
        }
        lease.acknowledge(sent);
        Ok(())
    }

    /// Runs one step, the most urgent one of the next queue that has any, and commits its outcome; false if no
    /// instance is ready.
    pub(crate) async fn run_next(&mut self) -> StoreResult<bool> {
        for _ in 0..self.core.queues.len() {
            let queue = Arc::clone(&self.core.queues[self.turn]);
            self.turn = (self.turn + 1) % self.core.queues.len();
            if self.run_next_of(&queue).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Holds the queue's only slot all the while, so that a step that runs ahead waits in the buffer for its turn
    /// here instead of getting a task of its own.
    async fn run_next_of(&mut self, queue: &Arc<Queue>) -> StoreResult<bool> {
        let lease = self.core.lease();
        queue.take_slot();
        if !queue.has_buffered() {
            match scheduler::fetch(&self.core, queue, &lease, 1, true).await {
                Ok(fetched) => queue.claim_brought(fetched.tickets, 1),
                Err(error) => {
                    queue.give_up_slot();
                    return Err(error);
                }
            }
        }
        // Without a row, the turn gives the slot up.
        let Turn::Run(ticket) = queue.turn(|_| true) else { return Ok(false) };
        executor::run(&self.core, &ticket).await;
        while lease.owes_outcome() && self.committer.commit_next().await {}
        queue.give_up_slot();
        Ok(true)
    }

    /// Makes due rows ready, and says when the next one is due.
    pub(crate) async fn promote(&self) -> StoreResult<Promoted> {
        self.core.store.promote(BATCH).await
    }

    /// The queues that run here.
    pub(crate) fn queues(&self) -> Vec<String> {
        self.core.queues.iter().map(|queue| queue.name.to_string()).collect()
    }

    /// The machines that run here.
    #[cfg(feature = "postgres")]
    pub(crate) fn machines(&self) -> &[MachineId] {
        self.core.registry.ids()
    }

    /// Whether a machine runs here.
    pub(crate) fn runs(&self, name: &str, version: u32) -> bool {
        self.core.registry.runs(name, version)
    }
}
