//! The engine: what keeps instances going.

mod builder;
mod control;
mod core;
mod executor;
mod flusher;
mod gc;
mod handle;
mod heartbeat;
mod in_transaction;
mod inline;
mod insert;
mod insert_all;
mod inserter;
mod keyed;
mod kin;
mod lease;
mod names;
mod options;
mod poke;
mod queue;
mod reaper;
mod registry;
mod results;
mod scheduler;
mod settled;
mod shutdown;
mod signal;
mod source;
mod span;
mod timer;

use std::future::Future;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex};

use tokio::task::JoinHandle;

use self::core::Core;
use self::heartbeat::Heartbeat;
use self::names::TakenName;
use crate::error::Error;
use crate::id::InstanceId;
use crate::machine::{Initial, Machine};
use crate::signal::SignalFor;
use crate::store::{Count, Snapshot, Target, Tenure};
use crate::telemetry::EventStream;

pub use self::builder::EngineBuilder;
pub use self::control::{Cancel, Cancelled};
pub use self::handle::{AwaitResult, Handle, InstanceResult};
pub use self::in_transaction::InTransaction;
pub(crate) use self::inline::Inline;
pub use self::insert::{Insert, InsertOrExisting, Inserted};
pub use self::insert_all::{InsertAll, InsertAllKeyed};
pub(crate) use self::options::name as check_name;
pub use self::options::{Gc, Poke};
pub use self::signal::{Delivery, SendSignal, SendSignals};
pub(crate) use self::source::Source;

/// A running engine. Cheap to clone; all clones are the same engine.
///
/// Dropping the last clone without [`shutdown`](Self::shutdown) stops it as a crash would: nothing is lost,
/// and other nodes take its claims back once its lease is over.
#[derive(Clone)]
pub struct Engine {
    core: Arc<Core>,
    running: Arc<Running>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("options", &self.core.options).finish_non_exhaustive()
    }
}

/// What stops when the last clone of the engine is dropped.
struct Running {
    core: Arc<Core>,
    loops: Mutex<Option<Loops>>,
    heartbeat: Mutex<Option<Heartbeat>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.core.stopping.send_replace(true);
        self.core.lease().fence();
    }
}

/// The loops of an engine; they end when this is dropped.
struct Loops {
    /// The loops that can end at any time.
    tasks: Vec<JoinHandle<()>>,
    /// The loops of the queues, which end by themselves once the engine stops.
    schedulers: Vec<JoinHandle<()>>,
    /// The flusher, which ends last.
    committer: Option<JoinHandle<()>>,
    /// Freed once nothing runs any more.
    _name: TakenName,
    _tenure: Tenure,
}

impl Loops {
    fn new(name: TakenName, tenure: Tenure) -> Self {
        Self { tasks: Vec::new(), schedulers: Vec::new(), committer: None, _name: name, _tenure: tenure }
    }

    fn spawn(&mut self, run: impl Future<Output = ()> + Send + 'static) {
        self.tasks.push(tokio::spawn(run));
    }

    fn spawn_scheduler(&mut self, run: impl Future<Output = ()> + Send + 'static) {
        self.schedulers.push(tokio::spawn(run));
    }

    fn spawn_committer(&mut self, run: impl Future<Output = ()> + Send + 'static) {
        self.committer = Some(tokio::spawn(run));
    }
}

impl Drop for Loops {
    fn drop(&mut self) {
        self.tasks.iter().chain(&self.schedulers).chain(&self.committer).for_each(JoinHandle::abort);
    }
}

impl Engine {
    /// An engine on PostgreSQL 13 or newer.
    ///
    /// The engine opens connections of its own with the pool's options, which it reads again at each
    /// reconnect; it never takes one out of the pool.
    #[cfg(feature = "postgres")]
    pub fn postgres(pool: sqlx::PgPool) -> EngineBuilder {
        EngineBuilder::new(Source::postgres(pool))
    }

