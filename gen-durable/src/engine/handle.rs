//! An inserted instance: where it stands, and its result.

use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::core::Core;
use super::results::{End, News, Question};
use crate::error::Error;
use crate::id::InstanceId;
use crate::machine::Machine;
use crate::store::{Snapshot, Status};

/// An instance of machine `M`. Cheap to clone; holds nothing but its id and the engine.
pub struct Handle<M> {
    pub(super) core: Arc<Core>,
    pub(super) id: InstanceId,
    pub(super) machine: PhantomData<fn() -> M>,
}

impl<M> Clone for Handle<M> {
    fn clone(&self) -> Self {
        Self { core: Arc::clone(&self.core), id: self.id, machine: PhantomData }
    }
}

impl<M> std::fmt::Debug for Handle<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle").field("id", &self.id).finish_non_exhaustive()
    }
}

impl<M: Machine> Handle<M> {
    /// Identifies the instance.
    #[must_use]
    pub fn id(&self) -> InstanceId {
        self.id
    }

    /// Waits for the result: `handle.result().within(duration).await`. Asking again is how to retry.
    pub fn result(&self) -> AwaitResult<M> {
        AwaitResult { handle: self.clone(), within: None }
    }
}

/// A wait for a result; `.await` it. Made by [`Handle::result`] and [`Engine::result`](crate::Engine::result).
#[derive(Debug)]
#[must_use = "nothing is waited for until this is awaited"]
pub struct AwaitResult<M> {
    pub(super) handle: Handle<M>,
    pub(super) within: Option<Duration>,
}

impl<M> AwaitResult<M> {
    /// Waits at most this long, then answers [`InstanceResult::Busy`]. Without it, waits until the end.
    pub fn within(mut self, limit: Duration) -> Self {
        self.within = Some(limit);
        self
    }
}

/// The answer to a wait for a result.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum InstanceResult<T> {
    /// The instance is done.
    Done(T),
    /// The instance failed.
    Failed {
        /// The instance.
        id: InstanceId,
        /// Why.
        reason: String,
    },
    /// The instance was cancelled.
    Cancelled {
        /// The instance.
        id: InstanceId,
    },
    /// The instance waited for a signal or for its children when the time was up.
    Waiting(Box<Snapshot>),
    /// The instance had not ended when the time was up, and waited for nobody but the engine.
    Busy(Box<Snapshot>),
    /// There is no such instance, or not any longer.
    NotFound {
        /// The instance.
        id: InstanceId,
    },
}

impl<T> InstanceResult<T> {
    /// The output.
    ///
    /// # Errors
    ///
    /// [`Error::NotDone`] for every other answer, saying which.
    pub fn done(self) -> Result<T, Error> {
        let (id, status) = match self {
            Self::Done(output) => return Ok(output),
            Self::Failed { id, reason } => (id, format!("it failed: {reason}")),
            Self::Cancelled { id } => (id, "it was cancelled".to_owned()),
            Self::Busy(snapshot) | Self::Waiting(snapshot) => {
                let error = snapshot.error.as_deref().map(|error| format!(", last error: {error}"));
                let error = error.unwrap_or_default();
                (
                    snapshot.id,
                    format!(
                        "it is {} in step `{}`, attempt {}{error}",
                        snapshot.status, snapshot.step, snapshot.attempt
                    ),
                )
            }
            Self::NotFound { id } => (id, "it is not there, or not any longer".to_owned()),
        };
        Err(Error::NotDone { id, status })
    }
}

/// # Errors
///
/// [`Error::Read`] when the database cannot be read, and could not until the deadline, if there is one;
/// [`Error::Undecodable`] when the output is not an `M::Output`; [`Error::Stopped`] after a shutdown.
///
/// # Cancel safety
///
/// Dropping it stops waiting and changes nothing.
impl<M: Machine> IntoFuture for AwaitResult<M> {
    type Output = Result<InstanceResult<M::Output>, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let Self { handle: Handle { core, id, .. }, within } = self;
            let deadline = within.and_then(|limit| Instant::now().checked_add(limit));
            wait::<M>(&core, id, deadline).await
        })
    }
}

