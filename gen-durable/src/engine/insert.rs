//! Inserting instances, one or many.

use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};

use super::core::Core;
use super::handle::Handle;
use super::inserter::MAX_DETACHED;
use super::options;
use crate::error::Error;
use crate::id::{InstanceId, MachineId};
use crate::machine::{Initial, Machine};
use crate::outcome::encode;
use crate::store::{NewInstance, Start};

/// An instance to be inserted; `.await` it. Made by [`Engine::insert`](crate::Engine::insert).
#[must_use = "nothing is inserted until this is awaited"]
pub struct Insert<S: Initial> {
    core: Arc<Core>,
    state: S,
    options: InsertOptions,
}

#[derive(Debug, Clone)]
struct InsertOptions {
    queue: Option<String>,
    priority: i16,
    start: Start,
    trace_context: Option<String>,
}

impl Default for InsertOptions {
    fn default() -> Self {
        Self { queue: None, priority: 0, start: Start::After(Duration::ZERO), trace_context: None }
    }
}

impl<S: Initial> std::fmt::Debug for Insert<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Insert").field("options", &self.options).finish_non_exhaustive()
    }
}

impl<S: Initial> Insert<S> {
    pub(super) fn new(core: Arc<Core>, state: S) -> Self {
        Self { core, state, options: InsertOptions::default() }
    }

    /// Runs the instance on this queue instead of its machine's.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.options.queue = Some(queue.into());
        self
    }

    /// Lower runs first, before any comparison of times; 0 by default.
    pub fn priority(mut self, priority: i16) -> Self {
        self.options.priority = priority;
        self
    }

    /// Starts no earlier than this long after the insert, by the database's clock; at most 100 years.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.options.start = Start::After(delay);
        self
    }

    /// Starts no earlier than at this instant, by the database's clock; an instant that has passed is now.
    pub fn run_at(mut self, at: DateTime<Utc>) -> Self {
        self.options.start = Start::At(at);
        self
    }

    /// Continues a trace: the W3C `traceparent` is stored, and shown by the span of each step and
    /// [`Context::trace_context`](crate::Context::trace_context).
    pub fn trace_context(mut self, traceparent: impl Into<String>) -> Self {
        self.options.trace_context = Some(traceparent.into());
        self
    }

    /// Lets the engine write the instance soon, together with others, and returns its id at once.
    ///
    /// At most 10,000 such instances wait to be written, and a shutdown writes them. A crash of the process
    /// before that loses them: for work that may be lost and must not wait.
    ///
    /// # Errors
    ///
    /// [`Error::Unstorable`] and [`Error::Option`] as for any insert; [`Error::Unregistered`] unless the machine
    /// is registered on this engine or was inserted through it before; [`Error::TooManyDetached`] when the
    /// database does not keep up; [`Error::Stopped`] after a shutdown.
    pub fn detached(self) -> Result<InstanceId, Error> {
        let core = &self.core;
        if core.is_stopping() {
            return Err(Error::Stopped);
        }
        let (name, version) = (<S::Machine as Machine>::NAME, <S::Machine as Machine>::VERSION);
        let machine = core
            .registry
            .known_id(name, version)
            .ok_or_else(|| Error::Unregistered { machine: name.into(), version })?;
        let state = encode(&self.state, core.options.payload_limit)?;
        let instance = new_instance::<S>(machine, state, &self.options)?;
        let id = instance.id;
        if !core.inserter.insert_detached(instance) {
            return Err(Error::TooManyDetached { limit: MAX_DETACHED });
        }
        Ok(id)
    }
}

/// # Errors
///
/// [`Error::Unstorable`] when the state cannot be stored, [`Error::Option`] for a queue that is no name,
/// [`Error::Store`] when the database cannot be reached; then the instance may or may not be inserted;
/// [`Error::Stopped`] after a shutdown.
///
/// # Cancel safety
///
/// Dropped before it is ready, the insert may or may not have happened.
impl<S: Initial> IntoFuture for Insert<S> {
    type Output = Result<Handle<S::Machine>, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        // Encoded here, so that the future does not need the state to cross threads by reference.
        let encoded = encode(&self.state, self.core.options.payload_limit);
        let Self { core, options, .. } = self;
        Box::pin(async move {
            let machine = machine_of::<S>(&core).await?;
            let instance = new_instance::<S>(machine, encoded?, &options)?;
            let id = instance.id;
            let inserted = core.inserter.insert(instance).await.ok_or(Error::Stopped)?;
            inserted.map_err(|source| Error::Insert { source })?;
            Ok(Handle { core, id, machine: PhantomData })
        })
    }
}