    /// An engine on a SQLite file, which is made and migrated as needed: no server, no set-up.
    ///
    /// One engine at a time runs the queues of a file; it holds a lock on `<path>.lock`, and another one that
    /// would run queues is refused with [`Error::QueuesTaken`]. Any number of others, also in other processes, may
    /// insert and read when built [`without_queues`](EngineBuilder::without_queues); what they insert is found by
    /// polling, within [`poll_interval`](EngineBuilder::poll_interval) of an engine that has work, and within
    /// [`max_poll_interval`](EngineBuilder::max_poll_interval) of an idle one.
    ///
    /// The tables' names begin with `gen_durable_`; the file may hold others, too, and transactions of yours on it can
    /// insert, signal and cancel (`in_tx`). Begin them with `begin immediate`, or let such a call be the first in them: SQLite
    /// refuses to let a transaction write that has read what others have changed since, and the engine writes all the time.
    /// While one is open that has written, the engine writes nothing, and no step gets on.
    ///
    /// The file must be on a local disk: SQLite's locks do not work on network drives.
    #[cfg(feature = "sqlite")]
    pub fn sqlite(path: impl AsRef<std::path::Path>) -> EngineBuilder {
        EngineBuilder::new(Source::sqlite(path.as_ref()))
    }

    /// An engine on a database in memory, which is gone with the engine: for trying out, and for work that need not
    /// outlive its process.
    #[cfg(feature = "sqlite")]
    pub fn in_memory() -> EngineBuilder {
        EngineBuilder::new(Source::in_memory())
    }

    fn begin(core: Arc<Core>, loops: Loops) -> Result<Self, Error> {
        let heartbeat = Heartbeat::start(Arc::clone(&core)).map_err(|error| {
            Error::option("heartbeat", format!("its thread could not be started: {error}"))
        })?;
        let engine = Self::without_heartbeat(core, loops);
        *lease::lock(&engine.running.heartbeat) = Some(heartbeat);
        Ok(engine)
    }

    /// An engine whose worker does not show that it is alive.
    fn without_heartbeat(core: Arc<Core>, loops: Loops) -> Self {
        let running =
            Running { core: Arc::clone(&core), loops: Mutex::new(Some(loops)), heartbeat: Mutex::new(None) };
        Self { core, running: Arc::new(running) }
    }

    /// Inserts an instance that begins in `state`: `engine.insert(checkout::Start { .. }).await`.
    ///
    /// The machine need not be registered on this engine.
    pub fn insert<S: Initial>(&self, state: S) -> Insert<S> {
        Insert::new(Arc::clone(&self.core), state)
    }

    /// Inserts any number of instances, all or nothing, in statements by the megabyte.
    pub fn insert_all<S: Initial, I: IntoIterator<Item = S>>(&self, states: I) -> InsertAll<S, I> {
        InsertAll::new(Arc::clone(&self.core), states)
    }

    /// Sends a signal to an instance of machine `M`, by its id or its correlation key:
    /// `engine.signal::<Checkout>("order:42", Paid { cents: 995 }).await`.
    ///
    /// It is kept until a step that waited for it goes on. One that is sent before the instance waits is not lost.
    pub fn signal<M: Machine>(&self, target: impl Into<Target>, signal: impl SignalFor<M>) -> SendSignal {
        SendSignal::of::<M, _>(Arc::clone(&self.core), target.into(), &signal)
    }

    /// Sends many signals, in statements by the megabyte.
    pub fn signal_all<M: Machine, P: SignalFor<M>>(
        &self,
        signals: impl IntoIterator<Item = (impl Into<Target>, P)>,
    ) -> SendSignals<M> {
        SendSignals::of(Arc::clone(&self.core), signals)
    }

    /// Sends a signal by names and JSON text, for tools that do not have its type. A name that the machine does not
    /// take is refused if the machine runs here.
    pub fn signal_untyped(
        &self,
        machine: &str,
        target: impl Into<Target>,
        signal: &str,
        payload: &str,
    ) -> SendSignal {
        SendSignal::untyped(Arc::clone(&self.core), machine, target.into(), signal, payload)
    }

