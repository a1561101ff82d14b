//! The proof that this worker is alive, on a thread, a runtime and a connection of its own: steps that
//! block every thread of the application's runtime do not stop it.

use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use super::core::Core;
use super::lease::{Lease, lock};
use crate::store::{Beaten, Held, StoreResult};
use crate::telemetry::{Event, Outage};

/// The running heartbeat; ends when dropped.
pub(super) struct Heartbeat {
    /// Dropping it stops the thread.
    _stop: mpsc::Sender<()>,
}

impl Heartbeat {
    /// Starts the thread. Must be called within the application's runtime.
    pub(super) fn start(core: Arc<Core>) -> std::io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let application = tokio::runtime::Handle::current();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new()
            .name("gen-durable-heartbeat".into())
            .spawn(move || beat_until(&stopped, &runtime, &core, &application))?;
        Ok(Self { _stop: stop })
    }
}

fn beat_until(
    stopped: &mpsc::Receiver<()>,
    runtime: &tokio::runtime::Runtime,
    core: &Arc<Core>,
    application: &tokio::runtime::Handle,
) {
    let mut outage = Outage::of("beating", &core.events);
    let mut pulse = Pulse::default();
    let mut rest = core.options.heartbeat;
    while let Err(mpsc::RecvTimeoutError::Timeout) = stopped.recv_timeout(rest) {
        let lease = core.lease();
        pulse.check(core, application, &lease);
        // A connection that does not answer is given up while there is time for another.
        let beat = runtime.block_on(async {
            tokio::time::timeout(core.options.lease_ttl / 3, beat(core, application, &lease)).await
        });
        rest = match beat {
            Ok(Ok(true)) => {
                outage.worked();
                core.options.heartbeat
            }
            // A worker that has retired: the engine is at its end.
            Ok(Ok(false)) if core.is_stopping() => {
                lease.fence();
                return;
            }
            Ok(Ok(false)) => {
                outage.worked();
                runtime.block_on(start_again(core, application, &lease));
                core.options.heartbeat
            }
            Ok(Err(error)) => outage.failed(&error).min(core.options.heartbeat),
            Err(_elapsed) => Duration::ZERO,
        };
    }
}

/// Beats once; false if the worker was declared dead. Then compares the rows that the database holds for
/// this worker with its memory.
async fn beat(
    core: &Arc<Core>,
    application: &tokio::runtime::Handle,
    lease: &Arc<Lease>,
) -> StoreResult<bool> {
    let sent = Instant::now();
    // Without leases nobody can have declared this worker dead, and nobody looks for its beat; but what it holds may be
    // to be cancelled.
    if core.store.has_leases() || lease.count() > 0 {
        let Beaten { alive, cancel } = core.store.beat(lease.id()).await?;
        if !alive && core.store.has_leases() {
            return Ok(false);
        }
        for id in cancel {
            lease.cancel(id);
        }
    }
    let was_fresh = lease.is_fresh(core.options.lease_ttl);
    lease.acknowledge(sent);
    if !was_fresh {
        core.look_everywhere();
    }
    if !lease.is_worth_comparing() {
        return Ok(true);
    }
    lease.clear_doubt();
    let before = lease.rows();
    let found = core.store.held(lease.id()).await.inspect_err(|_| lease.doubt())?;
    let unknown = lease.reconcile(&before, &found);
    if !unknown.is_empty() {
        // The next beat sees whether they could be handed back.
        lease.doubt();
        application.spawn(hand_back_unknown(Arc::clone(core), Arc::clone(lease), unknown));
    }
    Ok(true)
}

/// Hands back rows of claims whose answer was lost. If this fails, the next beat finds them again.
async fn hand_back_unknown(core: Arc<Core>, lease: Arc<Lease>, rows: Vec<Held>) {
    match core.store.release(lease.id(), &rows).await {
        Ok(_) => core.look_everywhere(),
        Err(error) => {
            core.events.emit(Event::StoreUnavailable { operation: "handing rows back", error: error.chain() })
        }
    }
}

/// Ends a lease that was declared dead, and gets a new one through the application's runtime, where the
/// other connections live.
async fn start_again(core: &Arc<Core>, application: &tokio::runtime::Handle, lease: &Arc<Lease>) {
    lease.fence();
    core.events.emit(Event::WorkerFenced { worker: lease.id() });
    let core = Arc::clone(core);
    let registering = application.spawn(async move {
        let mut outage = Outage::of("registering a worker", &core.events);
        loop {
            match core.registry.enlist(&*core.store, &core.options).await {
                Ok(lease) => {
                    outage.worked();
                    core.replace_lease(lease);
                    core.look_everywhere();
                    return;
                }
                Err(error) => tokio::time::sleep(outage.failed(&error)).await,
            }
        }
    });
    // The application's runtime may be gone, and this engine with it.
    let _ = registering.await;
}

/// Whether the application's runtime still runs anything.
#[derive(Default)]
struct Pulse {
    /// When the runtime was asked, if it has not answered yet.
    asked: Arc<Mutex<Option<Instant>>>,
}

impl Pulse {
    fn check(&mut self, core: &Core, application: &tokio::runtime::Handle, lease: &Lease) {
        let unanswered = *lock(&self.asked);
        if let Some(asked) = unanswered {
            core.events.emit(Event::RuntimeStalled { duration: asked.elapsed(), worker: lease.id() });
            return;
        }
        *lock(&self.asked) = Some(Instant::now());
        let asked = Arc::clone(&self.asked);
        application.spawn(async move { *lock(&asked) = None });
    }
}
