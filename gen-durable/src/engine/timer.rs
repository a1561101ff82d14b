//! Makes due rows ready on time: sleeps until the next one is due, which it asks once.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::core::Core;
use super::lease::lock;
use super::scheduler::Poll;
use crate::telemetry::Outage;

/// The most rows that one statement makes ready.
const BATCH: u32 = 1_000;

/// When the next row is due, as far as this node knows.
#[derive(Default)]
pub(super) struct Timer {
    next: Mutex<Option<Instant>>,
    sooner: Notify,
}

impl Timer {
    /// There is a row that is due after this time.
    pub(super) fn arm(&self, after: Duration) {
        // A time that the clock cannot show is beyond any poll.
        let Some(at) = Instant::now().checked_add(after) else { return };
        let mut next = lock(&self.next);
        if next.is_none_or(|next| at < next) {
            *next = Some(at);
            self.sooner.notify_one();
        }
    }
}

/// Fires due rows until the engine stops.
pub(super) async fn run(core: Arc<Core>) {
    let mut outage = Outage::of("firing due rows", &core.events);
    let mut poll = Poll::new(core.options.poll_interval, core.options.max_poll_interval);
    while !core.is_stopping() {
        // What is told from here on is not seen by this look, and wakes the sleep after it.
        *lock(&core.timer.next) = None;
        let rest = match core.store.promote(BATCH).await {
            Ok(promoted) => {
                outage.worked();
                if promoted.count > 0 {
                    poll.reset();
                }
                for queue in &promoted.queues {
                    core.work_committed(queue);
                }
                if let Some(due) = promoted.next_due {
                    core.timer.arm(due);
                }
                None
            }
            Err(error) => Some(outage.failed(&error)),
        };
        if let Some(rest) = rest {
            tokio::time::sleep(rest).await;
            continue;
        }
        loop {
            let next = *lock(&core.timer.next);
            let due = async {
                match next {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = due => break,
                () = core.timer.sooner.notified() => {}
                () = poll.tick() => break,
                () = core.stopped() => return,
            }
        }
    }
}
