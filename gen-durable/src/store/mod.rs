//! The seam between the engine and a database: small, batched, shaped by behaviour.
//!
//! Only this module's children know SQL, and a store never calls user code. All instants are the
//! database's clock; only durations cross this seam.

#[cfg(feature = "sqlite")]
mod clock;
mod family;
mod key;
#[cfg(feature = "postgres")]
pub mod postgres;
mod record;
mod signal;
mod snapshot;
#[cfg(feature = "sqlite")]
pub mod sqlite;
mod transaction;

use std::any::Any;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

#[cfg(feature = "sqlite")]
pub use clock::Clock;
pub use family::*;
pub use key::*;
pub use record::*;
pub use signal::*;
pub use snapshot::*;
#[cfg(all(feature = "postgres", feature = "sqlite"))]
pub(crate) use transaction::foreign;
pub use transaction::{StepConnection, UserTransaction};

use crate::error::BoxError;
pub use crate::id::MachineId;
use crate::id::{InstanceId, WorkerId};
pub use crate::transition::{Child, Transition};

/// Why a store could not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The database cannot be reached, is starting, stopping, read-only, full, or met a passing conflict.
    /// Unknown faults count as passing, too: trying again later loses nothing.
    #[error("the database is unavailable or busy; it will be asked again")]
    Unavailable(#[source] BoxError),
    /// The database failed at this very statement, for a reason that says nothing of others: a trigger's exception,
    /// a damaged page, a right that is missing. It may pass; until then other data may fare better.
    #[error("the database failed at a statement; it will be asked again")]
    Failed(#[source] BoxError),
    /// The database refused the data itself: asking again with the same data cannot help.
    #[error("the database refused the data")]
    Rejected(#[source] BoxError),
}

impl StoreError {
    /// Whether the data was refused, rather than the database being unavailable.
    #[must_use]
    pub fn is_rejection(&self) -> bool {
        matches!(self, Self::Rejected(_))
    }

    /// The error and its causes in one line, for events.
    pub(crate) fn chain(&self) -> String {
        let (Self::Unavailable(source) | Self::Failed(source) | Self::Rejected(source)) = self;
        source.to_string()
    }
}

/// Result of a store's operation.
pub type StoreResult<T> = Result<T, StoreError>;

/// The right to run queues, until this is dropped.
pub struct Tenure(#[expect(dead_code, reason = "held, not read")] Option<Box<dyn Any + Send + Sync>>);

impl Tenure {
    /// The right that ends when `lock` is dropped.
    #[cfg(feature = "sqlite")]
    pub(crate) fn new(lock: impl Any + Send + Sync) -> Self {
        Self(Some(Box::new(lock)))
    }

    /// A right that anybody may have.
    pub(crate) const fn unlimited() -> Self {
        Self(None)
    }
}

impl fmt::Debug for Tenure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenure").finish_non_exhaustive()
    }
}

/// Where instances live. Every method is one transaction, and may be called again after an error: what
/// was lost is only the answer.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Whether workers keep their claims by beating. Where that is not so, only one engine at a time can run queues
    /// (see [`run_queues`](Self::run_queues)), and all that executes under other workers when it starts is lost.
    fn has_leases(&self) -> bool {
        true
    }

    /// Takes the right to run queues for an engine that calls itself `holder`, or says who has it and what to do.
    async fn run_queues(&self, holder: &str) -> StoreResult<Result<Tenure, String>> {
        let _ = holder;
        Ok(Ok(Tenure::unlimited()))
    }

    /// Says what is wrong if the database's schema is not one that this binary can work with.
    async fn check(&self) -> StoreResult<Result<(), String>>;

    /// Ids of the machines (name, version), registering those that are new; in the order given.
    async fn register_machines(&self, machines: &[(&str, u32)]) -> StoreResult<Vec<MachineId>>;

    /// Registers a worker: a new holder of claims, alive.
    async fn register_worker(&self, engine: &str, node: &str) -> StoreResult<WorkerId>;

    /// Notes which machines a worker runs. Rows of theirs that were set aside come back with [`Self::sort_out`].
    async fn announce(&self, worker: WorkerId, machines: &[MachineId]) -> StoreResult<()>;

    /// Sets rows of machines aside that no live worker has run for `grace`, so that claims need not pass over them,
    /// and returns rows of machines that one runs again; `limit` of each at most.
    async fn sort_out(&self, grace: Duration, limit: u32) -> StoreResult<SortedOut>;

    /// Inserts instances; rows whose id is there already (an earlier try whose answer was lost) are left alone.
    async fn insert(&self, instances: &[NewInstance]) -> StoreResult<()>;

    /// Inserts instances with correlation keys, unless a key is taken; says of each, in order, what became of it.
    /// Waits for no transaction that inserts one of the keys at this moment.
    async fn insert_keyed(&self, instances: &[NewInstance]) -> StoreResult<Vec<Inserted>>;

    /// The instances of a machine's family with this correlation key, live ones before others, the latest first;
    /// a few at most.
    async fn find(&self, family: &str, key: &str) -> StoreResult<Vec<InstanceId>>;

    /// Sends signals; says of each, in order, what became of it. Waits for nobody who holds a target.
    async fn signal(&self, signals: &[NewSignal]) -> StoreResult<Vec<Delivered>>;

    /// Cancels an instance, unless it has ended; with `cascade`, its live children are cancelled by [`Self::cascade`].
    /// Its parent is told.
    async fn cancel(&self, id: InstanceId, cascade: bool) -> StoreResult<(Cancelling, Joined)>;

    /// Cancels live children of instances that ended and were to take their children with them; `limit` at most.
    async fn cascade(&self, limit: u32) -> StoreResult<Cascaded>;

    /// Makes a failed instance ready again, in the step that failed, with its attempts forgotten. Its parent, if it
    /// still waits for others, waits for this one again.
    async fn retry(&self, id: InstanceId) -> StoreResult<Retrying>;

    /// Tells parents of children that ended and were not told of yet; `limit` children at most.
    async fn join(&self, limit: u32) -> StoreResult<Joined>;

    /// The children of a fan-out that are of a machine, in the order of their ids after `after`; `limit` at most.
    async fn children(
        &self,
        parent: Parent,
        machine: &str,
        after: Option<InstanceId>,
        limit: u32,
    ) -> StoreResult<Vec<ChildRecord>>;

    /// Takes due rows of a queue, most urgent first, for a worker that is not dead.
    ///
    /// A row that crashed twice (`crashes >= SOLO_CRASHES`) is taken only when it is the most urgent one, and then
    /// alone, by a worker that holds nothing else. By others nothing is taken when such a row is the most urgent one.
    async fn claim(&self, request: &ClaimRequest<'_>) -> StoreResult<Claims>;

    /// Commits outcomes where the worker still owns the row; says of each, in order, what became of it. Children of a
    /// fan-out are inserted, signals consumed and parents told in the same transaction.
    /// Asking again after a lost answer is safe: a committed outcome is recognised. `commits` are sorted by id.
    async fn flush(&self, worker: WorkerId, commits: &[Commit], policy: DonePolicy) -> StoreResult<Flush>;

    /// Hands rows back to their queue, uncharged, where the worker still owns them; returns how many.
    async fn release(&self, worker: WorkerId, held: &[Held]) -> StoreResult<u64>;

    /// Records that the worker is alive, unless it was declared dead.
    async fn beat(&self, worker: WorkerId) -> StoreResult<Beaten>;

    /// The rows that the worker owns in the database.
    async fn held(&self, worker: WorkerId) -> StoreResult<Vec<Held>>;

    /// Ends a worker that stops: its remaining rows, if any, are taken back like those of a dead one.
    async fn retire(&self, worker: WorkerId) -> StoreResult<()>;

    /// All workers that are not dead.
    async fn workers(&self) -> StoreResult<Vec<WorkerBeat>>;

    /// Declares a worker dead if its beat is still the one seen; false when it has beaten meanwhile.
    async fn bury(&self, worker: WorkerId, seen: i64) -> StoreResult<bool>;

    /// Returns rows of dead or missing workers to their queues, charged with a crash, `limit` at most. Those that were
    /// to be cancelled are.
    async fn reclaim(&self, limit: u32) -> StoreResult<Vec<Reclaimed>>;

    /// Makes due rows ready, and those whose wait timed out, `limit` at most; says when the next one is due.
    async fn promote(&self, limit: u32) -> StoreResult<Promoted>;

    /// Reads instances, those that exist; with `watch`, marks those that have not ended so that their end is told.
    async fn probe(&self, ids: &[InstanceId], watch: bool) -> StoreResult<Vec<Snapshot>>;

    /// Deletes instances that ended more than `retention` ago, unless a parent may still read them, and dead workers without rows; `limit` rows at most.
    async fn sweep(&self, retention: Duration, limit: u32) -> StoreResult<Swept>;

    /// How many instances there are of each machine, version, step and status.
    async fn counts(&self) -> StoreResult<Vec<Count>>;

    /// Inserts instances in a user's transaction, unless a key is taken; says of each what became of it.
    async fn insert_in(
        &self,
        transaction: &mut UserTransaction<'_>,
        instances: &[NewInstance],
    ) -> StoreResult<Vec<Inserted>>;

    /// Sends signals in a user's transaction, which holds their targets until it ends.
    async fn signal_in(
        &self,
        transaction: &mut UserTransaction<'_>,
        signals: &[NewSignal],
    ) -> StoreResult<Vec<Delivered>>;

    /// Cancels an instance in a user's transaction.
    async fn cancel_in(
        &self,
        transaction: &mut UserTransaction<'_>,
        id: InstanceId,
        cascade: bool,
    ) -> StoreResult<(Cancelling, Joined)>;

    /// The id of a machine, registered if it is new, for a user's transaction that may keep others from writing.
    async fn machine_in(
        &self,
        transaction: &mut UserTransaction<'_>,
        name: &str,
        version: u32,
    ) -> StoreResult<MachineId>;

    /// Tells other nodes when a user's transaction is committed.
    async fn notify_in(&self, transaction: &mut UserTransaction<'_>, pokes: &[Poke]) -> StoreResult<()>;

    /// Begins a transaction for a step; `None` if there are none here.
    async fn begin_step(&self) -> StoreResult<Option<StepConnection>>;

    /// For how long a step may keep its transaction, where it holds up all others.
    fn step_patience(&self) -> Option<Duration> {
        None
    }

    /// Commits a step's writes with its outcome, where the worker still owns the row; otherwise nothing. When the answer
    /// to the commit is lost, asks what became of it.
    async fn finish_step(
        &self,
        connection: StepConnection,
        worker: WorkerId,
        commit: &Commit,
        policy: DonePolicy,
    ) -> StoreResult<Flush>;

    /// Tells other nodes. Best effort: nothing is lost when it fails.
    async fn notify(&self, pokes: &[Poke]) -> StoreResult<()>;

    /// Begins to listen to what other nodes tell; `None` if nothing can be heard here.
    async fn listen(&self) -> StoreResult<Option<Box<dyn Listener>>>;
}

/// A subscription to the pokes of other nodes.
#[async_trait]
pub trait Listener: Send {
    /// Waits for the next poke. An error means that the connection is lost, and pokes may have been missed.
    /// Cancel-safe.
    async fn next(&mut self) -> StoreResult<Poke>;
}
