//! What follows from commits: who is told, and what runs next.

use std::sync::Arc;
use std::time::Duration;

use super::core::Core;
use super::flusher::{Handed, tell_stale};
use super::results::End;
use super::scheduler;
use crate::store::{Claimed, Poke, Start, Status};
use crate::telemetry::Event;
use crate::transition::Transition;

/// What a commit settled, and whom it concerns.
#[derive(Default)]
pub(super) struct Settled {
    count: usize,
    /// Queues on which rows became ready.
    ready: Vec<Arc<str>>,
    /// The shortest delay of a row.
    due: Option<Duration>,
}

impl Settled {
    pub(super) fn committed(&mut self, core: &Arc<Core>, mut handed: Handed, status: Status, watched: bool) {
        self.count += 1;
        if core.events.wanted(tracing::Level::DEBUG) {
            core.events.emit(Event::StepFinished {
                id: handed.row.id,
                machine: handed.machine,
                version: handed.version,
                state: handed.state,
                outcome: if status == Status::Cancelled { "cancel" } else { handed.transition.kind() },
                attempt: handed.row.attempt,
                duration: handed.duration,
            });
        }
        if status == Status::Executing
            && let Some(ahead) = handed.take_ahead()
        {
            scheduler::run_ahead(core, ahead);
            return;
        }
        let is_cancelled = status == Status::Cancelled || handed.lease.is_cancelled(handed.row.held());
        if is_cancelled && status.is_terminal() {
            // Who cancelled it may have wanted its children to follow.
            core.kin.wake();
        }
        handed.lease.forget(handed.row.held());
        match (status, handed.transition) {
            (Status::Cancelled, _) => self.ended(core, &handed.row, watched, End::Cancelled),
            (_, Transition::Done { output }) => self.ended(core, &handed.row, watched, End::Done(output)),
            (_, Transition::Stop { reason, cascade }) => {
                self.ended(core, &handed.row, watched, End::Failed(reason));
                if cascade {
                    core.kin.wake();
                }
            }
            (Status::Joining, Transition::FanOut { children, .. }) => {
                for child in children {
                    self.waits(&child.instance.queue, child.instance.start);
                }
            }
            (Status::Waiting, Transition::Wait { timeout: Some(rest), .. })
            | (
                Status::Scheduled,
                Transition::Next { delay: rest, .. } | Transition::Retry { after: rest, .. },
            ) => {
                self.due_after(rest);
            }
            (Status::Waiting | Status::Joining, _) => {}
            _ => self.is_ready(&handed.row.queue),
        }
    }

    /// An instance waits on a queue for its time, or for a slot.
    fn waits(&mut self, queue: &Arc<str>, start: Start) {
        match start {
            start if start.is_now() => self.is_ready(queue),
            Start::After(rest) => self.due_after(rest),
            Start::At(_) => self.due_after(Duration::ZERO),
        }
    }

    fn is_ready(&mut self, queue: &Arc<str>) {
        if !self.ready.contains(queue) {
            self.ready.push(Arc::clone(queue));
        }
    }

    fn due_after(&mut self, rest: Duration) {
        self.due = Some(self.due.map_or(rest, |due| due.min(rest)));
    }

    #[expect(clippy::unused_self, reason = "reads as one of the things a commit settles")]
    fn ended(&self, core: &Core, row: &Claimed, watched: bool, end: End) {
        core.results.push(row.id, end);
        if watched {
            core.pokes.tell(Poke::Ended(row.id));
        }
    }

    pub(super) fn stale(&mut self, core: &Core, handed: &Handed) {
        self.count += 1;
        handed.lease.forget(handed.row.held());
        tell_stale(core, handed);
    }

    pub(super) fn tell(self, core: &Core) {
        core.flusher.settled(self.count);
        for queue in &self.ready {
            core.work_committed(queue);
        }
        if let Some(due) = self.due {
            core.due_committed(due);
        }
        // Claiming may have paused for the outcomes that were on their way.
        core.queues.iter().for_each(|queue| queue.wake());
    }
}