    /// Cancels an instance that has not ended. A step that runs is told to stop; if its outcome ends the instance
    /// before, that counts.
    pub fn cancel(&self, id: InstanceId) -> Cancel {
        Cancel::new(Arc::clone(&self.core), id)
    }

    /// Runs a failed instance again, from the step that failed, with its attempts forgotten.
    ///
    /// A parent that still waits for other children waits for it again; one that has gone on is not touched.
    ///
    /// # Errors
    ///
    /// [`Error::NotFailed`] unless it has failed, [`Error::Duplicate`] when another instance has taken its correlation
    /// key, [`Error::NotFound`] when there is no such instance, [`Error::Store`] when the database cannot be reached,
    /// [`Error::Stopped`] after a shutdown. Waits while somebody's transaction holds the instance.
    pub async fn retry(&self, id: InstanceId) -> Result<(), Error> {
        control::retry(&self.core, id).await
    }

    /// The instance of machine `M` with a correlation key: the live one, or the latest of those that have ended.
    ///
    /// # Errors
    ///
    /// [`Error::Store`] when the database cannot be read.
    pub async fn find<M: Machine>(&self, correlation_key: &str) -> Result<Option<Handle<M>>, Error> {
        control::find(&self.core, correlation_key).await
    }

    /// The instance of machine `M` with this id, whether or not it exists.
    #[must_use]
    pub fn handle<M: Machine>(&self, id: InstanceId) -> Handle<M> {
        Handle { core: Arc::clone(&self.core), id, machine: PhantomData }
    }

    /// Waits for the result of an instance of machine `M`.
    pub fn result<M: Machine>(&self, id: InstanceId) -> AwaitResult<M> {
        self.handle(id).result()
    }

    /// Reads an instance as it stands; `None` if there is no such instance, or not any longer.
    ///
    /// # Errors
    ///
    /// [`Error::Read`] when the database cannot be read.
    pub async fn get(&self, id: InstanceId) -> Result<Option<Snapshot>, Error> {
        let snapshots = self.core.store.probe(&[id], false).await;
        Ok(snapshots.map_err(Error::store("reading an instance"))?.into_iter().next())
    }

    /// How many instances there are of each machine, version, step and status.
    ///
    /// # Errors
    ///
    /// [`Error::Store`] when the database cannot be read.
    pub async fn counts(&self) -> Result<Vec<Count>, Error> {
        self.core.store.counts().await.map_err(Error::store("counting instances"))
    }

    /// Subscribes to what the engine does and meets from now on.
    #[must_use]
    pub fn events(&self) -> EventStream {
        self.core.events.subscribe()
    }

    /// Stops the engine: stops claiming, waits up to `drain_timeout` for running steps, commits every decided
    /// outcome, and hands everything else back uncharged, so that other nodes take it at once.
    ///
    /// Ends in time even if the database cannot be reached; then outcomes that could not be committed are
    /// dropped and their steps run again. Calling it again, or on another clone, does nothing.
    ///
    /// Dropped before it is ready, it goes no further: the rest happens as after a crash.
    pub async fn shutdown(&self) {
        let loops = lease::lock(&self.running.loops).take();
        if let Some(loops) = loops {
            shutdown::run(&self.core, loops).await;
            drop(lease::lock(&self.running.heartbeat).take());
        }
    }
}

impl Snapshot {
    /// The state as a value of the machine's enum.
    ///
    /// # Errors
    ///
    /// [`Error::Undecodable`] when the snapshot is of another machine, or does not decode with this binary.
    pub fn decode<M: Machine>(&self) -> Result<M, Error> {
        if (self.machine.as_str(), self.version) != (M::NAME, M::VERSION) {
            return Err(Error::Undecodable {
                id: self.id,
                problem: format!(
                    "it is of machine `{}` version {}, not `{}` version {}",
                    self.machine,
                    self.version,
                    M::NAME,
                    M::VERSION
                ),
            });
        }
        M::decode(&self.step, &self.state).map_err(|problem| Error::Undecodable { id: self.id, problem })
    }
}
