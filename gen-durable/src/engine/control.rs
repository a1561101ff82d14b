//! Acting on instances from outside: cancelling them, running failed ones again, finding them by their key.

use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::core::Core;
use super::handle::Handle;
use super::kin;
use crate::error::Error;
use crate::id::InstanceId;
use crate::machine::Machine;
use crate::store::{Cancelling, Poke, Retrying, Status};

/// Shortest and longest rest before a row that somebody's transaction holds is tried again.
const FIRST_REST: Duration = Duration::from_millis(1);
const LONGEST_REST: Duration = Duration::from_millis(50);

/// What became of a wish to cancel an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cancelled {
    /// It is cancelled.
    Now,
    /// Its step runs. The step is told to stop, and the instance is cancelled when it has, unless its outcome ends the
    /// instance before: then that counts.
    Soon,
    /// It had ended before, and stays as it is.
    Ended(Status),
}

/// An instance to be cancelled; `.await` it. Made by [`Engine::cancel`](crate::Engine::cancel).
#[must_use = "nothing is cancelled until this is awaited"]
pub struct Cancel {
    core: Arc<Core>,
    id: InstanceId,
    with_children: bool,
}

impl std::fmt::Debug for Cancel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cancel").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Cancel {
    pub(super) fn new(core: Arc<Core>, id: InstanceId) -> Self {
        Self { core, id, with_children: false }
    }

    pub(super) fn into_parts(self) -> (Arc<Core>, InstanceId, bool) {
        (self.core, self.id, self.with_children)
    }

    /// Cancels its children that have not ended, too, and theirs. Without this they go on.
    ///
    /// The wish is stored with the instance: should this node end amid thousands of children, another goes on.
    pub fn with_children(mut self) -> Self {
        self.with_children = true;
        self
    }
}

/// # Errors
///
/// [`Error::NotFound`] when there is no such instance, [`Error::Store`] when the database cannot be reached; then it may
/// or may not be cancelled; [`Error::Stopped`] after a shutdown. Waits while somebody's transaction holds the instance.
///
/// # Cancel safety
///
/// Dropped before it is ready, it may or may not be cancelled.
impl IntoFuture for Cancel {
    type Output = Result<Cancelled, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let (core, id, with_children) = self.into_parts();
            let mut rest = FIRST_REST;
            loop {
                if core.is_stopping() {
                    return Err(Error::Stopped);
                }
                let cancelled = core.store.cancel(id, with_children).await;
                let (cancelling, joined) = cancelled.map_err(Error::store("cancelling an instance"))?;
                core.parents_told(&joined);
                let cancelled = match cancelling {
                    Cancelling::Locked => {
                        tokio::time::sleep(rest).await;
                        rest = (rest * 2).min(LONGEST_REST);
                        continue;
                    }
                    Cancelling::NotFound => return Err(Error::NotFound { id }),
                    Cancelling::Cancelled { watched } => {
                        core.told_cancelled(id);
                        if watched {
                            core.pokes.tell(Poke::Ended(id));
                        }
                        Cancelled::Now
                    }
                    Cancelling::Asked => {
                        core.ask_to_end(id);
                        Cancelled::Soon
                    }
                    Cancelling::Ended(status) => Cancelled::Ended(status),
                };
                if with_children {
                    // What is left when somebody holds rows is done in the background.
                    if kin::catch_up(&core).await.map_err(Error::store("cancelling children"))? {
                        core.kin.wake();
                    }
                }
                return Ok(cancelled);
            }
        })
    }
}

/// Runs a failed instance again, from the step that failed.
pub(super) async fn retry(core: &Core, id: InstanceId) -> Result<(), Error> {
    let mut rest = FIRST_REST;
    loop {
        if core.is_stopping() {
            return Err(Error::Stopped);
        }
        let retrying = core.store.retry(id).await;
        match retrying.map_err(Error::store("running an instance again"))? {
            Retrying::Ready(queue) => {
                core.work_committed(&queue);
                return Ok(());
            }
            Retrying::NotFailed(status) => return Err(Error::NotFailed { id, status }),
            Retrying::KeyTaken(existing) => return Err(Error::Duplicate { existing }),
            Retrying::NotFound => return Err(Error::NotFound { id }),
            Retrying::Locked => {
                tokio::time::sleep(rest).await;
                rest = (rest * 2).min(LONGEST_REST);
            }
        }
    }
}

/// The instance with a correlation key: the live one, or the latest of those that have ended.
pub(super) async fn find<M: Machine>(core: &Arc<Core>, key: &str) -> Result<Option<Handle<M>>, Error> {
    let found = core.store.find(M::NAME, key).await.map_err(Error::store("finding an instance"))?;
    let handle = |id: &InstanceId| Handle { core: Arc::clone(core), id: *id, machine: PhantomData };
    Ok(found.first().map(handle))
}