/// Many instances to be inserted; `.await` it. Made by [`Engine::insert_all`](crate::Engine::insert_all).
#[must_use = "nothing is inserted until this is awaited"]
pub struct InsertAll<S: Initial, I> {
    core: Arc<Core>,
    states: I,
    options: InsertOptions,
    state: PhantomData<fn() -> S>,
}

impl<S: Initial, I> std::fmt::Debug for InsertAll<S, I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InsertAll").field("options", &self.options).finish_non_exhaustive()
    }
}

impl<S: Initial, I> InsertAll<S, I> {
    pub(super) fn new(core: Arc<Core>, states: I) -> Self {
        Self { core, states, options: InsertOptions::default(), state: PhantomData }
    }

    /// Runs the instances on this queue instead of their machine's.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.options.queue = Some(queue.into());
        self
    }

    /// Lower runs first, before any comparison of times; 0 by default.
    pub fn priority(mut self, priority: i16) -> Self {
        self.options.priority = priority;
        self
    }

    /// Starts no earlier than this long after the insert, by the database's clock; at most 100 years.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.options.start = Start::After(delay);
        self
    }

    /// Starts no earlier than at this instant, by the database's clock; an instant that has passed is now.
    pub fn run_at(mut self, at: DateTime<Utc>) -> Self {
        self.options.start = Start::At(at);
        self
    }
}

/// Inserts all or nothing, in one transaction, in statements by the megabyte.
///
/// # Errors
///
/// As for one insert; the first state that cannot be stored is the error, and nothing is inserted.
///
/// # Cancel safety
///
/// Dropped before it is ready, either all or nothing is inserted.
impl<S, I> IntoFuture for InsertAll<S, I>
where
    S: Initial,
    I: IntoIterator<Item = S> + Send + 'static,
    I::IntoIter: Send,
{
    type Output = Result<Vec<InstanceId>, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { core, states, options, .. } = self;
        Box::pin(async move {
            let machine = machine_of::<S>(&core).await?;
            let limit = core.options.payload_limit;
            let instances = states
                .into_iter()
                .map(|state| new_instance::<S>(machine, encode(&state, limit)?, &options))
                .collect::<Result<Vec<_>, Error>>()?;
            let Some(first) = instances.first() else { return Ok(Vec::new()) };
            let (queue, start) = (Arc::clone(&first.queue), first.start);
            core.store.insert(&instances).await.map_err(Error::store("inserting instances"))?;
            committed(&core, &queue, start, instances.len());
            Ok(instances.into_iter().map(|instance| instance.id).collect())
        })
    }
}

async fn machine_of<S: Initial>(core: &Core) -> Result<MachineId, Error> {
    if core.is_stopping() {
        return Err(Error::Stopped);
    }
    core.registry
        .id_of(&*core.store, <S::Machine as Machine>::NAME, <S::Machine as Machine>::VERSION)
        .await
        .map_err(Error::store("registering a machine"))
}

fn new_instance<S: Initial>(
    machine: MachineId,
    state: String,
    options: &InsertOptions,
) -> Result<NewInstance, Error> {
    let queue = options.queue.as_deref().unwrap_or(<S::Machine as Machine>::QUEUE);
    options::name("queue", queue)?;
    if let Some(context) = &options.trace_context {
        options::name("trace_context", context)?;
    }
    Ok(NewInstance {
        id: InstanceId::generate(),
        machine,
        step: S::STEP,
        state,
        queue: queue.into(),
        priority: options.priority,
        start: options.start,
        trace_context: options.trace_context.clone(),
    })
}

/// Tells whoever may run the new rows.
pub(super) fn committed(core: &Core, queue: &str, start: Start, rows: usize) {
    match start {
        start if start.is_now() => core.rows_committed(queue, rows),
        Start::After(delay) => core.due_committed(delay),
        // Only the database knows how far away this is: the timer asks it.
        Start::At(_) => core.due_committed(Duration::ZERO),
    }
}
