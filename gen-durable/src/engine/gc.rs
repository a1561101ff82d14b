//! Deletes instances past their retention, in bounded batches.

use std::sync::Arc;

use super::core::Core;
use super::options::Gc;
use crate::store::StoreResult;
use crate::telemetry::{Event, Outage};

/// Sweeps until the engine stops.
pub(super) async fn run(core: Arc<Core>, gc: Gc) {
    let mut outage = Outage::of("sweeping", &core.events);
    loop {
        tokio::time::sleep(gc.every).await;
        match sweep(&core, gc).await {
            Ok(()) => outage.worked(),
            Err(error) => drop(outage.failed(&error)),
        }
    }
}

/// Deletes all that is past retention now.
async fn sweep(core: &Core, gc: Gc) -> StoreResult<()> {
    loop {
        let swept = core.store.sweep(gc.retention, gc.batch).await?;
        if swept.instances > 0 || swept.workers > 0 {
            core.events.emit(Event::GcSwept { instances: swept.instances, workers: swept.workers });
        }
        if swept.instances < u64::from(gc.batch) {
            return Ok(());
        }
    }
}
