//! The graceful end of an engine.

use std::sync::Arc;
use std::time::Duration;

use super::Loops;
use super::core::Core;
use super::kin;
use crate::store::{Poke, StoreResult};
use crate::telemetry::Event;

/// How long the last words to the database may take, whatever its state.
const LAST_WORDS: Duration = Duration::from_secs(5);

pub(super) async fn run(core: &Arc<Core>, mut loops: Loops) {
    // The schedulers claim no more and hand the rows back that wait for a slot.
    core.stopping.send_replace(true);
    let lease = core.lease();
    // Steps get their time to end, and outcomes to be committed.
    let drained = tokio::time::timeout(core.options.drain_timeout, lease.shrinks_to(0)).await.is_ok();
    let unfinished: Vec<u32> =
        core.queues.iter().map(|queue| if drained { 0 } else { queue.running() }).collect();
    let mut handed_back = false;
    let last_words = async {
        core.inserter.drained().await;
        if !drained {
            let abandoned = lease.abandon();
            // If this fails, the rows return when the lease ends.
            let released = core.store.release(lease.id(), &abandoned).await;
            lease.shrinks_to(0).await;
            released?;
            handed_back = true;
            // Those that were to be cancelled have ended by that: parents and children hear of it.
            kin::catch_up(core).await?;
        }
        // They may still be handing back what waited for a slot.
        futures_util::future::join_all(loops.schedulers.iter_mut()).await;
        core.store.retire(lease.id()).await?;
        if core.pokes.are_enabled() {
            let pokes: Vec<_> = core.queues.iter().map(|queue| Poke::Queue(queue.name.to_string())).collect();
            core.store.notify(&pokes).await?;
        }
        StoreResult::Ok(())
    };
    // Without an answer in time, the lease runs out by itself.
    let _ = tokio::time::timeout(LAST_WORDS, last_words).await;
    lease.fence();
    for (queue, running) in core.queues.iter().zip(unfinished) {
        core.events.emit(Event::QueueDrained {
            released: queue.released() + if handed_back { u64::from(running) } else { 0 },
            running,
            queue: Arc::clone(&queue.name),
        });
    }
    drop(loops);
    // Who still waits for a result hears that there is nobody left to ask.
    core.results.look_all();
}
