//! Inserting, signalling and cancelling inside a transaction of the caller's.
//!
//! Other nodes, and this one, hear of it when the transaction is committed, through a notification that is part of it.

use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::control::{Cancel, Cancelled};
use super::core::Core;
use super::handle::Handle;
use super::insert::{Insert, InsertOrExisting, Inserted};
use super::insert_all::InsertAll;
use super::options::Poke as PokeBy;
use super::signal::{Delivery, SendSignal};
use crate::error::Error;
use crate::id::{InstanceId, MachineId};
use crate::machine::{Initial, Machine};
use crate::store::{
    self, Cancelling, Delivered, NewInstance, NewSignal, Poke, Start, StoreResult, UserTransaction,
};

/// What is done in a transaction of the caller's; `.await` it. Made by the `in_tx` of what it does.
///
/// Nothing has happened until the transaction is committed, and nothing happens if it is rolled back. Until then it holds
/// the rows that it touches: an instance that it sends a signal or cancels goes on when it ends, and only that one waits.
#[must_use = "nothing is done until this is awaited"]
pub struct InTransaction<'t, T> {
    transaction: UserTransaction<'t>,
    work: T,
    tells: bool,
}

impl<T: std::fmt::Debug> std::fmt::Debug for InTransaction<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InTransaction").field("work", &self.work).finish_non_exhaustive()
    }
}

impl<'t, T> InTransaction<'t, T> {
    pub(super) fn new(transaction: impl Into<UserTransaction<'t>>, work: T) -> Self {
        Self { transaction: transaction.into(), work, tells: true }
    }

    /// Tells no node of it when the transaction is committed: they find it by polling. Saves the commit from being
    /// serialized with others that notify.
    pub fn without_poke(mut self) -> Self {
        self.tells = false;
        self
    }
}

type Answer<'t, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 't>>;

/// # Errors
///
/// As for [`Insert`], except that it waits for a transaction that inserts the same correlation key.
impl<'t, S: Initial> IntoFuture for InTransaction<'t, Insert<S>> {
    type Output = Result<Handle<S::Machine>, Error>;
    type IntoFuture = Answer<'t, Handle<S::Machine>>;

    fn into_future(self) -> Self::IntoFuture {
        let inserting = InTransaction {
            transaction: self.transaction,
            work: InsertOrExisting(self.work),
            tells: self.tells,
        };
        let inserting = inserting.into_future();
        Box::pin(async move {
            let Inserted { handle, created, .. } = inserting.await?;
            if created { Ok(handle) } else { Err(Error::Duplicate { existing: handle.id() }) }
        })
    }
}

/// # Errors
///
/// As for [`InsertOrExisting`], except that it waits for a transaction that inserts the same correlation key.
impl<'t, S: Initial> IntoFuture for InTransaction<'t, InsertOrExisting<S>> {
    type Output = Result<Inserted<S::Machine>, Error>;
    type IntoFuture = Answer<'t, Inserted<S::Machine>>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { mut transaction, work: InsertOrExisting(insert), tells } = self;
        let (core, prepared) = insert.prepare();
        Box::pin(async move {
            let machine = machine_of::<S>(&core, &mut transaction).await?;
            let instance = NewInstance { machine, ..prepared? };
            let inserted = core.store.insert_in(&mut transaction, std::slice::from_ref(&instance)).await;
            let fate = inserted.map_err(Error::store("inserting an instance"))?.into_iter().next();
            let (id, created) = match fate {
                Some(store::Inserted::Exists(existing)) => (existing, false),
                Some(store::Inserted::Created) => (instance.id, true),
                Some(store::Inserted::Locked) | None => {
                    let key = instance.key.map_or_else(String::new, |key| key.key);
                    return Err(Error::KeyBusy { key });
                }
            };
            if created && tells {
                tell(&core, &mut transaction, &[poke(&instance)])
                    .await
                    .map_err(Error::store("notifying other nodes"))?;
            }
            Ok(Inserted { handle: Handle { core, id, machine: PhantomData }, created })
        })
    }
}

/// # Errors
///
/// As for [`InsertAll`].
impl<'t, S, I> IntoFuture for InTransaction<'t, InsertAll<S, I>>
where
    S: Initial,
    I: IntoIterator<Item = S> + Send + 't,
    I::IntoIter: Send,
{
    type Output = Result<Vec<InstanceId>, Error>;
    type IntoFuture = Answer<'t, Vec<InstanceId>>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { mut transaction, work, tells } = self;
        Box::pin(async move {
            let core = work.core();
            let machine = machine_of::<S>(&core, &mut transaction).await?;
            let instances = work.prepare(machine)?;
            let inserted = core.store.insert_in(&mut transaction, &instances).await;
            inserted.map_err(Error::store("inserting instances"))?;
            if let (Some(first), true) = (instances.first(), tells) {
                let told = tell(&core, &mut transaction, &[poke(first)]).await;
                told.map_err(Error::store("notifying other nodes"))?;
            }
            Ok(instances.into_iter().map(|instance| instance.id).collect())
        })
    }
}

