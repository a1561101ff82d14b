//! What the engine tells about itself: typed events, to subscribers and to `tracing`.
//!
//! Nothing here may slow or stop the engine. Subscribers read from a bounded buffer in tasks of their
//! own; `tracing` events are written by a thread of their own, so that a subscriber of `tracing` that
//! blocks or panics harms only later events, and even those are seen again once it recovers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::broadcast;
use tracing::level_filters::LevelFilter;

use crate::id::{InstanceId, WorkerId};

/// Something that an engine did or met.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event {
    /// A step ended and its outcome is committed.
    StepFinished {
        /// The instance.
        id: InstanceId,
        /// Name of its machine.
        machine: &'static str,
        /// Version of its machine.
        version: u32,
        /// Name of the step.
        state: &'static str,
        /// Kind of its outcome: `next`, `retry`, `done`, `stop`.
        outcome: &'static str,
        /// How many times the step was started before.
        attempt: u32,
        /// How long the step ran.
        duration: Duration,
    },
    /// A queue asked for rows.
    ClaimRan {
        /// How many rows it got.
        count: usize,
        /// How many rows it asked for.
        demand: u32,
        /// The queue.
        queue: Arc<str>,
        /// The worker.
        worker: WorkerId,
    },
    /// How full a queue is, told after each claim.
    QueueSaturation {
        /// Steps that run.
        running: u32,
        /// Claimed rows that wait for a slot.
        buffered: u32,
        /// Steps that may run at once.
        concurrency: u32,
        /// Rows that may wait for a slot.
        prefetch: u32,
        /// The queue.
        queue: Arc<str>,
    },
    /// A queue stopped for a shutdown.
    QueueDrained {
        /// Rows that were handed back unstarted or unfinished.
        released: u64,
        /// Steps that still ran at the end of the drain timeout.
        running: u32,
        /// The queue.
        queue: Arc<str>,
    },
    /// Rows of an earlier process of this node came back to their queue when this one started.
    ClaimsReclaimedAtStart {
        /// How many.
        count: u64,
        /// The queue.
        queue: String,
    },
    /// An outcome came too late: the worker owned the row no longer. Nothing was changed.
    OutcomeStale {
        /// The instance.
        id: InstanceId,
        /// Name of its machine.
        machine: &'static str,
        /// Name of the step.
        state: &'static str,
        /// Kind of the outcome.
        kind: &'static str,
    },
    /// The database refused an outcome, which goes to the state's error method instead.
    OutcomeRejected {
        /// The instance.
        id: InstanceId,
        /// Name of its machine.
        machine: &'static str,
        /// Name of the step.
        state: &'static str,
        /// What the database said.
        error: String,
    },
    /// A row did not decode with this binary and was set aside as failed.
    StateUndecodable {
        /// The instance.
        id: InstanceId,
        /// Name of its machine.
        machine: &'static str,
        /// Name of the step in the row.
        state: String,
        /// What did not decode.
        problem: String,
    },
    /// A worker stopped beating, and its rows returned to their queues.
    WorkerReaped {
        /// How many rows.
        instances: u64,
        /// The worker.
        worker: WorkerId,
    },
    /// This engine was declared dead by another and starts again under a new worker.
    WorkerFenced {
        /// The worker that was declared dead.
        worker: WorkerId,
    },
    /// Old rows were deleted.
    GcSwept {
        /// Instances past retention.
        instances: u64,
        /// Dead workers.
        workers: u64,
    },
    /// An operation of the store failed; it is tried again until it works.
    StoreUnavailable {
        /// The operation.
        operation: &'static str,
        /// Why it failed.
        error: String,
    },
    /// An operation of the store works again.
    StoreBack {
        /// The operation.
        operation: &'static str,
        /// For how long it failed.
        downtime: Duration,
    },
    /// The database refused a detached insert, which is lost.
    DetachedInsertLost {
        /// The instance.
        id: InstanceId,
        /// What the database said.
        error: String,
    },
    /// The async runtime did not run anything for this long: a step blocks its threads.
    RuntimeStalled {
        /// How long.
        duration: Duration,
        /// The worker.
        worker: WorkerId,
    },
}

