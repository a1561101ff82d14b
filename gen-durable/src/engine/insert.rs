//! Inserting an instance.

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
use crate::store::{self, KeyScope, NewInstance, NewKey, Start};

/// An instance to be inserted; `.await` it. Made by [`Engine::insert`](crate::Engine::insert).
#[must_use = "nothing is inserted until this is awaited"]
pub struct Insert<S: Initial> {
    core: Arc<Core>,
    state: S,
    options: InsertOptions,
}

#[derive(Debug, Clone)]
pub(super) struct InsertOptions {
    pub(super) queue: Option<String>,
    pub(super) priority: i16,
    pub(super) start: Start,
    pub(super) trace_context: Option<String>,
    pub(super) key: Option<String>,
    pub(super) scope: KeyScope,
}

impl Default for InsertOptions {
    fn default() -> Self {
        Self {
            queue: None,
            priority: 0,
            start: Start::After(Duration::ZERO),
            trace_context: None,
            key: None,
            scope: KeyScope::default(),
        }
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

    /// The instance, but for the id of its machine.
    pub(super) fn prepare(self) -> (Arc<Core>, Result<NewInstance, Error>) {
        let Self { core, state, options } = self;
        let stopped = core.is_stopping().then_some(Error::Stopped).map_or(Ok(()), Err);
        let instance = stopped
            .and_then(|()| encode(&state, core.options.payload_limit))
            .and_then(|state| new_instance::<S>(MachineId(0), state, &options));
        (core, instance)
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

    /// Gives the instance an address, under which it takes signals and is found, and which no other instance of the
    /// machine, in any version, has at the same time: inserting it again is [`Error::Duplicate`], or yields the one that
    /// is there with [`or_existing`](Self::or_existing).
    pub fn correlation_key(mut self, key: impl Into<String>) -> Self {
        self.options.key = Some(key.into());
        self
    }

    /// For how long the correlation key is taken; until the instance ends by default.
    pub fn correlation_scope(mut self, scope: KeyScope) -> Self {
        self.options.scope = scope;
        self
    }

    /// Yields the instance that has the correlation key if there is one, and says which it was.
    pub fn or_existing(self) -> InsertOrExisting<S> {
        InsertOrExisting(self)
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
        if self.options.key.is_some() {
            let problem = "a detached insert cannot tell whether its key is taken; insert with `.await`";
            return Err(Error::option("correlation_key", problem));
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
/// [`Error::Unstorable`] when the state cannot be stored, [`Error::Option`] for a queue or a key that is no name,
/// [`Error::Duplicate`] when its correlation key is taken, [`Error::KeyBusy`] when a transaction that inserts the key
/// stays open for two minutes, [`Error::Insert`] when the database cannot be reached; then the instance may or may not be inserted;
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
            if instance.key.is_some() {
                if let Some(existing) = insert_keyed(&core, instance).await? {
                    return Err(Error::Duplicate { existing });
                }
            } else {
                let inserted = core.inserter.insert(instance).await.ok_or(Error::Stopped)?;
                inserted.map_err(|source| Error::Insert { source })?;
            }
            Ok(Handle { core, id, machine: PhantomData })
        })
    }
}

/// Inserts an instance unless its key is taken; then returns the one that has it.
async fn insert_keyed(core: &Core, instance: NewInstance) -> Result<Option<InstanceId>, Error> {
    let key = instance.key.as_ref().map(|key| key.key.clone()).unwrap_or_default();
    let inserted = core.keyed.insert(instance).await.ok_or(Error::Stopped)?;
    match inserted.map_err(|source| Error::Insert { source })? {
        store::Inserted::Created => Ok(None),
        store::Inserted::Exists(existing) => Ok(Some(existing)),
        store::Inserted::Locked => Err(Error::KeyBusy { key }),
    }
}

/// An instance to be inserted unless its correlation key is taken; `.await` it. Made by [`Insert::or_existing`].
#[derive(Debug)]
#[must_use = "nothing is inserted until this is awaited"]
pub struct InsertOrExisting<S: Initial>(pub(super) Insert<S>);

/// An instance that was inserted, or was there before under the same correlation key.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Inserted<M> {
    /// The instance.
    pub handle: Handle<M>,
    /// Whether it was inserted just now.
    pub created: bool,
}

/// # Errors
///
/// As for [`Insert`], without [`Error::Duplicate`].
///
/// # Cancel safety
///
/// Dropped before it is ready, the insert may or may not have happened.
impl<S: Initial> IntoFuture for InsertOrExisting<S> {
    type Output = Result<Inserted<S::Machine>, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        let core = Arc::clone(&self.0.core);
        let insert = self.0.into_future();
        Box::pin(async move {
            match insert.await {
                Ok(handle) => Ok(Inserted { handle, created: true }),
                Err(Error::Duplicate { existing }) => {
                    let handle = Handle { core, id: existing, machine: PhantomData };
                    Ok(Inserted { handle, created: false })
                }
                Err(error) => Err(error),
            }
        })
    }
}

pub(super) async fn machine_of<S: Initial>(core: &Core) -> Result<MachineId, Error> {
    if core.is_stopping() {
        return Err(Error::Stopped);
    }
    core.registry
        .id_of(&*core.store, <S::Machine as Machine>::NAME, <S::Machine as Machine>::VERSION)
        .await
        .map_err(Error::store("registering a machine"))
}

pub(super) fn new_instance<S: Initial>(
    machine: MachineId,
    state: String,
    options: &InsertOptions,
) -> Result<NewInstance, Error> {
    let queue = options.queue.as_deref().unwrap_or(<S::Machine as Machine>::QUEUE);
    options::name("queue", queue)?;
    if let Some(context) = &options.trace_context {
        options::name("trace_context", context)?;
    }
    let key = options.key.as_ref().map(|key| {
        options::name("correlation_key", key)?;
        Ok(NewKey { family: <S::Machine as Machine>::NAME, key: key.clone(), scope: options.scope })
    });
    Ok(NewInstance {
        id: InstanceId::generate(),
        machine,
        step: S::STEP,
        state,
        queue: queue.into(),
        priority: options.priority,
        start: options.start,
        trace_context: options.trace_context.clone(),
        key: key.transpose()?,
        parent: None,
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
