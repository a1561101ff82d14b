//! What all loops of one engine share.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};

use super::flusher::Flusher;
use super::inserter::Inserter;
use super::keyed::Keyed;
use super::kin::Kin;
use super::lease::{Lease, Worker};
use super::options::Options;
use super::poke::Pokes;
use super::queue::Queue;
use super::registry::Registry;
use super::results::{Question, Results};
use super::scheduler::Solo;
use super::timer::Timer;
use crate::context::StepScope;
use crate::store::Store;
use crate::telemetry::Events;

/// What all loops of one engine share.
pub(super) struct Core {
    pub(super) store: Arc<dyn Store>,
    pub(super) options: Options,
    pub(super) registry: Registry,
    pub(super) scope: Arc<StepScope>,
    /// Every engine has one, also one that runs nothing: it shows that the node is there.
    pub(super) worker: Worker,
    pub(super) queues: Vec<Arc<Queue>>,
    pub(super) flusher: Flusher,
    pub(super) inserter: Inserter,
    pub(super) keyed: Keyed,
    pub(super) timer: Timer,
    pub(super) pokes: Pokes,
    pub(super) results: Results,
    pub(super) questions: mpsc::UnboundedSender<Question>,
    pub(super) events: Events,
    pub(super) solo: Solo,
    pub(super) kin: Kin,
    pub(super) stopping: watch::Sender<bool>,
}

impl Core {
    pub(super) fn lease(&self) -> Arc<Lease> {
        self.worker.lease()
    }

    pub(super) fn replace_lease(&self, lease: Arc<Lease>) {
        self.worker.replace(lease);
    }

    pub(super) fn queue(&self, name: &str) -> Option<&Arc<Queue>> {
        self.queues.iter().find(|queue| &*queue.name == name)
    }

    pub(super) fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Waits until the engine stops. Cancel-safe.
    pub(super) async fn stopped(&self) {
        // The sender lives as long as this.
        let _ = self.stopping.subscribe().wait_for(|stopping| *stopping).await;
    }

    /// Whether this node makes due rows ready: nodes that run queues, and maintenance nodes.
    pub(super) fn fires_due_rows(&self) -> bool {
        !self.queues.is_empty() || self.options.reaper.is_some()
    }
}