/// How many events a slow subscriber may lag behind before it misses some.
const SUBSCRIBER_BUFFER: usize = 4096;
/// How many events may wait for the tracing thread.
const TRACING_BUFFER: usize = 4096;

/// A subscription to an engine's events.
///
/// A subscriber that does not keep up misses the oldest events and is told how many; the engine
/// never waits for it.
#[derive(Debug)]
pub struct EventStream(broadcast::Receiver<Event>);

/// What a subscription yields.
#[derive(Debug, Clone)]
pub enum Notice {
    /// An event.
    Event(Event),
    /// The subscriber was too slow: this many events are lost to it.
    Missed(u64),
}

impl EventStream {
    /// The next event, or `None` once the engine is gone. Cancel-safe.
    pub async fn next(&mut self) -> Option<Notice> {
        match self.0.recv().await {
            Ok(event) => Some(Notice::Event(event)),
            Err(broadcast::error::RecvError::Lagged(count)) => Some(Notice::Missed(count)),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

/// Where the engine's loops put their events.
#[derive(Clone)]
pub(crate) struct Events {
    sender: broadcast::Sender<Event>,
}

impl Events {
    pub(crate) fn new() -> Self {
        Self { sender: broadcast::channel(SUBSCRIBER_BUFFER).0 }
    }

    pub(crate) fn subscribe(&self) -> EventStream {
        EventStream(self.sender.subscribe())
    }

    /// Whether anybody would see an event of this level: lets hot paths skip making it.
    pub(crate) fn wanted(&self, level: tracing::Level) -> bool {
        self.sender.receiver_count() > 0 || level <= LevelFilter::current()
    }

    pub(crate) fn emit(&self, event: Event) {
        if event.level() <= LevelFilter::current() {
            Tracer::shared().send(event.clone());
        }
        // Nobody listening is ordinary.
        let _ = self.sender.send(event);
    }
}

/// The thread that writes `tracing` events for all engines of the process.
struct Tracer {
    queue: SyncSender<Event>,
    lost: Arc<AtomicU64>,
}

impl Tracer {
    fn shared() -> &'static Self {
        static TRACER: OnceLock<Tracer> = OnceLock::new();
        TRACER.get_or_init(|| {
            let (queue, events) = sync_channel(TRACING_BUFFER);
            let lost = Arc::new(AtomicU64::new(0));
            let counter = Arc::clone(&lost);
            // Without the thread, events are counted as lost; the engine goes on.
            let _ = std::thread::Builder::new()
                .name("gen-durable-tracing".into())
                .spawn(move || write_events(&events, &counter));
            Self { queue, lost }
        })
    }

    fn send(&self, event: Event) {
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) = self.queue.try_send(event) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn write_events(events: &Receiver<Event>, lost: &AtomicU64) {
    let mut panics = 0_u64;
    for event in events {
        let lost = lost.swap(0, Ordering::Relaxed);
        let written = catch_unwind(AssertUnwindSafe(|| {
            if lost > 0 || panics > 0 {
                tracing::warn!(target: "gen_durable", lost, panics, "tracing events were lost: a subscriber is slow or panics");
            }
            event.trace();
        }));
        panics = if written.is_ok() { 0 } else { panics + 1 };
    }
}

impl Event {
    fn level(&self) -> tracing::Level {
        match self {
            Self::ClaimRan { .. } | Self::QueueSaturation { .. } => tracing::Level::TRACE,
            Self::StepFinished { .. } | Self::GcSwept { .. } => tracing::Level::DEBUG,
            Self::QueueDrained { .. } | Self::ClaimsReclaimedAtStart { .. } | Self::StoreBack { .. } => {
                tracing::Level::INFO
            }
            Self::OutcomeStale { .. }
            | Self::OutcomeRejected { .. }
            | Self::StateUndecodable { .. }
            | Self::WorkerReaped { .. }
            | Self::WorkerFenced { .. }
            | Self::StoreUnavailable { .. }
            | Self::DetachedInsertLost { .. }
            | Self::RuntimeStalled { .. } => tracing::Level::WARN,
        }
    }

    fn trace(&self) {
        match self {
            Self::StepFinished { id, machine, version, state, outcome, attempt, duration } => {
                tracing::debug!(target: "gen_durable", %id, machine, version, state, outcome, attempt, ?duration, "step finished");
            }
            Self::ClaimRan { count, demand, queue, worker } => {
                tracing::trace!(target: "gen_durable", count, demand, %queue, %worker, "claim ran");
            }
            Self::QueueSaturation { running, buffered, concurrency, prefetch, queue } => {
                tracing::trace!(target: "gen_durable", running, buffered, concurrency, prefetch, %queue, "queue saturation");
            }
            Self::QueueDrained { released, running, queue } => {
                tracing::info!(target: "gen_durable", released, running, %queue, "queue drained");
            }
            Self::ClaimsReclaimedAtStart { count, queue } => {
                tracing::info!(target: "gen_durable", count, %queue, "claims reclaimed at start");
            }
            Self::OutcomeStale { id, machine, state, kind } => {
                tracing::warn!(target: "gen_durable", %id, machine, state, kind, "outcome stale");
            }
            Self::OutcomeRejected { id, machine, state, error } => {
                tracing::warn!(target: "gen_durable", %id, machine, state, %error, "outcome rejected by the database");
            }
            Self::StateUndecodable { id, machine, state, problem } => {
                tracing::warn!(target: "gen_durable", %id, machine, %state, %problem, "state undecodable, set aside as failed");
            }
            Self::WorkerReaped { instances, worker } => {
                tracing::warn!(target: "gen_durable", instances, %worker, "worker reaped");
            }
            Self::WorkerFenced { worker } => {
                tracing::warn!(target: "gen_durable", %worker, "worker fenced, starting again under a new one");
            }
            Self::GcSwept { instances, workers } => {
                tracing::debug!(target: "gen_durable", instances, workers, "gc swept");
            }
            Self::StoreUnavailable { operation, error } => {
                tracing::warn!(target: "gen_durable", operation, %error, "store unavailable");
            }
            Self::StoreBack { operation, downtime } => {
                tracing::info!(target: "gen_durable", operation, ?downtime, "store back");
            }
            Self::DetachedInsertLost { id, error } => {
                tracing::warn!(target: "gen_durable", %id, %error, "detached insert lost");
            }
            Self::RuntimeStalled { duration, worker } => {
                tracing::warn!(target: "gen_durable", ?duration, %worker, "runtime stalled");
            }
        }
    }
}

/// Watches one operation of the store: tells when it begins to fail and when it works again, and says
/// how long to wait before the next try.
pub(crate) struct Outage {
    events: Events,
    operation: &'static str,
    since: Option<std::time::Instant>,
    tries: u32,
}

impl Outage {
    /// Shortest and longest rest between two tries.
    const FIRST: Duration = Duration::from_millis(50);
    const LONGEST: Duration = Duration::from_secs(2);

    pub(crate) fn of(operation: &'static str, events: &Events) -> Self {
        Self { events: events.clone(), operation, since: None, tries: 0 }
    }

    pub(crate) fn worked(&mut self) {
        self.tries = 0;
        if let Some(since) = self.since.take() {
            self.events.emit(Event::StoreBack { operation: self.operation, downtime: since.elapsed() });
        }
    }

    /// Notes a failure; returns how long to rest.
    pub(crate) fn failed(&mut self, error: &crate::store::StoreError) -> Duration {
        if self.since.is_none() {
            self.since = Some(std::time::Instant::now());
            self.events.emit(Event::StoreUnavailable { operation: self.operation, error: error.chain() });
        }
        self.tries = self.tries.saturating_add(1);
        Self::FIRST.saturating_mul(1 << (self.tries - 1).min(10)).min(Self::LONGEST)
    }
}
