//! What is left to do between parents and children: ends that parents could not be told of, as somebody held their rows,
//! and children of instances that took them with them when they ended.
//!
//! Both are written in the database before they are done, so whoever looks next goes on where somebody stopped.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::core::Core;
use crate::store::{Joined, Poke, StoreResult};
use crate::telemetry::Outage;

/// The most rows that one statement looks at.
const BATCH: u32 = 1_000;
/// Shortest and longest rest before rows that somebody holds are looked at again.
const FIRST_REST: Duration = Duration::from_millis(2);
const LONGEST_REST: Duration = Duration::from_secs(1);

/// Says that there is something to do.
#[derive(Default)]
pub(super) struct Kin(Notify);

impl Kin {
    pub(super) fn wake(&self) {
        self.0.notify_one();
    }
}

/// Looks whenever there may be something to do, also when the engine starts: another may have stopped amid it.
pub(super) async fn run(core: Arc<Core>) {
    let mut outage = Outage::of("telling parents and children", &core.events);
    loop {
        let mut rest = FIRST_REST;
        loop {
            match catch_up(&core).await {
                Ok(false) => {
                    outage.worked();
                    break;
                }
                Ok(true) => {
                    outage.worked();
                    tokio::time::sleep(rest).await;
                    rest = (rest * 2).min(LONGEST_REST);
                }
                Err(error) => tokio::time::sleep(outage.failed(&error)).await,
            }
        }
        core.kin.0.notified().await;
    }
}

/// Does what can be done now; true if something is left that somebody holds.
pub(super) async fn catch_up(core: &Core) -> StoreResult<bool> {
    let joined = core.store.join(BATCH).await?;
    core.queues_ready(&joined.queues);
    let cascaded = core.store.cascade(BATCH).await?;
    for id in &cascaded.cancelled {
        core.told_cancelled(*id);
    }
    for id in &cascaded.asked {
        core.ask_to_end(*id);
    }
    Ok(joined.left || cascaded.left)
}

impl Core {
    /// Children have ended: goes on with the parents that became ready, and comes back for those that are left.
    pub(super) fn parents_told(&self, joined: &Joined) {
        self.queues_ready(&joined.queues);
        if joined.left {
            self.kin.wake();
        }
    }

    fn queues_ready(&self, queues: &[String]) {
        for queue in queues {
            self.work_committed(queue);
        }
    }

    /// An instance that executes is to be cancelled: on this node, or wherever it runs.
    pub(super) fn ask_to_end(&self, id: crate::id::InstanceId) {
        if !self.lease().cancel(id) {
            self.pokes.tell(Poke::Cancel(id));
        }
    }

    /// An instance was cancelled that did not execute.
    pub(super) fn told_cancelled(&self, id: crate::id::InstanceId) {
        self.results.push(id, super::results::End::Cancelled);
    }
}
