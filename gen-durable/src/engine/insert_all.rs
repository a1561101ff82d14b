//! Inserting many instances.

use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};

use super::core::Core;
use super::handle::Handle;
use super::insert::{InsertOptions, Inserted, committed, machine_of, new_instance};
use super::keyed;
use crate::error::Error;
use crate::id::{InstanceId, MachineId};
use crate::machine::Initial;
use crate::outcome::encode;
use crate::store::{self, KeyScope, NewInstance, Start};

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

impl<S: Initial, I: IntoIterator<Item = S>> InsertAll<S, I> {
    pub(super) fn core(&self) -> Arc<Core> {
        Arc::clone(&self.core)
    }

    /// The instances.
    pub(super) fn prepare(self, machine: MachineId) -> Result<Vec<NewInstance>, Error> {
        let limit = self.core.options.payload_limit;
        let instance = |state| new_instance::<S>(machine, encode(&state, limit)?, &self.options);
        self.states.into_iter().map(instance).collect()
    }
}

impl<S: Initial, I> InsertAll<S, I> {
    /// Gives each instance a correlation key: those whose key is taken, also by one before in the same batch, are not
    /// inserted, and the answer says so of each.
    pub fn correlation_keys<F: FnMut(&S) -> String>(self, key: F) -> InsertAllKeyed<S, I, F> {
        InsertAllKeyed { all: self, key }
    }

    /// For how long the correlation keys are taken; until the instances end by default.
    pub fn correlation_scope(mut self, scope: KeyScope) -> Self {
        self.options.scope = scope;
        self
    }
}

/// Many instances with correlation keys to be inserted; `.await` it. Made by [`InsertAll::correlation_keys`].
#[must_use = "nothing is inserted until this is awaited"]
pub struct InsertAllKeyed<S: Initial, I, F> {
    all: InsertAll<S, I>,
    key: F,
}

impl<S: Initial, I, F> std::fmt::Debug for InsertAllKeyed<S, I, F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InsertAllKeyed").field("all", &self.all).finish_non_exhaustive()
    }
}

/// Inserts in one transaction, in statements by the megabyte; says of each state, in order, whether an instance was
/// inserted or which one has its key.
///
/// # Errors
///
/// As for one insert, without [`Error::Duplicate`]; then nothing is inserted.
///
/// # Cancel safety
///
/// Dropped before it is ready, either all or nothing is inserted.
impl<S, I, F> IntoFuture for InsertAllKeyed<S, I, F>
where
    S: Initial,
    I: IntoIterator<Item = S> + Send + 'static,
    I::IntoIter: Send,
    F: FnMut(&S) -> String + Send + 'static,
{
    type Output = Result<Vec<Inserted<S::Machine>>, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { all: InsertAll { core, states, options, .. }, mut key } = self;
        Box::pin(async move {
            let machine = machine_of::<S>(&core).await?;
            let limit = core.options.payload_limit;
            let instances = states
                .into_iter()
                .map(|state| {
                    let options = InsertOptions { key: Some(key(&state)), ..options.clone() };
                    new_instance::<S>(machine, encode(&state, limit)?, &options)
                })
                .collect::<Result<Vec<_>, Error>>()?;
            let fates = keyed::insert_all(&core, &instances).await?;
            let created = fates.iter().filter(|fate| **fate == store::Inserted::Created).count();
            if let (Some(first), 1..) = (instances.first(), created) {
                committed(&core, &first.queue, first.start, created);
            }
            let inserted = instances.into_iter().zip(fates).map(|(instance, fate)| {
                let (id, created) = match fate {
                    store::Inserted::Exists(existing) => (existing, false),
                    _ => (instance.id, true),
                };
                Inserted { handle: Handle { core: Arc::clone(&core), id, machine: PhantomData }, created }
            });
            Ok(inserted.collect())
        })
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
        Box::pin(async move {
            let core = self.core();
            let machine = machine_of::<S>(&core).await?;
            let instances = self.prepare(machine)?;
            let Some(first) = instances.first() else { return Ok(Vec::new()) };
            let (queue, start) = (Arc::clone(&first.queue), first.start);
            core.store.insert(&instances).await.map_err(Error::store("inserting instances"))?;
            committed(&core, &queue, start, instances.len());
            Ok(instances.into_iter().map(|instance| instance.id).collect())
        })
    }
}