/// The id of a machine that is inserted in a transaction. Where that is open already, a new machine is not remembered.
async fn machine_of<S: Initial>(
    core: &Core,
    transaction: &mut UserTransaction<'_>,
) -> Result<MachineId, Error> {
    let (name, version) = (<S::Machine as Machine>::NAME, <S::Machine as Machine>::VERSION);
    match core.registry.known_id(name, version) {
        Some(id) => Ok(id),
        None => {
            let registered = core.store.machine_in(transaction, name, version).await;
            registered.map_err(Error::store("registering a machine"))
        }
    }
}

/// What tells of a new instance.
fn poke(instance: &NewInstance) -> Poke {
    match instance.start {
        start if start.is_now() => Poke::Queue(instance.queue.to_string()),
        Start::After(delay) => Poke::due(delay),
        // Only the database knows how far away this is: the timer asks it.
        Start::At(_) => Poke::due(Duration::ZERO),
    }
}

/// # Errors
///
/// As for [`SendSignal`]. Waits for whoever holds the instance.
impl<'t> IntoFuture for InTransaction<'t, SendSignal> {
    type Output = Result<Delivery, Error>;
    type IntoFuture = Answer<'t, Delivery>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { mut transaction, work, tells } = self;
        Box::pin(async move {
            let (core, signal) = work.prepare()?;
            let sent = core.store.signal_in(&mut transaction, std::slice::from_ref(&signal)).await;
            let sent = sent.map_err(Error::store("sending a signal"))?.into_iter().next();
            let delivered = sent.unwrap_or(Delivered::NoTarget);
            if let (Delivered::Stored { woke: Some(queue) }, true) = (&delivered, tells) {
                let told = tell(&core, &mut transaction, &[Poke::Queue(queue.clone())]).await;
                told.map_err(Error::store("notifying other nodes"))?;
            }
            super::signal::answer(&signal, &delivered)
        })
    }
}

/// # Errors
///
/// As for [`Cancel`]. Waits for whoever holds the instance.
impl<'t> IntoFuture for InTransaction<'t, Cancel> {
    type Output = Result<Cancelled, Error>;
    type IntoFuture = Answer<'t, Cancelled>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { mut transaction, work, tells } = self;
        Box::pin(async move {
            let (core, id, cascade) = work.into_parts();
            let cancelled = core.store.cancel_in(&mut transaction, id, cascade).await;
            let (cancelling, joined) = cancelled.map_err(Error::store("cancelling an instance"))?;
            if tells {
                // Whoever runs the instance, or its parent or children, and whoever waits for its result.
                let mut pokes = vec![Poke::Cancel(id), Poke::Ended(id)];
                pokes.extend(joined.queues.into_iter().map(Poke::Queue));
                let told = tell(&core, &mut transaction, &pokes).await;
                told.map_err(Error::store("notifying other nodes"))?;
            }
            match cancelling {
                Cancelling::Cancelled { .. } => Ok(Cancelled::Now),
                Cancelling::Asked => Ok(Cancelled::Soon),
                Cancelling::Ended(status) => Ok(Cancelled::Ended(status)),
                Cancelling::NotFound | Cancelling::Locked => Err(Error::NotFound { id }),
            }
        })
    }
}

async fn tell(core: &Core, transaction: &mut UserTransaction<'_>, pokes: &[Poke]) -> StoreResult<()> {
    if core.options.poke == Some(PokeBy::Postgres) {
        core.store.notify_in(transaction, pokes).await?;
    }
    Ok(())
}

impl<S: Initial> Insert<S> {
    /// Inserts the instance in a transaction of the caller's: it is there when that is committed, and not if it is rolled
    /// back. `engine.insert(state).in_tx(&mut tx).await`.
    ///
    /// Waits for another open transaction that inserts the same correlation key, and has no patience of its own.
    pub fn in_tx<'t>(self, transaction: impl Into<UserTransaction<'t>>) -> InTransaction<'t, Self> {
        InTransaction::new(transaction, self)
    }
}

impl<S: Initial> InsertOrExisting<S> {
    /// As [`Insert::in_tx`].
    pub fn in_tx<'t>(self, transaction: impl Into<UserTransaction<'t>>) -> InTransaction<'t, Self> {
        InTransaction::new(transaction, self)
    }
}

impl<S: Initial, I> InsertAll<S, I> {
    /// As [`Insert::in_tx`].
    pub fn in_tx<'t>(self, transaction: impl Into<UserTransaction<'t>>) -> InTransaction<'t, Self> {
        InTransaction::new(transaction, self)
    }
}

impl SendSignal {
    fn prepare(self) -> Result<(Arc<Core>, NewSignal), Error> {
        let (core, signal) = self.into_parts();
        if core.is_stopping() {
            return Err(Error::Stopped);
        }
        Ok((core, signal?))
    }

    /// Sends the signal in a transaction of the caller's: it is there when that is committed, and not if it is rolled
    /// back. Until then the instance does not go on: write your own rows first, and send last. The other way round, the
    /// transaction and a step of the instance may wait for each other, and the database ends one of them.
    pub fn in_tx<'t>(self, transaction: impl Into<UserTransaction<'t>>) -> InTransaction<'t, Self> {
        InTransaction::new(transaction, self)
    }
}

impl Cancel {
    /// Cancels the instance in a transaction of the caller's. Until that ends the instance does not go on.
    pub fn in_tx<'t>(self, transaction: impl Into<UserTransaction<'t>>) -> InTransaction<'t, Self> {
        InTransaction::new(transaction, self)
    }
}
