//! Parents and children, and what acts on instances from outside.

use super::Status;
use crate::id::InstanceId;

/// A fan-out of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parent {
    /// The instance.
    pub id: InstanceId,
    /// Its fan-out: how many outcomes it had committed with this one.
    pub round: i64,
}

/// What telling parents of their children's ends did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Joined {
    /// Queues on which parents became ready.
    pub queues: Vec<String>,
    /// Whether some could not be told, as somebody holds their rows: [`Store::join`](super::Store::join) tells them.
    pub left: bool,
}

/// What became of a wish to cancel an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cancelling {
    /// It is cancelled.
    Cancelled {
        /// Whether another node waits for the result.
        watched: bool,
    },
    /// It executes: whoever runs it was asked to end it.
    Asked,
    /// It had ended before.
    Ended(Status),
    /// Somebody's transaction holds it; try again.
    Locked,
    /// There is no such instance.
    NotFound,
}

/// What became of a wish to run a failed instance again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Retrying {
    /// It is ready, on this queue.
    Ready(String),
    /// It has not failed.
    NotFailed(Status),
    /// Its key was taken meanwhile, by this instance.
    KeyTaken(InstanceId),
    /// Somebody's transaction holds it or its parent; try again.
    Locked,
    /// There is no such instance.
    NotFound,
}

/// What cancelling children did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cascaded {
    /// Children that were cancelled.
    pub cancelled: Vec<InstanceId>,
    /// Children that execute: whoever runs them was asked to end them.
    pub asked: Vec<InstanceId>,
    /// Whether there may be more to cancel: the limit cut this short, or somebody holds rows.
    pub left: bool,
}

/// How a child stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildRecord {
    /// The child.
    pub id: InstanceId,
    /// Version of its machine.
    pub version: u32,
    /// Where it stands.
    pub status: Status,
    /// Its output as JSON text.
    pub output: Option<String>,
    /// Why it failed.
    pub error: Option<String>,
}