/// How often to look when no other node would tell.
const UNTOLD_POLL: Duration = Duration::from_millis(50);
/// How long to wait for an end on this node, which is pushed, before asking the other nodes to tell.
const PATIENCE: Duration = Duration::from_millis(25);

async fn wait<M: Machine>(
    core: &Core,
    id: InstanceId,
    deadline: Option<Instant>,
) -> Result<InstanceResult<M::Output>, Error> {
    // Registered before the first look: an end between the two is not missed.
    let mut waiter = core.results.wait_for(id);
    let told = core.pokes.are_enabled();
    let mut poll = PATIENCE;
    let mut watch = false;
    loop {
        let snapshot = match look(core, id, watch).await {
            Ok(Some(snapshot)) => snapshot,
            Ok(None) => return Ok(InstanceResult::NotFound { id }),
            Err(Error::Stopped) => return Err(Error::Stopped),
            Err(error) if deadline.is_none_or(|deadline| deadline <= Instant::now()) => return Err(error),
            Err(_) => {
                // The database is away: ask again until the deadline.
                tokio::time::sleep(UNTOLD_POLL).await;
                continue;
            }
        };
        if let Some(result) = ended::<M>(&snapshot)? {
            return Ok(result);
        }
        tokio::select! {
            news = waiter.news() => {
                if let News::Ended(end) = news {
                    return match end {
                        End::Done(output) => Ok(InstanceResult::Done(output_of::<M>(id, &output)?)),
                        End::Failed(reason) => Ok(InstanceResult::Failed { id, reason }),
                        End::Cancelled => Ok(InstanceResult::Cancelled { id }),
                    };
                }
            }
            () = tokio::time::sleep(poll) => {
                poll = match (told, watch) {
                    (false, _) => UNTOLD_POLL,
                    (true, false) => core.options.poll_interval,
                    (true, true) => (poll * 2).min(core.options.max_poll_interval),
                };
                watch = told;
            }
            () = until(deadline) => return Ok(unended(snapshot)),
        }
    }
}

/// The answer when the time is up.
fn unended<T>(snapshot: Snapshot) -> InstanceResult<T> {
    match snapshot.status {
        Status::Waiting | Status::Joining => InstanceResult::Waiting(Box::new(snapshot)),
        _ => InstanceResult::Busy(Box::new(snapshot)),
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Reads one instance, together with whoever else reads now.
async fn look(core: &Core, id: InstanceId, watch: bool) -> Result<Option<Snapshot>, Error> {
    let (answer, asked) = oneshot::channel();
    core.questions.send(Question { id, watch, answer }).map_err(|_| Error::Stopped)?;
    asked.await.map_err(|_| Error::Stopped)?.map_err(|error| Error::Read { source: error })
}

fn ended<M: Machine>(snapshot: &Snapshot) -> Result<Option<InstanceResult<M::Output>>, Error> {
    let id = snapshot.id;
    Ok(match snapshot.status {
        Status::Done => {
            let output = output_of::<M>(id, snapshot.output.as_deref().unwrap_or("null"))?;
            Some(InstanceResult::Done(output))
        }
        Status::Failed => {
            Some(InstanceResult::Failed { id, reason: snapshot.error.clone().unwrap_or_default() })
        }
        Status::Cancelled => Some(InstanceResult::Cancelled { id }),
        _ => None,
    })
}

fn output_of<M: Machine>(id: InstanceId, output: &str) -> Result<M::Output, Error> {
    serde_json::from_str(output).map_err(|error| Error::Undecodable {
        id,
        problem: format!("its output is not a `{}`: {error}", std::any::type_name::<M::Output>()),
    })
}
