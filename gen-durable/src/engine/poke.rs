//! Pokes between nodes: hints that there is work, never the only way to find it.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::core::Core;
use crate::store::Poke;
use crate::telemetry::Outage;

/// How long to gather pokes after some were sent: under load many outcomes share one notification.
const GATHER: Duration = Duration::from_millis(20);
/// The most pokes in one statement.
const MAX_POKES: usize = 1_000;

/// Where pokes for other nodes are put.
pub(super) struct Pokes {
    sender: Option<mpsc::UnboundedSender<Poke>>,
}

impl Pokes {
    /// With `enabled` false, nothing is told to other nodes.
    pub(super) fn new(enabled: bool) -> (Self, mpsc::UnboundedReceiver<Poke>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self { sender: enabled.then_some(sender) }, receiver)
    }

    pub(super) fn are_enabled(&self) -> bool {
        self.sender.is_some()
    }

    /// Tells other nodes, soon and best effort.
    pub(super) fn tell(&self, poke: Poke) {
        if let Some(sender) = &self.sender {
            // Without a notifier the engine is gone.
            let _ = sender.send(poke);
        }
    }
}

/// Sends pokes to other nodes: at once when idle, gathered under load, each only once a batch.
pub(super) async fn notify(core: Arc<Core>, mut told: mpsc::UnboundedReceiver<Poke>) {
    let mut outage = Outage::of("notifying other nodes", &core.events);
    let mut gathered = Vec::new();
    while told.recv_many(&mut gathered, MAX_POKES).await > 0 {
        let mut seen = HashSet::new();
        gathered.retain(|poke| seen.insert(poke.clone()));
        match core.store.notify(&gathered).await {
            Ok(()) => outage.worked(),
            // Polling finds what nobody was told of.
            Err(error) => tokio::time::sleep(outage.failed(&error)).await,
        }
        gathered.clear();
        tokio::time::sleep(GATHER).await;
    }
}

/// Listens to the pokes of other nodes, for as long as the engine lives.
pub(super) async fn listen(core: Arc<Core>) {
    let mut outage = Outage::of("listening to other nodes", &core.events);
    loop {
        let error = match core.store.listen().await {
            Ok(None) => return,
            Ok(Some(mut listener)) => {
                outage.worked();
                // What was told before, or while the connection was lost, is looked for.
                core.look_everywhere();
                loop {
                    match listener.next().await {
                        Ok(poke) => core.heard(poke),
                        Err(error) => break error,
                    }
                }
            }
            Err(error) => error,
        };
        tokio::time::sleep(outage.failed(&error)).await;
    }
}

impl Core {
    /// Rows of this queue are ready, committed from here.
    pub(super) fn work_committed(&self, queue: &str) {
        self.rows_committed(queue, 1);
    }

    /// This many rows of a queue are ready, committed from here. Other nodes hear of it only if this one
    /// has no slots left for them.
    pub(super) fn rows_committed(&self, queue: &str, rows: usize) {
        let local = self.queue(queue);
        let enough = local.is_some_and(|queue| queue.has_room_for(rows));
        if let Some(queue) = local {
            queue.poke();
        }
        if !enough {
            self.pokes.tell(Poke::Queue(queue.to_owned()));
        }
    }

    /// A row that is due after this time was committed from here.
    pub(super) fn due_committed(&self, after: Duration) {
        if self.fires_due_rows() {
            self.timer.arm(after);
        } else {
            self.pokes.tell(Poke::due(after));
        }
    }

    fn heard(&self, poke: Poke) {
        match poke {
            Poke::Queue(name) => {
                if let Some(queue) = self.queue(&name) {
                    queue.poke();
                }
            }
            Poke::Due(millis) => self.timer.arm(Duration::from_millis(millis)),
            Poke::Ended(id) => self.results.ended_elsewhere(id),
            Poke::Cancel(id) => {
                // Of one that has ended, the parent or the children may have to hear.
                if !self.lease().cancel(id) {
                    self.kin.wake();
                }
            }
        }
    }

    /// Looks for everything that a poke might have told.
    pub(super) fn look_everywhere(&self) {
        self.queues.iter().for_each(|queue| queue.poke());
        self.timer.arm(Duration::ZERO);
        self.results.look_all();
    }
}
